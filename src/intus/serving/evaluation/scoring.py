"""Scoring, the evaluator's pure middle: one data point and the targets in, its scores out."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core.record import Record
from ...core.results import COLUMNS, Results
from ...scores import Score, Scorer, ScoreResult, get, names
from ...scores.similarity import Sketch, sketch
from ..data_point import DataPoint
from .relations import Relations
from .targets import Misfit, Target, coverage, fit

_log = logging.getLogger("intus.serving")


@dataclass(slots=True)
class Measured:
    """What one data point says by itself; ``misfits`` says why a target that applies could not be used,
    ``failures`` what a score raised, by its name. ``sketch`` is what it is compared by, None where it is not.
    """

    readings: list[ScoreResult] = field(default_factory=list)
    fitted: set[str] = field(default_factory=set)
    misfits: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    sketch: Sketch | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of one data point, and what a person should know of them; see Measured."""

    results: Results
    fitted: set[str]
    misfits: dict[str, str]
    failures: dict[str, str]
    nonfinite: int


#: Reads nothing; it sees to it that a sample is kept, from which layers are compared.
_SAMPLED = Score("sampled", lambda statistics: (), frozenset({"sample"}))


def default_scores() -> list[str]:
    """Every registered score of whole layers that is not too dear to be read unasked, those of installed
    packages included."""
    return [name for name in names() if get(name).per != "unit" and get(name).default]


def evaluate(
    point: DataPoint,
    targets: Iterable[Target],
    scores: Sequence[str] | None = None,
    *,
    seed: int = 0,
    relations: Relations | None = None,
) -> Evaluation:
    """Score a data point: what needs no labels, and for each target that fits what needs them.

    ``scores`` are names of scores, by default all there are for layers. ``relations`` remembers earlier data
    points, and adds how this one relates to them.
    """
    return related(point, measure(point, targets, chosen(scores), seed, relations is not None), relations)


def chosen(scores: Sequence[str] | None) -> list[Score]:
    """The scores of these names, by default all there are for layers."""
    return [get(name) for name in (default_scores() if scores is None else scores)]


def related(point: DataPoint, measured: Measured, relations: Relations | None) -> Evaluation:
    """The scores of a data point, with how it relates to those before it."""
    readings = list(measured.readings)
    if relations is not None:
        with np.errstate(all="ignore"):
            readings += relations.of(point, measured.sketch, readings)
    nonfinite = int(sum(reading.value for reading in readings if reading.score == "nonfinite"))
    results = _results(point, readings)
    return Evaluation(results, measured.fitted, measured.misfits, measured.failures, nonfinite)


def measure(
    point: DataPoint,
    targets: Iterable[Target],
    scores: Sequence[Score],
    seed: int = 0,
    sketched: bool = False,
) -> Measured:
    """What the data point says by itself; ``sketched`` is whether it will be compared with others."""
    scores = [score for score in scores if not score.kinds or point.key.kind in score.kinds]
    labels: dict[str, list[np.ndarray]] = {}
    per_position: dict[str, list[np.ndarray]] = {}
    doubts: dict[str, str] = {}
    out = Measured()
    for target in targets:
        if not target.applies(point):
            continue
        try:
            blocks = fit(target, point)
        except Misfit as reason:
            out.misfits[target.name] = str(reason)
            continue
        doubts[target.name] = coverage(target, point)
        (per_position if target.per_position else labels)[target.name] = blocks
    out.fitted = {*labels, *per_position}
    if sketched and point.key.kind == "output":
        scores.append(_SAMPLED)
    with np.errstate(all="ignore"):  # what overflows is shown as infinite, not warned of
        for scorer, note in _scorers(point, scores, labels, per_position, seed):
            found = (_noted(reading, note) for reading in _read(scorer, out.failures))
            out.readings += (_noted(reading, doubts.get(reading.target, "")) for reading in found)
            if out.sketch is None and _SAMPLED in scorer.scores and scorer.statistics.features >= 0:
                out.sketch = sketch(scorer.statistics)
    return out


def _scorers(
    point: DataPoint,
    scores: Sequence[Score],
    labels: dict[str, list[np.ndarray]],
    per_position: dict[str, list[np.ndarray]],
    seed: int,
) -> Iterator[tuple[Scorer, str]]:
    """Scorers that were fed with the data point, and what to note with all that each one reads."""
    describing = [score for score in scores if score.per == "layer"]
    using_labels = [score for score in scores if score.per != "layer"] if labels else []
    records = point.records
    if any(record.batch_axis is None for record in records):
        # One row: a parameter has a state, so what describes a spread over rows says nothing of it.
        scorer = Scorer([score for score in describing if score.needs <= {"tally", "steps"}], seed=seed)
        yield _fed(scorer, records, ((record.features(), record.items) for record in records), {}), ""
    elif axes := _uneven(records):
        projected = any(record.projected_from is not None for record in records)
        of_rows = [score for score in describing if not (projected and score.needs == {"tally"})]
        yield (
            _fed(Scorer(of_rows, seed=seed), records, _positions(records, axes), {}),
            "each position is a row",
        )
        filled = zip(_filled(records), (record.items for record in records), strict=True)
        note = "shorter items were filled up with zeros"
        yield _fed(Scorer(using_labels, seed=seed), records, filled, labels), note
    else:
        rows = ((record.features(), record.items) for record in records)
        yield _fed(Scorer([*describing, *using_labels], seed=seed), records, rows, labels), ""
    if per_position:
        flat = {name: [block.reshape(-1) for block in blocks] for name, blocks in per_position.items()}
        scorer = Scorer([score for score in scores if score.per == "target"], seed=seed)
        yield _fed(scorer, records, _positions(records, [1]), flat), ""


