"""Scoring as a pure function of a data point and targets."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ...core.doubt import WITH_EPOCH
from ...core.errors import InputError
from ...core.findings import LAST_BEFORE, NONE_BEFORE
from ...core.notes import joined
from ...core.projection import SUMMARY
from ...core.record import PROBE_SET_MODE, Record
from ...core.results import COLUMNS, Predictions, Results
from ...core.score_info import ScoreInfo
from ...scores import Score, Scorer, ScoreResult, get, infos, names
from ...scores.comparisons.similarity import Sketch, sketch
from ...scores.multiple import depends_on_split, info_over_splits
from ...scores.probes.linear import SELECTIVITY
from ...scores.repeated import RepeatedScorer
from ...scores.scorer import SAMPLE_BYTES
from ...scores.statistics.sent import SENT, rank_of
from ...scores.statistics.summed import are_sums, is_of_step, sums_of
from ..data_point import DataPoint, Key
from ..errors import MisfitError, fault
from ..messages import TargetRequest
from ..schedule import Moment
from .relations import OF_POSITIONS, Known, Later, Related, Relations
from .targets import (
    Fitted,
    Target,
    batch_first,
    coverage,
    doubts_of_positions,
    fit,
    matched,
    of_labels,
    without_positions,
)

_log = logging.getLogger("intus.serving")


@dataclass(slots=True)
class Measured:
    """The scores of one data point, without those that relate it to others.

    Attributes:
        results: The scores.
        fitted: Names of the targets that were used.
        misfits: The reason why a target that applies could not be used, by the target's name.
        failures: The exception that a score raised, by the score's name.
        faults: Why a score cannot be computed now, whatever the data are, by the score's name.
        sketch: The sketch for comparisons with other data points; None if there are none.
        predictions: The predictions of the classifiers.
    """

    results: list[ScoreResult] = field(default_factory=list)
    fitted: set[str] = field(default_factory=set)
    misfits: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    sketch: Sketch | None = None
    predictions: list[Predictions] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All scores of one data point as a table.

    Attributes:
        results: The scores.
        fitted: As in Measured.
        misfits: As in Measured.
        failures: As in Measured.
        faults: As in Measured.
        nonfinite: Number of NaN and infinite entries.
        predictions: As in Measured.
        later: The scores of others that compare them with this one, if they were scored before.
        known: What others are compared with; None for nothing.
    """

    results: Results
    fitted: set[str]
    misfits: dict[str, str]
    failures: dict[str, str]
    faults: dict[str, str]
    nonfinite: int
    predictions: list[Predictions]
    later: Results = field(default_factory=Results)
    known: Known | None = None


#: Stands for the names of the scores that servers compute if none is chosen.
DEFAULT = "default"
_LAST_ALONE = "of the last recorded pass alone, since its rows are not known"
_NEEDS_ROWS = "needs every row, and the probe sent statistics; probe(statistics=False) sends the rows"
#: A score without results, which makes the statistics keep the sample for comparing layers.
_SAMPLED = Score("sampled", lambda statistics: (), frozenset({"sample", "rows"}))


def default_scores() -> list[str]:
    """Return the names of the scores that servers compute by default.

    These are all registered scores of layers except the expensive ones, including those of installed
    packages.
    """
    return [name for name in names() if get(name).per != "unit" and get(name).default]


def evaluate(
    point: DataPoint,
    targets: Iterable[Target],
    scores: Sequence[str] | None = None,
    *,
    seed: int = 0,
    splits: int = 1,
    relations: Relations | None = None,
) -> Evaluation:
    """Compute the scores of a data point, those that need a target for each target that fits.

    Args:
        point: The data point.
        targets: The targets; those that do not apply are ignored.
        scores: Names of scores, as for ``chosen``.
        seed: Seed of the split, the sample and the shuffled labels.
        splits: Number of splits that classifiers are scored on.
        relations: State of earlier data points, to add the scores that relate this one to them; None for
            none.
    """
    return related(
        point, measure(point, chosen(scores), seed, splits, relations is not None, *targets), relations
    )


