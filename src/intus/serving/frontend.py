"""The frontend without HTTP: stores scores, targets, graphs and notices in the database."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import msgspec
from sqlalchemy.exc import DataError, DBAPIError

from .. import scores
from ..core.errors import InputError, ServeError
from ..core.results import COLUMNS, Predictions, Results
from ..core.score_info import ScoreInfo
from ..storage import followups, logged
from ..storage.database import Database
from ..storage.groups import mean_over_runs
from ..storage.kept_sketch import KeptSketch
from ..storage.logged import Logged
from ..storage.same_file import ReplacedError
from ..storage.soundness import DamagedError
from ..storage.tables import reason
from ..viewing.repr_text import listed
from .data_point import kind_label
from .decoding import decode
from .errors import AwayError, fault
from .evaluation.arrival_order import BY_ORDER, UNVERIFIED, WITHDRAWN, withdrawn
from .evaluation.targets import Target
from .findings_of_runs import FindingsOfRuns
from .last_minute import LastMinute
from .messages import (
    AboveQuery,
    ChangeRunRequest,
    ConfusionReply,
    DoubtRequest,
    FindingMessage,
    FindingsReply,
    FollowupQuery,
    FollowupReply,
    GapReply,
    LogQuery,
    LogReply,
    Notice,
    PointQuery,
    RunLedger,
    RunRequest,
    StatusReport,
    StoredUnit,
)
from .on_show import OnShow
from .predictions import MOST_CLASSES, confusion_of, gap_of, scores_of
from .schedule import Moment

_log = logging.getLogger("intus.serving")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_FOLLOWUPS: dict[str, Any] = {name: kind for kind, name in followups.KINDS.items()}
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _storing(work: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a method to raise AwayError if the database cannot be written now, so that callers retry."""

    @wraps(work)
    def call(*args: _P.args, **options: _P.kwargs) -> _T:
        try:
            return work(*args, **options)
        except DataError:  # of the values that were to be written
            raise
        except (ReplacedError, DamagedError) as error:
            raise AwayError(str(error)) from error
        except (DBAPIError, OSError, MemoryError) as error:
            if isinstance(error, ServeError):
                raise
            why = reason(error) if isinstance(error, DBAPIError) else fault(error).rstrip(".")
            raise AwayError(f"The database cannot be written now: {why}.") from error

    return call


