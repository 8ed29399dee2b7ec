"""Where a row belongs, decided by a seeded hash of its item's id.

Whether a row is trained on or held out never depends on the order of arrival, on batches or on other
rows: so statistics merge exactly, the same item falls on the same side in every layer and epoch, and
all rows of one item (the tokens of a sentence, the pixels of an image) stay together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

HELD_OUT = 0.25  #: share of the items that classifiers are judged on and never trained on
GROUPS = 16  #: groups of items for the delete-a-group jackknife
_WITHIN = np.uint64(2**24 - 1)  # bits of a key that tell the rows of an item apart
BUCKETS = 256  #: groups of rows that get one random label each in the control task


class Places(NamedTuple):
    """For each row: its item, its number among the rows of that item, whether it is held out, its group
    for the jackknife, its bucket for the control task, its key, by which samples are drawn (all but equal for
    the rows of an item, so that items stay whole), and its turn, by which the drawn rows are shuffled."""

    item: np.ndarray
    position: np.ndarray
    held: np.ndarray
    group: np.ndarray
    bucket: np.ndarray
    key: np.ndarray
    turn: np.ndarray

    def take(self, rows: np.ndarray) -> Places:
        """The places of some rows, by mask or index."""
        return Places(*(column[rows] for column in self))


def places(items: np.ndarray, seed: int) -> Places:
    """Place every row; ``items`` int64 (rows,)."""
    position = _occurrence(items)
    by_item = _mix(items.astype(np.uint64), seed)
    by_position = _mix(position.astype(np.uint64), seed + 5)
    by_row = _mix(by_item ^ (position.astype(np.uint64) << np.uint64(1)), seed + 1)
    return Places(
        items,
        position,
        by_item < np.uint64(HELD_OUT * 2**64),
        (_mix(by_item, seed + 2) % np.uint64(GROUPS)).astype(np.int64),
        (_mix(by_row, seed + 3) % np.uint64(BUCKETS)).astype(np.int64),
        (_mix(by_item, seed + 4) & ~_WITHIN) | (by_position & _WITHIN),
        by_row,
    )


def _mix(values: np.ndarray, seed: int) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every input bit moves every output bit."""
    z = values + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _occurrence(items: np.ndarray) -> np.ndarray:
    """For each row, how many rows of the same item came before it.

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
