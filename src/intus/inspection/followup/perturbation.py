"""Change records so that a hypothesis changes its label, and so that it does not; compare a unit's change.

The procedure follows DeepBase: per record, one symbol is replaced twice. The first replacement changes the
label of the hypothesis, the second does not. A unit that follows the hypothesis changes with the first only;
one that follows something that goes with the hypothesis in the data changes with the second as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core.errors import InputError, require
from ...scores.statistics.jackknife import LEAST_GROUPS, leave_one_out
from ..plan import Block
from .estimate import Estimate, estimates
from .symbols import Place, Symbols, like, same, scaled
from .unit_reader import UnitReader, annotated

Change = Callable[[Any, np.random.Generator], Any]

_TRIES = 40  # replacements that are tried per record
_VALUES = 8  # different labels of a block whose symbols are kept
_KEPT = 64  # symbols that are kept per label and block
_MOST = 4096  # symbols that are kept per label


@dataclass(frozen=True, slots=True)
class Perturbation:
    """The changes of a unit under changes of its input.

    Attributes:
        flips: The mean change of the unit where the label changes: positive if both rise. If labels are
            names, which have no order, the mean absolute change.
        baseline: The mean absolute change where no label changes.
        excess: How much larger the size of ``flips`` is than ``baseline``. It is above 0 if the unit follows
            the hypothesis, and below 0 if it follows something else more.
        silhouette: The mean silhouette of the two kinds of changes, from -1 to 1: how well they are
            separated.
        rank: The rank of that silhouette among the units of the layer, from 1; None if it is not known.
        units: The number of units of the layer.
        records: The number of records that were tried.
        note: The reason why values are NaN; ``""`` if none is.
    """

    flips: Estimate
    baseline: Estimate
    excess: Estimate
    silhouette: float
    rank: int | None
    units: int
    records: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Pair:
    """A record with its changes.

    Attributes:
        number: The number of the record.
        flip: The record with another label.
        calm: The record with a change that leaves all labels; None if none was found.
        places: The flat indices of the labels that changed.
        signs: Whether each rose (1) or fell (-1); 1 if labels have no order.
        grid: The shape of the labels.
    """

    number: int
    flip: Any
    calm: Any
    places: np.ndarray
    signs: np.ndarray
    grid: Place


def perturb(
    reader: UnitReader, change: Change | None, patch: int | None, records: int, seed: int
) -> Perturbation:
    """Change records and compare the change of the unit; see ``Inspection.verify``.

    Args:
        reader: The units of the row's layer.
        change: Returns a changed record; None to replace one symbol.
        patch: The height and width of the patch of an image that is replaced, in pixels; None for the
            default.
        records: The number of records to change.
        seed: The seed of the choice.

    Raises:
        InputError: If labels of changed records cannot be computed, or too few changes change a label.
    """
    random = np.random.default_rng(seed)
    pairs, tried = [], 0
    for pair in _Finder(reader, change, patch, random).pairs(records):
        tried += 1
        if pair is not None:
            pairs.append(pair)
    groups = reader.plan.observed.groups
    if len({pair.number for pair in pairs}) < LEAST_GROUPS:
        raise InputError(
            f"The label of {reader.row.target!r} changed in {len(pairs)} of {tried} records, with up to "
            f"{_TRIES} replacements each, and {LEAST_GROUPS} are needed. Pass change=, a function (record, "
            "random) that returns a changed record, which changes the label more often."
        )
    flips, of_flips, calms, of_calms = _changes(reader, pairs)
    found = len(of_flips), len(of_calms)
    if groups is not None:
        of_flips, of_calms = groups[of_flips], groups[of_calms]
    compared = _compared(flips, of_flips, calms, of_calms, reader.row.unit, tried)
    return replace(compared, note=_reason(compared, found, reader.row.target))


def _reason(found: Perturbation, counts: tuple[int, int], target: str) -> str:
    """Return why values are NaN; ``""`` if none is.

    Args:
        found: The values.
        counts: The number of records whose label changed, and of those that were also changed without it.
        target: The name of the hypothesis.
    """
    if np.isfinite(found.excess.low):
        return ""
    flips, calms = counts
    if calms < LEAST_GROUPS <= flips:
        return (
            f"the excess is not known: a change that leaves the labels of {target!r} was found in {calms} of "
            f"{found.records} records, with up to {_TRIES} replacements each. A label that is a measurement "
            "changes with every replacement, and equal symbols have none. Pass change=, a function (record, "
            "random) that returns a changed record."
        )
    return (
        f"no intervals: {LEAST_GROUPS} groups are needed with each kind of change, which were found in "
        f"{flips} and {calms} records."
    )


class _Finder:
    """Finds for a record a change that changes its label, and one that does not.

    Args:
        reader: The units of the row's layer.
        change: Returns a changed record; None to replace one symbol.
        patch: The size of the patch of an image.
        random: Makes the choices.
    """

    def __init__(
        self, reader: UnitReader, change: Change | None, patch: int | None, random: np.random.Generator
    ) -> None:
        self._plan, self._target, self._random = reader.plan, reader.row.target, random
        self._change, self._patch = change, patch
        self._plan.labels.of_changed(self._target, 0, self._record(0))  # refuses arrays of labels
        self._donors: dict[Any, list[tuple[int, Place]]] = {}
        for numbers, labels in reader.labels() if change is None else ():
            self._keep(numbers, labels)

    def _keep(self, numbers: np.ndarray, labels: np.ndarray) -> None:
        """Keep symbols of each label, so that those of rare labels can be put into other records."""
        flat = labels.reshape(-1)
        known = flat[annotated(flat)]
        values = list(dict.fromkeys(known.tolist()))
        for at in self._random.permutation(len(values))[:_VALUES]:
            found = np.flatnonzero(flat == values[at])
            kept = self._donors.setdefault(values[at], [])
            for one in self._random.permutation(len(found))[: min(_KEPT, _MOST - len(kept))]:
                record, *place = np.unravel_index(found[one], labels.shape)
                kept.append((int(numbers[record]), tuple(int(axis) for axis in place)))

    def _record(self, number: int) -> Any:
        return self._plan.records.block(np.array([number]))[0]

    def _labels(self, number: int, record: Any) -> np.ndarray:
        return self._plan.labels.of_changed(self._target, number, record)

    def pairs(self, count: int) -> Iterator[_Pair | None]:
        """Yield a pair for each of ``count`` random records, which repeat if there are fewer, or None."""
        order = self._random.permutation(len(self._plan.records))
        for number in np.resize(order, count).tolist():
            yield self._pair(number)

    def _pair(self, number: int) -> _Pair | None:
        record = self._record(number)
        labels = self._labels(number, record)
        candidates = self._replaced(record, labels) if self._change is None else self._changed(record)
        flip: _Pair | None = None
        calm = None
        for _, changed in zip(range(_TRIES), candidates, strict=False):
            if same(changed, record):
                continue
            now = self._labels(number, changed)
            if now.shape != labels.shape:
                raise InputError(
                    f"change= turned record {number} with labels of shape {labels.shape} into one with "
                    f"labels of shape {now.shape}. Return a record with as many symbols."
                )
            places, signs = _flips(labels.reshape(-1), now.reshape(-1))
            if len(places) and flip is None:
                flip = _Pair(number, changed, None, places, signs, labels.shape)
            elif not len(places) and calm is None:
                calm = changed
            if flip is not None and calm is not None:
                break
        return None if flip is None else replace(flip, calm=calm)

    def _changed(self, record: Any) -> Iterator[Any]:
        assert self._change is not None
        while True:
            yield self._change(record.copy() if isinstance(record, np.ndarray) else record, self._random)

    def _replaced(self, record: Any, labels: np.ndarray) -> Iterator[Any]:
        """Yield the record with one symbol replaced, in turn by one of another label and of the same."""
        symbols = Symbols(record, labels.shape, self._target, self._patch)
        flat = labels.reshape(-1)
        values = list(dict.fromkeys(flat[annotated(flat)].tolist()))
        if not values or 0 in symbols.size(record):
            return
        own = values[self._random.integers(len(values))]
        size = symbols.size(record)
        if labels.ndim:
            at = int(self._random.choice(np.flatnonzero(flat == own)))
            index = tuple(int(axis) for axis in np.unravel_index(at, labels.shape))
            place = scaled(index, labels.shape, size)
        else:
            place = tuple(int(self._random.integers(one)) for one in size)
        others = [value for value in self._donors if value != own]
        for turn in range(_TRIES):
            wanted = others[self._random.integers(len(others))] if others and turn % 2 == 0 else own
            donors = self._donors.get(wanted) or self._donors[next(iter(self._donors))]
            number, there = donors[self._random.integers(len(donors))]
            donor = self._record(number)
            theirs = symbols.size(donor)
            if there:
                grid = labels.shape if len(there) > 1 else theirs
                there = scaled(there, grid, theirs)
            elif symbols.places_differ(record):
                there = tuple(int(self._random.integers(one)) for one in theirs)
            else:
                there = tuple(min(one, last - 1) for one, last in zip(place, theirs, strict=True))
            yield symbols.replace(record, place, donor, there)


def _flips(before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of labels that changed, and whether they rose or fell."""
    known = annotated(before) & annotated(after)
    places = np.flatnonzero(known & (before != after))
    if {before.dtype.kind, after.dtype.kind} - set("fiub"):
        return places, np.ones(len(places))
    return places, np.sign(after[places].astype(float) - before[places].astype(float))


