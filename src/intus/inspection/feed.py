"""Turn the outputs of a layer, block by block, into rows for scorers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.errors import InputError
from ..scores import Score, Scorer, ScoreResult
from . import align
from .places import Places
from .units import UnitGroup

_CHUNK = 64 << 20  # bytes of behaviors that are resized at once
_STRETCHED = "the map was stretched over the image: the graph does not tell where its positions lie"
_LEAST = 1 << 20  # smallest sample, in bytes


class BlockFeed:
    """The scorers of one group of units.

    There is one scorer for each shape of labels, and one for the scores of a whole layer, which read its
    output as it is, one row per record.

    Args:
        group: The units.
        scores: The scores.
        seed: The seed of sampling and of held-out rows.
        room: The bytes that the samples of all scorers may take.
        places: Where the positions of the layer lie in the image; None if that is not known.
    """

    def __init__(
        self, group: UnitGroup, scores: Sequence[Score], seed: int, room: int, places: Places | None = None
    ) -> None:
        self.group, self.seed, self.room, self.places = group, seed, room, places
        self.scores = [score for score in scores if score.per != "layer"]
        of_layer = [score for score in scores if score.per == "layer"]
        self.layer_scorer = Scorer(of_layer, seed=seed, sample_bytes=max(room, _LEAST)) if of_layer else None
        self.stretched = False  # whether a map was stretched over the image
        self.shape: tuple[int, ...] = ()
        self.picked, self.count = np.empty(0, dtype=np.int64), 0
        self.scorers: dict[Any, Scorer] = {}

    def update(
        self,
        array: np.ndarray,
        labels: dict[str, np.ndarray],
        ragged: set[str],
        start: int,
        images: Callable[[], list[tuple[int, ...]]],
        groups: np.ndarray | None = None,
        types: np.ndarray | None = None,
        confounders: Sequence[str] = (),
    ) -> None:
        """Add the outputs of a block.

        Args:
            array: The output of the layer, (records, units, …positions).
            labels: The labels of the block by hypothesis, (records, …grid).
            ragged: The hypotheses whose records differ in length.
            start: The number of the first record.
            images: Returns what may be the height and width of the first record.
            groups: The group of each record, (records,); None if each is a group.
            types: The type of each symbol, (records, …grid); None for no types.
            confounders: The names of the labels that are held fixed.
        """
        self.count = array.shape[1]
        self.picked = self.group.pick(self.count)
        array = array[:, self.picked]
        if self.layer_scorer is not None:
            items = np.arange(start, start + len(array))
            self.layer_scorer.update(self._padded(array), items=items, groups=groups)
        shapes: dict[Any, dict[str, np.ndarray]] = {}
        only = self.group.hypotheses
        if only is not None:
            labels = {name: labels[name] for name in labels if name in only or name in confounders}
        for name, column in labels.items() if self.scores else ():
            if name in ragged and array.ndim == 3 and column.shape[1] < array.shape[2]:
                column = align.fill(column, array.shape[2])
            key = column.shape[1:] if column.ndim > 2 else column.ndim - 1
            shapes.setdefault(key, {})[name] = column
        for key, columns in shapes.items():
            absent = [name for name in confounders if name not in columns]
            if absent:
                one = next(iter(columns))
                raise InputError(
                    f"The confounder {absent[0]!r} has labels of another shape than the hypothesis {one!r}. "
                    "Give both one label per record, or one per symbol."
                )
            scorer = self._scorer(key, len(shapes))
            self._add(scorer, array, columns, start, images, groups, types, confounders)

    def _padded(self, array: np.ndarray) -> np.ndarray:
        """Pad the array with zeros to the shape of the first block, as the evaluator does."""
        self.shape = self.shape or array.shape[1:]
        gaps = [most - size for most, size in zip(self.shape, array.shape[1:], strict=True)]
        if min(gaps, default=0) < 0:
            raise InputError(
                f"{self.group.address!r} gave records of shape {self.shape} at first and of "
                f"{array.shape[1:]} later, and scores of a whole layer need one shape. Pad all records to "
                "one length (inputs= may do that), or leave out the scores of whole layers."
            )
        return np.pad(array, [(0, 0), *((0, gap) for gap in gaps)]) if any(gaps) else array

    def _scorer(self, key: Any, grids: int) -> Scorer:
        if key not in self.scorers:
            room = max(self.room // grids, _LEAST)
            self.scorers[key] = Scorer(self.scores, seed=self.seed, sample_bytes=room)
        return self.scorers[key]

    def _add(
        self,
        scorer: Scorer,
        array: np.ndarray,
        columns: dict[str, np.ndarray],
        start: int,
        images: Callable[[], list[tuple[int, ...]]],
        groups: np.ndarray | None,
        types: np.ndarray | None,
        confounders: Sequence[str],
    ) -> None:
        """Align and add rows in chunks, because a small map on a large grid takes much memory."""
        first = next(iter(columns))
        grid = columns[first].shape[1:]
        symbols = int(np.prod(grid)) if grid else 1
        self.stretched |= self.places is None and len(grid) == 2 and array.shape[2:] != grid
        size = max(1, _CHUNK // (4 * max(1, symbols * array.shape[1])))
        if types is not None and types.shape[1:] != grid:
            types = None  # these labels are not of the symbols that have types
        for at in range(0, len(array), size):
            part = slice(at, at + size)
            aligned = align.onto(array[part], grid, self.group.address, first, images, self.places)
            items = np.repeat(np.arange(start + at, start + at + len(aligned)), symbols)
            flat = {name: column[part].reshape(-1) for name, column in columns.items()}
            given = {name: flat[name] for name in confounders}
            scorer.update(
                align.rows(aligned),
                {name: column for name, column in flat.items() if name not in given},
                items,
                groups=None if groups is None else np.repeat(groups[part], symbols),
                types=None if types is None else types[part].reshape(-1),
                given=given or None,
            )

    def result(self) -> list[ScoreResult]:
        """Return all results, by unit in the order requested, with the units' numbers in the layer."""
        scorers = ([] if self.layer_scorer is None else [self.layer_scorer]) + list(self.scorers.values())
        found = [self._with_unit(result) for scorer in scorers for result in _with_reasons(scorer)]
        order = {unit: place for place, unit in enumerate([-1, *self.picked.tolist()])}
        return sorted(found, key=lambda result: order[result.unit])

    def _with_unit(self, result: ScoreResult) -> ScoreResult:
        """Return a result with the number of its unit in the layer, or a note on the units it covers."""
        if self.stretched and result.target:
            result = result._replace(note=", ".join(filter(None, [result.note, _STRETCHED])))
        if result.unit >= 0:
            return result._replace(unit=int(self.picked[result.unit]))
        if len(self.picked) < self.count:
            part = f"{len(self.picked)} of {self.count} units"
            return result._replace(note=f"{result.note}, {part}" if result.note else part)
        return result


def _with_reasons(scorer: Scorer) -> list[ScoreResult]:
    """Return the results of a scorer, and a row with the reason for each score that has no result.

    A server leaves such scores out, because it tries all of them. Here the caller asked for each.
    """
    found = scorer.result()
    present = {(result.score, result.target) for result in found}
    for score in scorer.scores:
        names = {info.name for info in score.infos}
        for target in [""] if score.per == "layer" else scorer.statistics.targets:
            if not any((name, target) in present for name in names):
                requires = score.infos[0].requires
                note = f"needs {requires}" if requires else "does not apply to these data"
                found.append(ScoreResult(score.name, math.nan, target, note=note))
    return found