def chosen(scores: Sequence[str] | None) -> list[Score]:
    """Return the scores of these names; "default" and None stand for ``default_scores()``.

    A score that is named too is computed for every target, and not only for those that it suits.
    """
    named = {score.name: score for score in map(_named, scores or ()) if score is not None}
    for score in named.values():
        if score.per == "layers":
            raise InputError(
                f"The score {score.name!r} compares layers of one model, which inspect does. Servers compute "
                "'cka_layer' and 'cka_epoch' beside their default scores, without being asked."
            )
    default = default_scores() if includes_default(scores) else []
    return list(({name: get(name).by_default() for name in default} | named).values())


def _named(name: str) -> Score | None:
    """Return the score of that name; None for the default scores."""
    return None if name == DEFAULT else get(name, [DEFAULT])


def includes_default(scores: Sequence[str] | None) -> bool:
    """Return whether the default scores are among those of these names."""
    return scores is None or DEFAULT in scores


def leaves_out_selectivity(scores: Sequence[str] | None) -> bool:
    """Return whether the score that needs types is not among those of these names."""
    return SELECTIVITY not in {score.name for score in chosen(scores)}


def check_scores(names: Sequence[str] | None) -> None:
    """Raise InputError if one of these is the name of no score that servers compute."""
    for score in chosen(names):
        if score.per == "unit":
            raise InputError(
                f"The score {score.name!r} is one of single units, which inspect computes. Servers compute "
                "those of layers."
            )


def warm_up(scores: Sequence[str] | None) -> None:
    """Score a made-up data point, which imports what the chosen scores need: seconds, the first time."""
    rows = np.arange(64)
    record = Record(np.sin(np.outer(rows, range(1, 5))), "", epoch=0, mode="train", items=rows)
    point = DataPoint(Key.of(record), record.kind, record.epoch, -1, (record,), "")
    measure(point, chosen(scores), 0, 1, True, Target.parse(TargetRequest(name="", targets=[0, 1] * 32)))


def first_scores(scores: Sequence[str] | None) -> list[Score]:
    """Return those of the chosen scores that follow from sums over the entries, in a tenth of the time."""
    return [score for score in chosen(scores) if score.per == "layer" and score.needs <= {"tally"}]


def related(
    point: DataPoint, measured: Measured, relations: Relations | None, unscored: Moment | None = None
) -> Evaluation:
    """Return the scores of a data point including those that relate it to others.

    Args:
        point: The data point.
        measured: Its other scores.
        relations: State of other data points; None for no such scores.
        unscored: The earliest epoch of its run that is not scored in full; None if that is not known.
    """
    found = Related([], [])
    if relations is not None:
        with np.errstate(all="ignore"):
            found = relations.of(point, measured.sketch, measured.results, unscored)
    results = [*measured.results, *found.own]
    return Evaluation(
        _table(point, results, point.doubt),
        measured.fitted,
        measured.misfits,
        measured.failures,
        measured.faults,
        _count_nonfinite(results),
        measured.predictions,
        _table_of(found.later),
        found.known,
    )


def _table_of(later: Sequence[Later]) -> Results:
    return Results.concat(_table(each.point, [each.result], each.doubt) for each in later)


