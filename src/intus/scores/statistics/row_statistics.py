"""Summary statistics of a layer of any width, computed in one pass with little memory."""

from __future__ import annotations

import numpy as np

from ...core.projection import SUMMARY
from .split import GROUPS

#: Scalars computed of each row; the layer's scores are their means over rows, with intervals.
ROW_SCALARS = ("mean", "mean_abs", "variance", "norm", "sparsity")


class RowStatistics:
    """Counts, extremes and Welford sums of per-row scalars, kept per group of items for the jackknife.

    Rows with a NaN or an infinity are counted, and otherwise left out.

    Attributes:
        seen: Number of all rows.
        nonfinite: Number of entries that are NaN or infinite.
        counts: Number of finite rows, shape (GROUPS,).
        means: Mean over these rows of each scalar, shape (GROUPS, len(ROW_SCALARS)).
        m2s: Sum of squared deviations from these means, of the same shape.
        low: The smallest entry.
        high: The largest entry.
        alive: True for features that were not always 0, shape (features,).
    """

    def __init__(self, features: int) -> None:
        self.seen = self.nonfinite = 0
        self.counts = np.zeros(GROUPS, dtype=np.int64)
        self.means = np.zeros((GROUPS, len(ROW_SCALARS)))
        self.m2s = np.zeros((GROUPS, len(ROW_SCALARS)))
        self.low, self.high = np.inf, -np.inf
        self.alive = np.zeros(features, dtype=bool)

    @property
    def rows(self) -> int:
        """The number of finite rows."""
        return int(self.counts.sum())

    def update(self, x: np.ndarray, finite: np.ndarray, group: np.ndarray) -> None:
        """Add rows.

        Args:
            x: The rows, float64, shape (rows, features).
            finite: True for rows of finite numbers only, shape (rows,).
            group: The jackknife group of each row, shape (rows,).
        """
        self.seen += len(x)
        if not finite.all():
            self.nonfinite += int((~np.isfinite(x)).sum())
            x, group = x[finite], group[finite]
        if not x.size:
            return
        ones, scratch = np.full(x.shape[1], 1 / x.shape[1]), np.abs(x)
        means, mean_abs = x @ ones, scratch @ ones  # a product takes a third of the time of .mean(axis=1)
        np.subtract(x, means[:, None], out=scratch)
        zeros = x == 0
        scalars = np.stack(
            [
                means,
                mean_abs,
                np.einsum("ij,ij->i", scratch, scratch) / x.shape[1],
                np.sqrt(np.einsum("ij,ij->i", x, x)),
                zeros.mean(axis=1) if zeros.any() else np.zeros(len(x)),
            ],
            axis=1,
        )
        self._count(scalars, group)
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
        self.alive |= ~zeros.all(axis=0)

    def absorb(self, summary: np.ndarray, group: np.ndarray) -> None:
        """Add rows given only by their summaries, from which ``alive`` cannot be updated.

        Args:
            summary: The scalars that ``SUMMARY`` names, shape (rows, 8).
            group: The jackknife group of each row, shape (rows,).
        """
        self.seen += len(summary)
        nonfinite = summary[:, SUMMARY.index("nonfinite")]
        self.nonfinite += int(nonfinite.sum())
        summary, group = summary[nonfinite == 0], group[nonfinite == 0]
        if len(summary):
            self._count(summary[:, [SUMMARY.index(name) for name in ROW_SCALARS]], group)
            self.low = min(self.low, float(summary[:, SUMMARY.index("low")].min()))
            self.high = max(self.high, float(summary[:, SUMMARY.index("high")].max()))

    def _count(self, scalars: np.ndarray, group: np.ndarray) -> None:
        counts = np.bincount(group, minlength=GROUPS)
        with np.errstate(all="ignore"):  # sums may overflow, also before they were sent
            means = _by_group(scalars, group) / np.maximum(counts, 1)[:, None]
            squares = _by_group((scalars - means[group]) ** 2, group)
        self._add(counts, means, squares)

    def _add(self, counts: np.ndarray, means: np.ndarray, m2s: np.ndarray) -> None:
        """Merge counts, means and sums of squares by the stable update of Chan, Golub and LeVeque (1979)."""
        total = self.counts + counts
        share = (counts / np.maximum(total, 1))[:, None]
        with np.errstate(all="ignore"):  # as above
            gap = means - self.means
            self.means = np.where(share > 0, self.means + gap * share, self.means)
            self.m2s = self.m2s + m2s + np.where(share > 0, gap**2 * (self.counts[:, None] * share), 0)
        self.counts = total

    def mean(self) -> np.ndarray:
        """Return the mean of each scalar over all rows, shape (len(ROW_SCALARS),)."""
        with np.errstate(all="ignore"):
            return np.asarray((self.means * self.counts[:, None]).sum(axis=0) / max(self.rows, 1))

    def m2(self) -> np.ndarray:
        """Return the sum of squared deviations of each scalar from ``mean()``."""
        with np.errstate(all="ignore"):  # squares may overflow
            gap = self.means - self.mean()
            return np.asarray((self.m2s + gap**2 * self.counts[:, None]).sum(axis=0))

    def merge(self, other: RowStatistics) -> None:
        """Add the statistics of ``other``."""
        self._add(other.counts, other.means, other.m2s)
        self.seen += other.seen
        self.nonfinite += other.nonfinite
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.alive |= other.alive


class Steps:
    """Sums of rows and of their squares, where each row is one training step.

    Attributes:
        n: The number of rows.
        total: Their sum, shape (features,).
        squares: The sum of all squared entries.
        too_wide: Whether there are more than MOST features; nothing is stored then.
    """

    MOST = 1 << 23

    def __init__(self, features: int) -> None:
        self.too_wide = features > self.MOST
        self.n, self.squares = 0, 0.0
        self.total = np.zeros(0 if self.too_wide else features)

    def update(self, x: np.ndarray) -> None:
        """Add finite rows (rows, features), float64."""
        if not self.too_wide:
            self.n += len(x)
            self.total += x.sum(axis=0)
            self.squares += float((x * x).sum())

    def add(self, n: int, total: np.ndarray, squares: float) -> None:
        """Add the sums of ``n`` rows."""
        if not self.too_wide:
            self.n += n
            self.total += total
            self.squares += squares

    def merge(self, other: Steps) -> None:
        """Add the sums of ``other``."""
        self.n += other.n
        self.total += other.total
        self.squares += other.squares


def _by_group(scalars: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return the sum of each column of (rows, scalars) within each group, shape (GROUPS, scalars)."""
    return np.stack([np.bincount(group, column, GROUPS) for column in scalars.T], axis=1)
