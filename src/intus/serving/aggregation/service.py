"""The aggregator with a lock, a journal and a link to the evaluator, as a server runs it."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ...core.errors import CodecError, InputError, ServeError
from ...core.record import Record
from ...scores.statistics.summed import arrays_in
from ...storage.codec import decode_graph, decode_records, encode_records
from ...storage.same_file import ReplacedError
from ..data_point import DataPoint
from ..decoding import read
from ..errors import AwayError, BusyError, FullError, ReadingError
from ..evaluation.targets import Target
from ..interfaces import EvaluatorLink
from ..last_minute import LastMinute
from ..messages import DoubtRequest, IngestReply, Notice, RunRequest, StatusReport
from .aggregator import Aggregator, IngestResult
from .ingest import IngestRequest
from .journal import Journal, JournalFrame, unusable
from .ledger import ScoringRate, seconds_left
from .notices import (
    behind,
    broken_journal,
    continued,
    damaged_journal,
    in_memory,
    renewed_journal,
    unread_journal,
)
from .window import RunKey

_log = logging.getLogger("intus.serving")
TICK_S = 1.0
#: Seconds between two reports of the counts to the frontend while requests come.
REPORT_S = 0.25
#: Seconds after which the counts are reported though they are the same: by that the frontend knows that they
#: are the present ones.
BEAT_S = 5.0
#: Seconds that older epochs must wait until a notice says so.
BEHIND_S = 60.0
#: Seconds that a rare request waits while the journal is read after a start.
PATIENCE_S = 10.0
#: The most moments that are passed on with a target, so that not all labels since the first of them are kept.
MOMENTS = 1000
_BEGAN = time.time() - time.monotonic()


def steady() -> float:
    """Return seconds since 1970 from a clock that never jumps during this process.

    Setting the system clock must not end a wait for an epoch.
    """
    return _BEGAN + time.monotonic()


class AggregatorService:
    """Processes requests one at a time. With a journal, a killed process loses no acknowledged request.

    While the evaluator's queue exceeds the aggregator's memory limit, requests are refused with BusyError.

    Args:
        evaluator: The evaluator, which gets the complete data points.
        aggregator: The state machine.
        journal: The journal; unscored records in it are restored.
        clock: Returns the time in seconds.
        read_later: Whether ``start`` reads the journal, in its thread, and requests are refused until then.
    """

    def __init__(
        self,
        evaluator: EvaluatorLink,
        aggregator: Aggregator | None = None,
        journal: Journal | None = None,
        clock: Callable[[], float] = steady,
        *,
        read_later: bool = False,
    ) -> None:
        self.evaluator = evaluator
        self.aggregator = aggregator or Aggregator()
        self.journal, self._clock = journal, clock
        self.malformed = 0
        self._lock = threading.Lock()
        self._latest = 0.0  # when the last arrays or labels came
        self._frozen: list[tuple[str, str | None]] = []  # runs, or a model of each, that are being changed
        self._held_back: list[DataPoint] = []  # data points of them, to be passed on if they stay
        self._said = LastMinute()
        self._unreleased: dict[RunKey, set[int]] = {}  # windows that the journal could not delete yet
        self._settled: deque[tuple[DataPoint, bool]] = deque()  # done, and not yet noted in the aggregator
        self._rate = ScoringRate()
        self._behind: set[RunKey] = set()  # runs of which it was told that older epochs wait
        self._reported: tuple[Any, ...] = ()
        self._reported_at = self._beat_at = -math.inf  # when it was looked at, and when it was sent
        self._closed, self._is_read = threading.Event(), threading.Event()
        self._news: list[Notice] = []  # of the journal
        self._gone = ""  # why nothing can be stored
        self._broken = ""  # why the journal cannot be written anew
        self._failure: Exception | None = None  # why the journal could not be read
        self._thread = threading.Thread(target=self._run, name="intus-clock", daemon=True)
        if journal is None:
            self._is_read.set()
        elif not read_later:
            self._read(journal)

    def start(self, patience: float = 1.0) -> None:
        """Start a thread that reads the journal and then calls ``tick`` once a second.

        Args:
            patience: Seconds to wait at most for the journal to be read.

        Raises:
            ServeError: If the journal cannot be read, as far as that is known in that time.
        """
        if self.journal is None:
            self._notify([in_memory()])
        self._thread.start()
        self._is_read.wait(patience)
        if self._failure is not None:
            raise self._failure

    # -- requests ------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Raise BusyError, ReadingError or ReplacedError if no records can be taken now."""
        with self._noting_refusals():
            self._admit()

    @contextlib.contextmanager
    def _noting_refusals(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            self.aggregator.refused(self._clock())
            raise

    def _admit(self) -> None:
        self._require_journal()
        self.evaluator.check()
        if self.evaluator.backlog() > self.aggregator.max_bytes:
            raise BusyError("Too many data points wait to be scored. Send this again in a second.")

    def records(
        self, records: Sequence[Record], envelope: Mapping[str, Any], body: bytes = b""
    ) -> IngestReply:
        """Process the records of a request. Invalid ones are refused with a notice.

        After an error no record of the request is accepted.

        Args:
            records: The records.
            envelope: The fields of ``messages.RecordsEnvelope``.
            body: The body of the request, which the journal stores; empty if it had another format.

        Raises:
            InputError: If the envelope or every record is invalid.
            BusyError: If too many bytes wait to be scored.
            FullError: If the disk or the journal is full.
            ReadingError: If the journal is still read after a start.
            ReplacedError: If the database's file was deleted or replaced.
        """
        self.admit()
        request = IngestRequest.read(records, envelope, body)
        with self._noting_refusals(), self._lock:
            self._take_settled()
            now = self._now()
            for run_key in request.run_keys:
                if self._is_frozen(run_key):
                    raise BusyError(f"The run {run_key[0]!r} is being changed. Send this again in a second.")
                self.aggregator.check_run(run_key, request.envelope.client)
            if self.journal is not None:
                self._mend(self.journal, request.run_keys)
                self._append_to_journal(self.journal, request, now)
            result = self._accept(request, now)
            if self.journal is not None:
                for run_key, numbers in result.placed.items():
                    self.journal.log(run_key).hold(numbers)
            self._hand_on(result.ready)  # within the lock, so that batches keep their order
            refused = {(record.run, record.model) for record in request.records} - set(result.placed)
            self._release(request.run_keys, set() if result.duplicate else refused)
        self._notify([*request.unread, *result.notices])
        return IngestReply(result.accepted, result.duplicate)

    def _now(self) -> float:
        """Return the time, later than any before, also than those in the journal.

        So it is known which came first, arrays or labels.
        """
        self._latest = max(self._clock(), self._latest + 1e-6)
        return self._latest

    def _accept(self, request: IngestRequest, now: float) -> IngestResult:
        envelope = request.envelope
        return self.aggregator.accept(
            request.records,
            envelope.client,
            envelope.seq,
            envelope.dropped or 0,
            request.unusable,
            envelope.epochs,
            request.discarded,
            now,
        )

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        """Pass a graph on; raises CodecError if the bytes are not a graph."""
        decode_graph(blob)
        self.evaluator.put_graph(run, model, blob)

    def put_run(self, request: RunRequest) -> None:
        """Pass on what the user says of a run."""
        self.evaluator.put_run(request)

    def put_doubt(self, request: DoubtRequest) -> None:
        """Pass a doubt of rows on, with the training that they are of, which this role alone knows.

        Rows of an earlier training have been replaced, or their scores say so.
        """
        self._require_journal(PATIENCE_S)
        with self._lock:
            known, began = self.aggregator.began(request)
        if known:
            self.evaluator.put_doubt(msgspec.structs.replace(request, began=began))

    def put_target(self, target: Target) -> None:
        """Pass a target on, with its place among the arrays: those that came before are not scored on it."""
        self._require_journal(PATIENCE_S)
        with self._lock:
            self._take_settled()
            now, moments = self._now(), self.aggregator.moments()
        since, few = min([now, *moments]), tuple(moments) if len(moments) <= MOMENTS else None
        self.evaluator.put_target(replace(target, registered=now, waiting=since, moments=few))

    def flush(
        self,
        run: str | None = None,
        model: str | None = None,
        timeout: float | None = None,
        client_id: str | None = None,
    ) -> None:
        """Pass all data points on, or those of one run, model or client, and wait until they are scored.

        Raises:
            ServeError: If that takes longer than ``timeout`` seconds, or if a server does not answer. The
                message names the server.
            ReadingError: If the journal is still read after these seconds.
        """
        self._require_journal(timeout)
        ends = math.inf if timeout is None else time.monotonic() + timeout
        while self._frozen and time.monotonic() < ends:  # what is held back must be scored too
            time.sleep(0.05)
        timeout = None if timeout is None else max(ends - time.monotonic(), 0.1)
        with self._lock:
            self._hand_on(self.aggregator.flush(run, model, client_id=client_id))
            self._release(self.aggregator.run_keys())
            news = self.aggregator.take_notices()
        self._notify(news)
        self.evaluator.flush(run, model, timeout)
        with self._lock:
            self._take_settled()

    def set_trigger(self, trigger: Sequence[str]) -> None:
        """Set the fields whose change ends a window, for runs that begin from now on; raises InputError."""
        self._require_journal(PATIENCE_S)
        with self._lock:
            self.aggregator.set_trigger(trigger)

    def clear(self, client_id: str | None = None, run: str | None = None) -> list[RunKey]:
        """Delete the runs of a client with its targets, or the run that is named; return the runs."""
        removed = self.remove(None, client_id, run)
        if run is None:
            self.evaluator.clear(client_id or "")
        return removed

    def remove(
        self, model: str | None = None, client_id: str | None = None, run: str | None = None
    ) -> list[RunKey]:
        """Delete runs of a model, here and in the next roles, and return them.

        Args:
            model: The model; None for every model.
            client_id: The client whose runs they are; None for runs that no client with an id sends to.
            run: The run, whoever sends to it; None for every run of the client.
        """
        self._require_journal(PATIENCE_S)
        if run is not None:
            return self._remove(run, model)
        with self._lock:
            own = self.aggregator.runs_of(client_id, model)
        for run_key in own:
            self._remove(*run_key)
        return own

    def _remove(self, run: str, model: str | None) -> list[RunKey]:
        """Delete a run or one model of it, first in the next roles: if these cannot, what waits is kept."""
        with self.frozen(run, model):
            try:
                stored = self.evaluator.remove(run, model)  # also of what an earlier server has stored
            except AwayError as error:
                what = f"The run {run!r}" if model is None else f"The model {model!r} of run {run!r}"
                raise type(error)(
                    f"{what} is not removed, and what waits of it is kept: {error} Remove it again later."
                ) from error
            with self._lock:
                active = self.aggregator.active()
                removed = self._drop(run, model)
        had = [run_key for run_key in removed if stored or run_key in active]
        return had or ([(run, model or "")] if stored else [])

    def forget_run(self, run: str) -> None:
        """Forget the counts of a run that is renamed, of which nothing waits: another may have its name."""
        with self._lock:
            self._drop(run)

    def _drop(self, run: str, model: str | None = None) -> list[RunKey]:
        """Delete what is here of a run or one model of it, and return each (run, model)."""
        removed = self.aggregator.remove(run, model)
        gone = set(removed)
        self._held_back = [point for point in self._held_back if point.key[:2] not in gone]
        for run_key in [run_key for run_key in removed if not self._empty(run_key)]:
            self._forget(run_key)
        return removed

    @contextlib.contextmanager
    def frozen(self, run: str, model: str | None = None) -> Iterator[None]:
        """Take no records of a run, or of one model of it, and pass no data point of it on, for a while."""
        of_run = run, model
        with self._lock:
            self._frozen.append(of_run)
        try:
            yield
        finally:
            with self._lock:
                self._frozen.remove(of_run)
                held, self._held_back = self._held_back, []
                self._hand_on(held)

    def _is_frozen(self, run_key: RunKey) -> bool:
        return any(run == run_key[0] and model in (None, run_key[1]) for run, model in self._frozen)

    def _empty(self, run_key: RunKey) -> bool:
        """Delete the records of a removed run from the journal; return False if that cannot be written.

        The sequence numbers of its clients stay in it.
        """
        log = self.journal.log(run_key) if self.journal is not None else None
        if log is None or not log.is_open or run_key not in self.aggregator.run_keys():
            self._forget(run_key)
            return True
        self._unreleased.pop(run_key, None)
        try:
            log.release(log.windows(), self.aggregator.snapshot(run_key, self._clock()))
        except OSError:  # a snapshot needs room, and deleting needs none
            return False
        return True

    def _forget(self, run_key: RunKey) -> None:
        """Delete all that the journal has of a (run, model); raises FullError if that is not possible."""
        self._unreleased.pop(run_key, None)
        self._behind.discard(run_key)
        if self.journal is None:
            return
        try:
            self.journal.forget(run_key)
        except OSError as error:
            raise FullError(f"The journal of {run_key[0]!r} cannot be deleted now: {error}.") from error

    def status(self) -> dict[str, int]:
        """Return the counts; see ``messages.AggregatorCounts``."""
        if not self._is_read.is_set() and self.journal is not None:
            return {"reading": self.journal.unread}
        with self._lock:
            return self._status()

    def counts(self) -> StatusReport:
        """Return the counts of this role as a report, with the ledger of each run."""
        if not self._is_read.is_set():
            return read({"aggregator": self.status()}, StatusReport)
        with self._lock:
            self._take_settled()
            return self._report_of(self._status())

    def waiting(self, run: str) -> int:
        """Return the number of arrays of a run that wait to be scored."""
        self._require_journal(PATIENCE_S)
        with self._lock:
            self._take_settled()
            return self.aggregator.waiting(run)

    def close(self, patience: float | None = None) -> bool:
        """Pass on and score all data points, and return whether that was finished.

        With a journal, open epochs stay in it for the next start, and so does what is not finished.

        Args:
            patience: Seconds to score at most; None until all is scored.
        """
        ends = math.inf if patience is None else time.monotonic() + patience
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(patience)
        if self._is_read.is_set():
            with self._lock:
                self._hand_on(self.aggregator.flush(close=self.journal is None))
        finished = self.evaluator.close(None if patience is None else max(ends - time.monotonic(), 0.0))
        with self._lock:
            self._take_settled()
            if self.journal is not None:
                self.journal.close()
            elif left := self.aggregator.queued:
                _log.error("%d data points were not scored, and are lost (--journal memory).", left)
        return finished

    def _notify(self, notices: Sequence[Notice]) -> None:
        if notices:
            try:
                self.evaluator.notices(notices)
            except AwayError as error:  # the request itself succeeded
                _log.warning("Notices could not be stored: %s", error)

    def _hand_on(self, ready: Sequence[DataPoint]) -> None:
        if self._frozen:
            self._held_back += [point for point in ready if self._is_frozen(point.key[:2])]
            ready = [point for point in ready if not self._is_frozen(point.key[:2])]
        if ready:
            self._rate.note(self._clock(), waiting=self.aggregator.queued + len(ready))
            self.evaluator.points(ready, self._done)
            if self._clock() - self._reported_at >= REPORT_S:
                self._report()

    def _report(self) -> None:
        self._reported_at = self._clock()
        counts, waits = self._status(), self.aggregator.waits(self._reported_at)
        news = counts, waits, self.evaluator.troubles()
        if news != self._reported or self._reported_at - self._beat_at >= BEAT_S:
            self._reported, self._beat_at = news, self._reported_at
            try:
                report = self._report_of(counts)
            except (
                InputError
            ) as error:  # a wrong count must not refuse records, nor keep a server from starting
                _log.error("The counts cannot be reported: %s", error)
            else:
                self.evaluator.report(report)

    def _report_of(self, counts: Mapping[str, int]) -> StatusReport:
        rows = self.aggregator.by_run()
        now = self._clock()
        left = seconds_left([row["queued"] for row in rows], self._rate.per_second(now))
        troubles = self.evaluator.troubles()
        runs = [
            row | {"seconds_left": seconds, "trouble": self._broken or troubles.get(_key_of(row), "")}
            for row, seconds in zip(rows, left, strict=True)
        ]
        report = read({"aggregator": counts, "runs": runs}, StatusReport)
        report.waits = self.aggregator.waits(now)
        return report

    def _tell_of_delay(self) -> list[Notice]:
        """Return a notice for each run whose older epochs wait long, once until none waits."""
        rows, rate = self.aggregator.by_run(), self._rate.per_second(self._clock())
        out = []
        for row, left in zip(rows, seconds_left([row["queued"] for row in rows], rate), strict=True):
            run_key = row["run"], row["model"]
            if not row["queued"]:
                self._behind.discard(run_key)
            elif row["postponed"] and left is not None and left > BEHIND_S and run_key not in self._behind:
                self._behind.add(run_key)
                out.append(behind(run_key))
        return out

    def _status(self) -> dict[str, int]:
        counts = self.aggregator.status() | {"malformed": self.malformed}
        return counts | ({"journal": self.journal.nbytes} if self.journal is not None else {})

    # -- time ----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """End windows after their grace time, retry deletions in the journal, and look after the files."""
        self._look_at_storage()
        with self._lock:
            self._take_settled()
            result = self.aggregator.tick(self._clock())
            self._hand_on(result.ready)
            self._release(self.aggregator.run_keys(), set(result.given_up))
            for run_key in self.aggregator.forget():
                self._forget(run_key)
            if self.journal is not None:
                with contextlib.suppress(FullError):  # it is told
                    self._mend(self.journal)
            self._report()
            news, self._news = [*self._news, *self._tell_of_delay()], []
        self._notify([*result.notices, *news])

    def _look_at_storage(self) -> None:
        """Log, once, that what would be stored now would be lost."""
        try:
            self.evaluator.check()
            self._gone = ""
        except (FullError, ReplacedError) as error:
            if not self._gone:
                _log.error("%s", error)
            self._gone = str(error)

    def _run(self) -> None:
        """Read the journal, and then call ``tick`` once a second."""
        if self.journal is not None and not self._is_read.is_set():
            try:
                self._read(self.journal)
            except Exception as error:
                self._failure = error
                _log.exception("The journal could not be read")
                self._notify([unread_journal(error)])
                return
        while not self._closed.wait(TICK_S):
            try:
                self.tick()
            except Exception:
                _log.exception("The aggregator's clock failed")

    # -- the journal ---------------------------------------------------------------------------------

    def _append_to_journal(self, journal: Journal, request: IngestRequest, now: float) -> None:
        """Append the request to the journal, the part of each (run, model) to its own log."""
        envelope = request.envelope
        parts = {
            run_key: request.part(run_key)
            for run_key in request.run_keys
            if not self.aggregator.knows(run_key, envelope.client, envelope.seq)
        }
        journal.check_room(sum(map(len, parts.values())))
        try:
            for run_key, body in parts.items():
                log = journal.log(run_key)
                records = request.of(run_key)
                if not log.is_open or log.full() or (log.holds and self.aggregator.opens_window(records)):
                    log.begin(self.aggregator.snapshot(run_key, now))
                for window in self.aggregator.reopened_by(records):
                    log.append({"again": True}, encode_records(window.records()))
                    log.hold([window.number])
                log.append({"time": now}, body)
                if change := log.change(newest=True):
                    raise FileNotFoundError(change)
        except OSError as error:
            raise FullError(f"The journal cannot be written: {error}. Send this again later.") from error

    def _mend(self, journal: Journal, run_keys: Collection[RunKey] | None = None) -> None:
        """Write anew what was deleted from the journal, or replaced, while it was in use.

        Args:
            journal: The journal.
            run_keys: The (run, model) to look at; see ``Journal.changed``.

        Raises:
            FullError: If it cannot be written.
        """
        now = self._clock()
        try:
            journal.check_folder()
            for run_key, log, change in journal.changed(run_keys, every=bool(self._broken)):
                snapshot, windows = self.aggregator.whole(run_key, now)
                frames = [(number, head, encode_records(records)) for number, head, records in windows]
                log.renew(snapshot, frames)
                self._news.append(renewed_journal(run_key, change, len(frames)))
        except OSError as error:
            text = f"The journal cannot be written: {error}."
            if not self._broken:
                self._news.append(broken_journal(text))
            self._broken = text
            raise FullError(f"{text} Send this again later.") from error
        if run_keys is None:
            self._broken = ""

    def _done(self, point: DataPoint, scored: bool) -> None:
        """Note that a data point is done.

        It does not wait while a request holds the lock, which would leave the scoring a small part of the
        time: the next request, or the clock, takes note of it.
        """
        self._settled.append((point, scored))
        if self._lock.acquire(blocking=False):
            try:
                self._take_settled()
            finally:
                self._lock.release()

    def _take_settled(self) -> None:
        """Mark the data points that are done, and shorten the journal by them."""
        run_keys = []
        done = 0
        while self._settled:
            run_keys.append(self.aggregator.settled(*self._settled.popleft()))
            done += 1
        if done:
            self._rate.note(self._clock(), waiting=self.aggregator.queued, done=done)
            self._release([run_key for run_key in dict.fromkeys(run_keys) if run_key is not None])

    def _release(self, run_keys: Sequence[RunKey], refused: Collection[RunKey] = ()) -> None:
        """Delete scored records from the journal, and those of ``refused`` runs, and store their counts."""
        for run_key in run_keys:
            done = self._unreleased.pop(run_key, set()) | set(self.aggregator.release(run_key))
            if self.journal is None or not (done or run_key in refused):
                continue
            log = self.journal.log(run_key)
            if not log.is_open:
                continue
            try:
                log.release(done, self.aggregator.snapshot(run_key, self._clock()))
            except OSError as error:
                if self._said.is_new(text := f"The journal cannot be shortened now: {error}"):
                    _log.warning(text)
                self._unreleased[run_key] = done

    def _require_journal(self, patience: float | None = 0.0) -> None:
        """Raise ReadingError if the journal is not read, after at most ``patience`` seconds."""
        if self.journal is None or self._is_read.wait(patience):
            return
        if self._failure is not None:
            raise ReadingError(unread_journal(self._failure).text, lasting=True)
        raise ReadingError(
            f"The server has started and reads its journal, of which {self.journal.unread:,} bytes are left. "
            "Send this again later."
        )

    def _read(self, journal: Journal) -> None:
        try:
            self._replay(journal)
        except ServeError:
            raise
        except (OSError, MemoryError) as error:
            raise unusable(journal.folder, error) from error
        if not self._closed.is_set():
            self._is_read.set()

    def _replay(self, journal: Journal) -> None:
        """Restore the state of the last server from the journal, unless this one is closed meanwhile."""
        self.aggregator.replaying = True
        for run_key, number, frame in journal.replay():
            if self._closed.is_set():
                return
            if frame is None:
                self.aggregator.doubt(run_key)
                continue
            log = journal.log(run_key)
            try:
                log.hold(self._apply_frame(run_key, frame), number)
            except (CodecError, InputError, KeyError, TypeError, ValueError) as error:  # of another version
                log.reject(number, frame, f"{type(error).__name__}: {error}")
                self.aggregator.doubt(run_key)
        now = self._clock()
        ready = self.aggregator.resume(now)
        for run_key in self.aggregator.run_keys():
            log, held = journal.log(run_key), self.aggregator.held(run_key)
            log.begin(self.aggregator.snapshot(run_key, now))
            log.release(log.windows() - held, self.aggregator.snapshot(run_key, now))
        news = [damaged_journal(owner, clauses) for owner, clauses in journal.damage.items()]
        if runs := {point.key[:2] for point in ready}:
            news.append(continued(sum(arrays_in(point.records) for point in ready), len(runs)))
        self._notify(news)
        self._hand_on(ready)

    def _apply_frame(self, run_key: RunKey, frame: JournalFrame) -> set[int]:
        """Apply a frame; return the numbers of the windows that its records are in."""
        if "state" in frame.head:
            self.aggregator.restore(run_key, frame.head["state"])
            return set()
        records, envelope = decode_records(frame.body)
        if frame.head.get("again"):
            return self.aggregator.reload(records, frame.head)
        self._latest = max(self._latest, frame.head["time"])
        result = self._accept(IngestRequest.read(records, envelope), frame.head["time"])
        return result.placed.get(run_key, set())


def _key_of(row: Mapping[str, Any]) -> RunKey:
    return row["run"], row["model"]