def measure(
    point: DataPoint, scores: Sequence[Score], seed: int, splits: int, compared: bool, *targets: Target
) -> Measured:
    """Compute the scores of a data point alone; ``compared`` if it will be compared with others."""
    scores = [score for score in scores if not score.kinds or point.key.kind in score.kinds]
    if compared and point.key.kind == "output":
        scores.append(_SAMPLED)
    if point.of_statistics:
        return _measured_from_statistics(point, scores, seed, splits, targets)
    labels: _Fits = {}
    per_position: _Fits = {}
    doubts: dict[str, str] = {}
    out = Measured()
    for target in targets:
        if not target.applies(point):
            continue
        try:
            fitted = fit(target, point)
        except MisfitError as reason:
            out.misfits[target.name] = str(reason)
            continue
        doubts[target.name] = coverage(target, point)
        fits = per_position if target.per_position else labels
        fits.setdefault(target.hold_out, {})[target.name] = fitted
        out.fitted.add(target.name)
    with np.errstate(all="ignore"):  # an overflow is shown as infinite
        for scorer, note in _scorers(point, scores, labels, per_position, partial(_scorer, seed, splits)):
            _add_results(out, point, scorer, note, doubts)
    out.results += _first_nonfinite(point, out.results)
    return out


def _first_nonfinite(point: DataPoint, results: Sequence[ScoreResult]) -> list[ScoreResult]:
    """Return the first pass of an epoch with values that are not finite, if that is known.

    The passes of a probe set have no order: they are all of one state of the model.
    """
    if not _count_nonfinite(results) or point.step >= 0 or point.key.mode == PROBE_SET_MODE:
        return []
    finite: dict[int, bool] = {}
    for record in point.records:
        for step, is_finite in _finite_steps(record):
            if step is None:
                return []
            finite[step] = finite.get(step, True) and is_finite
    first = min(step for step, is_finite in finite.items() if not is_finite)
    before = max((step for step in finite if step < first), default=None)
    if before is None:
        note = NONE_BEFORE
    else:
        note = "" if before == first - 1 else LAST_BEFORE.format(before)
    return [ScoreResult("nonfinite_step", float(first), n=len(finite), note=note)]


def _count_nonfinite(results: Iterable[ScoreResult]) -> int:
    return int(sum(result.value for result in results if result.score == "nonfinite"))


def _finite_steps(record: Record) -> list[tuple[int | None, bool]]:
    """Return the steps of a record, each with whether all its entries are finite."""
    if not are_sums(record):
        return [(record.step, _is_finite(record))]
    sums = sums_of(record)
    known = (None if step < 0 else step for step in sums.step.tolist())
    return list(zip(known, sums.finite.tolist(), strict=True))


def _is_finite(record: Record) -> bool:
    """Return whether all entries of a record are finite, as far as its statistics or summary say."""
    if record.statistics is not None:
        return not record.statistics.facts["nonfinite"]
    if record.summary is not None:
        return not record.summary[:, SUMMARY.index("nonfinite")].any()
    return bool(np.isfinite(record.array).all())


def _add_results(
    out: Measured, point: DataPoint, scorer: Scorer, note: str, doubts: Mapping[str, str]
) -> None:
    """Add the results, predictions and sketch of a scorer, with a note on all and one by target."""
    results = (_noted(result, note) for result in _results(scorer, out))
    out.results += (_noted(result, doubts.get(result.target, "")) for result in results)
    out.predictions += scorer.predicted(_origin(point), out.failures | out.faults)
    if out.sketch is None and _SAMPLED in scorer.scores and scorer.statistics.features >= 0:
        out.sketch = sketch(scorer.statistics)


