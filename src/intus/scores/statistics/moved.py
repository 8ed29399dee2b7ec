"""Move hypotheses to other items, which breaks only the link between unit and hypothesis."""

from __future__ import annotations

import numpy as np

from ...core.sketch import hashed
from .split import Places


def sources(where: Places) -> np.ndarray:
    """Return for each row the row of another item in the same position, -1 if there is none.

    Items are put in an order by hash of their clusters and moved on by the size of the largest cluster, so
    that no hypothesis stays in its cluster unless that has more than half of the items.

    Args:
        where: The places of rows, all of one block.

    Returns:
        Row numbers, shape (rows,).
    """
    items, first, which = np.unique(where.item, return_index=True, return_inverse=True)
    clusters = where.cluster[first]
    order = np.lexsort((items, clusters, hashed(clusters)))
    rank = np.empty(len(items), dtype=np.int64)
    rank[order] = np.arange(len(items))
    largest = int(np.unique(clusters, return_counts=True)[1].max(initial=1))
    return sources_of(rank[which], where.position, where.cluster, largest)


def sources_in(where: Places, donor: Places) -> np.ndarray:
    """Return for each row the row of ``donor`` in the same position and of another cluster, -1 if none.

    ``donor`` are the places of the rows of a single item.
    """
    table = np.full(1 + int(max(where.position.max(), donor.position.max())), -1, dtype=np.int64)
    table[donor.position] = np.arange(len(donor.position))
    found = table[where.position]
    return np.where((found >= 0) & (donor.cluster[found] != where.cluster), found, -1)


def sources_of(rank: np.ndarray, position: np.ndarray, cluster: np.ndarray, step: int) -> np.ndarray:
    """Return for each row the row of the item ``step`` ranks on, in the same position and not of its cluster.

    Args:
        rank: The rank of each row's item, shape (rows,).
        position: The row's number among those of its item.
        cluster: The cluster of each row.
        step: How many ranks to go on; the first follows the last.
    """
    count, width = int(rank.max(initial=-1)) + 1, int(position.max(initial=0)) + 1
    if not count:
        return np.empty(0, dtype=np.int64)
    cell = rank * width + position
    table = np.full(count * width, -1, dtype=np.int64)
    table[cell] = np.arange(len(cell))
    found = table[(rank + step) % count * width + position]
    return np.where((found >= 0) & (cluster[found] != cluster), found, -1)


def taken(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return rows of a matrix, NaN where the number of a row is -1."""
    if not len(values) or not (rows < 0).any():
        return np.asarray(values[rows])
    return np.where((rows >= 0)[:, None], values[rows], np.nan)
