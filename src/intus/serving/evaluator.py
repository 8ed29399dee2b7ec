"""The evaluator's pure middle: one data point and the targets in, its scores out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.record import Record
from ..core.results import COLUMNS, Results
from ..scores import Reading, Score, Scorer, get, names
from .point import DataPoint
from .targets import Misfit, Target, fit

_log = logging.getLogger("intus.serving")


@dataclass(slots=True)
class Evaluation:
    """Scores of one data point; ``misfits`` says why a target that applies could not be used, ``failures``
    what a score raised, by its name."""

    results: Results
    fitted: set[str] = field(default_factory=set)
    misfits: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    nonfinite: int = 0


def default_scores() -> list[str]:
    """Every registered score of whole layers, those of installed packages included."""
    return [name for name in names() if get(name).per != "unit"]


def evaluate(
    point: DataPoint, targets: Iterable[Target], scores: Sequence[str] | None = None, *, seed: int = 0
) -> Evaluation:
    """Score a data point: what needs no labels, and for each target that fits what needs them.

    ``scores`` are names of scores, by default all there are for layers.
    """
    chosen = [get(name) for name in (default_scores() if scores is None else scores)]
    labels: dict[str, list[np.ndarray]] = {}
    per_position: dict[str, list[np.ndarray]] = {}
    out = Evaluation(Results())
    for target in targets:
        if not target.applies(point):
            continue
        try:
            blocks = fit(target, point)
        except Misfit as reason:
            out.misfits[target.name] = str(reason)
            continue
        (per_position if target.per_position else labels)[target.name] = blocks
    out.fitted = {*labels, *per_position}
    readings: list[Reading] = []
    with np.errstate(all="ignore"):  # what overflows is shown as infinite, not warned of
        for scorer in (
            _score_items(point, chosen, labels, seed),
            _score_positions(point, chosen, per_position, seed),
        ):
            readings += _read(scorer, out.failures)
    out.nonfinite = int(sum(r.value for r in readings if r.score == "nonfinite"))
    out.results = _results(point, readings)
    return out


def _score_items(
    point: DataPoint, scores: list[Score], labels: dict[str, list[np.ndarray]], seed: int
) -> Scorer:
    """A scorer fed with the items as rows."""
    if any(record.batch_axis is None for record in point.records):
        # One row: a parameter has a state, so what describes a spread over rows says nothing of it.
        scorer = Scorer([s for s in scores if s.per == "layer" and s.needs <= {"tally"}], seed=seed)
    else:
        scorer = Scorer([s for s in scores if labels or s.per == "layer"], seed=seed)
    for number, (record, rows) in enumerate(zip(point.records, _equally_wide(point.records), strict=True)):
        scorer.update(rows, {name: blocks[number] for name, blocks in labels.items()}, record.items)
    return scorer


def _score_positions(
    point: DataPoint, scores: list[Score], labels: dict[str, list[np.ndarray]], seed: int
) -> Scorer:
    """A scorer fed with positions as rows, a token each; those of one item are held out together."""
    scorer = Scorer([score for score in scores if score.per == "target"], seed=seed)
    arrived = 0
    for number, record in enumerate(point.records if labels else ()):
        array = np.moveaxis(record.array, record.batch_axis or 0, 0)
        rows, positions, features = array.shape
        items = np.arange(arrived, arrived + rows) if record.items is None else record.items
        arrived += rows
        scorer.update(
            array.reshape(rows * positions, features),
            {name: blocks[number].reshape(-1) for name, blocks in labels.items()},
            np.repeat(items, positions),
        )
    return scorer


def _read(scorer: Scorer, failures: dict[str, str]) -> list[Reading]:
    """What every score reads; one that raises does not take the others with it."""
    readings: list[Reading] = []
    for score in scorer.scores if scorer.statistics.features >= 0 else ():
        try:
            readings += score.readings(scorer.statistics)
        except Exception as error:  # a score may come from anywhere
            _log.debug("Score %s failed", score.name, exc_info=True)  # the notice tells it to people
            failures[score.name] = f"{type(error).__name__}: {error}"
    return readings


def _equally_wide(records: Sequence[Record]) -> Iterable[np.ndarray]:
    """Each block as (rows, features); where shapes differ (texts of several lengths), zeros fill up."""
    shapes = {np.moveaxis(r.array, r.batch_axis or 0, 0).shape[1:] for r in records if r.array.ndim}
    if len(shapes) <= 1 or len({len(shape) for shape in shapes}) > 1:
        yield from (record.features() for record in records)
        return
    widest = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    for record in records:
        array = np.moveaxis(record.array, record.batch_axis or 0, 0)
        filling = [(0, 0), *((0, most - size) for most, size in zip(widest, array.shape[1:], strict=True))]
        yield np.pad(array, filling).reshape(len(array), -1)


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


def _results(point: DataPoint, readings: Sequence[Reading]) -> Results:
    doubt = f"incomplete: {point.lacks}" if point.lacks else ""
    columns = {name: [value] * len(readings) for name, value in _origin(point).items()}
    for name in ("unit", "target", "score", "value", "low", "high", "baseline", "n"):
        columns[name] = [getattr(reading, name) for reading in readings]
    columns["note"] = ["; ".join(filter(None, (reading.note, doubt))) for reading in readings]
    return Results(columns)
