"""Turn the outputs of a layer, block by block, into rows for scorers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import InputError, IntusError
from ...scores import Score, ScoreColumns, Scorer, ScoreResult
from ...scores.repeated import RepeatedScorer
from ..alignment import align
from ..alignment.axes import Vectors
from ..alignment.padding import Lengths
from ..alignment.places import Places
from ..plan import Block, parts_of
from ..results.part import joined
from ..units import UnitGroup

_CHUNK = 64 << 20  # bytes of behaviors that are resized at once
_STRETCHED = "the map was stretched over the image: the graph does not tell where its positions lie"
_LEAST = 1 << 20  # smallest sample, in bytes


class Scoring(NamedTuple):
    """The scores that are computed of every layer, with their options.

    Attributes:
        scores: The scores.
        seed: The seed of sampling and of held-out rows.
        room: The bytes that the samples of one layer's scorers may take.
        confounders: The names of the hypotheses that are held fixed.
        splits: The number of splits into training and held-out items.
        null: The number of permutations that p-values of units come from.
    """

    scores: Sequence[Score]
    seed: int
    room: int
    confounders: Sequence[str] = ()
    splits: int = 1
    null: int = 0

    def scorer(self, scores: Sequence[Score], parts: int) -> Scorer:
        """Return a new scorer of some of the scores, one of ``parts`` that share the room."""
        room = max(self.room // parts, _LEAST)
        if self.splits > 1:
            return RepeatedScorer(
                scores, splits=self.splits, seed=self.seed, sample_bytes=room, null=self.null
            )
        return Scorer(scores, seed=self.seed, sample_bytes=room, null=self.null)


class BlockFeed:
    """The scorers of one group of units.

    There is one scorer for each shape of labels, and one for the scores of a whole layer, which read its
    output as it is, one row per record.

    Args:
        group: The units.
        scoring: The scores, and how they are computed.
        places: Where the positions of the layer lie in the image; None if that is not known.
        vectors: Whether a unit may be a vector at each position.

    Attributes:
        notes: What to know about the values of each shape of labels, on every row.
    """

    def __init__(
        self,
        group: UnitGroup,
        scoring: Scoring,
        places: Places | None = None,
        vectors: Vectors | None = None,
    ) -> None:
        self.group, self.scoring, self.places, self.vectors = group, scoring, places, vectors or Vectors()
        self.notes: dict[str, str] = {}
        self.scores = [score for score in scoring.scores if not score.reads_layers]
        self.of_layer = [score for score in scoring.scores if score.reads_layers]
        self.layer_scorer = self._layer_scorer()
        self.stretched = False  # whether a map was stretched over the image
        self.lengths = Lengths()
        self.means: set[str] = set()  # the hypotheses whose behaviors are means over positions
        self.shape: tuple[int, ...] = ()
        self.picked, self.count = np.empty(0, dtype=np.int64), 0
        self.scorers: dict[Any, Scorer] = {}
        self.left_out: IntusError | None = None  # why the units are left out

    def leave_out(self, why: IntusError) -> None:
        """Leave the units out: their only results say why."""
        self.left_out, self.scorers, self.layer_scorer = why, {}, None

    def update(self, array: np.ndarray, block: Block) -> None:
        """Add the outputs of a block.

        Args:
            array: The output of the layer, (records, units, …positions).
            block: The records with their labels.
        """
        self.count = array.shape[1]
        self.picked = self.group.pick(self.count)
        if not np.array_equal(self.picked, np.arange(self.count)):  # indexing would copy all units
            array = array[:, self.picked]
        self.lengths.add(array, block.padding)
        if self.layer_scorer is not None:
            self.lengths.note(self.group.address, whole=True)  # raises if the result depends on the blocks
            self.layer_scorer.update(self._padded(array), items=block.numbers, groups=block.groups)
        longest = array.shape[-1]
        if block.symbols is not None:
            longest = max(
                (column.shape[1] for column in block.labels.values() if column.ndim == 2), default=0
            )
        shapes: dict[Any, dict[str, np.ndarray]] = {}
        labels = self.group.labels(block.labels, self.scoring.confounders)
        for name, column in labels.items() if self.scores else ():
            if array.ndim == 3 and column.ndim == 2:
                column = self._on_positions(name, column, longest, block)
            if array.ndim > 2 and column.ndim == 1 and block.symbols is None:
                self.means.add(name)
            key = column.shape[1:] if column.ndim > 2 else column.ndim - 1
            shapes.setdefault(key, {})[name] = column
        if self.means:
            self.lengths.note(self.group.address, whole=False)
        for key, columns in shapes.items():
            absent = [name for name in self.scoring.confounders if name not in columns]
            if absent:
                one = next(iter(columns))
                raise InputError(
                    f"The confounder {absent[0]!r} has labels of another shape than the hypothesis {one!r}. "
                    "Give both one label per record, or one per symbol."
                )
            self._add(self._scorer(key, len(shapes)), array, columns, block)

    def _on_positions(self, name: str, column: np.ndarray, longest: int, block: Block) -> np.ndarray:
        """Return the labels of sequences, (records, t), on as many symbols as the longest has."""
        ragged = name in block.ragged
        if block.symbols is not None:
            return align.fill(column, longest) if ragged and column.shape[1] < longest else column
        lengths, address = block.lengths.get(name), self.group.address
        return block.padding.on_positions(name, column, lengths, longest, address, ragged)

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

    def _layer_scorer(self) -> Scorer | None:
        return self.scoring.scorer(self.of_layer, 1) if self.of_layer else None

    def _scorer(self, key: Any, grids: int) -> Scorer:
        if key not in self.scorers:
            self.scorers[key] = self.scoring.scorer(self.scores, grids)
        return self.scorers[key]

    def _add(self, scorer: Scorer, array: np.ndarray, columns: dict[str, np.ndarray], block: Block) -> None:
        """Align and add rows in chunks, because a small map on a large grid takes much memory."""
        first = next(iter(columns))
        grid = columns[first].shape[1:]
        positions = (block.symbols.longest,) if block.symbols is not None and len(grid) == 1 else grid
        array, note = self.vectors.lengths(array, positions, self.group.address, first)
        self.notes |= dict.fromkeys(columns, note) if note else {}
        symbols = int(np.prod(grid)) if grid else 1
        self.stretched |= self.places is None and len(grid) == 2 and array.shape[2:] != grid
        types, groups = block.types, block.groups
        if types is not None and types.ndim == 2 and len(grid) == 1 and array.ndim == 3:
            of_types = {"types": block.lengths[""]} if "" in block.lengths else {}
            types = self._on_positions("types", types, grid[0], replace(block, lengths=of_types))
        if types is not None and types.shape[1:] != grid:
            types = None  # these labels are not of the symbols that have types
        for part, aligned, has in self.aligned(array, grid, first, block):
            rows: Any = (
                slice(None) if has is None else np.flatnonzero(has)
            )  # symbols without position are no rows
            flat = {name: column[part].reshape(-1)[rows] for name, column in columns.items()}
            given = {name: flat[name] for name in self.scoring.confounders}
            scorer.update(
                align.rows(aligned)[rows],
                {name: column for name, column in flat.items() if name not in given},
                np.repeat(block.numbers[part], symbols)[rows],
                groups=None if groups is None else np.repeat(groups[part], symbols)[rows],
                types=None if types is None else types[part].reshape(-1)[rows],
                given=given or None,
            )

    def aligned(
        self, array: np.ndarray, grid: tuple[int, ...], hypothesis: str, block: Block, start: int = 0
    ) -> Iterator[tuple[slice, np.ndarray, np.ndarray | None]]:
        """Yield the outputs of some records at a time, on the grid of a hypothesis's labels.

        Args:
            array: The outputs, (records, units, …positions).
            grid: The shape of the labels of one record.
            hypothesis: The name of the hypothesis, for messages.
            block: The block of the records.
            start: The place of the first of these records in the block. Default: 0.

        Yields:
            Which of the records; their outputs (records, units, …grid); and which symbols any position
            belongs to, (records, …grid), or None for all.
        """
        symbols = int(np.prod(grid)) if grid else 1
        size = max(2, _CHUNK // (4 * max(1, symbols * array.shape[1])))
        address = self.group.address
        for part in parts_of(len(array), size):
            records = slice(start + part.start, start + part.stop)
            if not grid and array.ndim > 2 and (block.symbols is None or array.ndim > 3):
                yield part, block.padding.mean(array[part], records), None
            elif block.symbols is not None and array.ndim == 3 and len(grid) <= 1:
                yield part, *block.symbols.onto(array[part], records, grid, address)
            else:
                aligned = align.onto(array[part], grid, address, hypothesis, block.images, self.places)
                yield part, aligned, None

    def empty(self) -> BlockFeed:
        """Return a feed of the same units without any rows."""
        other = copy(self)
        other.scorers, other.notes = {}, {}
        other.lengths, other.means = Lengths(), set()
        other.layer_scorer = self._layer_scorer()
        return other

    def merge(self, other: BlockFeed) -> None:
        """Add the rows of another feed of the same units, of other records."""
        if other.left_out is not None or self.left_out is not None:
            raise self.left_out or other.left_out  # type: ignore[misc]
        if self.layer_scorer is not None and other.layer_scorer is not None:
            self.layer_scorer.merge(other.layer_scorer)
        for key, scorer in other.scorers.items():
            if key in self.scorers:
                self.scorers[key].merge(scorer)
            else:
                self.scorers[key] = scorer
        self.picked, self.count = (other.picked, other.count) if other.count else (self.picked, self.count)
        self.stretched |= other.stretched
        self.notes |= other.notes
        self.means |= other.means
        self.lengths.merge(other.lengths)
        if self.layer_scorer is not None:
            self.lengths.note(self.group.address, whole=True)
        if self.means:
            self.lengths.note(self.group.address, whole=False)

    def _notes_of_means(self) -> list[tuple[str, str]]:
        note = self.lengths.note(self.group.address, whole=False) if self.means else ""
        return [(target, note) for target in sorted(self.means)] if note else []

    @property
    def shown(self) -> str:
        """The address of the units together: that of the layer, with brackets if they are a part of it."""
        if len(self.picked) == self.count:
            return self.group.shown
        return f"{self.group.shown}[{_brackets(self.picked.tolist())}]"

    def all_scorers(self) -> list[Scorer]:
        """Return the scorer of the whole layer, if there is one, and one for each shape of labels."""
        return ([] if self.layer_scorer is None else [self.layer_scorer]) + list(self.scorers.values())

    def columns(self) -> ScoreColumns:
        """Return all results, by unit in the order requested, with the units' numbers in the layer."""
        if self.left_out is not None:
            why = f"left out: {self.left_out}"
            return ScoreColumns.of([ScoreResult(one.name, math.nan, note=why) for one in self.scoring.scores])
        scorers = self.all_scorers()
        found = ScoreColumns.concat(_with_reasons(scorer) for scorer in scorers)
        order = np.argsort(found.unit, kind="stable")
        found = ScoreColumns(*(getattr(found, name)[order] for name in ScoreResult._fields))
        of_layer = found.unit < 0
        note = found.note
        if self.layer_scorer is not None:
            more = self.lengths.note(self.group.address, whole=True)
            note = np.where((found.target == "") & bool(more), joined(note, more), note)
        if len(self.picked) < self.count:
            part = f"{len(self.picked)} of {self.count} units"
            note = np.where(of_layer, joined(note, part), note)
        if self.stretched:
            note = np.where(found.target != "", joined(note, _STRETCHED), note)
        for target, more in [*self.notes.items(), *self._notes_of_means()]:
            note = np.where(found.target == target, joined(note, more), note)
        unit = np.append(self.picked, -1)[found.unit]  # -1, of the layer, stays
        of_units = self.group.notes(unit)
        for more in set(of_units.tolist()) - {""}:
            note = np.where(of_units == more, joined(note, more), note)
        if self.group.is_baseline:  # without a p-value, so that it does not count among the findings
            return replace(found, unit=unit, note=note, p=np.full(len(unit), math.nan))
        return replace(found, unit=unit, note=note)


