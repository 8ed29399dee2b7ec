"""The evaluator without its HTTP: scores data points in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any

from ..aggregation.run_state import COUNTED
from ..data_point import DataPoint, Key, Notice
from ..interfaces import AwayError, Done, FrontendLink
from ..worker import Worker, wait_for
from .arrival_order import ArrivalOrder
from .engine import Engine, Gather, LocalEngine, Task
from .relations import Relations
from .scoring import Evaluation, related, renamed
from .targets import KnownTargets, Target

_log = logging.getLogger("intus.serving")
_PAUSES = (0.1, 0.3, 1.0)  # between tries to store what is found; the last again and again


#: What a data point's scores depend on: its arrays, by their hash, and its labels.
_Content = tuple[bytes, frozenset[Target]]


@dataclass(slots=True)
class _Batch:
    """Data points that became complete together: a target that fits none of them is worth a notice. Of those
    that hold the very same, one is ``begun``, and ``scored`` for all."""

    fitted: set[str] = field(default_factory=set)
    misfits: dict[str, str] = field(default_factory=dict)
    begun: set[_Content] = field(default_factory=set)
    scored: dict[_Content, Evaluation] = field(default_factory=dict)


@dataclass(slots=True)
class _Job:
    """``targets`` are known and ``gather`` asks for the answer once it is begun."""

    point: DataPoint
    batch: _Batch
    last: bool
    done: Done
    targets: list[Target] | None = None
    content: _Content = (b"", frozenset())
    gather: Gather | None = None


class Evaluator:
    """Scores data points in a thread of its own, or by an engine's workers, and passes on what it finds."""

    def __init__(
        self,
        frontend: FrontendLink,
        scores: Sequence[str] | None = None,
        seed: int = 0,
        engine: Engine | None = None,
    ) -> None:
        self.frontend, self.scores, self.seed = frontend, scores, seed
        self.engine = engine or LocalEngine()
        self._targets = KnownTargets(frontend)
        self._relations = Relations(seed) if scores is None else None
        self._orders = ArrivalOrder()
        self._told: set[tuple[str, ...]] = set()
        self._lock = threading.Lock()  # around _told and _batch
        self._batch = _Batch()
        self._counts: Counter[str] = Counter(scored=0, failed=0)
        self._of_runs: dict[tuple[str, str], Counter[str]] = {}
        self._trouble = ""  # why nothing can be stored now
        self.closing = threading.Event()
        self._worker: Worker[_Job] = Worker(
            "intus-evaluator", self._work, lambda job: job.point.nbytes, self._begin, self.engine.ahead
        )

    def points(self, batch: Sequence[DataPoint], done: Done = lambda point: None) -> None:
        """Queue data points that became complete together; ``done`` hears of each whose scores are stored, or
        that can have none."""
        for number, point in enumerate(batch, start=1):
            self.point(point, last=number == len(batch), done=done)

    def point(self, point: DataPoint, *, last: bool, done: Done = lambda point: None) -> None:
        """Queue one of the data points that became complete together."""
        with self._lock:
            self._worker.submit(_Job(point, self._batch, last, done))
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

    def report(self, role: str, counts: Mapping[str, Any]) -> None:
        """Pass another role's counts on."""
        self.frontend.report(role, counts)

    def flush(self, run: str | None = None, model: str | None = None, timeout: float | None = None) -> None:
        """Return when all that was queued is scored and stored. Raises AwayError when ``timeout`` seconds are
        over, or when the frontend has been away for some."""
        left = wait_for(self._worker, lambda: self._trouble, timeout)
        self.frontend.flush(run, model, left)

    def clear(self) -> None:
        """Forget everything, targets too."""
        self._drop(lambda job: True)
        self._targets.clear()
        self._orders.forget()
        with self._lock:
            self._told = set()
        self._counts = Counter(scored=0, failed=0)
        self.frontend.clear()

    def remove(self, model: str) -> None:
        """Forget a model."""
        self._drop(lambda job: job.point.key.model == model)
        self._orders.forget(model)
        with self._lock:
            self._told = {told for told in self._told if told[2] != model}
        self.frontend.remove(model)

    def status(self) -> dict[str, int]:
        """Counts of data points: scored, failed, pending."""
        return dict(self._counts) | {"pending": self._worker.pending}

    def by_run(self) -> list[dict[str, Any]]:
        """The counts of each (run, model) for itself, of those scored last."""
        with self._lock:
            return [{"run": run, "model": model, **counts} for (run, model), counts in self._of_runs.items()]

    def _count(self, key: Key, name: str) -> None:
        self._counts[name] += 1
        with self._lock:
            counts = self._of_runs.pop((key.run, key.model), Counter())
            self._of_runs[key.run, key.model] = counts + Counter({name: 1})
            while len(self._of_runs) > COUNTED:
                del self._of_runs[next(iter(self._of_runs))]

    def close(self) -> None:
        """Finish the queue; what cannot be stored now is left to who sent it."""
        self.closing.set()
        self._worker.close()
        self.engine.close()

    def _drop(self, unwanted: Callable[[_Job], bool]) -> None:
        for job in self._worker.drop(unwanted):
            job.done(job.point)

    def _work(self, job: _Job) -> None:
        """Score a data point and store what is found, trying as often as it takes."""
        if self.closing.is_set() and self._trouble:
            return  # nobody would store it; who sent it keeps it
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            try:
                self._score(job)
                self._trouble = ""
                job.done(job.point)
                return
            except AwayError as error:
                if not self._trouble:
                    _log.warning("Scores wait to be stored: %s", error)
                self._trouble = str(error)
                if self.closing.wait(pause):
                    return

    def _score(self, job: _Job) -> None:
        key = job.point.key
        try:
            found = self._evaluate(job)
            news = self._orders.hear(job.point)
            if news is not None:
                self.frontend.order(key.run, key.model, job.point.mode_shown, news)
            self.frontend.results(self._orders.told(job.point, found.results))
            self._count(key, "scored")
            self._notice(self._findings(job, found))
        except AwayError:
            raise
        except Exception as error:  # whatever a score does, the next data point is scored
            self._count(key, "failed")
            _log.exception("Scoring %s of %s failed", key.address, key.model)
            text = f"Scoring {key.address!r} failed: {type(error).__name__}: {error}"
            self._notice([Notice("score_failed", text, "error", key.run, key.model)])
        if job.last:
            with suppress(AwayError):
                self.frontend.report("evaluator", self.status() | {"runs": self.by_run()})

    def _begin(self, job: _Job) -> None:
        """Have a data point measured; a module that returns what its last child returned has its child's
        scores."""
        if job.targets is None:
            job.targets = self._targets.of(job.point)
            job.content = job.point.digest(), frozenset(job.targets)
        if job.content not in job.batch.begun:
            job.gather = self._submit(job)
            job.batch.begun.add(job.content)

    def _submit(self, job: _Job) -> Gather:
        sketched = self._relations is not None
        return self.engine.submit(Task(job.point, job.targets or (), self.scores, self.seed, sketched))

    def _evaluate(self, job: _Job) -> Evaluation:
        """The scores of a data point, in its turn."""
        if job.targets is None:  # what it needs to know was away when it should have begun
            self._begin(job)
        twin = job.batch.scored.get(job.content)
        if twin is not None:
            return replace(twin, results=renamed(twin.results, job.point))
        measured = (job.gather or self._submit(job))()
        found = job.batch.scored[job.content] = related(job.point, measured, self._relations)
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
