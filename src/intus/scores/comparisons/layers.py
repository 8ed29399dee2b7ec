"""Scores of two layers: centred kernel alignment and SVCCA.

They are computed after the pass over the data, from the rows that the samples of both layers share. With the
same seed, samples contain the same items. A layer can also be compared with vectors of another origin, such
as brain recordings or the embedding of another model: these are the behaviours of one more scorer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from ...core.notes import joined
from ..base import NAN, Score, ScoreResult, score
from ..probes.labelled import complete
from ..scorer import Scorer
from ..statistics.jackknife import jackknife, leave_one_out
from ..statistics.statistics import Statistics
from .similarity import INTERVAL, Sketch, alignment, shared_rows, sketch

CKA_ROWS = 512  #: most rows that CKA compares; a layer takes 4 bytes per pair of rows
SVCCA_ROWS = 2048  #: most rows that SVCCA compares
VARIANCE = 0.99  #: fraction of a layer's variance in the directions that SVCCA compares (Raghu et al. 2017)
PER_DIRECTION = 10  #: least rows per direction: with fewer, canonical correlations are high by chance
_PAIRED_AT_RANDOM = "the same with the rows of one of the two in random order"
_SHARED = "two layers, or a layer and vectors, with shared items"


def relations(
    scorers: Mapping[str, Scorer], score: Score, *, against: Mapping[str, Scorer] | None = None
) -> list[tuple[str, ScoreResult]]:
    """Return a score of each pair of layers, and of each layer with each set of vectors.

    Args:
        scorers: The scorer of each layer by address, fed with the same items, with the same seed.
        score: A score of pairs of layers, such as ``get("cka")``; ``scorers`` have computed it or another one
            that needs a sample.
        against: Scorers of vectors of another origin by name, whose behaviours are the vectors (rows,
            features).

    Returns:
        The address of the first layer and the result, whose target is the address of the second layer or the
        name of the vectors. Each unordered pair of layers occurs once.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(100, 5))
        >>> layers = {"a": Scorer("cka"), "b": Scorer("cka")}
        >>> for scorer, rows in zip(layers.values(), (x, 2 * x[:, ::-1])):
        ...     scorer.update(rows)
        >>> [(address, result)] = relations(layers, layers["a"].scores[0])
        >>> address, result.target, round(result.value, 3)
        ('a', 'b', 1.0)
    """
    layers = list(scorers.items())
    pairs = [(one, other) for number, one in enumerate(layers) for other in layers[number + 1 :]]
    pairs += [(one, other) for one in layers for other in (against or {}).items()]
    out = []
    for (address, one), (target, other) in pairs:
        with np.errstate(all="ignore"):
            found = score.compute(one.statistics, other.statistics)
        out += [(address, result._replace(target=target)) for result in found]
    return out


def _result(
    name: str,
    one: Statistics,
    other: Statistics,
    measure: Callable[[Statistics, Statistics], tuple[float, float, float, float, int, str]],
    note_of: Callable[[Statistics], str] = lambda statistics: statistics.note_of_drawn,
) -> ScoreResult:
    """Return the measure of two layers with the notes of both; a note instead if one has no rows."""
    if one.features < 0 or other.features < 0:
        return ScoreResult(name, NAN, note="a layer has no rows")
    value, low, high, base, n, note = measure(one, other)
    if value != value:
        note = note or (
            f"{n} shared rows are too few, or a layer is constant" if n else "the two share no items"
        )
    notes = dict.fromkeys([note, note_of(one), note_of(other)])
    return ScoreResult(name, value, "", -1, low, high, base, n, joined(*notes))


# -- centred kernel alignment -------------------------------------------------------------------------


@score(
    "cka",
    "sample",
    "rows",
    per="layers",
    default=False,
    label="Alignment of layers (CKA)",
    formula=f"unbiased linear CKA of at most {CKA_ROWS} rows: HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)), K "
    "and L the inner products of the rows of each",
    low=-1.0,
    high=1.0,
    baseline=_PAIRED_AT_RANDOM,
    interval=INTERVAL,
    requires=_SHARED,
    source="Kornblith et al. 2019, section 3; Song et al. 2012, equation 5",
)
def cka_of_layers(one: Statistics, other: Statistics) -> Iterable[ScoreResult]:
    """Similarity of two layers: 1 if equal up to rotation and scale, about 0 if unrelated."""

    def measure(one: Statistics, other: Statistics) -> tuple[float, float, float, float, int, str]:
        return (*alignment(_sketch(one), _sketch(other), one.seed), "")

    return [_result("cka", one, other, measure, lambda statistics: statistics.note_to_compare)]


def _sketch(statistics: Statistics) -> Sketch:
    return statistics.once("sketch for pairs", lambda: sketch(statistics, CKA_ROWS))


# -- singular vector canonical correlation ------------------------------------------------------------


class Directions(NamedTuple):
    """Rows of a layer in the directions in which it varies most.

    Attributes:
        item: The item id of each row, shape (rows,).
        position: The number of each row among the rows of its item, shape (rows,).
        group: The jackknife group of each row, shape (rows,).
        scores: The coordinates of the centred rows, shape (rows, directions).
        note: Whether there are fewer directions than there should be.
    """

    item: np.ndarray
    position: np.ndarray
    group: np.ndarray
    scores: np.ndarray
    note: str

    def take(self, rows: np.ndarray) -> Directions:
        """Return some of the rows."""
        item, position, group, scores, note = self
        return Directions(item[rows], position[rows], group[rows], scores[rows], note)


def main_directions(x: np.ndarray, variance: float = VARIANCE) -> np.ndarray:
    """Return the coordinates of centred rows (rows, features) in as few directions as have this variance.

    >>> main_directions(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.01], [0.0, -0.01]])).shape
    (4, 1)
    """
    left, sizes, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    share = np.cumsum(sizes**2) / max(float((sizes**2).sum()), 1e-300)
    kept = int(np.searchsorted(share, variance - 1e-12)) + 1 if sizes.any() else 0
    return np.asarray(left[:, :kept] * sizes[:kept])


def canonical_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return the mean canonical correlation of rows (rows, p) and (rows, q) over min(p, q) directions.

    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(canonical_correlation(x, x @ [[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]]), 6)
    1.0
    """
    return _mean_correlation(_products(a, b), a.shape[1])


