"""Do two layers, or one layer at two times, hold the same? Centred kernel alignment."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .base import NAN
from .jackknife import jackknife
from .labelled import complete
from .statistics import Statistics

MOST_ROWS = 256  #: rows of a Sketch; its memory is 4 bytes for each pair of them


class Sketch(NamedTuple):
    """What of a layer is kept to compare it: for some rows their ``item``, ``position`` and ``group``, and
    ``gram`` (rows, rows) float32, their inner products."""

    item: np.ndarray
    position: np.ndarray
    group: np.ndarray
    gram: np.ndarray

    def take(self, rows: np.ndarray) -> Sketch:
        """Some of the rows."""
        gram = self.gram[np.ix_(rows, rows)]
        return Sketch(self.item[rows], self.position[rows], self.group[rows], gram)


def sketch(statistics: Statistics, most: int = MOST_ROWS) -> Sketch:
    """A layer's Sketch; statistics of one seed keep the same items, whatever the layer or the epoch."""
    places, x, _, _ = statistics.drawn()
    rows = np.sort(np.argsort(places.key, kind="stable")[:most])
    rows = rows[complete(x[rows])]
    x = x[rows].astype(np.float64)
    x = x - x.mean(axis=0) if len(x) else x
    gram = (x @ x.T).astype(np.float32)
    return Sketch(places.item[rows], places.position[rows], places.group[rows], gram)


def shared(a: Sketch, b: Sketch) -> tuple[Sketch, Sketch]:
    """Both with only the rows that both have, in one order."""
    left, right = (
        {key: row for row, key in enumerate(zip(s.item.tolist(), s.position.tolist(), strict=True))}
        for s in (a, b)
    )
    keys = [key for key in left if key in right]
    return a.take(np.array([left[k] for k in keys], int)), b.take(np.array([right[k] for k in keys], int))


def cka(a: np.ndarray, b: np.ndarray) -> float:
    """Linear centred kernel alignment of two gram matrices (rows, rows), without bias: near 0 for unrelated
    layers whatever their width, 1 for equal ones up to rotation and scale (Kornblith et al. 2019, section 3;
    Song et al. 2012, equation 5). NaN with fewer than four rows or where a layer does not vary.

    >>> x = np.random.default_rng(0).normal(size=(50, 4))
    >>> round(cka(x @ x.T, 9 * x @ x.T), 6)
    1.0
    """
    if len(a) < 4:
        return NAN
    parts = [hsic(left, right) for left, right in ((a, b), (a, a), (b, b))]
    if parts[1] <= 0 or parts[2] <= 0:
        return NAN
    return float(parts[0] / np.sqrt(parts[1] * parts[2]))


def hsic(a: np.ndarray, b: np.ndarray) -> float:
    """The unbiased Hilbert-Schmidt independence criterion of two gram matrices (Song et al. 2012, eq. 5)."""
    a, b = (matrix.astype(np.float64) - np.diag(np.diag(matrix).astype(np.float64)) for matrix in (a, b))
    n = len(a)
    sums_a, sums_b = a.sum(axis=0), b.sum(axis=0)
    total = (a * b).sum() + sums_a.sum() * sums_b.sum() / ((n - 1) * (n - 2)) - 2 * sums_a @ sums_b / (n - 2)
    return float(total / (n * (n - 3)))


def alignment(a: Sketch, b: Sketch, seed: int = 0) -> tuple[float, float, float, float, int]:
    """CKA of two sketches on the rows they share: value, 95 % interval by leaving out groups of items, the
    value where rows are paired at random, and how many rows there were."""
    a, b = shared(a, b)
    value = cka(a.gram, b.gram)
    if value != value:
        return NAN, NAN, NAN, NAN, len(a.item)
    kept = [np.flatnonzero(a.group != group) for group in np.unique(a.group)]
    without = np.array([cka(a.gram[np.ix_(k, k)], b.gram[np.ix_(k, k)]) for k in kept])
    low, high = jackknife(np.asarray(value), without)
    order = np.random.default_rng(seed).permutation(len(a.item))
    base = cka(a.gram, b.gram[np.ix_(order, order)])
    return value, float(low), min(float(high), 1.0), base, len(a.item)
