"""First and second moments of a layer in float64: the core datum of every linear score.

One-pass moments in float32 lose everything when the mean is large (a variance of 0.75 instead of 1 at
mean 1,000), hence float64 and a shift to the first block's mean.
"""

from __future__ import annotations

import numpy as np

from .labels import MISSING
from .split import BUCKETS


class Gram:
    """Count, sum and sum of outer products of rows that were shifted already."""

    __slots__ = ("gram", "n", "total")

    def __init__(self, features: int) -> None:
        self.n = 0
        self.total = np.zeros(features)
        self.gram = np.zeros((features, features))

    def add(self, x: np.ndarray) -> None:
        """Add rows (rows, features)."""
        if len(x):
            self.n += len(x)
            self.total += x.sum(axis=0)
            self.gram += x.T @ x

    def plus(self, other: Gram, sign: int = 1, gap: np.ndarray | None = None) -> Gram:
        """This and another together (``sign`` -1: without it), the other's rows moved by ``gap`` first."""
        out = Gram(len(self.total))
        total, gram = other.total, other.gram
        if gap is not None and gap.any():
            cross = np.outer(gap, other.total)
            gram = gram + cross + cross.T + other.n * np.outer(gap, gap)
            total = total + other.n * gap
        out.n = self.n + sign * other.n
        out.total = self.total + sign * total
        out.gram = self.gram + sign * gram
        return out

    def mean(self) -> np.ndarray:
        """The mean row, of the shifted rows."""
        return self.total / max(self.n, 1)

    def scatter(self) -> np.ndarray:
        """Sum of outer products of the centred rows; divided by n it is the covariance."""
        return self.gram - np.outer(self.total, self.mean())


class Sums:
    """Count and sum of rows by class."""

    __slots__ = ("counts", "totals")

    def __init__(self, classes: int, features: int) -> None:
        self.counts = np.zeros(classes, dtype=np.int64)
        self.totals = np.zeros((classes, features))

    def add(self, x: np.ndarray, codes: np.ndarray) -> None:
        """Add rows (rows, features) of classes (rows,); MISSING rows are left out."""
        rows = np.flatnonzero(codes != MISSING)
        if not len(rows):
            return
        self.grow(int(codes.max()) + 1)
        rows = rows[np.argsort(codes[rows], kind="stable")]
        present, start = np.unique(codes[rows], return_index=True)
        self.counts[present] += np.diff(np.r_[start, len(rows)])
        self.totals[present] += np.add.reduceat(x[rows], start, axis=0)

    def grow(self, classes: int) -> None:
        """Make room for at least so many classes."""
        more = classes - len(self.counts)
        if more > 0:
            self.counts = np.r_[self.counts, np.zeros(more, dtype=np.int64)]
            self.totals = np.vstack([self.totals, np.zeros((more, self.totals.shape[1]))])

    def merge(self, other: Sums, codes: np.ndarray, gap: np.ndarray) -> None:
        """Add another's sums, whose class c is ``codes[c]`` here and whose rows move by ``gap``."""
        theirs = np.flatnonzero(codes[: len(other.counts)] != MISSING)
        codes = codes[theirs]
        self.grow(int(codes.max(initial=MISSING)) + 1)
        self.counts[codes] += other.counts[theirs]
        self.totals[codes] += other.totals[theirs] + other.counts[theirs, None] * gap


class Moments:
    """Everything the linear scores read, relative to one ``shift``.

    ``train`` and ``held`` are the moments of rows trained on and held out; ``buckets`` sums the trained rows
    by a random bucket, the control task of every target; ``classes[target]`` sums them by class, and
    ``missing[target]`` are the moments of those that had no label.
    """

    def __init__(self, features: int, targets: tuple[str, ...]) -> None:
        self.shift: np.ndarray | None = None
        self.train, self.held = Gram(features), Gram(features)
        self.buckets = Sums(BUCKETS, features)
        self.classes = {target: Sums(0, features) for target in targets}
        self.missing: dict[str, Gram] = {}

    def update(
        self, x: np.ndarray, held: np.ndarray, bucket: np.ndarray, codes: dict[str, np.ndarray]
    ) -> None:
        """Add finite rows (rows, features), float64."""
        if not len(x):
            return
        if self.shift is None:
            self.shift = x.mean(axis=0)
        x = x - self.shift
        self.held.add(x[held])
        x, bucket = x[~held], bucket[~held]
        self.train.add(x)
        if not codes or not len(x):
            return
        self.buckets.add(x, bucket)
        for target, column in codes.items():
            column = column[~held]
            self.classes[target].add(x, column)
            if (column == MISSING).any():
                self.missing.setdefault(target, Gram(x.shape[1])).add(x[column == MISSING])

    def labelled(self, target: str) -> Gram:
        """Moments of the trained rows that have a label."""
        missing = self.missing.get(target)
        return self.train if missing is None else self.train.plus(missing, -1)

    def merge(self, other: Moments, codes: dict[str, np.ndarray]) -> None:
        """Add another's moments; ``codes[target]`` translates its classes."""
        if other.shift is None:
            return
        if self.shift is None:
            self.shift = other.shift.copy()
        gap = other.shift - self.shift
        self.train = self.train.plus(other.train, gap=gap)
        self.held = self.held.plus(other.held, gap=gap)
        self.buckets.merge(other.buckets, np.arange(BUCKETS), gap)
        for target, sums in other.classes.items():
            self.classes[target].merge(sums, codes[target], gap)
        for target, gram in other.missing.items():
            mine = self.missing.get(target, Gram(len(gap)))
            self.missing[target] = mine.plus(gram, gap=gap)
