"""The evaluator without HTTP: scores data points in a thread."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from ...core.findings import when
from ...core.results import Results
from ...engines import Answer, Engine, LocalEngine, Task
from ...scores.probes.linear import SELECTIVITY
from ..data_point import DataPoint, with_last
from ..decoding import read
from ..errors import AwayError, HeldError, fault
from ..interfaces import Done, FrontendLink, RunKey
from ..messages import DoubtRequest, Notice, RunRequest, StatusReport
from ..schedule import Moment, Schedule, Shown
from ..worker import DATA_POINT, Worker, summary, wait_for
from .arrival_order import WITHDRAWN, ArrivalOrder, disproved, withdrawn
from .late_targets import LateTargets
from .relations import Relations
from .scoring import (
    DEFAULT,
    Evaluation,
    Measured,
    chosen,
    first_scores,
    includes_default,
    infos_of,
    leaves_out_selectivity,
    measure,
    measured_as,
    related,
    renamed,
    warm_up,
)
from .targets import Choice, KnownTargets, Target
from .unlabeled import Unlabeled

_log = logging.getLogger("intus.serving")
_MOST_BATCHES = 1000  # most epochs of which more is to come
TRIES = 2  #: how often a data point must fail by its data until it has no scores

#: The hash of a data point's arrays and its targets, which determine its scores.
_Content = tuple[bytes, frozenset[Target]]


@dataclass(slots=True)
class _Batch:
    """Data points of an epoch of a run that became complete together.

    Data points with the same content are scored once. So are those with the same rows in another shape, as
    of a ``Flatten``, unless positions have labels; only their relations to others are their own. Of outputs
    with the same content, the relations to other layers are the same too.
    """

    unlabeled: Unlabeled = field(default_factory=Unlabeled)
    begun: set[_Content] = field(default_factory=set)
    scored: dict[_Content, Evaluation] = field(default_factory=dict)
    measured: dict[_Content, Measured] = field(default_factory=dict)


class _DroppedError(Exception):
    """Raised in place of storing what belongs to a run that was removed meanwhile."""


@dataclass(slots=True)
class _Job:
    """A data point to score; what follows ``waiting`` is set once it is begun.

    Attributes:
        ahead: Whether only what needs no other data point is scored, ahead of its turn.
        shown: Whether that was done.
        looked_at: The data points that have only their first scores computed, ahead of their turns.
        dropped: Whether its run was removed: nothing of it is stored any more.
    """

    point: DataPoint
    batch: _Batch
    last: bool
    done: Done
    back: Callable[[AwayError], None] | None
    waiting: Moment | None = None
    choices: list[Choice] = field(default_factory=list)
    targets: list[Target] | None = None
    content: _Content = (b"", frozenset())
    rows: _Content | None = None  # the same of its rows, whatever their shape; None if that counts
    answer: Answer[Measured] | None = None
    failures: int = 0
    ahead: bool = False
    shown: bool = False
    looked_at: Sequence[DataPoint] = ()
    dropped: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the data point, which are counted once."""
        return 0 if self.ahead else self.point.nbytes

    def early(self) -> _Job | None:
        """Return what to do for it ahead of its turn; None if that was done."""
        if self.shown:
            return None
        self.shown = True
        return _ahead(self.point)


def _ahead(point: DataPoint, looked_at: Sequence[DataPoint] = ()) -> _Job:
    return _Job(point, _Batch(), False, lambda point, scored: None, None, ahead=True, looked_at=looked_at)