def _with_reasons(scorer: Scorer) -> ScoreColumns:
    """Return the results of a scorer, and a row with the reason for each score that has no result.

    A server leaves such scores out, because it tries all of them. Here the caller asked for each.
    """
    found = scorer.columns()
    present = set(zip(found.score.tolist(), found.target.tolist(), strict=True))
    missing = []
    for score in scorer.scores:
        if score.per == "layers":
            continue  # its rows are those of pairs of layers
        names = {info.name for info in score.infos}
        for target in [""] if score.per == "layer" else scorer.statistics.targets:
            if not any((name, target) in present for name in names):
                requires = score.infos[0].requires
                note = f"needs {requires}" if requires else "does not apply to these data"
                missing.append(ScoreResult(score.name, math.nan, target, note=note))
    return ScoreColumns.concat([found, ScoreColumns.of(missing)])


def _brackets(units: list[int]) -> str:
    """Return units as in the brackets of an address.

    >>> _brackets([0, 1, 2, 7, 4])
    '0:3,7,4'
    """
    parts: list[list[int]] = []
    for unit in units:
        if parts and unit == parts[-1][-1] + 1:
            parts[-1].append(unit)
        else:
            parts.append([unit])
    texts = [f"{p[0]}:{p[-1] + 1}" if len(p) > 2 else ",".join(map(str, p)) for p in parts]
    return ",".join(texts)