def _measured_from_statistics(
    point: DataPoint, scores: Sequence[Score], seed: int, splits: int, targets: Sequence[Target]
) -> Measured:
    """Compute the scores of a data point whose statistics were made where the model runs.

    Each process has a part of a probe set's rows, and of one that sent several, the last counts. Each pass of
    a training has rows of its own.
    """
    origins = [(rank_of(record), record) for record in point.records]
    if point.key.mode == PROBE_SET_MODE:
        origins = list(dict(origins).items())
    by_item, by_position = (
        [record for (_, _, positions), record in origins if positions == wanted] for wanted in (False, True)
    )
    ranks, present = (
        max(ranks for (_, ranks, _), _ in origins),
        len({rank for (rank, _, _), _ in origins}),
    )
    missing = f"{present} of {ranks} ranks" * (present < ranks)
    applying = [target for target in targets if target.applies(point)]
    sent = [(record.statistics, record.rows) for record in point.records]
    are_kept = all(statistics is not None and statistics.facts["rows"] == rows for statistics, rows in sent)
    own = point.key.mode != PROBE_SET_MODE and are_kept  # else the items of all rows are not known
    unmatched = {
        target.name: joined(
            matched(target, point) if own else "",
            doubts_of_positions(target, point),
            of_labels(target, point).note,
        )
        for target in applying
    }
    able = [score for score in scores if score.needs <= SENT and score.per != "unit"]
    of_targets = [score for score in able if score.per == "target"]
    out = Measured()
    out.results += [
        ScoreResult(score.name, math.nan, note=_NEEDS_ROWS) for score in scores if score not in able
    ]
    describing = by_item or by_position
    for records, chosen_scores in (
        (describing, [s for s in able if s.per == "layer"]),
        *((each, of_targets) for each in (by_item, by_position) if each),
    ):
        scorer = Scorer(chosen_scores)
        scorer.receive(records)
        statistics = scorer.statistics
        out.fitted.update(statistics.targets)
        of_positions = OF_POSITIONS * (records is by_position and chosen_scores is not of_targets)
        one_split = f"one split, of seed {statistics.seed}" * (splits > 1 or seed != statistics.seed)
        note = joined(of_positions, missing)
        doubts = {name: joined(one_split, unmatched.get(name, "")) for name in statistics.targets}
        with np.errstate(all="ignore"):
            _add_results(out, point, scorer, note, doubts)
    out.results += _first_nonfinite(point, out.results)
    for target in applying:
        if target.name not in out.fitted:
            out.misfits[target.name] = without_positions(target, point) or (
                f"Target {target.name!r} cannot be matched to {point.key.layer_of_model}: "
                f"statistics were made where the model runs, of "
                + (f"the labels {sorted(out.fitted)}." if out.fitted else "no labels, which came too late.")
            )
    return out


#: Labels by the name of their target, for each hold-out (``Target.hold_out``): one Scorer has one hold-out.
_Fits = dict[tuple[bytes | None, bytes | None], dict[str, Fitted]]
_BY_ITEM = (None, None)  # the hold-out of targets without groups and types


def _scorer(seed: int, splits: int, scores: list[Score]) -> Scorer:
    """Return a scorer; each of several splits has as large a sample as a single one."""
    if splits > 1 and any(depends_on_split(score.infos[0]) for score in scores):
        return RepeatedScorer(scores, splits=splits, seed=seed, sample_bytes=splits * SAMPLE_BYTES)
    return Scorer(scores, seed=seed)


def _scorers(
    point: DataPoint,
    scores: Sequence[Score],
    labels: _Fits,
    per_position: _Fits,
    scorer_of: Callable[[list[Score]], Scorer],
) -> Iterator[tuple[Scorer, str]]:
    """Yield scorers updated with the data point, each with a note for all of its results."""
    describing = [score for score in scores if score.per == "layer"]
    with_labels = [score for score in scores if score.per != "layer"]
    plain = labels.get(_BY_ITEM, {})
    using_labels = with_labels if plain else []
    grouped = [fits for hold_out, fits in labels.items() if hold_out != _BY_ITEM]
    records = point.records
    if any(record.batch_axis is None for record in records):
        # A parameter is one row, so scores of a spread over rows do not apply.
        scorer = scorer_of([score for score in describing if score.needs <= {"tally", "steps"}])
        if any(map(is_of_step, records)):
            for record in records:
                scorer.update_steps(sums_of(record))
            yield scorer, ""
            return
        note = "" if point.key.kind == "parameter" or point.key.mode == PROBE_SET_MODE else _LAST_ALONE
        yield _fed(scorer, records, ((record.features(), record.items) for record in records), {}), note
    elif axes := _uneven(records):
        projected = any(record.projected_from is not None for record in records)
        of_rows = [score for score in describing if not (projected and score.needs == {"tally"})]
        yield (
            _fed(scorer_of(of_rows), records, _positions(records, axes), {}),
            OF_POSITIONS,
        )
        padded = zip(_padded(records), (record.items for record in records), strict=True)
        note = "shorter items were padded with zeros"
        yield _fed(scorer_of(using_labels), records, padded, plain), note
        for fits in grouped:
            padded = zip(_padded(records), (record.items for record in records), strict=True)
            yield _fed(scorer_of(with_labels), records, padded, fits), note
    else:
        yield _fed(scorer_of([*describing, *using_labels]), records, _rows(records), plain), ""
        for fits in grouped:
            yield _fed(scorer_of(with_labels), records, _rows(records), fits), ""
    for fits in per_position.values():
        scorer = scorer_of([score for score in scores if score.per == "target"])
        flat = {name: _flat(fitted) for name, fitted in fits.items()}
        yield _fed(scorer, records, _positions(records, [1]), flat), ""


