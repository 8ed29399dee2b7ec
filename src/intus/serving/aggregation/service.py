"""The aggregator as a server runs it: with a lock, a journal and a link to the evaluator."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ...core.errors import CodecError, InputError
from ...core.record import Record
from ...storage.codec import decode_graph, decode_records, encode_records
from ..data_point import DataPoint
from ..decoding import read
from ..errors import AwayError, BusyError, FullError
from ..evaluation.targets import Target
from ..interfaces import EvaluatorLink
from ..messages import IngestReply, Notice, StatusReport
from .aggregator import Aggregator, IngestResult
from .ingest import IngestRequest
from .journal import Journal, JournalFrame
from .window import RunKey

_log = logging.getLogger("intus.serving")
TICK_S = 1.0
_BEGAN = time.time() - time.monotonic()


def steady() -> float:
    """Return seconds since 1970 that never jump while this process lives.

    An epoch that is waited for must not end because somebody sets the clock.
    """
    return _BEGAN + time.monotonic()


class AggregatorService:
    """Takes requests one at a time. With a journal, a killed process loses no acknowledged request.

    While more bytes wait to be scored than the aggregator may hold, clients are asked to come back later.

    Args:
        evaluator: Where complete data points go.
        aggregator: The state machine.
        journal: The journal; what it holds is taken up again.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        evaluator: EvaluatorLink,
        aggregator: Aggregator | None = None,
        journal: Journal | None = None,
        clock: Callable[[], float] = steady,
    ) -> None:
        self.evaluator = evaluator
        self.aggregator = aggregator or Aggregator()
        self.journal, self._clock = journal, clock
        self.malformed = 0
        self._lock = threading.Lock()
        self._unreleased: dict[RunKey, set[int]] = {}  # windows that the journal could not delete yet
        self._reported: dict[str, int] = {}
        self._closed = threading.Event()
        if journal is not None:
            self._replay(journal)

    def start(self) -> None:
        """Check once a second for epochs that nothing more came for, in a thread."""
        threading.Thread(target=self._tick_on, name="intus-clock", daemon=True).start()

    # -- requests ------------------------------------------------------------------------------------

    def records(
        self, records: Sequence[Record], envelope: Mapping[str, Any], body: bytes = b""
    ) -> IngestReply:
        """Take the records of a request. Those that cannot be used are refused with a notice.

        Raises:
            InputError: If none can be used; then, as after the other errors, nothing is accepted.
            BusyError: If too much waits to be scored.
            FullError: If the disk or the journal is full.
        """
        request = IngestRequest.read(records, envelope, body)
        if self.evaluator.backlog() > self.aggregator.max_bytes:
            raise BusyError("Too many data points wait to be scored. Send this again in a second.")
        with self._lock:
            now = self._clock()
            for run_key in request.run_keys:
                self.aggregator.check_run(run_key)
            if self.journal is not None:
                self._write_down(self.journal, request, now)
            result = self._accept(request, now)
            if self.journal is not None:
                for run_key, numbers in result.placed.items():
                    self.journal.log(run_key).hold(numbers)
            self._hand_on(result.ready)  # within the lock, so that batches keep their order
            refused = {(record.run, record.model) for record in request.records} - set(result.placed)
            self._release(request.run_keys, set() if result.duplicate else refused)
        self._notify(result.notices)
        return IngestReply(result.accepted, result.duplicate)

    def _accept(self, request: IngestRequest, now: float) -> IngestResult:
        said = request.envelope
        return self.aggregator.accept(
            request.records,
            said.client,
            said.seq,
            said.dropped or 0,
            request.unusable,
            said.epochs,
            request.discarded,
            now,
        )

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        """Pass a graph on; raises CodecError if it is none."""
        decode_graph(blob)
        self.evaluator.put_graph(run, model, blob)

    def put_target(self, target: Target) -> None:
        """Pass a target on."""
        self.evaluator.put_target(target)

    def flush(
        self,
        run: str | None = None,
        model: str | None = None,
        timeout: float | None = None,
        client_id: str | None = None,
    ) -> None:
        """Hand everything on, of all or of one run, model or client, and wait until it is scored.

        Raises:
            ServeError: If that takes longer than ``timeout`` seconds, or sooner if a server that is waited
                for does not answer; the sentence names it.
        """
        with self._lock:
            self._hand_on(self.aggregator.flush(run, model, client_id=client_id))
            self._release(self.aggregator.run_keys())
        self.evaluator.flush(run, model, timeout)

    def set_trigger(self, trigger: Sequence[str]) -> None:
        """Set the fields whose change ends a window, for runs that begin from now on; raises InputError."""
        with self._lock:
            self.aggregator.set_trigger(trigger)

    def clear(self) -> None:
        """Forget everything, here and in the roles that follow."""
        with self._lock:
            run_keys = self.aggregator.run_keys()
            self.aggregator.clear()
            for run_key in run_keys if self.journal else ():
                self._forget(run_key)
        self.evaluator.clear()

    def remove(self, model: str) -> None:
        """Forget a model, here and in the roles that follow."""
        with self._lock:
            for run_key in self.aggregator.remove(model):
                self._forget(run_key)
        self.evaluator.remove(model)

    def _forget(self, run_key: RunKey) -> None:
        self._unreleased.pop(run_key, None)
        if self.journal is not None:
            self.journal.forget(run_key)

    def status(self) -> dict[str, int]:
        """Return the counts; see ``messages.AggregatorCounts``."""
        with self._lock:
            return self._status()

    def counts(self) -> StatusReport:
        """Return what this role counts, as it reports it."""
        with self._lock:
            return self._report_of(self._status())

    def close(self) -> None:
        """Score what is left, and wait for it; epochs that have not ended stay in the journal."""
        self._closed.set()
        with self._lock:
            self._hand_on(self.aggregator.flush(close=self.journal is None))
        self.evaluator.close()
        if self.journal is not None:
            with self._lock:
                self.journal.close()

    def _notify(self, notices: Sequence[Notice]) -> None:
        if notices:
            try:
                self.evaluator.notices(notices)
            except AwayError as error:  # the log has them, and what they are about was done
                _log.warning("Notices could not be stored: %s", error)

    def _hand_on(self, ready: Sequence[DataPoint]) -> None:
        if ready:
            self.evaluator.points(ready, self._stored)
            self._report()

    def _report(self) -> None:
        counts = self._status()
        if counts != self._reported:
            self._reported = counts
            self.evaluator.report(self._report_of(counts))

    def _report_of(self, counts: Mapping[str, int]) -> StatusReport:
        return read({"aggregator": counts, "runs": self.aggregator.by_run()}, StatusReport)

    def _status(self) -> dict[str, int]:
        counts = self.aggregator.status() | {"malformed": self.malformed}
        return counts | ({"journal": self.journal.nbytes} if self.journal is not None else {})

    # -- time ----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """End windows that got nothing for too long, and try again to delete what the disk could not."""
        with self._lock:
            result = self.aggregator.tick(self._clock())
            self._hand_on(result.ready)
            self._release(self.aggregator.run_keys())
            for run_key in self.aggregator.forget():
                self._forget(run_key)
            self._report()
        self._notify(result.notices)

    def _tick_on(self) -> None:
        while not self._closed.wait(TICK_S):
            try:
                self.tick()
            except Exception:
                _log.exception("The aggregator's clock failed")

    # -- the journal ---------------------------------------------------------------------------------

    def _write_down(self, journal: Journal, request: IngestRequest, now: float) -> None:
        """Write the request into the journal, the part of each (run, model) into its own log."""
        said = request.envelope
        parts = {
            run_key: request.part(run_key)
            for run_key in request.run_keys
            if not self.aggregator.knows(run_key, said.client, said.seq)
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
        except OSError as error:
            raise FullError(f"The journal cannot be written: {error}. Send this again later.") from error

    def _stored(self, point: DataPoint) -> None:
        with self._lock:
            run_key = self.aggregator.stored(point)
            if run_key is not None:
                self._release([run_key])

    def _release(self, run_keys: Sequence[RunKey], refused: Collection[RunKey] = ()) -> None:
        """Delete from the journal what is scored, and what was written down and then ``refused``."""
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
                _log.warning("The journal cannot be shortened now: %s", error)
                self._unreleased[run_key] = done

    def _replay(self, journal: Journal) -> None:
        """Take up again what the last server had when it died."""
        for run_key, number, frame in journal.replay():
            try:
                journal.log(run_key).hold(self._take_up(run_key, frame), number)
            except (CodecError, InputError) as error:  # written by another version
                _log.warning("A frame of the journal was skipped: %s", error)
        now = self._clock()
        ready = self.aggregator.resume(now)
        for run_key in self.aggregator.run_keys():
            log, held = journal.log(run_key), self.aggregator.held(run_key)
            log.begin(self.aggregator.snapshot(run_key, now))
            log.release(log.windows() - held, self.aggregator.snapshot(run_key, now))
        self._hand_on(ready)

    def _take_up(self, run_key: RunKey, frame: JournalFrame) -> set[int]:
        """Take up a frame; return the windows that its records are in."""
        if "state" in frame.head:
            self.aggregator.restore(run_key, frame.head["state"])
            return set()
        records, envelope = decode_records(frame.body)
        if frame.head.get("again"):
            return self.aggregator.reload(records)
        result = self._accept(IngestRequest.read(records, envelope), frame.head["time"])
        return result.placed.get(run_key, set())
