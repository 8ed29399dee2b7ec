"""Scalars of a layer, of any width, in one pass and a few numbers of memory."""

from __future__ import annotations

import numpy as np

#: Numbers taken of each row; their means over rows, and how sure these are, are the layer's scores.
ROW_SCALARS = ("mean", "mean_abs", "variance", "norm", "sparsity")


class Tally:
    """Counts, extremes and Welford sums of per-row scalars.

    ``mean`` and ``m2`` (len(ROW_SCALARS),) are the mean over rows and the sum of squared deviations;
    rows that hold a NaN or an infinity are counted and left out.
    """

    def __init__(self, features: int) -> None:
        self.seen = self.rows = self.nonfinite = 0
        self.mean = np.zeros(len(ROW_SCALARS))
        self.m2 = np.zeros(len(ROW_SCALARS))
        self.low, self.high = np.inf, -np.inf
        self.alive = np.zeros(features, dtype=bool)

    def update(self, x: np.ndarray, finite: np.ndarray) -> None:
        """Add rows (rows, features); ``finite`` (rows,) says which hold only finite numbers."""
        self.seen += len(x)
        if not finite.all():
            self.nonfinite += int((~np.isfinite(x)).sum())
            x = x[finite]
        if not x.size:
            return
        means = x.mean(axis=1)
        square = np.einsum("ij,ij->i", x, x)
        zeros = x == 0
        scalars = np.stack(
            [
                means,
                np.abs(x).mean(axis=1),
                ((x - means[:, None]) ** 2).mean(axis=1),
                np.sqrt(square),
                zeros.mean(axis=1),
            ]
        )
        centre = scalars.mean(axis=1)
        self._add(len(x), centre, ((scalars - centre[:, None]) ** 2).sum(axis=1))
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
        self.alive |= ~zeros.all(axis=0)

    def _add(self, rows: int, mean: np.ndarray, m2: np.ndarray) -> None:
        """Chan, Golub and LeVeque 1979: the update that loses no digits."""
        total = self.rows + rows
        if not total:
            return
        gap = mean - self.mean
        self.mean = self.mean + gap * (rows / total)
        self.m2 = self.m2 + m2 + gap**2 * (self.rows * rows / total)
        self.rows = total

    def merge(self, other: Tally) -> None:
        """Add what another saw."""
        self._add(other.rows, other.mean, other.m2)
        self.seen += other.seen
        self.nonfinite += other.nonfinite
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.alive |= other.alive