def _fed(
    scorer: Scorer,
    records: Sequence[Record],
    blocks: Iterable[tuple[np.ndarray, np.ndarray | None]],
    labels: dict[str, list[np.ndarray]],
) -> Scorer:
    """The scorer, fed with blocks of rows and their ids, one of each record."""
    for number, (record, (rows, items)) in enumerate(
        zip(records, blocks if scorer.scores else (), strict=False)
    ):
        summary = record.summary
        scorer.update(
            rows,
            {name: of_blocks[number] for name, of_blocks in labels.items()},
            items,
            projected_from=record.projected_from,
            summary=summary if summary is not None and len(summary) == len(rows) else None,
        )
    return scorer


def _positions(records: Sequence[Record], axes: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks with the positions along ``axes`` as rows, a token each, and the id of the item that each
    belongs to: those of one item are held out together."""
    arrived = 0
    for record in records:
        array = _batch_first(record)
        items = np.arange(arrived, arrived + len(array)) if record.items is None else record.items
        arrived += len(array)
        array = np.moveaxis(array, axes, range(1, 1 + len(axes)))
        positions, features = (
            math.prod(s) for s in (array.shape[1 : 1 + len(axes)], array.shape[1 + len(axes) :])
        )
        yield array.reshape(len(array) * positions, features), np.repeat(items, positions)


def _uneven(records: Sequence[Record]) -> list[int]:
    """The axes, counted with the batch first, whose length differs from block to block, such as the
    positions of texts of several lengths."""
    shapes = [_batch_first(record).shape for record in records]
    if len({len(shape) for shape in shapes}) > 1:
        return []
    return [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if axis and len(set(sizes)) > 1]


def _filled(records: Sequence[Record]) -> Iterator[np.ndarray]:
    """Each block as (rows, features), filled up with zeros to the longest item's length."""
    arrays = [_batch_first(record) for record in records]
    longest = np.max([array.shape[1:] for array in arrays], axis=0)
    for array in arrays:
        filling = [
            (0, 0),
            *((0, int(most) - size) for most, size in zip(longest, array.shape[1:], strict=True)),
        ]
        yield np.pad(array, filling).reshape(len(array), int(longest.prod()))


def _batch_first(record: Record) -> np.ndarray:
    return np.moveaxis(record.array, record.batch_axis or 0, 0) if record.array.ndim else record.array


def _read(scorer: Scorer, failures: dict[str, str]) -> list[ScoreResult]:
    """What every score reads; one that raises does not take the others with it."""
    readings: list[ScoreResult] = []
    for score in scorer.scores if scorer.statistics.features >= 0 else ():
        try:
            readings += score.readings(scorer.statistics)
        except Exception as error:  # a score may come from anywhere
            _log.debug("Score %s failed", score.name, exc_info=True)  # the notice tells it to people
            failures[score.name] = f"{type(error).__name__}: {error}"
    return readings


def _noted(reading: ScoreResult, note: str) -> ScoreResult:
    """The reading with one more note; a number that is none, and that nothing explains, is named first."""
    own = reading.note or ("" if math.isfinite(reading.value) else str(reading.value))
    return reading._replace(note="; ".join(filter(None, (own, note))))


def renamed(results: Results, point: DataPoint) -> Results:
    """The scores of another data point that holds the very same arrays."""
    columns = {name: results[name] for name in COLUMNS}
    return Results(columns | {name: [value] * len(results) for name, value in _origin(point).items()})


def _origin(point: DataPoint) -> dict[str, Any]:
    """The columns that say whose scores these are."""
    key = point.key
    return {
        "run": key.run,
        "model": key.model,
        "epoch": np.nan if point.epoch is None else float(point.epoch),
        "step": point.step,
        "address": key.address,
        "kind": point.kind,
    }


def _results(point: DataPoint, readings: Sequence[ScoreResult]) -> Results:
    doubt = f"incomplete: {point.lacks}" if point.lacks else ""
    columns = {name: [value] * len(readings) for name, value in _origin(point).items()}
    for name in ("unit", "target", "score", "value", "low", "high", "baseline", "n"):
        columns[name] = [getattr(reading, name) for reading in readings]
    columns["note"] = [_noted(reading, doubt).note for reading in readings]
    return Results(columns)
