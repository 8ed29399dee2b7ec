"""Areas under ROC curves and mutual information of many pairs, from the ranks of units."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BINS = 16  #: bins of equally many rows that a unit, and a hypothesis of many values, is cut into
DISTINCT = 50  #: a hypothesis of more distinct values is cut into bins
_BLOCK = 1 << 21  # entries of units that are ranked at once


def areas(x: np.ndarray, values: np.ndarray, group: np.ndarray | None = None) -> list[np.ndarray]:
    """Return areas under the ROC curve of units as scores of hypotheses.

    Equal values count one half, as in the statistic of Mann and Whitney.

    Args:
        x: The units, shape (rows, units).
        values: The hypotheses, shape (rows, hypotheses); 1 is true, NaN is not annotated.
        group: The group of each row, shape (rows,), to leave each out as well.

    Returns:
        The areas (units, hypotheses) of all rows, then those without each group; NaN if all rows or no rows
        are true.
    """
    numbers = np.unique(group).tolist() if group is not None else []
    out = [np.full((x.shape[1], values.shape[1]), np.nan) for _ in range(1 + len(numbers))]
    for units, hypotheses, rows in _complete(x, values):
        yes = (values[np.ix_(rows, hypotheses)] == 1).astype(np.float64)  # for exact sums of whole numbers
        kept = [np.ones(len(rows), dtype=bool)]
        kept += [group[rows] != number for number in numbers] if group is not None else []
        step = max(1, _BLOCK // max(1, len(rows)))
        for start in range(0, len(units), step):
            part = units[start : start + step]
            ranked = _Ranked(np.ascontiguousarray(x[np.ix_(rows, part)].T))
            for table, keep in zip(out, kept, strict=True):
                table[np.ix_(part, hypotheses)] = ranked.areas(yes, keep)
    return out


class _Ranked:
    """Units (units, rows) whose rows were sorted once."""

    def __init__(self, x: np.ndarray) -> None:
        self.order = np.argsort(x, axis=1)
        ordered = np.take_along_axis(x, self.order, axis=1)
        self.tied = None
        same = ordered[:, 1:] == ordered[:, :-1]
        if same.any():
            number = np.arange(x.shape[1])
            new = np.concatenate([np.ones((len(x), 1), bool), ~same], axis=1)
            first = np.maximum.accumulate(np.where(new, number, 0), axis=1)
            last = np.concatenate([~same, np.ones((len(x), 1), bool)], axis=1)
            final = np.where(last, number, x.shape[1] - 1)[:, ::-1]
            self.tied = first, np.minimum.accumulate(final, axis=1)[:, ::-1]

    def areas(self, yes: np.ndarray, keep: np.ndarray) -> np.ndarray:
        """Return the areas with the rows (rows,) in ``keep`` for hypotheses (rows, hypotheses)."""
        rows, weight = int(keep.sum()), keep.astype(np.int32)
        until = np.cumsum(weight[self.order], axis=1, dtype=np.int32)
        if self.tied is None:
            below = 2 * until - weight[self.order]
        else:
            first, last = self.tied
            own = np.take_along_axis(weight[self.order], first, axis=1)
            before = np.take_along_axis(until, first, axis=1) - own
            below = before + np.take_along_axis(until, last, axis=1)
        rank = np.empty(below.shape)
        np.put_along_axis(rank, self.order, below, axis=1)
        true = yes if rows == len(keep) else yes * keep[:, None]
        count = true.sum(axis=0)
        with np.errstate(all="ignore"):
            area = (rank @ true - count**2) / (2 * count * (rows - count))
        return np.where((count > 0) & (count < rows), area, np.nan)


def informations(x: np.ndarray, values: np.ndarray, group: np.ndarray | None = None) -> list[np.ndarray]:
    """Return the mutual information in bits of the bins of units and the values of hypotheses.

    Args:
        x: The units, shape (rows, units).
        values: The hypotheses, shape (rows, hypotheses); NaN is not annotated.
        group: The group of each row, shape (rows,), to leave each out as well.

    Returns:
        The information (units, hypotheses) of all rows, then that without each group.
    """
    group = np.zeros(len(x), dtype=np.int64) if group is None else np.unique(group, return_inverse=True)[1]
    order = np.argsort(group, kind="stable")
    groups = int(group.max(initial=-1)) + 1
    x, values, ends = x[order], values[order], np.searchsorted(group[order], np.arange(groups + 1))
    classes = [_classes(column) for column in values.T]
    sizes = np.array([table.shape[1] for table in classes], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    table = np.concatenate(classes, axis=1) if classes else np.empty((len(x), 0), np.float32)
    out = [np.full((x.shape[1], values.shape[1]), np.nan) for _ in range(1 + groups)]
    step = max(1, _BLOCK // max(1, BINS * len(x)))
    for start in range(0, x.shape[1], step):
        part = slice(start, start + step)
        bins = np.stack([_bins(unit) for unit in x[:, part].T], axis=1)
        member = (bins[:, :, None] == np.arange(BINS)).astype(np.float32).reshape(len(x), -1)
        counts = np.empty((groups, bins.shape[1], BINS, table.shape[1]))
        for number in range(groups):
            rows = slice(ends[number], ends[number + 1])
            counts[number] = (member[rows].T @ table[rows]).reshape(counts.shape[1:])
        whole = counts.sum(axis=0)
        for size in np.unique(sizes[sizes > 0]):
            of_size = np.flatnonzero(sizes == size)
            columns = first[of_size][:, None] + np.arange(size)
            for place in range(1 + groups):
                left = whole[:, :, columns] - (counts[place - 1][:, :, columns] if place else 0)
                out[place][part, of_size] = information(np.moveaxis(left, 1, 2))
    return out if groups > 1 else out[:1]


def information(counts: np.ndarray) -> np.ndarray:
    """Return the mutual information in bits of joint counts (…, bins, values), corrected for its bias.

    The correction is that of Miller and Madow (1955) of the three entropies. NaN without rows or if one side
    has a single value.
    """
    with np.errstate(all="ignore"):
        rows, columns = counts.sum(axis=-1), counts.sum(axis=-2)
        n = rows.sum(axis=-1)
        total = (
            _spread(counts.reshape(*n.shape, -1)) - _spread(rows) - _spread(columns) + _spread(n[..., None])
        )
        filled = [(part > 0).sum(axis=-1) for part in (rows, columns)]
        cells = (counts > 0).sum(axis=(-1, -2))
        found = (total + (filled[0] + filled[1] - cells - 1) / 2) / n / np.log(2)
    return np.asarray(np.where((filled[0] > 1) & (filled[1] > 1), found, np.nan))


def _spread(counts: np.ndarray) -> np.ndarray:
    """Return the sum of n log n over the last axis."""
    return np.asarray((counts * np.log(np.maximum(counts, 1))).sum(axis=-1))


def _bins(unit: np.ndarray) -> np.ndarray:
    """Return the bin of each row, of equally many rows where there are no equal values; -1 for NaN."""
    finite = np.isfinite(unit)
    out = np.full(len(unit), -1)
    if finite.any():
        edges = np.quantile(unit[finite], np.arange(1, BINS) / BINS, method="lower")
        out[finite] = np.searchsorted(np.unique(edges), unit[finite], side="left")
    return out


def _classes(column: np.ndarray) -> np.ndarray:
    """Return the values of a hypothesis as indicators (rows, values); all are 0 where it is NaN."""
    distinct = np.unique(column[np.isfinite(column)])
    if len(distinct) > DISTINCT:
        return np.asarray(_bins(column)[:, None] == np.arange(BINS), dtype=np.float32)
    return np.asarray(column[:, None] == distinct, dtype=np.float32)


def _complete(x: np.ndarray, values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield units and hypotheses that are known in the same rows, and these rows."""
    for units in _alike(np.isfinite(x)):
        for hypotheses in _alike(np.isfinite(values)):
            known = np.isfinite(x[:, units[0]]) & np.isfinite(values[:, hypotheses[0]])
            yield units, hypotheses, np.flatnonzero(known)


def _alike(known: np.ndarray) -> list[np.ndarray]:
    """Return the columns of a table of booleans, those that are equal together."""
    if known.all():
        return [np.arange(known.shape[1])] if known.shape[1] else []
    found: dict[bytes, list[int]] = {}
    for number, column in enumerate(np.packbits(known, axis=0).T):
        found.setdefault(column.tobytes(), []).append(number)
    return [np.array(columns) for columns in found.values()]
