"""From what a layer gave, block by block, to rows that scorers read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.errors import InputError
from ..scores import Score, Scorer, ScoreResult
from . import align
from .units import UnitGroup

_CHUNK = 64 << 20  # bytes of behaviours brought onto a grid at once
_LEAST = 1 << 20  # bytes of a sample


class BlockFeed:
    """One group of units: a scorer for each grid of labels that hypotheses give, and one for the scores of
    the layer alone, which read what it gave as it is, a row per record."""

    def __init__(self, group: UnitGroup, scores: Sequence[Score], seed: int, room: int) -> None:
        self.group, self.seed, self.room = group, seed, room
        self.scores = [score for score in scores if score.per != "layer"]
        alone = [score for score in scores if score.per == "layer"]
        self.alone = Scorer(alone, seed=seed, sample_bytes=max(room, _LEAST)) if alone else None
        self.shape: tuple[int, ...] = ()
        self.picked, self.count = np.empty(0, dtype=np.int64), 0
        self.scorers: dict[Any, Scorer] = {}

    def update(self, array: np.ndarray, labels: dict[str, np.ndarray], ragged: set[str], start: int) -> None:
        """Add what the layer gave for a block of records, (records, units, …positions), and their labels by
        hypothesis."""
        self.count = array.shape[1]
        self.picked = self.group.pick(self.count)
        array = array[:, self.picked]
        if self.alone is not None:
            self.alone.update(self._as_wide(array), items=np.arange(start, start + len(array)))
        shapes: dict[Any, dict[str, np.ndarray]] = {}
        for name, column in labels.items() if self.scores else ():
            if name in ragged and array.ndim == 3 and column.shape[1] < array.shape[2]:
                column = align.fill(column, array.shape[2])
            key = column.shape[1:] if column.ndim > 2 else column.ndim - 1
            shapes.setdefault(key, {})[name] = column
        for key, columns in shapes.items():
            self._add(self._scorer(key, len(shapes)), array, columns, start)

    def _as_wide(self, array: np.ndarray) -> np.ndarray:
        """The array as wide as the first block's: zeros fill up shorter texts, as the evaluator does."""
        self.shape = self.shape or array.shape[1:]
        gaps = [most - size for most, size in zip(self.shape, array.shape[1:], strict=True)]
        if min(gaps, default=0) < 0:
            raise InputError(
                f"{self.group.address!r} gave records of shape {self.shape} at first and of "
                f"{array.shape[1:]} later, and scores of a layer alone need one width. Fill "
                "all records up to one length (inputs= may), or ask for scores of units and hypotheses only."
            )
        return np.pad(array, [(0, 0), *((0, gap) for gap in gaps)]) if any(gaps) else array

    def _scorer(self, key: Any, grids: int) -> Scorer:
        if key not in self.scorers:
            room = max(self.room // grids, _LEAST)
            self.scorers[key] = Scorer(self.scores, seed=self.seed, sample_bytes=room)
        return self.scorers[key]

    def _add(self, scorer: Scorer, array: np.ndarray, columns: dict[str, np.ndarray], start: int) -> None:
        """In chunks, since a small map on a large grid takes much room."""
        first = next(iter(columns))
        grid = columns[first].shape[1:]
        symbols = int(np.prod(grid)) if grid else 1
        size = max(1, _CHUNK // (4 * max(1, symbols * array.shape[1])))
        for at in range(0, len(array), size):
            part = slice(at, at + size)
            aligned = align.onto(array[part], grid, self.group.address, first)
            items = np.repeat(np.arange(start + at, start + at + len(aligned)), symbols)
            flat = {name: column[part].reshape(-1) for name, column in columns.items()}
            scorer.update(align.rows(aligned), flat, items)

    def result(self) -> list[ScoreResult]:
        """All readings, units by their own numbers, in their order."""
        scorers = ([] if self.alone is None else [self.alone]) + list(self.scorers.values())
        found = [self._renamed(reading) for scorer in scorers for reading in scorer.result()]
        order = {unit: place for place, unit in enumerate([-1, *self.picked.tolist()])}
        return sorted(found, key=lambda reading: order[reading.unit])

    def _renamed(self, reading: ScoreResult) -> ScoreResult:
        """With the unit's own number; a reading of the layer says when it is of some units only."""
        if reading.unit >= 0:
            return reading._replace(unit=int(self.picked[reading.unit]))
        if len(self.picked) < self.count:
            some = f"{len(self.picked)} of {self.count} units"
            return reading._replace(note=f"{reading.note}, {some}" if reading.note else some)
        return reading