def _rows(records: Sequence[Record]) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yield blocks of rows, with their ids."""
    return ((record.features(), record.items) for record in records)


def _flat(fitted: Fitted) -> Fitted:
    """Return labels of positions as labels of rows, each in its item's group."""
    labels, groups, types = fitted
    widths = [block.shape[1] for block in labels]
    return Fitted(
        [block.reshape(-1) for block in labels],
        groups and [np.repeat(block, width) for block, width in zip(groups, widths, strict=True)],
        types and [block.reshape(-1) for block in types],
    )


def _fed(
    scorer: Scorer,
    records: Sequence[Record],
    blocks: Iterable[tuple[np.ndarray, np.ndarray | None]],
    labels: dict[str, Fitted],
) -> Scorer:
    """Update a scorer with blocks of rows and their ids, one block per record, and return it.

    All labels have the same hold-out.
    """
    shared = next(iter(labels.values()), None)
    groups, types = (shared.groups, shared.types) if shared else (None, None)
    for number, (record, (rows, items)) in enumerate(
        zip(records, blocks if scorer.scores else (), strict=False)
    ):
        summary = record.summary
        scorer.update(
            rows,
            {name: fitted.labels[number] for name, fitted in labels.items()},
            items,
            projected_from=record.projected_from,
            summary=summary if summary is not None and len(summary) == len(rows) else None,
            groups=groups and groups[number],
            types=types and types[number],
        )
    return scorer


