"""Do two layers, or one layer at two times, hold the same? Centred kernel alignment."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .base import NAN
from .labelled import complete
from .statistics.jackknife import jackknife
from .statistics.statistics import Statistics

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
    return float(ckas(a, b, np.ones((len(a), 1)))[0])


def ckas(a: np.ndarray, b: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """CKA of several choices of rows: ``kept`` (rows, choices) is 1 for a row that is chosen, else 0."""
    cross, own_a, own_b = (hsics(left, right, kept) for left, right in ((a, b), (a, a), (b, b)))
    sound = (kept.sum(axis=0) >= 4) & (own_a > 0) & (own_b > 0)
    return np.where(sound, cross / np.sqrt(np.where(sound, own_a * own_b, 1)), NAN)


def hsics(a: np.ndarray, b: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The unbiased Hilbert-Schmidt independence criterion of two gram matrices (Song et al. 2012, eq. 5) for
    several choices of rows, as of ``ckas``; 0 for fewer than four of them."""
    a, b = (_hollow(gram) for gram in (a, b))
    n = np.maximum(kept.sum(axis=0), 4)
    of_a, of_b = (kept * (gram @ kept) for gram in (a, b))
    sums = of_a.sum(axis=0) * of_b.sum(axis=0) / ((n - 1) * (n - 2))
    total = (kept * ((a * b) @ kept)).sum(axis=0) + sums - 2 * (of_a * of_b).sum(axis=0) / (n - 2)
    return np.where(kept.sum(axis=0) >= 4, total / (n * (n - 3)), 0)


def _hollow(gram: np.ndarray) -> np.ndarray:
    """The matrix in float64 with zeros for its diagonal."""
    out = gram.astype(np.float64)
    np.fill_diagonal(out, 0)
    return out


def alignment(a: Sketch, b: Sketch, seed: int = 0) -> tuple[float, float, float, float, int]:
    """CKA of two sketches on the rows they share: value, 95 % interval by leaving out groups of items, the
    value where rows are paired at random, and how many rows there were."""
    a, b = shared(a, b)
    groups = np.unique(a.group)
    kept = np.column_stack([np.ones(len(a.group)), a.group[:, None] != groups])
    value, *without = ckas(a.gram, b.gram, kept)
    if value != value:
        return NAN, NAN, NAN, NAN, len(a.item)
    low, high = jackknife(np.asarray(value), np.array(without))
    order = np.random.default_rng(seed).permutation(len(a.item))
    base = cka(a.gram, b.gram[np.ix_(order, order)])
    return float(value), float(low), min(float(high), 1.0), base, len(a.item)