class Frontend:
    """Stores what the other roles send. Methods that write raise AwayError if a retry may succeed.

    Attributes:
        database: The database.
        reported: The last counts of other roles.
        heard: When they came, by the clock ``monotonic``.
        on_show: What open pages have on show.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.reported: dict[str, StatusReport] = {}
        self.heard: dict[str, float] = {}
        self.on_show = OnShow()
        self._counts: Counter[str] = Counter(results=0, notices=0)
        self._findings = FindingsOfRuns(database)
        self._logged = LastMinute()
        self._began = time.time()
        self._compared = False  # whether the ledgers were compared with the database
        try:
            database.end_targets()
            database.targets()
            database.scores()
        except Exception as error:  # whatever reading a damaged value raises
            raise InputError(database.cannot_be_opened(error)) from error

    @_storing
    def results(
        self,
        results: Results,
        infos: Sequence[ScoreInfo] = (),
        predicted: Sequence[Predictions] = (),
        unscored: Moment | None = None,
    ) -> None:
        """Store results of a run, the descriptions of their scores, and the predictions of classifiers.

        Args:
            results: The results.
            infos: The descriptions.
            predicted: The predictions.
            unscored: The earliest epoch of the run that is not scored in full with these; None if all are.
        """
        self.database.add(results, infos, predicted)
        self._findings.scored(zip(results["run"], results["model"], strict=True), unscored)
        self._counts["results"] += len(results)

    @_storing
    def keep_sketch(self, run: str, model: str, sketch: KeptSketch, unscored: Moment | None = None) -> None:
        """Keep a sample of a layer's rows, to compare other epochs with it."""
        self.database.keep_sketch(run, model, sketch, None if unscored is None else unscored[1:])

    @_storing
    def sketches(
        self, run: str, model: str, training: float, at: tuple[str, float, int] | None = None
    ) -> list[KeptSketch]:
        """Return what is kept of a training without its contents, or the sample of a (layer, epoch, step).

        All is asked for when a training begins, or a server: then what others left is deleted.
        """
        if at is None:
            self.database.tidy_sketches()
        return self.database.sketches(run, model, training, at)

    @_storing
    def notices(self, notices: Sequence[Notice]) -> None:
        """Store notices, and log them, the same one once a minute."""
        for notice in notices:
            if self._logged.is_new(notice):
                place = f" in {notice.run}" if notice.run else ""
                _log.log(_LEVELS[notice.level], "%s%s: %s", notice.code, place, notice.text)
            self.database.add_notice(
                notice.code, notice.text, level=notice.level, run=notice.run, model=notice.model
            )
            self._counts["notices"] += 1

    def runs(self) -> dict[str, Any]:
        """Return every run and the descriptions of its scores and kinds; see ``messages.RunsReply``."""
        change = self.database.change_number()  # read first: of what changes meanwhile, the page hears later
        runs = self.database.runs()
        kinds = dict.fromkeys(kind for run in runs for kind in run["kinds"])
        return {
            "runs": runs,
            "scores": describe(runs, self.database.scores(), scores.infos()),
            "kinds": {kind: kind_label(kind) for kind in kinds},
            "change": change,
        }

    def grouped(self, run: str, model: str, names: Sequence[str], **selected: Any) -> dict[str, list[Any]]:
        """Return the mean of scores over the runs of a run's group, as columns with None for no number."""
        runs = [each for each in self.database.runs() if each["model"] == model]
        group = next((each["group"] for each in runs if each["run"] == run), "")
        members = [each["run"] for each in runs if group and each["group"] == group]
        kind = selected.pop("kind", None)  # the same name may mean another mode in each run
        tables = [self.database.points(each, model, **selected) for each in members]
        found = mean_over_runs(tables, group, self.database.scores())
        if kind is not None:
            modes = set(self.database.points(run, model, **selected, kind=kind)["mode"].tolist())
            of_kind = found.where(kind=kind.partition("@")[0])
            found = Results.concat(of_kind.where(mode=mode) for mode in sorted(modes))
        columns = {name: found[name].tolist() for name in names if name in COLUMNS}
        plain = {name: [None if cell != cell else cell for cell in cells] for name, cells in columns.items()}
        return plain | ({"revision": [0] * len(found)} if "revision" in names else {})

    def confusion(self, query: PointQuery) -> ConfusionReply:
        """Return which classes a classifier confuses at a point; see ``messages.ConfusionReply``."""
        self.on_show.note(query.run, query.model, query.address)
        found = self._predictions(query)
        if found is None:
            return ConfusionReply([], [], [], [], [])
        table = confusion_of(found)
        few = len(table.classes) <= MOST_CLASSES
        columns = (column.tolist() for column in (table.f1, table.low, table.high))
        return ConfusionReply(
            [str(label) for label in table.classes], table.matrix.tolist() if few else [], *columns
        )

    def above(self, query: AboveQuery) -> GapReply:
        """Return the difference of a score to that at another point, on the same held-out items."""
        other = msgspec.structs.replace(
            query,
            **{
                name: value
                for name in ("run", "model", "address", "epoch")
                if (value := getattr(query, f"other_{name}")) is not None
            },
        )
        return GapReply(*gap_of(self._predictions(query), self._predictions(other), query.score))

    def followup(self, query: FollowupQuery) -> FollowupReply:
        """Return what is stored of a unit besides its scores; see ``messages.FollowupReply``."""
        asked = query.run, query.model, query.target, query.unit, query.epoch
        units, epoch, found = self.database.followups(*asked)
        read = {kind: decode(content.encode(), _FOLLOWUPS[kind]) for kind, content in found.items()}
        return FollowupReply([StoredUnit(*each) for each in units], query.unit, epoch, **read)

    def log(self, query: LogQuery) -> LogReply:
        """Return the values that the user logged; see ``messages.LogReply``."""
        found = self.database.log(query.run, query.model)
        total = logged.totals(found)
        if query.most is not None:
            found = list(logged.thinned(found, query.most))
        return LogReply(**logged.columns(found), total=total)

    def _predictions(self, query: PointQuery) -> Predictions | None:
        return self.database.predictions(
            query.run,
            query.model,
            query.address,
            query.target,
            scores_of(query.score),
            kind=query.kind,
            epoch=query.epoch,
            step=query.step,
        )

    @_storing
    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        """Store a model's graph."""
        self.database.put_graph(run, model, blob)

    @_storing
    def put_run(self, request: RunRequest) -> None:
        """Store what the user says of a run."""
        log = [
            Logged(name, entry.step, entry.time, entry.epoch, float(value), request.training)
            for entry in request.log
            for name, value in entry.values.items()
        ]
        self.database.put_run(request.run, request.model, config=request.config, tags=request.tags, log=log)
        self._findings.logged(request.run, request.model, log)

    @_storing
    def put_doubt(self, request: DoubtRequest) -> None:
        """Store a doubt of rows, and look again at what followed from their scores."""
        changed = self.database.put_doubt(request.run, request.model, request.doubt())
        self._findings.revised(request.run, request.model)
        if changed and request.note == WITHDRAWN:
            self.notices([withdrawn(request.run, request.model, mode) for mode in request.modes or [""]])

    @_storing
    def change_run(self, change: ChangeRunRequest) -> None:
        """Tag, rename or delete a run; raises InputError if there is none."""
        models = [each["model"] for each in self.database.runs() if each["run"] == change.run]
        if not models:
            raise InputError(f"There is no run {change.run!r}.")
        if change.remove:  # by a process without the aggregator
            self.remove(change.run)
            return
        for model in models if change.tags is not None else ():
            self.database.put_run(change.run, model, tags=change.tags)
        if change.name is not None:
            self.database.rename(change.run, change.name)

    @_storing
    def put_target(self, target: Target) -> None:
        """Store a target, so that it survives a restart of the server."""
        request = target.request()
        self.database.put_target(
            request.name,
            request.targets,
            request.model_pattern,
            request.layer_pattern,
            request.run_pattern,
            request.client,
            groups=request.groups,
            types=request.types,
            exact=request.exact,
            during=request.during,
            number=request.number,
            registered=request.registered,
            waiting=request.waiting,
            moments=request.moments,
        )

    @_storing
    def claim_target(self, name: str, owner: str) -> None:
        """Store that an owner's targets of a name apply to the runs of that owner only."""
        self.database.claim_target(name, owner)

    @_storing
    def arrival_order(self, run: str, model: str, mode: str) -> None:
        """Verify the scores of labels that were matched by order of arrival."""
        self.database.revise(run, model, mode, UNVERIFIED, BY_ORDER)

    @_storing
    def targets(self) -> list[dict[str, Any]]:
        """Return the stored targets."""
        try:
            return self.database.targets()
        except (ValueError, TypeError) as error:
            raise AwayError(f"The stored targets are damaged: {error}.") from error

    def report(self, report: StatusReport) -> None:
        """Keep the counts of another role for the status.

        The evaluator sends its counts when all layers of an epoch are scored: then findings can change.
        """
        role = "aggregator" if report.aggregator is not None else "evaluator"
        self.reported[role], self.heard[role] = report, time.monotonic()
        if report.evaluator is not None:
            self._findings.update()
        if report.runs and not self._compared:
            self._compared = True
            with suppress(ServeError):  # a database that cannot be read is told elsewhere
                self._compare([row for row in report.runs if row.scored and row.since < self._began])

    @_storing
    def _compare(self, rows: Sequence[RunLedger]) -> None:
        """Tell of scores that the database lacks, though the ledgers of before this start have them.

        A run that the database knows by a change, and does not have, was renamed or removed in it.
        """
        database = self.database
        stored = {(each["run"], each["model"]) for each in database.runs()} if rows else set()
        known = [row for row in rows if (row.run, row.model) in stored]
        gone = [
            f"{row.run!r} of {row.model!r} ({row.scored} scored)"
            for row in rows
            if row not in known and not database.last_change(row.run, row.model)
        ]
        behind = [
            f"{row.run!r} of {row.model!r} (epoch {row.newest:g})"
            for row in known
            if row.newest is not None and not database.has_points(row.run, row.model, row.newest)
        ]
        short = [f"{run!r} of {model!r} ({number:,})" for run, model, number in database.short_runs()]
        remedy = (
            "What was scored is not in the journal any more: end the server and put the right database back, "
            "or record the runs again."
        )
        out = []
        if gone:
            out.append(
                "By the journal, arrays of runs were scored that have no scores in this database: "
                f"{listed(gone, most=5)}. The database was deleted or replaced. {remedy}"
            )
        if behind:
            out.append(
                "By the journal, the newest epoch of runs was scored, and this database has no scores of it: "
                f"{listed(behind, most=5)}. The database is an older copy, or has lost rows, and may lack "
                f"scores of other epochs too. {remedy}"
            )
        if short:
            out.append(
                f"This database has lost scores of runs, by its own count: {listed(short, most=5)}. Another "
                "program deleted them, or repaired the database without them. Put a whole copy back, or "
                "record the runs again."
            )
        self.notices([Notice("other_database", text, "warning") for text in out])

    def findings(self, run: str, model: str) -> FindingsReply:
        """Return what follows from the scores of a run; see ``messages.FindingsReply``."""
        change = self.database.last_change(run, model)  # before the findings, which may only be newer
        made, behind = self._findings.age(run, model)  # likewise
        found = self._findings.of(run, model)
        return FindingsReply(
            change,
            [
                FindingMessage(**each._asdict() | {"epoch": None if each.epoch != each.epoch else each.epoch})
                for each in found
            ],
            made,
            behind,
        )

    @_storing
    def flush(self, run: str | None = None, model: str | None = None, timeout: float | None = None) -> None:
        """Check that the database is still there and sound, and look at scores that were not looked at."""
        self.check()
        self._findings.flush(run, model)
        self.database.prove()  # also after what the findings read

    def check(self) -> None:
        """Raise ReplacedError if what is stored would be lost."""
        self.database.check()

    @_storing
    def clear(self, owner: str) -> None:
        """Delete the targets of a client."""
        self.database.remove_targets(owner)

    @_storing
    def remove(self, run: str, model: str | None = None) -> bool:
        """Delete a run, or a model of it, and return whether it was stored."""
        with self._findings.held():  # else a finding of the run might be stored after it
            removed = self.database.remove(model, run=run) > 0
            self._findings.forget(run, model)
        return removed

    def status(self) -> dict[str, int]:
        """Return the counts of what was stored: rows of results, notices."""
        return dict(self._counts)

    def close(self) -> None:
        """Close the database."""
        self._findings.close()
        self.database.close()


def describe(
    runs: Iterable[Mapping[str, Any]], stored: Mapping[str, ScoreInfo], known: Mapping[str, ScoreInfo]
) -> list[ScoreInfo]:
    """Return the description of each score of these runs, in the order in which scores are shown.

    A description that is stored with the results comes first. Results of an older version have none: then the
    score that is registered under that name is used, unless the results contradict it. Otherwise the
    description contains only what the results show: whether the score has a target, and its level.

    Args:
        runs: The runs, as ``Database.runs`` returns them.
        stored: The stored descriptions by name.
        known: The registered descriptions by name, in the order to show them.
    """
    seen: dict[str, set[tuple[str, bool]]] = {}
    for run in runs:
        for level in ("layer", "unit"):
            for pair in run[f"{level}s"]:
                seen.setdefault(pair["score"], set()).add((level, pair["target"] != ""))
    out = []
    for name in [*(name for name in known if name in seen), *(name for name in seen if name not in known)]:
        info = stored.get(name) or known.get(name)
        if info is None or (name not in stored and seen[name] != {(info.level, info.needs_target)}):
            level, needs_target = min(seen[name])
            info = ScoreInfo(name=name, level=level, needs_target=needs_target)  # type: ignore[arg-type]
        out.append(info)
    return out
