"""Rows that are kept of many whose sums are known: those with the smallest keys, which merge exactly.

Up to WHOLE rows are all kept. Of more, trained rows are kept by class, so that a rare class has all of its
rows, and beside them the trained and held-out rows with the smallest keys of all. The latter are a uniform
sample: what has a key below the largest of them is kept without exception.

Parts that were chosen from parts of the rows merge to what would have been chosen from all rows: a class has
fewer rows in a part than in the whole, so that a part keeps more of each class, never less.
"""

from __future__ import annotations

import numpy as np

from .labels import MISSING
from .sample import ordered
from .split import Places, places

WHOLE = 6000  #: most rows that are all kept, without sums
#: Trained rows that are kept whatever their class, and as many of each class as possible of each target.
UNIFORM, BALANCED = 1536, 2560
MOST = 4 * WHOLE  #: rows that are held at most, before those that are not to be kept are dropped
LEAST = 512  #: least rows that are kept for each of many targets
HELD = 2048  #: held-out rows that are kept


def kept_rows(where: Places, codes: np.ndarray, share: int | None = None) -> np.ndarray:
    """Return the numbers of the rows to keep, ascending.

    Args:
        where: The places of all rows.
        codes: The class of each row for each target with classes, shape (rows, targets), MISSING for none.
        share: The number of trained rows for each target; ``share_of`` the targets by default.
    """
    if len(where.key) <= WHOLE:
        return np.arange(len(where.key))
    trained, held = np.flatnonzero(~where.held), np.flatnonzero(where.held)
    chosen = [smallest(where, trained, UNIFORM), smallest(where, held, HELD)]
    for column in codes.T:
        labelled = trained[column[trained] != MISSING]
        level = level_of(np.bincount(column[labelled]), share or share_of(codes.shape[1]))
        chosen.append(smallest_of_each(where, labelled, column, level))
    return np.unique(np.concatenate(chosen))


def share_of(targets: int) -> int:
    """Return the number of trained rows that are kept for each of some targets."""
    return max(BALANCED // max(targets, 1), LEAST)


def level_of(counts: np.ndarray, most: int) -> int:
    """Return the largest number of rows of each class that are at most ``most`` rows together.

    >>> level_of(np.array([100, 3, 0, 50]), 43)
    20
    """
    left, classes = most, int((counts > 0).sum())
    for count in np.sort(counts[counts > 0]).tolist():
        if count > left // classes:
            return left // classes
        left, classes = left - count, classes - 1
    return int(counts.max(initial=0))


def smallest(where: Places, rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most ``most`` of some rows, those with the smallest keys."""
    order = np.lexsort((where.position[rows], where.item[rows], where.key[rows]))
    return np.asarray(rows[order[:most]])


def smallest_of_each(where: Places, rows: np.ndarray, codes: np.ndarray, level: int) -> np.ndarray:
    """Return at most ``level`` of some rows of each class, those with the smallest keys."""
    rows = smallest(where, rows, len(rows))
    rows = rows[np.argsort(codes[rows], kind="stable")]
    of_class = codes[rows]
    first = np.searchsorted(of_class, of_class)
    return np.asarray(rows[np.arange(len(rows)) - first < level])


class Kept:
    """Kept rows, in place of a ``Sample``.

    Attributes:
        features: The number of features of a row.
        seen: The number of all rows.
        share: The number of trained rows that were kept for each target, besides uniform ones.
    """

    def __init__(self, features: int) -> None:
        self.features, self.seen, self.share = features, 0, BALANCED
        self._parts: list[tuple[Places, np.ndarray, np.ndarray, np.ndarray]] = []

    @property
    def complete(self) -> bool:
        """True if all rows are kept."""
        return self.seen <= WHOLE

    def add(
        self, where: Places, x: np.ndarray, codes: np.ndarray, values: np.ndarray, seen: int, share: int
    ) -> None:
        """Add kept rows; see ``Sample.add``.

        Args:
            where: The places of the rows.
            x: Behaviours, shape (rows, features).
            codes: Class codes, shape (rows, targets).
            values: Numeric labels, shape (rows, targets).
            seen: The number of rows that they were chosen from.
            share: The number of trained rows that were kept for each target.
        """
        self.seen += seen
        self.share = min(self.share, share)
        self._parts.append((where, x, codes, values))
        if sum(len(part[1]) for part in self._parts) > MOST:
            where, x, codes, values = self._joined()
            kept = kept_rows(where, codes, self.share)
            self._parts = [(where.take(kept), x[kept], codes[kept], values[kept])]

    def rows(self) -> tuple[Places, np.ndarray, np.ndarray, np.ndarray]:
        """Return a uniform sample of all rows, in a seeded random order; see ``Sample.rows``."""
        where, x, codes, values = self._joined()
        if self.complete:
            return where, x, codes, values
        bound = np.uint64(2**64 - 1)
        for part, most in ((~where.held, UNIFORM), (where.held, HELD)):
            chosen = smallest(where, np.flatnonzero(part), most)
            if len(chosen) == most:
                bound = min(bound, where.key[chosen[-1]])
        below = where.key <= bound
        return where.take(below), x[below], codes[below], values[below]

    def rows_to_fit(self, column: int, counts: np.ndarray) -> tuple[Places, np.ndarray, np.ndarray]:
        """Return held-out rows, and trained rows of each class, to train and judge a classifier on.

        Args:
            column: The number of the target.
            counts: The number of all trained rows of each of its classes.

        Returns:
            Their places, behaviours and classes, in a seeded random order.
        """
        where, x, codes, _ = self._joined()
        own = codes[:, column]
        if self.complete:
            labelled = own != MISSING
            return where.take(labelled), x[labelled], own[labelled]
        trained = np.flatnonzero(~where.held)
        labelled = trained[own[trained] != MISSING]
        # The uniform rows, too, are those with the smallest keys of each class.
        of_class = smallest_of_each(where, labelled, own, level_of(counts, self.share))
        held = smallest(where, np.flatnonzero(where.held), HELD)
        rows = np.unique(np.concatenate([of_class, smallest(where, trained, UNIFORM), held]))
        rows = rows[own[rows] != MISSING]
        return where.take(rows), x[rows], own[rows]

    def _joined(self) -> tuple[Places, np.ndarray, np.ndarray, np.ndarray]:
        """Return all kept rows in a seeded random order."""
        if not self._parts:
            none = np.empty(0, np.int64)
            return places(none, 0), np.empty((0, self.features)), none.reshape(0, 0), np.empty((0, 0))
        if len(self._parts) > 1 or not self._sorted(self._parts[0][0]):
            where = Places(*(np.concatenate(c) for c in zip(*(part[0] for part in self._parts), strict=True)))
            order = np.lexsort((where.position, where.item, where.turn))
            _, *columns = zip(*self._parts, strict=True)
            x, codes, values = (ordered(parts, order) for parts in columns)
            self._parts = [(where.take(order), x, codes, values)]
        return self._parts[0]

    @staticmethod
    def _sorted(where: Places) -> bool:
        return bool((where.turn[1:] >= where.turn[:-1]).all())