def _products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the products of all columns of rows, of both and of ones, (1 + p + q, 1 + p + q)."""
    both = np.column_stack([np.ones(len(a)), a, b])
    return np.asarray(both.T @ both)


def _mean_correlation(products: np.ndarray, width: int) -> float:
    """Return the mean canonical correlation of the first ``width`` columns with the others."""
    rows = products[0, 0]
    covariance = products[1:, 1:] - np.outer(products[0, 1:], products[0, 1:]) / rows
    one, other, cross = covariance[:width, :width], covariance[width:, width:], covariance[:width, width:]
    whitened = _inverse_root(one) @ cross @ _inverse_root(other)
    found = np.linalg.svd(whitened, compute_uv=False)
    return float(np.clip(found, 0, 1).mean()) if len(found) else NAN


def _inverse_root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    kept = values > 1e-10 * max(float(values.max(initial=0)), 1e-300)
    return np.asarray((vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T)


@score(
    "svcca",
    "sample",
    per="layers",
    default=False,
    label="Alignment of layers (SVCCA)",
    formula=f"the mean canonical correlation of the directions with {100 * VARIANCE:g} % of the variance of "
    f"each layer, at most one for {PER_DIRECTION} rows; of at most {SVCCA_ROWS:,} rows",
    low=0.0,
    high=1.0,
    baseline=_PAIRED_AT_RANDOM,
    interval="95 %, jackknife over groups of items, extended by the bias that it finds; the directions are "
    "held fixed. It is too high for unrelated layers",
    requires=_SHARED,
    source="Raghu et al. 2017",
)
def svcca(one: Statistics, other: Statistics) -> Iterable[ScoreResult]:
    """Similarity of the subspaces in which two layers vary: 1 if one is a linear map of the other.

    Correlations are high by chance if there are few rows for a direction: compare it with its baseline.
    """
    return [_result("svcca", one, other, _svcca)]


def _svcca(one: Statistics, other: Statistics) -> tuple[float, float, float, float, int, str]:
    a, b = _directions(one), _directions(other)
    left, right = shared_rows(a, b)
    a, b = a.take(left), b.take(right)
    n, note = len(left), a.note or b.note
    if n < 4 or not a.scores.shape[1] or not b.scores.shape[1]:
        return NAN, NAN, NAN, NAN, n, ""
    width = a.scores.shape[1]
    parts = np.array([_products(a.scores[a.group == g], b.scores[a.group == g]) for g in np.unique(a.group)])
    value = _mean_correlation(parts.sum(axis=0), width)
    without = np.array([_mean_correlation(part, width) for part in leave_one_out(parts, 0)])
    low, high, _ = jackknife(np.asarray(value), without)
    bias = (len(without) - 1) * (float(without.mean()) - value) if len(without) > 1 else 0.0
    low, high = low - max(bias, 0.0), high - min(bias, 0.0)
    order = np.random.default_rng(one.seed).permutation(n)
    base = canonical_correlation(a.scores, b.scores[order])
    return value, max(float(low), 0.0), min(float(high), 1.0), base, n, note


def _directions(statistics: Statistics) -> Directions:
    return statistics.once("directions", lambda: _compute_directions(statistics))


def _compute_directions(statistics: Statistics) -> Directions:
    places, x, _, _ = statistics.drawn()
    rows = np.argsort(places.key, kind="stable")[:SVCCA_ROWS]
    rows = rows[complete(x[rows])]
    coordinates = main_directions(x[rows].astype(np.float64)) if len(rows) else np.empty((0, 0))
    most = max(len(rows) // PER_DIRECTION, 1)
    note = ""
    if coordinates.shape[1] > most:
        note = f"{most} of {coordinates.shape[1]} directions, for {len(rows)} rows"
    return Directions(
        places.item[rows], places.position[rows], places.group[rows], coordinates[:, :most], note
    )
