"""Choose thresholds of units by the Jaccard index with hypotheses, and count rows above them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import require

CHUNK = 64  #: ranks per chunk; at most 255, so that counts fit into a byte
_MOST = 16  # chunks that are searched per hypothesis on average, of those that may have the best threshold

#: Counts of rows: active and in the hypothesis, active, in it, and all. Each broadcasts to (groups, units,
#: hypotheses).
Counts = list[np.ndarray]


def best_thresholds(x: np.ndarray, values: np.ndarray, *, exact: bool = True) -> np.ndarray:
    """Return for each pair the threshold t for which x >= t has the best Jaccard index.

    Rows are sorted once per unit. True rows are counted by chunks of ranks for all hypotheses together, which
    bounds the index within each chunk, and only chunks that may have the best threshold are searched.

    Args:
        x: The units, shape (rows, units).
        values: The hypotheses, shape (rows, hypotheses); 1 is true, NaN is not annotated.
        exact: Whether to search all chunks that may have the best threshold. Otherwise only the most
            promising one is searched, and the index may be less than the best by some thousandths.

    Returns:
        Thresholds, shape (units, hypotheses); NaN if no row is true or the unit is constant.
    """
    given = np.isfinite(values)
    yes = _Bits(values == 1)
    seen = None if given.all() else _Bits(given)
    found = [_best(unit, yes, seen, 2 if exact else 1) for unit in x.T]
    return np.array(found).reshape(x.shape[1], values.shape[1])


class _Bits:
    """A table of booleans (rows, hypotheses) as bytes, in both orders of memory."""

    def __init__(self, table: np.ndarray) -> None:
        self.rows, self.columns = table.shape
        self._by_row = np.zeros(
            (self.rows, -self.columns % 64 + self.columns), np.uint8
        )  # for wide registers
        self._by_row[:, : self.columns] = table
        self._flat = np.ascontiguousarray(table.T).view(np.uint8).reshape(-1)

    def summed(self, chunks: Any) -> np.ndarray:
        """Return the sums over chunks of at most 255 rows, a sparse matrix (chunks, rows)."""
        return np.asarray((chunks @ self._by_row)[:, : self.columns].astype(np.int32))

    def cumulated(self, row: np.ndarray, hypothesis: np.ndarray) -> np.ndarray:
        """Return running sums over the last axis of rows (…, rows) of hypotheses (…)."""
        place = row + (hypothesis * self.rows)[:, None]
        return np.cumsum(self._flat.take(place), axis=1, dtype=np.int32)


def _best(unit: np.ndarray, yes: _Bits, seen: _Bits | None, rounds: int) -> np.ndarray:
    """Return the best threshold of one unit for each hypothesis."""
    sparse = require("scipy.sparse", extra="server", why="to count rows by rank")
    every = np.arange(yes.columns)
    order = np.argsort(-unit)[: int(np.isfinite(unit).sum())].astype(np.int32)  # NaN is sorted to the end
    falling = unit[order]
    rows = len(order)
    if not rows or falling[0] == falling[-1]:
        return np.full(len(every), np.nan)
    last = np.r_[falling[1:] != falling[:-1], True]  # equal values are active together
    starts = np.arange(0, rows, CHUNK, dtype=np.int32)
    chunks = sparse.csr_array(
        (np.ones(rows, np.uint8), order, np.r_[starts, np.int32(rows)]), shape=(len(starts), len(unit))
    )
    inside = yes.summed(chunks)
    right = np.cumsum(inside, axis=0)
    before, total = right - inside, right[-1]
    if seen is None:
        active = starts[:, None]
    else:
        counted = seen.summed(chunks)
        active = np.cumsum(counted, axis=0) - counted
    ends = np.r_[starts[1:], rows]
    reached = ends[:, None] if seen is None else active + counted
    with np.errstate(all="ignore"):
        bound = right / (active + inside + total - right)  # if the true rows of a chunk come first
        at_end = np.where(last[ends - 1][:, None], right / (reached + total - right), -1)
    bound[np.add.reduceat(last, starts) == 0] = -1
    bound[:, total == 0] = -1
    place = at_end.argmax(axis=0)
    best, place = at_end[place, every], ends[place] - 1
    for round_ in range(rounds):  # the best chunk of each, then all others that may be better
        if round_:
            chunk, tried = np.nonzero(bound > best)
            if len(tried) > _MOST * len(every):
                some = np.argsort(best[tried] - bound[chunk, tried], kind="stable")[: _MOST * len(every)]
                chunk, tried = chunk[some], tried[some]
        else:
            chunk, tried = bound.argmax(axis=0), every
        index = starts[chunk][:, None] + np.arange(CHUNK, dtype=np.int32)
        valid = index < rows
        np.minimum(index, rows - 1, out=index)
        valid &= last[index]
        row = order[index]
        hits = yes.cumulated(row, tried)
        hits += before[chunk, tried][:, None]
        if seen is None:
            either = index + (1 + total[tried])[:, None]
            either -= hits
        else:
            either = seen.cumulated(row, tried)
            either += (np.broadcast_to(active, bound.shape)[chunk, tried] + total[tried])[:, None] - hits
        score = np.where(valid, hits / np.maximum(either, 1), -1)
        at = (np.arange(len(tried)), score.argmax(axis=1))
        found, position = score[at], index[at]
        ranked = np.lexsort((position, -found, tried))
        winner = ranked[np.unique(tried[ranked], return_index=True)[1]]
        winner = winner[found[winner] > best[tried[winner]]]
        best[tried[winner]], place[tried[winner]] = found[winner], position[winner]
        bound[chunk, tried] = -1
    return np.where(total > 0, falling[place], np.nan)


def counts_at(
    x: np.ndarray, values: np.ndarray, threshold: np.ndarray, group: np.ndarray, groups: int
) -> Counts:
    """Count rows per group, with a threshold for each pair; a row at it is active.

    Args:
        x: The units, shape (rows, units).
        values: The hypotheses, shape (rows, hypotheses).
        threshold: The thresholds, shape (units, hypotheses).
        group: The group of each row, shape (rows,).
        groups: The number of groups.

    Returns:
        Counts, in which only annotated rows count where the unit is finite.
    """
    units, hypotheses = threshold.shape
    size = groups * hypotheses
    hypothesis, row = np.nonzero((values == 1).T)
    absent, hole = np.nonzero(~np.isfinite(values).T)
    cell, empty = group[row] * hypotheses + hypothesis, group[hole] * hypotheses + absent
    both, on = np.zeros((2, groups, units, hypotheses), dtype=np.float32)
    finite = np.isfinite(x)
    wide = 1 if finite.all() else units
    true, all_ = np.zeros((2, groups, wide, hypotheses), dtype=np.float32)
    for u in range(units):
        unit, level, there = x[:, u], threshold[u], finite[:, u]
        hits = cell[unit[row] >= level[hypothesis]]
        both[:, u] = np.bincount(hits, minlength=size).reshape(groups, hypotheses)
        ranks = np.argsort(level)
        above = np.searchsorted(level[ranks], unit[there], side="right")
        counts = np.bincount(group[there] * (hypotheses + 1) + above, minlength=groups * (hypotheses + 1))
        tail = counts.reshape(groups, hypotheses + 1)[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
        on[:, u, ranks] = np.where(np.isfinite(level[ranks]), tail, 0)
        if len(hole):
            lost = empty[unit[hole] >= level[absent]]
            on[:, u] -= np.bincount(lost, minlength=size).reshape(groups, hypotheses)
        if u < wide:
            some = there[row], there[hole]
            true[:, u] = np.bincount(cell[some[0]], minlength=size).reshape(groups, hypotheses)
            all_[:, u] = np.bincount(group[there], minlength=groups)[:, None]
            all_[:, u] -= np.bincount(empty[some[1]], minlength=size).reshape(groups, hypotheses)
    return [both, on, true, all_]
