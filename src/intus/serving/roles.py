"""What each server does, as objects that know nothing of HTTP.

They form a chain, aggregator to evaluator to frontend. A link is either the next object itself, in one
process, or its stand-in from ``links``, which has the same methods and speaks HTTP.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ..core.errors import InputError, IntusError
from ..core.record import Record
from ..core.results import Results
from ..storage.database import Database
from .aggregator import Aggregator
from .checks import check_record, check_text
from .evaluator import Evaluation, evaluate, renamed
from .known import KnownTargets
from .point import DataPoint, Notice
from .targets import Target
from .worker import Worker

_log = logging.getLogger("intus.serving")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class BusyError(IntusError):
    """More is waiting than may; try again soon."""


class Link(Protocol):
    """What every role passes on to the next."""

    def put_graph(self, run: str, model: str, blob: bytes) -> None: ...
    def put_target(self, facts: Mapping[str, Any]) -> None: ...
    def notices(self, notices: Sequence[Notice]) -> None: ...
    def report(self, role: str, counts: Mapping[str, int]) -> None: ...
    def flush(self, run: str | None = None, model: str | None = None) -> None: ...
    def clear(self) -> None: ...
    def remove(self, model: str) -> None: ...


class EvaluatorLink(Link, Protocol):
    """The aggregator's view of the evaluator."""

    def points(self, batch: Sequence[DataPoint]) -> None: ...
    def backlog(self) -> int: ...
    def close(self) -> None: ...


class FrontendLink(Link, Protocol):
    """The evaluator's view of the frontend."""

    def results(self, results: Results) -> None: ...
    def targets(self) -> list[dict[str, Any]]: ...


class Frontend:
    """Keeps what is found in the database, for the page to read."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.reported: dict[str, dict[str, int]] = {}
        self._counts: Counter[str] = Counter(results=0, notices=0)

    def results(self, results: Results) -> None:
        """Store scores."""
        self.database.add(results)
        self._counts["results"] += len(results)

    def notices(self, notices: Sequence[Notice]) -> None:
        """Store what people should see, and log it."""
        for notice in notices:
            _log.log(_LEVELS[notice.level], "%s: %s", notice.code, notice.text)
            self.database.add_notice(
                notice.code, notice.text, level=notice.level, run=notice.run, model=notice.model
            )
            self._counts["notices"] += 1

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        """Store a model's graph."""
        self.database.put_graph(run, model, blob)

    def put_target(self, facts: Mapping[str, Any]) -> None:
        """Store a target's labels, so that they survive a restart."""
        target = Target.parse(facts)
        self.database.put_target(
            target.name, facts["targets"], target.model_pattern.pattern, target.layer_pattern.pattern
        )

    def targets(self) -> list[dict[str, Any]]:
        """The targets stored."""
        return self.database.targets()

    def report(self, role: str, counts: Mapping[str, int]) -> None:
        """Remember what another role counted."""
        self.reported[role] = dict(counts)

    def flush(self, run: str | None = None, model: str | None = None) -> None:
        """Nothing waits here."""

    def clear(self) -> None:
        """Forget everything."""
        self.database.clear()

    def remove(self, model: str) -> None:
        """Forget a model."""
        self.database.remove(model)

    def status(self) -> dict[str, int]:
        """Counts: rows of results and notices that came."""
        return dict(self._counts)

    def close(self) -> None:
        """Close the database."""
        self.database.close()