def _positions(records: Sequence[Record], axes: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield blocks whose rows are the positions (tokens) along ``axes``, with the item id of each.

    Positions of one item are therefore held out together.
    """
    arrived = 0
    for record in records:
        array = batch_first(record)
        items = np.arange(arrived, arrived + len(array)) if record.items is None else record.items
        arrived += len(array)
        array = np.moveaxis(array, axes, range(1, 1 + len(axes)))
        positions, features = (
            math.prod(s) for s in (array.shape[1 : 1 + len(axes)], array.shape[1 + len(axes) :])
        )
        yield array.reshape(len(array) * positions, features), np.repeat(items, positions)


def _uneven(records: Sequence[Record]) -> list[int]:
    """Return the axes, counted with the batch first, whose length differs between blocks, as for texts."""
    shapes = [batch_first(record).shape for record in records]
    if len({len(shape) for shape in shapes}) > 1:
        return []
    return [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if axis and len(set(sizes)) > 1]


def _padded(records: Sequence[Record]) -> Iterator[np.ndarray]:
    """Yield each block as (rows, features), padded with zeros to the longest item's length."""
    arrays = [batch_first(record) for record in records]
    longest = np.max([array.shape[1:] for array in arrays], axis=0)
    for array in arrays:
        padding = [
            (0, 0),
            *((0, int(most) - size) for most, size in zip(longest, array.shape[1:], strict=True)),
        ]
        yield np.pad(array, padding).reshape(len(array), int(longest.prod()))


def _results(scorer: Scorer, out: Measured) -> list[ScoreResult]:
    """Return the results of every score; if one raises, ``out`` gets the reason, and others are computed."""
    results: list[ScoreResult] = []
    for score in scorer.scores if scorer.statistics.features >= 0 else ():
        try:
            results += scorer.results_of(score)
        except Exception as error:  # a score may be code of another package
            _log.debug("Score %s failed", score.name, exc_info=True)  # a notice is shown as well
            if why := fault(error):
                out.faults[score.name] = why
            else:
                out.failures[score.name] = f"{type(error).__name__}: {error}"
    return results


def _noted(result: ScoreResult, note: str) -> ScoreResult:
    """Return the result with one more note; without a note, a nonfinite value becomes the note."""
    own = result.note or ("" if math.isfinite(result.value) else str(result.value))
    return result._replace(note=joined(own, note))


def with_note(results: Results, note: str, targets: Collection[str]) -> Results:
    """Return results with one more note on the scores of some targets."""
    notes = [
        joined(before, note) if target in targets else before
        for before, target in zip(results["note"].tolist(), results["target"].tolist(), strict=True)
    ]
    return Results({name: results[name] for name in COLUMNS} | {"note": notes})


def infos_of(results: Results, splits: int = 1) -> list[ScoreInfo]:
    """Return the descriptions of the scores of these results, as far as the scores are registered.

    Args:
        results: The results.
        splits: The number of splits that classifiers were scored on.
    """
    known = infos()
    names = [name for name in dict.fromkeys(results["score"].tolist()) if name in known]
    return [info_over_splits(known[name], splits) for name in names]


def measured_as(measured: Measured, point: DataPoint) -> Measured:
    """Return the scores of an array with the same rows as those of ``point``."""
    origin = _origin(point)
    return replace(measured, predictions=[replace(each, **origin) for each in measured.predictions])


def renamed(
    evaluation: Evaluation, point: DataPoint, relations: Relations | None, unscored: Moment | None = None
) -> Evaluation:
    """Return the scores of equal arrays as those of ``point``, whose other epochs may be its own.

    Args:
        evaluation: The scores of the equal arrays.
        point: The data point.
        relations: As for ``related``.
        unscored: As for ``related``.
    """
    origin, found = _origin(point), Related([], [])
    if relations is not None and evaluation.known is not None:
        with np.errstate(all="ignore"):
            found = relations.of_twin(point, evaluation.known, unscored)
    own = evaluation.results["score"] != WITH_EPOCH
    columns = {name: evaluation.results[name][own] for name in COLUMNS}
    columns |= {name: [value] * int(own.sum()) for name, value in origin.items()}
    return replace(
        evaluation,
        results=Results.concat([Results(columns), _table(point, found.own, point.doubt)]),
        predictions=[replace(each, **origin) for each in evaluation.predictions],
        later=_table_of(found.later),
        known=found.known,
    )


def _origin(point: DataPoint) -> dict[str, Any]:
    """Return the columns that identify the data point."""
    key = point.key
    return {
        "run": key.run,
        "model": key.model,
        "epoch": np.nan if point.epoch is None else float(point.epoch),
        "step": point.step,
        "address": key.address,
        "kind": point.kind,
    }


def _table(point: DataPoint, results: Sequence[ScoreResult], doubt: str) -> Results:
    columns = {name: [value] * len(results) for name, value in _origin(point).items()}
    columns |= {"mode": [point.key.mode] * len(results), "training": [point.training] * len(results)}
    for name in ("unit", "target", "score", "value", "low", "high", "baseline", "n"):
        columns[name] = [getattr(result, name) for result in results]
    columns["note"] = [_noted(result, doubt).note for result in results]
    return Results(columns)
