"""The aggregator as a server has it: a lock around the state machine, a journal, a link to the evaluator."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ...core.errors import CodecError, InputError
from ...core.record import Record
from ...storage.codec import decode_graph, decode_records, encode_records
from ..checks import check_text
from ..data_point import DataPoint, Notice
from ..evaluation.targets import Target
from ..interfaces import AwayError, BusyError, EvaluatorLink
from .aggregator import Aggregator, IngestResult
from .ingest import IngestRequest
from .journal import FullError, Journal, JournalFrame
from .window import RunKey

_log = logging.getLogger("intus.serving")
TICK_S = 1.0
_BEGAN = time.time() - time.monotonic()


def steady() -> float:
    """Seconds since 1970 that never go back, nor leap, while this process lives, whatever is done to the
    clock: an epoch that is waited for must not end by it."""
    return _BEGAN + time.monotonic()


class Collector:
    """Takes requests one at a time. With a journal, what it has answered for survives the process.

    When more bytes wait to be scored than the aggregator may hold, senders are asked to come back later.
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
        self._unreleased: dict[RunKey, set[int]] = {}  # windows that the journal could not let go of yet
        self._reported: dict[str, int] = {}
        self._closed = threading.Event()
        if journal is not None:
            self._replay(journal)

    def start(self) -> None:
        """Look once a second for epochs that nothing more came for."""
        threading.Thread(target=self._tick_on, name="intus-clock", daemon=True).start()

    # -- requests ------------------------------------------------------------------------------------

    def records(
        self, records: Sequence[Record], envelope: Mapping[str, Any], body: bytes = b""
    ) -> dict[str, Any]:
        """Take one request's records; one that cannot be used is refused with a notice, and the others kept.

        Raises InputError when none of them can be used, BusyError when swamped, FullError where the disk or
        the journal is full; then nothing is accepted.
        """
        request = IngestRequest.read(records, envelope, body)
        if self.evaluator.backlog() > self.aggregator.max_bytes:
            raise BusyError("More data points wait to be scored than may; send this again in a second.")
        with self._lock:
            now = self._clock()
            for group in request.groups:
                self.aggregator.check_group(group)
            if self.journal is not None:
                self._keep(self.journal, request, now)
            outcome = self._accept(request, now)
            if self.journal is not None:
                for group, numbers in outcome.placed.items():
                    self.journal.log(group).hold(numbers)
            self._hand_on(outcome.ready)  # within the lock, so that batches keep their order
            refused = {(record.run, record.model) for record in request.records} - set(outcome.placed)
            self._settle(request.groups, set() if outcome.duplicate else refused)
        self._tell(outcome.notices)
        return {"accepted": outcome.accepted, "duplicate": outcome.duplicate}

    def _accept(self, request: IngestRequest, now: float) -> IngestResult:
        client, seq = request.sender
        return self.aggregator.accept(
            request.records,
            client,
            seq,
            request.envelope.get("dropped") or 0,
            request.unusable,
            request.reports,
            request.discarded,
            now,
        )

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        """Pass a graph on, once it is known to be one."""
        run, model = check_text(run, "run"), check_text(model, "model")
        decode_graph(blob)
        self.evaluator.put_graph(run, model, blob)

    def put_target(self, facts: Mapping[str, Any]) -> None:
        """Pass a target on, once it is known to be sound."""
        Target.parse(facts)
        self.evaluator.put_target(facts)

    def flush(
        self,
        run: str | None = None,
        model: str | None = None,
        timeout: float | None = None,
        client: str | None = None,
    ) -> None:
        """Hand everything on, of all or of one run or model, or of the ``client`` that asks, and wait until
        it is scored. Raises ServeError that says who it waits for when ``timeout`` seconds are over, or
        sooner when that one is away."""
        with self._lock:
            self._hand_on(self.aggregator.flush(run, model, client=client))
            self._settle(self.aggregator.groups())
        self.evaluator.flush(run, model, timeout)

    def set_trigger(self, trigger: Sequence[str]) -> None:
        """Let these fields, and the epoch, complete the data points of runs that begin from now on; raises
        InputError."""
        with self._lock:
            self.aggregator.set_trigger(trigger)

    def clear(self) -> None:
        """Forget everything, here and down the chain."""
        with self._lock:
            groups = self.aggregator.groups()
            self.aggregator.clear()
            for group in groups if self.journal else ():
                self._forget(group)
        self.evaluator.clear()

    def remove(self, model: str) -> None:
        """Forget a model, here and down the chain."""
        with self._lock:
            for group in self.aggregator.remove(model):
                self._forget(group)
        self.evaluator.remove(model)

    def _forget(self, group: RunKey) -> None:
        self._unreleased.pop(group, None)
        if self.journal is not None:
            self.journal.forget(group)

    def status(self) -> dict[str, int]:
        """Counts of the state machine, and of requests that were malformed; bytes of the journal."""
        with self._lock:
            return self._status()

    def by_run(self) -> list[dict[str, Any]]:
        """The aggregator's counts of each (run, model)."""
        with self._lock:
            return self.aggregator.by_run()

    def close(self) -> None:
        """Score what is left, and see it off; epochs that have not ended stay in the journal."""
        self._closed.set()
        with self._lock:
            self._hand_on(self.aggregator.flush(close=self.journal is None))
        self.evaluator.close()
        if self.journal is not None:
            with self._lock:
                self.journal.close()

    def _tell(self, notices: Sequence[Notice]) -> None:
        if notices:
            try:
                self.evaluator.notices(notices)
            except AwayError as error:  # the log has them; what they are about was done
                _log.warning("Notices could not be stored: %s", error)

    def _hand_on(self, ready: Sequence[DataPoint]) -> None:
        if ready:
            self.evaluator.points(ready, self._stored)
            self._report()

    def _report(self) -> None:
        counts = self._status()
        if counts != self._reported:
            self._reported = counts
            self.evaluator.report("aggregator", counts | {"runs": self.aggregator.by_run()})

    def _status(self) -> dict[str, int]:
        counts = self.aggregator.status() | {"malformed": self.malformed}
        return counts | ({"journal": self.journal.nbytes} if self.journal is not None else {})

    # -- time ----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """End what has waited for too long, and try again to let go of what the disk could not."""
        with self._lock:
            outcome = self.aggregator.tick(self._clock())
            self._hand_on(outcome.ready)
            self._settle(self.aggregator.groups())
            for group in self.aggregator.forget():
                self._forget(group)
            self._report()
        self._tell(outcome.notices)

    def _tick_on(self) -> None:
        while not self._closed.wait(TICK_S):
            try:
                self.tick()
            except Exception:
                _log.exception("The aggregator's clock failed")

    # -- the journal ---------------------------------------------------------------------------------

    def _keep(self, journal: Journal, request: IngestRequest, now: float) -> None:
        """Write the request down, each (run, model)'s part for itself."""
        client, seq = request.sender
        parts = {
            group: request.part(group)
            for group in request.groups
            if not self.aggregator.knows(group, client, seq)
        }
        journal.check_room(sum(map(len, parts.values())))
        try:
            for group, body in parts.items():
                log = journal.log(group)
                records = request.of(group)
                if not log.is_open or log.full() or (log.holds and self.aggregator.opens(records)):
                    log.begin(self.aggregator.state(group, now))
                for window in self.aggregator.late(records):
                    log.append({"again": True}, encode_records(window.records()))
                    log.hold([window.number])
                log.append({"time": now}, body)
        except OSError as error:
            raise FullError(f"The journal cannot be written: {error}. Send this again later.") from error

    def _stored(self, point: DataPoint) -> None:
        with self._lock:
            group = self.aggregator.stored(point)
            if group is not None:
                self._settle([group])

    def _settle(self, groups: Sequence[RunKey], refused: Collection[RunKey] = ()) -> None:
        """Let go of what is scored, and of what was written down and then ``refused``."""
        for group in groups:
            over = self._unreleased.pop(group, set()) | set(self.aggregator.settle(group))
            if self.journal is None or not (over or group in refused) or not self.journal.log(group).is_open:
                continue
            try:
                self.journal.log(group).release(over, self.aggregator.state(group, self._clock()))
            except OSError as error:
                _log.warning("The journal cannot be shortened now: %s", error)
                self._unreleased[group] = over

    def _replay(self, journal: Journal) -> None:
        """Be where the last server was when it died."""
        for group, number, frame in journal.replay():
            try:
                journal.log(group).hold(self._again(group, frame), number)
            except (CodecError, InputError) as error:  # written by another intus
                _log.warning("A frame of the journal was passed over: %s", error)
        now = self._clock()
        ready = self.aggregator.resume(now)
        for group in self.aggregator.groups():
            log, held = journal.log(group), self.aggregator.held(group)
            log.begin(self.aggregator.state(group, now))
            log.release(log.windows() - held, self.aggregator.state(group, now))
        self._hand_on(ready)

    def _again(self, group: RunKey, frame: JournalFrame) -> set[int]:
        """Take a frame in; returns the windows that its records are in."""
        if "state" in frame.head:
            self.aggregator.restore(group, frame.head["state"])
            return set()
        records, envelope = decode_records(frame.body)
        if frame.head.get("again"):
            return self.aggregator.again(records)
        outcome = self._accept(IngestRequest.read(records, envelope), frame.head["time"])
        return outcome.placed.get(group, set())