class Evaluator:
    """Scores data points by their worth, in a thread or on an engine's workers, and passes the scores on.

    ``schedule`` has the order. The scores do not depend on it.

    A data point has no scores only if it fails by its own data, twice. If its scores cannot be stored, all
    wait until they can; if memory or a library is missing, it is set aside and tried again.

    Args:
        frontend: The frontend, which stores scores, targets and notices.
        scores: Names of scores, as for ``scoring.chosen``.
        seed: Seed of the split, the sample and the shuffled labels.
        engine: The engine that computes scores, by default in this process.
        splits: Number of splits that classifiers are scored on.
        on_show: Returns what open pages have on show.
        keeps: Whether the frontend keeps samples of rows, so that epochs that were scored before a restart,
            or long ago, are compared too.
    """

    def __init__(
        self,
        frontend: FrontendLink,
        scores: Sequence[str] | None = None,
        seed: int = 0,
        engine: Engine | None = None,
        splits: int = 1,
        on_show: Callable[[], Collection[Shown]] = tuple,
        keeps: bool = True,
    ) -> None:
        self.frontend, self.scores, self.seed, self.splits = frontend, scores, seed, splits
        self.engine = engine or LocalEngine()
        self._targets, self._late = KnownTargets(frontend), LateTargets()
        self._keeps = keeps
        self._relations = Relations(seed, frontend if keeps else None) if includes_default(scores) else None
        self._order = ArrivalOrder()
        self._fitted: dict[RunKey, dict[str, set[str]]] = {}  # see Unlabeled.fitted
        self._noticed: set[tuple[str, ...]] = set()
        self._lock = threading.Lock()  # around _noticed and _batches
        self._storing = threading.RLock()  # held while something of a job is stored, or its run is removed
        self._removed: deque[tuple[str, str | None]] = deque()  # to be forgotten by the thread that scores
        self._batches: dict[tuple[str, str, Moment], _Batch] = {}  # those of which more is to come
        self._counts: Counter[str] = Counter(scored=0, failed=0)
        self.closing = threading.Event()
        self._ended = False  # whether the engine is closed
        self._is_warm = False
        self._worker: Worker[_Job] = Worker(
            "intus-evaluator",
            self._work,
            lambda job: job.nbytes,
            self._begin,
            self.engine.ahead,
            lambda job: None if job.ahead else job.point.identity,
            Schedule(lambda job: job.point.place, on_show, _Job.early, self._to_look_at),
            lambda job: "" if job.ahead else DATA_POINT,
        )

    def points(self, batch: Sequence[DataPoint], done: Done = lambda point, scored: None) -> None:
        """Queue data points that became complete together.

        ``done`` is called with each one once its scores are stored, or once it is certain to have none.
        """
        for point, last in with_last(batch):
            self.point(point, last=last, done=done)

    def point(
        self,
        point: DataPoint,
        *,
        last: bool,
        done: Done = lambda point, scored: None,
        back: Callable[[AwayError], None] | None = None,
        waiting: Moment | None = None,
    ) -> None:
        """Queue one of several data points of an epoch that became complete together.

        Args:
            point: The data point.
            last: Whether it is the last of them.
            done: Called with it once its scores are stored, or once it is certain to have none.
            back: Called if it cannot be scored or stored now, with the reason: the caller keeps it and tries
                again. By default this evaluator does.
            waiting: The earliest epoch of its run of which others wait at the caller.
        """
        batch_key = point.place[:3]
        with self._lock:
            batch = self._batches.setdefault(batch_key, _Batch())
            while len(self._batches) > _MOST_BATCHES:
                del self._batches[next(iter(self._batches))]
            if last:
                self._batches.pop(batch_key, None)
            self._worker.submit(_Job(point, batch, last, done, back, waiting))

    def backlog(self) -> int:
        """Return the bytes of the data points in the queue."""
        return self._worker.nbytes

    def put_target(self, target: Target) -> None:
        """Use and store a target, for what arrives from now on."""
        self._warm_up()
        is_new = not self._targets.has(target.name)
        changed = self._targets.put(target)
        with self._lock:
            self._noticed = {noticed for noticed in self._noticed if noticed[0] != target.name}
        if changed:
            whose = f"the run {target.run!r} is" if target.run else "the runs that it is for are"
            text = (
                f"Target {target.name!r} was registered again with other labels and the same patterns: "
                f"{whose} now scored on the new ones, and what arrived before on the earlier ones. For "
                "runs that train side by side, use other names, or a run_pattern for each."
            )
            self._notify([Notice("target_replaced", text, "warning", target.run)])
        if is_new and (late := self._late.registered(target)):
            self._notify(late)
        if target.typed and target.types is not None and leaves_out_selectivity(self.scores):
            self._tell_of_types(target)

    def _tell_of_types(self, target: Target) -> None:
        """Say once for each script that no score needs the types that it gave."""
        if self._first_time("", target.client, "types"):
            text = (
                f"No score that this server computes needs types, which target {target.name!r} has: "
                f"start it with intus serve --scores {DEFAULT},{SELECTIVITY} for {SELECTIVITY} as well."
            )
            self._notify([Notice("types_unused", text, "warning", target.run)])

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        """Pass a graph on."""
        self._warm_up()
        self.frontend.put_graph(run, model, blob)

    def put_run(self, request: RunRequest) -> None:
        """Pass on what the user says of a run."""
        self.frontend.put_run(request)

    def put_doubt(self, request: DoubtRequest) -> None:
        """Pass a doubt of rows on: the frontend keeps it for the scores that are still to come."""
        self.frontend.put_doubt(request)

    def notices(self, notices: Sequence[Notice]) -> None:
        """Pass notices on."""
        self.frontend.notices(notices)

    def report(self, report: StatusReport) -> None:
        """Pass another role's counts on."""
        self.frontend.report(report)

    def counts(self) -> StatusReport:
        """Return the counts of this role as a report."""
        return read({"evaluator": self.status()}, StatusReport)

    def flush(self, run: str | None = None, model: str | None = None, timeout: float | None = None) -> None:
        """Wait until the queue is scored and stored.

        Raises:
            AwayError: If that takes longer than ``timeout`` seconds, or the frontend does not answer.
        """
        self.frontend.flush(run, model, wait_for(self._worker, timeout))

    def check(self) -> None:
        """Raise ReplacedError if it is known that scores would be lost."""
        self.frontend.check()

    def clear(self, owner: str) -> None:
        """Delete the targets of a client."""
        self._targets.clear(owner)
        self.frontend.clear(owner)

    def remove(self, run: str, model: str | None = None) -> bool:
        """Delete a run, or one model of it, and return whether it was stored.

        Nothing of it is stored meanwhile, nor later of what waits or is scored now. If the frontend cannot
        delete it, everything stays.
        """
        with self._storing:
            stored = self.frontend.remove(run, model)
            self._removed.append((run, model))
            taken, current = self._worker.drop(
                lambda job: job.point.key.run == run and model in (None, job.point.key.model)
            )
            dropped = taken if current is None else [*taken, current]
            for job in dropped:
                job.dropped = True
            self._late.forget(run, model)
        for job in dropped:
            job.done(job.point, False)
        return stored

    def _forget(self, run: str, model: str | None) -> None:
        """Forget what was found in the data points of a run that was removed."""

        def unwanted(of_run: str, of_model: str) -> bool:
            return of_run == run and model in (None, of_model)

        self._order.forget(run, model)
        self._fitted = {key: fitted for key, fitted in self._fitted.items() if not unwanted(*key)}
        if self._relations is not None:
            self._relations.forget(run, model)
        with self._lock:
            self._noticed = {noticed for noticed in self._noticed if not unwanted(*noticed[1:3])}

    def status(self) -> dict[str, int]:
        """Return the counts of data points: scored, failed, pending."""
        return dict(self._counts) | {"pending": self._worker.pending}

    def troubles(self) -> dict[RunKey, str]:
        """Return why data points cannot be scored or stored now, by (run, model)."""
        return summary((job.point.key[:2], DATA_POINT, why) for job, why in self._worker.troubles())

    def close(self, patience: float | None = None) -> bool:
        """Finish the queue, and return whether all was scored. What is left is kept by the sender.

        Args:
            patience: Seconds to score at most; None until all is scored.
        """
        self.closing.set()
        finished = self._worker.close(patience)
        self.end()
        return finished

    def end(self) -> None:
        """End the workers at once. What is under way is kept by the sender."""
        self.closing.set()
        self._ended = True
        self.engine.close()
        # its thread refers to the workers' semaphores, which loky frees with the last one
        self._worker.close(1.0)

    def _warm_up(self) -> None:
        """Import what scores need when a training begins, so that its first epoch need not wait for that."""
        if not self._is_warm:
            self._is_warm = True
            threading.Thread(target=self._import, name="intus-warm-up", daemon=True).start()

    def _import(self) -> None:
        with suppress(Exception):  # what fails now fails with the first data point, which tells of it
            warm_up(self.scores)

    # -- one data point ------------------------------------------------------------------------------

    @contextmanager
    def _not_removed(self, job: _Job) -> Iterator[None]:
        """Keep a job's run from being removed meanwhile; raises _DroppedError if it was."""
        with self._storing:
            if job.dropped:
                raise _DroppedError
            yield

    def _work(self, job: _Job) -> None:
        """Score a data point and store its scores; raises AwayError to be called with it again later."""
        while self._removed:  # here, since the job before this one may have been of such a run
            self._forget(*self._removed.popleft())
        if job.dropped:  # before anything of it was done
            return
        if job.ahead:
            with suppress(Exception):  # in its turn it is scored again, and told of
                (self._look if job.looked_at else self._show)(job)
            return
        try:
            self._settle(job)
        except _DroppedError:  # it is done
            return
        except AwayError as error:
            if job.dropped:
                return
            if job.back is None:
                raise
            if job.last:  # it will come again, and end the batch then
                with self._lock:
                    self._batches[job.point.place[:3]] = job.batch
            job.back(error)

    def _settle(self, job: _Job) -> None:
        """Score a data point, or find out that it fails by its own data."""
        scored = False
        while not scored and job.failures < TRIES:
            try:
                self._score(job)
                scored = True
            except (AwayError, _DroppedError):
                raise
            except Exception as error:  # an error must not stop the next data point
                job.answer = None
                if self._ended:  # the workers end too, which says nothing of the data
                    raise AwayError("The evaluator is being stopped.") from error
                if why := fault(error):
                    self._tell(job, why)
                    raise HeldError(why) from error
                job.failures += 1
                if job.failures == TRIES:
                    self._fail(job, error)
        if job.last:
            with suppress(AwayError):
                self.frontend.report(self.counts())
        with self._not_removed(job):
            job.done(job.point, scored)

    def _show(self, job: _Job) -> None:
        """Store the scores of a data point that need no other one."""
        measured = (job.answer or self._submit(job))()
        self._store(job, related(job.point, measured, None))

    def _to_look_at(self, jobs: Sequence[_Job]) -> _Job | None:
        points = [job.point for job in jobs if not job.shown]
        return _ahead(points[0], points) if points and first_scores(self.scores) else None

    def _look(self, job: _Job) -> None:
        """Store the first scores of data points of an epoch, in one transaction and without the engine."""
        scores = first_scores(self.scores)
        measured = [measure(point, scores, self.seed, self.splits, False) for point in job.looked_at]
        with self._not_removed(job):
            results = Results.concat(
                self._ordered(point, related(point, each, None).results)
                for point, each in zip(job.looked_at, measured, strict=True)
            )
            self.frontend.results(results, infos_of(results, self.splits), (), self._unscored(job))

    def _ordered(self, point: DataPoint, results: Results) -> Results:
        """Return results with notes on the order of arrival, of which the frontend was told first."""
        holds = self._order.news(point)
        if holds:
            self.frontend.arrival_order(point.key.run, point.key.model, point.mode_shown)
        elif holds is False:
            self.frontend.put_doubt(disproved(point))
        return self._order.update(point, results)

    def _store(self, job: _Job, evaluation: Evaluation) -> None:
        with self._not_removed(job):
            self._store_now(job, evaluation)

    def _store_now(self, job: _Job, evaluation: Evaluation) -> None:
        point = job.point
        ordered = self._ordered(point, evaluation.results)
        results = Results.concat([ordered, evaluation.later])
        infos = infos_of(results, self.splits)
        unscored, key = self._unscored(job), point.key
        self.frontend.results(results, infos, evaluation.predictions, unscored)
        kept = evaluation.known.kept() if self._keeps and evaluation.known is not None else None
        if kept is not None:
            self.frontend.keep_sketch(key.run, key.model, kept, unscored)
        of_mode = key.run, key.model, key.mode
        if WITHDRAWN in ordered["note"] and self._first_time("", *of_mode, "withdrawn"):
            self._notify([withdrawn(*of_mode)])  # a newer epoch was scored first, and showed it

    def _unscored(self, job: _Job) -> Moment | None:
        """Return the earliest epoch of a run that is not scored in full; None if only the job's is left."""
        point = job.point
        waiting = self._worker.earliest(point.key.run, point.key.model), job.waiting
        known = [each for each in waiting if each is not None and each.attempt <= point.attempt]
        return min(known, default=None)

    def _earliest(self, job: _Job) -> Moment:
        """Return the earliest epoch of a run that is not scored in full, the job's included."""
        moment = job.point.place.moment
        return min(self._unscored(job) or moment, moment)

    def _score(self, job: _Job) -> None:
        evaluation = self._evaluate(job)
        self._store(job, evaluation)
        if evaluation.faults:  # what could be computed is shown meanwhile
            why = " ".join(f"Score {name!r}: {why}" for name, why in evaluation.faults.items())
            self._tell(job, why)
            raise HeldError(why)
        self._counts["scored"] += 1
        with self._not_removed(job):
            self._notify(self._notices_of(job, evaluation))

    def _tell(self, job: _Job, why: str) -> None:
        """Report, once for each reason, that data points cannot be scored now."""
        key = job.point.key
        with self._not_removed(job):
            if self._first_time("", key.run, key.model, why):
                text = f"{why} First at {key.layer}. What cannot be scored is kept, and tried again."
                self._notify([Notice("kept", text, "error", key.run, key.model)])

    def _fail(self, job: _Job, error: Exception) -> None:
        """Report that a data point cannot be scored."""
        key = job.point.key
        self._counts["failed"] += 1
        _log.error("Scoring %s of %s failed", key.address, key.model, exc_info=error)
        text = f"Scoring {key.layer} failed: {type(error).__name__}: {error}"
        with self._not_removed(job):
            self._notify([Notice("score_failed", text, "error", key.run, key.model)])

    def _begin(self, job: _Job) -> None:
        """Start computing the scores of a data point, unless its batch has one with the same content.

        A module that returns the output of its last child has the same content as the child. The data points
        of an epoch are begun in the network's order.
        """
        if job.looked_at or self._ended:
            return
        if job.targets is None:
            job.choices = self._targets.choices(job.point)
            job.targets = [choice.target for choice in job.choices if choice.target is not None]
            if late := self._late.chosen(job.point, [target.name for target in job.targets]):
                self._notify(late)
            job.content = job.point.digest(), frozenset(job.targets)
            flat = None if any(target.per_position for target in job.targets) else job.point.of_rows()
            if flat is not None:
                job.rows = job.content if flat is job.point else (flat.digest(), job.content[1])
        contents = {one for one in (job.content, job.rows) if one is not None}
        if not contents & job.batch.begun:
            job.answer = self._submit(job)
        job.batch.begun |= contents

    def _submit(self, job: _Job) -> Answer[Measured]:
        compared = self._relations is not None
        arguments = job.point, chosen(self.scores), self.seed, self.splits, compared
        return self.engine.submit(Task(measure, arguments, tuple(job.targets or ()), job.point.nbytes))

    def _evaluate(self, job: _Job) -> Evaluation:
        """Return the scores of a data point. It is called in the order of the queue."""
        if self._ended:
            raise AwayError("The evaluator is being stopped.")
        if job.targets is None:  # _begin failed, since the frontend was away
            self._begin(job)
        twin, batch = job.batch.scored.get(job.content), job.batch
        if twin is not None:
            return renamed(twin, job.point, self._relations, self._earliest(job))
        alike = batch.measured.get(job.content) or batch.measured.get(job.rows or job.content)
        measured = self._measured(job) if alike is None else measured_as(alike, job.point)
        evaluation = related(job.point, measured, self._relations, self._earliest(job))
        if not evaluation.faults:
            batch.measured[job.content] = batch.measured[job.rows or job.content] = measured
            if job.point.key.kind == "output":
                batch.scored[job.content] = evaluation
        return evaluation

    def _measured(self, job: _Job) -> Measured:
        """Wait for the scores of a data point."""
        answer, job.answer = job.answer or self._submit(job), None
        return answer()

    # -- counts and notices --------------------------------------------------------------------------

    def _notices_of(self, job: _Job, evaluation: Evaluation) -> list[Notice]:
        """Return the notices of a data point; with the last of a batch also those of unused targets."""
        key, batch, out = job.point.key, job.batch, []
        if evaluation.nonfinite and self._first_time("", key.run, key.model, "nonfinite"):
            # not where they began: the newest epoch is scored first, and the finding replaces this
            at = when(math.nan if job.point.epoch is None else job.point.epoch, job.point.step)
            text = (
                f"NaN or infinite values, found first at {key.layer} in {at}. Where they began is "
                "told by a finding, once earlier epochs and layers are scored."
            )
            out.append(Notice("nonfinite", text, "warning", key.run, key.model))
        unused = [] if evaluation.fitted or evaluation.misfits else self._targets.set_aside(job.point)
        if unused and self._first_time("", key.run, key.model, "kept"):
            text = (
                f"Targets registered before the server started ({', '.join(unused)[:200]}) are not used for "
                "this run, which has no scores of them. To use them, register them again (register_targets)."
            )
            out.append(Notice("target_kept", text, "info", key.run, key.model))
        for name, reason in evaluation.failures.items():
            text = f"Score {name!r} failed on {key.layer}: {reason}"
            out.append(Notice("score_failed", text, "error", key.run, key.model))
        for choice in job.choices:
            if choice.disputed and self._first_time(choice.name, key.run, key.model, "disputed"):
                out.append(Notice("target_disputed", choice.text, "warning", key.run, key.model))
        elsewhere = self._targets.for_other_layers(job.point)
        batch.unlabeled.add(key, evaluation.fitted, evaluation.misfits, elsewhere)
        if job.last:
            out += self._notices_of_targets(key.run, key.model, batch.unlabeled)
        return out

    def _notices_of_targets(self, run: str, model: str, unlabeled: Unlabeled) -> list[Notice]:
        """Return the notices of targets that do not fit, and remember where they do."""
        earlier = self._fitted.setdefault((run, model), {})
        found = unlabeled.notices(
            run, model, earlier, lambda target, subject: self._first_time(target, run, model, subject)
        )
        for name, series in unlabeled.fitted.items():
            earlier.setdefault(name, set()).update(series)
        return found

    def _first_time(self, *what: str) -> bool:
        with self._lock:
            new = what not in self._noticed
            self._noticed.add(what)
        return new

    def _notify(self, notices: Sequence[Notice]) -> None:
        try:
            self.frontend.notices(notices)
        except Exception:
            _log.exception("A notice could not be passed on")