@dataclass(slots=True)
class _Batch:
    """Data points that became complete together: a target that fits none of them is worth a notice."""

    fitted: set[str] = field(default_factory=set)
    misfits: dict[str, str] = field(default_factory=dict)
    scored: dict[tuple[bytes, frozenset[Target]], Evaluation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Job:
    point: DataPoint
    batch: _Batch
    last: bool


class Evaluator:
    """Scores data points in a thread of its own, and passes on what it finds."""

    def __init__(self, frontend: FrontendLink, scores: Sequence[str] | None = None, seed: int = 0) -> None:
        self.frontend, self.scores, self.seed = frontend, scores, seed
        self._targets = KnownTargets(frontend)
        self._told: set[tuple[str, ...]] = set()
        self._lock = threading.Lock()  # around _told and _batch
        self._batch = _Batch()
        self._counts: Counter[str] = Counter(scored=0, failed=0)
        self._worker: Worker[_Job] = Worker("intus-evaluator", self._work, lambda job: job.point.nbytes)

    def points(self, batch: Sequence[DataPoint]) -> None:
        """Queue data points that became complete together."""
        for number, point in enumerate(batch, start=1):
            self.point(point, last=number == len(batch))

    def point(self, point: DataPoint, *, last: bool) -> None:
        """Queue one of the data points that became complete together."""
        with self._lock:
            self._worker.submit(_Job(point, self._batch, last))
            if last:
                self._batch = _Batch()

    def backlog(self) -> int:
        """Bytes of the data points that wait."""
        return self._worker.nbytes

    def put_target(self, facts: Mapping[str, Any]) -> None:
        """Take a target into use, replacing one of the same name."""
        name, changed = self._targets.put(facts)
        with self._lock:
            self._told = {told for told in self._told if told[0] != name}
        if changed:
            text = (
                f"Target {name!r} was registered again with other labels: every run is now scored on the new "
                "ones. Runs that go on side by side need names of their own, or a model_pattern each."
            )
            self._notice([Notice("target_replaced", text, "warning")])

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        """Pass a graph on."""
        self.frontend.put_graph(run, model, blob)

    def notices(self, notices: Sequence[Notice]) -> None:
        """Pass notices on."""
        self.frontend.notices(notices)

    def report(self, role: str, counts: Mapping[str, int]) -> None:
        """Pass another role's counts on."""
        self.frontend.report(role, counts)

    def flush(self, run: str | None = None, model: str | None = None) -> None:
        """Return when all that was queued is scored and passed on."""
        self._worker.wait()
        self.frontend.flush(run, model)

    def clear(self) -> None:
        """Forget everything, targets too."""
        self._worker.drop(lambda job: True)
        self._targets.clear()
        with self._lock:
            self._told = set()
        self._counts = Counter(scored=0, failed=0)
        self.frontend.clear()

    def remove(self, model: str) -> None:
        """Forget a model."""
        self._worker.drop(lambda job: job.point.key.model == model)
        with self._lock:
            self._told = {told for told in self._told if told[2] != model}
        self.frontend.remove(model)

    def status(self) -> dict[str, int]:
        """Counts of data points: scored, failed, pending."""
        return dict(self._counts) | {"pending": self._worker.pending}

    def close(self) -> None:
        """Finish the queue."""
        self._worker.close()

    def _work(self, job: _Job) -> None:
        key = job.point.key
        try:
            found = self._evaluate(job)
            self.frontend.results(found.results)
            self._counts["scored"] += 1
            self._notice(self._findings(job, found))
        except Exception as error:  # whatever a score does, the next data point is scored
            self._counts["failed"] += 1
            _log.exception("Scoring %s of %s failed", key.address, key.model)
            text = f"Scoring {key.address!r} failed: {type(error).__name__}: {error}"
            self._notice([Notice("score_failed", text, "error", key.run, key.model)])
        if job.last:
            self.frontend.report("evaluator", self.status())

    def _evaluate(self, job: _Job) -> Evaluation:
        """Score a data point; a module that returns what its last child returned has its child's scores."""
        targets = self._targets.of(job.point)
        content = job.point.digest(), frozenset(targets)
        twin = job.batch.scored.get(content)
        if twin is not None:
            return replace(twin, results=renamed(twin.results, job.point))
        found = evaluate(job.point, targets, self.scores, seed=self.seed)
        job.batch.scored[content] = found
        return found

    def _findings(self, job: _Job, found: Evaluation) -> list[Notice]:
        """What to tell of a data point, and with the last of a batch of the targets that fitted none."""
        key, batch, out = job.point.key, job.batch, []
        if found.nonfinite and self._first_time("", key.run, key.model, "nonfinite"):
            text = f"NaN or infinite values, first at {key.address!r} in epoch {job.point.epoch}."
            out.append(Notice("nonfinite", text, "warning", key.run, key.model))
        aside = [] if found.fitted or found.misfits else self._targets.set_aside(job.point)
        if aside and self._first_time("", key.run, key.model, "kept"):
            text = (
                f"Labels kept from before the server began ({', '.join(aside)[:200]}) are not used for "
                "this run, which has no scores of them. Register them again to use them (register_targets)."
            )
            out.append(Notice("target_kept", text, "info", key.run, key.model))
        for name, reason in found.failures.items():
            text = f"Score {name!r} failed on {key.address!r}: {reason}"
            out.append(Notice("score_failed", text, "error", key.run, key.model))
        batch.fitted |= found.fitted
        for name, reason in found.misfits.items():
            batch.misfits.setdefault(name, reason)
        if job.last:
            for name, reason in batch.misfits.items():
                if name not in batch.fitted and self._first_time(name, key.run, key.model, "misfit"):
                    out.append(Notice("target_misfit", reason, "warning", key.run, key.model))
        return out

    def _first_time(self, *what: str) -> bool:
        with self._lock:
            new = what not in self._told
            self._told.add(what)
        return new

    def _notice(self, notices: Sequence[Notice]) -> None:
        try:
            self.frontend.notices(notices)
        except Exception:
            _log.exception("A notice could not be passed on")


class Collector:
    """The aggregator as a server has it: a lock around the state machine, and the link to the evaluator.

    When more bytes wait to be scored than the aggregator may hold, senders are asked to come back later.
    """

    def __init__(self, evaluator: EvaluatorLink, aggregator: Aggregator | None = None) -> None:
        self.evaluator = evaluator
        self.aggregator = aggregator or Aggregator()
        self.malformed = 0
        self._lock = threading.Lock()

    def records(self, records: Sequence[Record], envelope: Mapping[str, Any]) -> dict[str, Any]:
        """Take one request's records; one that cannot be used is refused with a notice, and the others kept.

        Raises InputError when none of them can be used, BusyError when swamped.
        """
        usable, unusable = _sift(records)
        client = envelope.get("client")
        if client is not None:
            check_text(client, "The envelope's client")
        seq, dropped = _count(envelope, "seq"), _count(envelope, "dropped") or 0
        if self.evaluator.backlog() > self.aggregator.max_bytes:
            raise BusyError("More data points wait to be scored than may; send this again in a second.")
        with self._lock:
            outcome = self.aggregator.accept(usable, client, seq, dropped, unusable)
            self._hand_on(outcome.ready)  # within the lock, so that batches keep their order
        if outcome.notices:
            self.evaluator.notices(outcome.notices)
        return {"accepted": outcome.accepted, "duplicate": outcome.duplicate}

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        """Pass a graph on."""
        self.evaluator.put_graph(check_text(run, "run"), check_text(model, "model"), blob)

    def put_target(self, facts: Mapping[str, Any]) -> None:
        """Pass a target on, once it is known to be sound."""
        Target.parse(facts)
        self.evaluator.put_target(facts)

    def flush(self, run: str | None = None, model: str | None = None) -> None:
        """Hand everything on, of all or of one run or model, and wait until it is scored."""
        with self._lock:
            self._hand_on(self.aggregator.flush(run, model))
        self.evaluator.flush(run, model)

    def clear(self) -> None:
        """Forget everything, here and down the chain."""
        with self._lock:
            self.aggregator.clear()
        self.evaluator.clear()

    def remove(self, model: str) -> None:
        """Forget a model, here and down the chain."""
        with self._lock:
            self.aggregator.remove(model)
        self.evaluator.remove(model)

    def status(self) -> dict[str, int]:
        """Counts of the state machine, and of requests that were malformed."""
        with self._lock:
            return self._status()

    def close(self) -> None:
        """Hand on what is left, and see it off."""
        with self._lock:
            self._hand_on(self.aggregator.flush())
        self.evaluator.close()

    def _hand_on(self, ready: Sequence[DataPoint]) -> None:
        if ready:
            self.evaluator.points(ready)
            self.evaluator.report("aggregator", self._status())

    def _status(self) -> dict[str, int]:
        return self.aggregator.status() | {"malformed": self.malformed}


def _sift(records: Sequence[Record]) -> tuple[list[Record], list[Notice]]:
    """The records that can be used, and a notice for each of the others; raises InputError when there
    are only others."""
    usable: list[Record] = []
    unusable: list[Notice] = []
    for record in records:
        try:
            check_record(record)
            usable.append(record)
        except InputError as error:
            if len(records) == len(unusable) + 1:
                raise
            unusable.append(Notice("refused", f"Refused: {error}", "warning", *_origin(record)))
    return usable, unusable


def _origin(record: Record) -> tuple[str, str]:
    """The record's run and model, where they can be stored."""
    try:
        return check_text(record.run, "run"), check_text(record.model, "model")
    except InputError:
        return "", ""


def _count(envelope: Mapping[str, Any], name: str) -> int | None:
    """A count that may be missing."""
    value = envelope.get(name)
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62
    ):
        raise InputError(f"The envelope's {name} must be a count, got {value!r}.")
    return value