def _changes(reader: UnitReader, pairs: list[_Pair]) -> tuple[np.ndarray, ...]:
    """Run the model over the pairs and return the changes of all units.

    Returns:
        Where the label changes, (changes, units), and the record of each; where it does not, and the records.
    """
    data = reader.plan.records.data
    flips, of_flips, calms, of_calms = [], [], [], []
    size = max(1, reader.plan.batch // 3)
    with reader.reading() as read:
        for first in range(0, len(pairs), size):
            numbers: list[int] = []
            records: list[Any] = []
            for pair in pairs[first : first + size]:
                original = data[pair.number]
                calm = original if pair.calm is None else like(pair.calm, original)
                records += [original, like(pair.flip, original), calm]
                numbers += [pair.number] * 3
            block = reader.block_of(numbers, records)
            array = read(block)
            positions = _positions(reader, array, block, pairs[first : first + size])
            for at, pair in enumerate(pairs[first : first + size]):
                (before, flip, calm), signs = _at_places(reader, array, block, 3 * at, pair, positions)
                if not len(signs):
                    continue
                flips.append(((flip - before) * signs).mean(axis=1))
                of_flips.append(pair.number)
                if pair.calm is not None:
                    calms.append((calm - before).mean(axis=1))
                    of_calms.append(pair.number)
    changes = [np.array(one).reshape(-1, reader.units) for one in (flips, calms)]
    return changes[0], np.array(of_flips, int), changes[1], np.array(of_calms, int)


def _positions(reader: UnitReader, array: np.ndarray, block: Block, pairs: list[_Pair]) -> np.ndarray | None:
    """Return the position of each symbol of sequences, (records, symbols).

    Symbols are placed as labels of the data are, by the mask or at the start. None if a layer has no sequence
    of positions, or others than symbols.
    """
    if block.symbols is not None or array.ndim != 3 or len(pairs[0].grid) != 1:
        return None
    counts = np.repeat([pair.grid[0] for pair in pairs], 3)
    symbols = np.arange(counts.max())
    labels = np.where(symbols < counts[:, None], symbols, np.nan)
    name, ragged = reader.row.target, reader.row.target in reader.plan.labels.ragged
    placed = block.padding.on_positions(name, labels, counts, array.shape[2], reader.row.address, ragged)
    if placed.shape[1] != array.shape[2]:
        return None
    out = np.zeros(labels.shape, dtype=np.int64)
    record, position = np.nonzero(np.isfinite(placed))
    out[record, placed[record, position].astype(int)] = position
    return out


def _at_places(
    reader: UnitReader,
    array: np.ndarray,
    block: Block,
    start: int,
    pair: _Pair,
    positions: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the behaviors of three records where labels changed, (3, units, places), and the signs.

    Places that no position of a map is near are left out.
    """
    three = slice(start, start + 3)
    grid, places = pair.grid, np.tile(pair.places, (3, 1))
    if positions is not None:
        grid, places = array.shape[2:], positions[three][:, pair.places]
    parts = [one for _, one in reader.on_grid(array[three], grid, block, start)]
    behaviors = np.concatenate(parts).reshape(3, reader.units, -1).astype(float)
    behaviors = np.take_along_axis(behaviors, places[:, None], axis=2)
    near = np.isfinite(behaviors[:, reader.row.unit]).all(axis=0)
    return behaviors[:, :, near], pair.signs[near]


def _compared(
    flips: np.ndarray,
    of_flips: np.ndarray,
    calms: np.ndarray,
    of_calms: np.ndarray,
    unit: int,
    tried: int,
) -> Perturbation:
    """Compare two kinds of changes of all units.

    Args:
        flips: The changes where the label changes, (changes, units).
        of_flips: The group of each, (changes,).
        calms: The changes where it does not, (changes, units).
        of_calms: The group of each, (changes,).
        unit: The unit.
        tried: The number of records that were tried.
    """
    groups, which = np.unique(np.concatenate([of_flips, of_calms]), return_inverse=True)
    sums = np.zeros((len(groups), 4))
    first, second = which[: len(of_flips)], which[len(of_flips) :]
    np.add.at(sums[:, 0], first, flips[:, unit])
    np.add.at(sums[:, 1], first, 1)
    np.add.at(sums[:, 2], second, np.abs(calms[:, unit]))
    np.add.at(sums[:, 3], second, 1)

    def means(total: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            flip, calm = total[..., 0] / total[..., 1], total[..., 2] / total[..., 3]
        return np.stack([flip, calm, np.abs(flip) - calm], axis=-1)

    counts = (len(flips), len(calms), len(flips) + len(calms))
    rise, size, excess = estimates(means(sums.sum(axis=0)), means(leave_one_out(sums, axis=0)), counts)
    silhouettes = np.array([_silhouette(flips[:, one], calms[:, one]) for one in range(flips.shape[1])])
    own = float(silhouettes[unit])
    rank = 1 + int((silhouettes > own).sum()) if np.isfinite(own) else None
    return Perturbation(rise, size, excess, own, rank, flips.shape[1], tried)


def _silhouette(flips: np.ndarray, calms: np.ndarray) -> float:
    """Return the mean silhouette of two clusters of numbers; NaN if one has fewer than two."""
    metrics = require("sklearn.metrics", extra="inspect", package="scikit-learn", why="for the silhouette")
    values = np.concatenate([flips, calms])
    if min(len(flips), len(calms)) < 2 or not np.isfinite(values).all():
        return float("nan")
    kinds = np.repeat([1, 0], [len(flips), len(calms)])
    return float(metrics.silhouette_score(values[:, None], kinds))
