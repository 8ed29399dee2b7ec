"""First and second moments of a layer in float64: the core datum of every linear score.

One-pass moments in float32 lose everything when the mean is large (a variance of 0.75 instead of 1 at
mean 1,000), hence a shift to the first rows' mean. Shifted rows could be multiplied in float32 in half the
time, but where features all but depend on one another that moves what a classifier says by hundredths.
"""

from __future__ import annotations

import numpy as np

from ...core.errors import require
from .labels import MISSING
from .split import BUCKETS

HUGE = "the behaviours are too large to be squared"
BLOCK = 2048  #: rows that are multiplied at once; by a few hundred it costs more than twice as much


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

    def plus(self, other: Gram, gap: np.ndarray | None = None) -> Gram:
        """This and another together, the other's rows moved by ``gap`` first."""
        out = self.copy()
        out.n += other.n
        out.total += other.total
        out.gram += other.gram
        if gap is not None and gap.any() and other.n:
            cross = np.outer(gap, other.total)
            out.gram += cross + cross.T + other.n * np.outer(gap, gap)
            out.total += other.n * gap
        return out

    def copy(self) -> Gram:
        """One of the same rows, to add others to."""
        out = Gram(0)
        out.n, out.total, out.gram = self.n, self.total.copy(), self.gram.copy()
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
        labelled = codes != MISSING
        if not labelled.any():
            return
        self.grow(int(codes.max()) + 1)
        sparse = require("scipy.sparse", extra="server", why="to sum rows by class")
        present = codes[labelled]
        ends = np.r_[0, np.cumsum(labelled)]
        member = sparse.csc_array((np.ones(len(present)), present, ends), shape=(len(self.counts), len(x)))
        self.counts += np.bincount(present, minlength=len(self.counts))
        self.totals += member @ x

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
    """Everything the linear scores read, relative to one ``shift``; ``settle()`` before reading.

    ``train`` and ``held`` are the moments of rows trained on and, where ``whole``, held out; ``buckets``
    sums the trained rows by a random bucket, the control task of every target; ``classes[target]`` sums them
    by class; ``labelled[target]`` are the moments of those with a label: ``train`` itself where all have one.
    """

    def __init__(self, features: int, targets: tuple[str, ...], *, whole: bool = True) -> None:
        self.whole = whole
        self.shift: np.ndarray | None = None  #: the mean of the first rows
        self.train, self.held = Gram(features), Gram(features if whole else 0)
        self.buckets = Sums(BUCKETS, features)
        self.classes = {target: Sums(0, features) for target in targets}
        self.labelled = dict.fromkeys(targets, self.train)
        self._waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]] = []
        self._rows = 0  # that wait

    def update(
        self, x: np.ndarray, held: np.ndarray, bucket: np.ndarray, codes: dict[str, np.ndarray]
    ) -> None:
        """Add finite rows (rows, features), which wait until there are BLOCK of them."""
        if not len(x):
            return
        if self.shift is None:
            self.shift = x.mean(axis=0, dtype=np.float64)
        train = ~held
        out = x[held] if self.whole else x[:0]
        self._waiting.append(
            (x[train], out, bucket[train], {t: column[train] for t, column in codes.items()})
        )
        self._rows += len(x)
        if self._rows >= BLOCK:
            self.settle()

    def settle(self) -> None:
        """Take in the rows that wait for others to be multiplied with."""
        if not self._waiting:
            return
        waiting, self._waiting, self._rows = self._waiting, [], 0
        x, out, bucket = (np.concatenate([part[i] for part in waiting]) for i in range(3))
        codes = {target: np.concatenate([part[3][target] for part in waiting]) for target in waiting[-1][3]}
        self.held.add(out - self.shift)
        if not len(x):
            return
        x = x - self.shift
        self._add_labelled(x, codes)
        self.train.add(x)
        if codes:
            self.buckets.add(x, bucket)
        for target, column in codes.items():
            self.classes[target].add(x, column)

    def _add_labelled(self, x: np.ndarray, codes: dict[str, np.ndarray]) -> None:
        """Targets that have had labels of the same rows share their moments, as padding leaves them."""
        alike: dict[tuple[int, bytes], list[str]] = {}
        for target, column in codes.items():
            own = self.labelled[target]
            if own is not self.train or (column == MISSING).any():
                alike.setdefault((id(own), (column != MISSING).tobytes()), []).append(target)
        for (_, mask), targets in alike.items():
            own = self.labelled[targets[0]]
            if own is self.train or any(g is own for t, g in self.labelled.items() if t not in targets):
                own = own.copy()
                self.labelled.update(dict.fromkeys(targets, own))
            own.add(x[np.frombuffer(mask, bool)])

    def merge(self, other: Moments, codes: dict[str, np.ndarray]) -> None:
        """Add another's moments; ``codes[target]`` translates its classes."""
        self.settle()
        other.settle()
        if other.shift is None:
            return
        if self.shift is None:
            self.shift = other.shift.copy()
        gap = other.shift - self.shift
        pairs = {target: (gram, other.labelled[target]) for target, gram in self.labelled.items()}
        unique = {(id(a), id(b)): (a, b) for a, b in [(self.train, other.train), *pairs.values()]}
        merged = {key: a.plus(b, gap) for key, (a, b) in unique.items()}
        self.labelled = {target: merged[id(a), id(b)] for target, (a, b) in pairs.items()}
        self.train = merged[id(self.train), id(other.train)]
        self.held = self.held.plus(other.held, gap)
        self.buckets.merge(other.buckets, np.arange(BUCKETS), gap)
        for target, sums in other.classes.items():
            self.classes[target].merge(sums, codes[target], gap)
