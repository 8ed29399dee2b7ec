"""Permutation tests of units by the largest statistic of any unit, with whole groups of items permuted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .moved import taken
from .pairs import Pairs, correlation, mean_difference
from .split import Places

#: Returns the strength of each pair (units, hypotheses) from units (rows, units) and hypotheses (rows,
#: hypotheses).
Strength = Callable[[np.ndarray, np.ndarray], np.ndarray]


def family_wise(
    strength: Strength, x: np.ndarray, values: np.ndarray, places: Places, count: int, seed: int
) -> np.ndarray:
    """Return p-values that hold for all units of a hypothesis together (Westfall and Young 1993, max-T).

    The share of hypotheses that depend on no unit, and for which any unit has p of at most 5 %, is at most
    5 %.

    Args:
        strength: Computes the statistic of each pair; larger is stronger.
        x: The units, shape (rows, units).
        values: The hypotheses, shape (rows, hypotheses).
        places: The places of the rows. Clusters are permuted whole.
        count: The number of permutations.
        seed: The seed of the permutations.

    Returns:
        (1 + number of permutations whose strongest unit is at least as strong) / (1 + count), shape (units,
        hypotheses); NaN without a statistic.
    """
    with np.errstate(all="ignore"):
        found = strength(x, values)
        above = np.zeros(found.shape, dtype=np.int64)
        for rows in permutations(places, count, seed):
            most = strength(x, taken(values, rows))
            above += np.where(np.isfinite(most), most, -np.inf).max(axis=0, initial=-np.inf) >= found - 1e-12
    return np.where(np.isfinite(found), (1 + above) / (1 + count), np.nan)


def permutations(places: Places, count: int, seed: int) -> Iterator[np.ndarray]:
    """Yield for each permutation of the clusters the row that each row gets its labels from, -1 for none.

    Rows keep the position in their item, and items their place in their cluster.
    """
    order = np.lexsort((places.position, places.item, places.cluster))
    cluster = np.unique(places.cluster, return_inverse=True)[1]
    ordered, items = cluster[order], places.item[order]
    new = np.r_[True, items[1:] != items[:-1]] | np.r_[True, ordered[1:] != ordered[:-1]]
    number = np.cumsum(new) - 1  # of the item
    first = np.searchsorted(ordered, np.arange(int(cluster.max(initial=-1)) + 1))
    within = np.empty(len(order), dtype=np.int64)
    within[order] = number - number[first][ordered] if len(order) else number
    width, depth = int(places.position.max(initial=0)) + 1, int(within.max(initial=0)) + 1
    cell = (cluster * depth + within) * width + places.position
    rank = np.argsort(cell)
    cells, rng = cell[rank], np.random.default_rng(seed)
    for _ in range(count):
        other = rng.permutation(len(first))[cluster]
        wanted = (other * depth + within) * width + places.position
        nearest = np.minimum(np.searchsorted(cells, wanted), len(cells) - 1)
        yield np.where(cells[nearest] == wanted, rank[nearest], -1)


def absolute_correlation(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return |r| of each pair."""
    return np.asarray(np.abs(correlation(_sums(x, values))))


def rank_difference(ranks: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return |area under the ROC curve - 0.5| of each pair times the number of rows, from ranks of units."""
    return np.asarray(np.abs(mean_difference(_sums(ranks, values))))


def midranks(x: np.ndarray) -> np.ndarray:
    """Return the ranks of each unit (rows, units), equal values sharing the mean of theirs; NaN for NaN."""
    out = np.full(x.shape, np.nan, dtype=np.float32)
    for u, unit in enumerate(x.T):
        known = np.flatnonzero(np.isfinite(unit))
        _, which, counts = np.unique(unit[known], return_inverse=True, return_counts=True)
        out[known, u] = (np.cumsum(counts) - (counts - 1) / 2)[which]
    return out


def _sums(x: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
    sums = Pairs(x.shape[1], values.shape[1])
    for start in range(0, len(x), 1 << 13):
        part = slice(start, start + (1 << 13))
        sums.update(x[part], values[part], np.zeros(len(x[part]), np.int64))
    return sums.total()
