"""Seeded hashes of item ids that split rows into training and held-out rows, groups and buckets.

The split does not depend on the order of arrival, on batches or on other rows. Statistics therefore merge
exactly, an item is on the same side of the split in every layer and epoch, and all rows of one item (the
tokens of a sentence, the pixels of an image) stay together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.sketch import hashed

HELD_OUT = 0.25  #: fraction of the items that classifiers are evaluated on and never trained on
GROUPS = 16  #: groups of items for the delete-a-group jackknife
_WITHIN = np.uint64(2**24 - 1)  # the bits of a key that differ between the rows of an item
BUCKETS = 256  #: groups of types that share one random label in the control task
NO_TYPE = -1  #: the bucket of a row without a type


class Places(NamedTuple):
    """The part of the split that each row belongs to; every array has shape (rows,).

    Attributes:
        item: The id of the row's item.
        position: The row's number among the rows of its item.
        cluster: The id of the items that are held out together and are one observation for intervals: the
            item's own, unless groups of items were given.
        held: Whether the row is held out.
        group: The row's group for the jackknife.
        bucket: The bucket of the row's type for the control task, NO_TYPE if types were not given.
        key: The number by which samples are drawn. The keys of an item's rows differ only in the lowest bits,
            so that items stay whole.
        turn: The number by which the sampled rows are shuffled.
    """

    item: np.ndarray
    position: np.ndarray
    cluster: np.ndarray
    held: np.ndarray
    group: np.ndarray
    bucket: np.ndarray
    key: np.ndarray
    turn: np.ndarray

    def take(self, rows: np.ndarray) -> Places:
        """Return the places of some rows, by mask or index."""
        return Places(*(column[rows] for column in self))


def places(
    items: np.ndarray,
    seed: int,
    *,
    groups: np.ndarray | None = None,
    types: np.ndarray | None = None,
    position: np.ndarray | None = None,
) -> Places:
    """Return the places of rows.

    Args:
        items: The id of each row's item, int64 of shape (rows,).
        seed: The seed of the hashes.
        groups: The id of each row's group of items (a document, a subject), int64 of shape (rows,). Items of
            a group are held out together. Default: each item is a group of its own.
        types: The id of each row's type, int64 of shape (rows,), for the control task.
        position: The row's number among the rows of its item, int64 of shape (rows,). Default: they are in
            order and complete.
    """
    position = _occurrence(items) if position is None else position
    clusters = items if groups is None else groups
    by_item, by_cluster = hashed(items, seed), hashed(clusters, seed)
    by_position = hashed(position, seed + 5)
    by_row = hashed(by_item ^ (position.astype(np.uint64) << np.uint64(1)), seed + 1)
    if types is None:
        bucket = np.full(len(items), NO_TYPE)
    else:
        bucket = (hashed(types, seed + 3) % np.uint64(BUCKETS)).astype(np.int64)
    return Places(
        items,
        position,
        clusters,
        by_cluster < np.uint64(HELD_OUT * 2**64),
        (hashed(by_cluster, seed + 2) % np.uint64(GROUPS)).astype(np.int64),
        bucket,
        (hashed(by_item, seed + 4) & ~_WITHIN) | (by_position & _WITHIN),
        by_row,
    )


def _occurrence(items: np.ndarray) -> np.ndarray:
    """Return for each row the number of earlier rows of the same item.

    >>> _occurrence(np.array([7, 7, 9, 7]))
    array([0, 1, 0, 2])
    """
    order = np.argsort(items, kind="stable")
    ranked = items[order]
    starts = np.r_[True, ranked[1:] != ranked[:-1]]
    number = np.arange(len(items))
    out = np.empty(len(items), dtype=np.int64)
    out[order] = number - np.maximum.accumulate(np.where(starts, number, 0))
    return out
