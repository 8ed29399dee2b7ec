"""First and second moments of a layer in float64, from which the linear scores are computed.

One-pass moments in float32 are inaccurate for a large mean (a variance of 0.75 instead of 1 at mean 1,000),
so rows are shifted by the mean of the first rows. Multiplying the shifted rows in float32 would take half the
time, but for nearly collinear features it changes a classifier's score by some hundredths.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from ...core.errors import require
from .labels import MISSING
from .products import weighted_sums
from .split import BUCKETS

HUGE = "the behaviours are too large to be squared"
_MANY = 8  # binary targets whose class sums are one product
BLOCK = 2048  #: rows multiplied at once; blocks of a few hundred rows take more than twice as long


class Gram:
    """Count, sum and sum of outer products of rows that are already shifted.

    While there are fewer rows than features, the rows are kept, and multiplied only if their products are
    read: what scores need of so few rows follows from smaller products.

    Attributes:
        n: The number of rows.
        total: Their sum, shape (features,).
        cancelled: The largest squares that cancelled in the diagonal of ``gram`` when moments were merged,
            shape (features,). What remains of them is rounding error, not variance.
    """

    __slots__ = ("_gram", "_rows", "cancelled", "n", "total")

    def __init__(self, features: int) -> None:
        self.n = 0
        self.total = np.zeros(features)
        self.cancelled = np.zeros(features)
        self._rows: list[np.ndarray] | None = []  # all rows, None if there are as many as features
        self._gram: np.ndarray | None = None  # None until it is read, if the rows are known

    @classmethod
    def of(cls, n: int, total: np.ndarray, gram: np.ndarray) -> Gram:
        """Return the moments of ``n`` rows with this sum and this sum of outer products."""
        out = cls(len(total))
        out.n, out.total, out._gram, out._rows = n, total, gram, None
        return out

    @property
    def gram(self) -> np.ndarray:
        """The sum of the outer products of the rows, shape (features, features). It is not to be changed."""
        if self._gram is None:
            rows = self._all_rows()
            self._gram = rows.T @ rows
        return self._gram

    @property
    def squares(self) -> np.ndarray:
        """The diagonal of ``gram``."""
        if self._gram is not None:
            return np.diag(self._gram)
        rows = self._all_rows()
        return np.asarray(np.einsum("ij,ij->j", rows, rows))

    def _all_rows(self) -> np.ndarray:
        """Return the rows, if they are kept."""
        return np.concatenate([np.empty((0, len(self.total))), *(self._rows or ())])

    def add(self, x: np.ndarray) -> None:
        """Add rows (rows, features), which must not be changed any more."""
        if not len(x):
            return
        self.n += len(x)
        self.total = self.total + x.sum(axis=0)
        if self._rows is not None:
            self._rows, self._gram = [*self._rows, x], None
            self._multiply_many()
        else:
            product = x.T @ x
            self._gram = np.add(self.gram, product, out=product)

    def _multiply_many(self) -> None:
        """Keep the products of the rows in place of them, if these are as many as the features."""
        if self._rows is not None and self.n >= len(self.total):
            self._gram, self._rows = self.gram, None

    def plus(self, other: Gram, gap: np.ndarray | None = None) -> Gram:
        """Return the moments of the rows of both, with ``gap`` (features,) added to the rows of ``other``."""
        out = Gram(0)
        out.n, out.total = self.n + other.n, self.total + other.total
        out.cancelled = np.maximum(self.cancelled, other.cancelled)
        if gap is not None and not (gap.any() and other.n):
            gap = None
        if self._rows is not None and other._rows is not None:
            out._rows = [*self._rows, *(rows if gap is None else rows + gap for rows in other._rows)]
        else:
            out._rows, product = None, self.gram + other.gram
            if gap is not None:
                cross = np.outer(gap, other.total)
                product += cross + cross.T + other.n * np.outer(gap, gap)
            out._gram = product
        if gap is not None:
            out.total += other.n * gap
            out.cancelled = np.maximum(out.cancelled, other.n * gap**2)
        out._multiply_many()
        return out

    def copy(self) -> Gram:
        """Return a copy: what is added to it is not added here."""
        return copy(self)

    def mean(self) -> np.ndarray:
        """Return the mean of the shifted rows, shape (features,)."""
        return self.total / max(self.n, 1)

    def scatter(self) -> np.ndarray:
        """Return the sum of outer products of the centred rows: n times the covariance."""
        product = np.outer(self.total, self.mean())
        return np.asarray(np.subtract(self.gram, product, out=product))

    def variations(self) -> np.ndarray:
        """Return the diagonal of ``scatter()``."""
        return np.asarray(self.squares - self.total * self.mean())

    def reduced(self, features: int) -> np.ndarray:
        """Return the scatter of the first features, or a smaller matrix with the same eigenvalues but for 0.

        Of fewer rows than features that are the inner products of the centred rows.
        """
        part = slice(features)
        if self._rows is None:
            return np.asarray(self.scatter()[part, part])
        rows = (self._all_rows() - self.mean())[:, part]
        return np.asarray(rows @ rows.T)


class Sums:
    """Number and sum of the rows of each class.

    Attributes:
        counts: Shape (classes,).
        totals: Shape (classes, features).
    """

    __slots__ = ("counts", "totals")

    def __init__(self, classes: int, features: int) -> None:
        self.counts = np.zeros(classes, dtype=np.int64)
        self.totals = np.zeros((classes, features))

    def add(self, x: np.ndarray, codes: np.ndarray) -> None:
        """Add rows (rows, features) with class codes (rows,); rows whose code is MISSING are ignored."""
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

    def add_sums(self, counts: np.ndarray, totals: np.ndarray) -> None:
        """Add the counts (classes,) and the sums (classes, features) of rows."""
        self.grow(len(counts))
        self.counts[: len(counts)] += counts
        self.totals[: len(counts)] += totals

    def grow(self, classes: int) -> None:
        """Extend the arrays to at least ``classes`` classes."""
        more = classes - len(self.counts)
        if more > 0:
            self.counts = np.r_[self.counts, np.zeros(more, dtype=np.int64)]
            self.totals = np.vstack([self.totals, np.zeros((more, self.totals.shape[1]))])

    def merge(self, other: Sums, codes: np.ndarray, gap: np.ndarray) -> None:
        """Add the sums of ``other``: its class c is ``codes[c]`` here, and ``gap`` is added to its rows."""
        kept = np.flatnonzero(codes[: len(other.counts)] != MISSING)
        codes = codes[kept]
        self.grow(int(codes.max(initial=MISSING)) + 1)
        self.counts[codes] += other.counts[kept]
        self.totals[codes] += other.totals[kept] + other.counts[kept, None] * gap


class Moments:
    """Moments of a layer's rows minus a common ``shift``. Call ``settle()`` before reading them.

    Attributes:
        whole: Whether the held-out rows have moments as well.
        shift: The mean of the first rows, which is subtracted from all rows; None before the first.
        train: Moments of the training rows.
        held: Moments of the held-out rows, empty unless ``whole``.
        buckets: Sums of the training rows by random bucket, for the control task of every target.
        classes: For each target, sums of the training rows by class.
        labelled: For each target, moments of the training rows that have a label. This is ``train`` itself
            while all rows have one.
    """

    def __init__(self, features: int, targets: tuple[str, ...], *, whole: bool = True) -> None:
        self.whole = whole
        self.shift: np.ndarray | None = None
        self.train, self.held = Gram(features), Gram(features if whole else 0)
        self.buckets = Sums(BUCKETS, features)
        self.classes = {target: Sums(0, features) for target in targets}
        self.labelled = dict.fromkeys(targets, self.train)
        self._pending: list[tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]] = []
        self._pending_rows = 0

    def update(
        self, x: np.ndarray, held: np.ndarray, bucket: np.ndarray, codes: dict[str, np.ndarray]
    ) -> None:
        """Add finite rows; they are buffered until there are BLOCK of them.

        Args:
            x: The rows, shape (rows, features).
            held: True for rows that are held out, shape (rows,).
            bucket: The random bucket of each row, shape (rows,).
            codes: For each target, the class code of each row, shape (rows,).
        """
        if not len(x):
            return
        if self.shift is None:
            self.shift = x.mean(axis=0, dtype=np.float64)
        train = ~held
        out = x[held] if self.whole else x[:0]
        self._pending.append(
            (x[train], out, bucket[train], {t: column[train] for t, column in codes.items()})
        )
        self._pending_rows += len(x)
        if self._pending_rows >= BLOCK:
            self.settle()

    def settle(self) -> None:
        """Add the buffered rows to the moments."""
        if not self._pending:
            return
        pending, self._pending, self._pending_rows = self._pending, [], 0
        x, out, bucket = (np.concatenate([part[i] for part in pending]) for i in range(3))
        self.held.add(out - self.shift)
        if not len(x):
            return
        x, names = x - self.shift, list(pending[-1][3])
        if names:
            columns = [np.stack([part[3][name] for name in names]) for part in pending]
            self._add_classes(x, names, np.concatenate(columns, axis=1))
            self.buckets.add(x, bucket)  # a row without a type has no bucket, which MISSING means
        self.train.add(x)

    def _add_classes(self, x: np.ndarray, names: list[str], codes: np.ndarray) -> None:
        """Update ``labelled`` and the class sums; ``codes`` has the shape (targets, rows)."""
        self._add_labelled(
            x, dict(zip(names, codes, strict=True))
        )  # it may copy ``train``, without these rows
        binary = (codes.min(axis=1) >= 0) & (codes.max(axis=1) <= 1)
        if binary.sum() < _MANY:
            binary[:] = False
        else:
            above, total = weighted_sums(codes[binary].T, x, np.zeros(1, np.int64))[0], x.sum(axis=0)
            counts = codes[binary].sum(axis=1, dtype=np.int64)
            for number, sums, count in zip(np.flatnonzero(binary), above, counts.tolist(), strict=True):
                own = self.classes[names[number]]
                own.add_sums(np.array([len(x) - count, count]), np.stack([total - sums, sums]))
        for number in np.flatnonzero(~binary):
            self.classes[names[number]].add(x, codes[number])

    def _add_labelled(self, x: np.ndarray, codes: dict[str, np.ndarray]) -> None:
        """Update ``labelled``, once for all targets that have labels for the same rows.

        Padding, for instance, leaves the same rows without a label for every target.
        """
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
        """Add the moments of ``other``, whose class codes ``codes[target]`` maps to those here."""
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
