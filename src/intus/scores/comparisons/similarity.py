"""Scores of two data points: centred kernel alignment of layers or epochs, and the update-to-weight ratio."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np

from ...core.projection import PROJECTED
from ...core.score_info import ScoreInfo
from ..base import NAN
from ..probes.labelled import complete
from ..statistics.jackknife import jackknife
from ..statistics.statistics import Statistics

LEAST_ROWS = 4  #: fewest rows that an alignment is computed of
MOST_ROWS = 256  #: most rows of a Sketch, which takes 4 bytes per pair of rows
_ROUNDING = 1e-13  #: the relative error of a mean of MOST_ROWS numbers
_BLOCK = 4 << 20  #: most entries of rows that are multiplied at once
_LEAST_SHARE = 1e-3  #: of the inner products of projected rows that are not errors of the projection
_KEPT_BEFORE = "perhaps of projected features: its rows were kept by an earlier version of intus"
INTERVAL = (
    "95 %, jackknife over groups of items; of layers that were projected before they were sent, wider by "
    "what that may have changed"
)
_CKA: dict[str, Any] = {
    "formula": f"unbiased linear CKA of {MOST_ROWS} rows: HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)), K and L "
    "the inner products of the rows of each",
    "low": -1.0,
    "high": 1.0,
    "baseline": "the same with the rows of one of the two in random order",
    "interval": INTERVAL,
    "source": "Kornblith et al. 2019, section 3; Song et al. 2012, equation 5",
}
#: Scores that servers compute of two data points.
RELATIONS = (
    ScoreInfo(
        name="cka_layer",
        label="Alignment (CKA) with the layer before",
        about="Similarity of a layer to the one scored before it in the same epoch: 1 if they are equal up "
        "to rotation and scale, about 0 if they are unrelated.",
        requires="outputs of two layers with the same rows",
        **_CKA,
    ),
    ScoreInfo(
        name="cka_epoch",
        label="Alignment (CKA) with itself an epoch before",
        about="Similarity of a layer to itself in the epoch scored before: 1 if it is equal up to rotation "
        "and scale, about 0 if it is unrelated.",
        requires="outputs in two epochs, and rows with item ids",
        **_CKA,
    ),
    ScoreInfo(
        name="update_ratio",
        label="Update over weight (ratio of norms)",
        about="Size of a parameter's updates relative to the parameter; about 0.001 is usual.",
        formula="mean norm of the recorded updates of an epoch divided by the norm of the parameter at its "
        "end",
        low=0.0,
        requires='records of the kinds "parameter" and "update"',
    ),
)


class Sketch(NamedTuple):
    """Some rows of a layer and their inner products, for comparing it with other layers.

    Attributes:
        item: The item id of each row, shape (rows,).
        position: The number of each row among the rows of its item, shape (rows,).
        group: The jackknife group of each row, shape (rows,).
        gram: The inner products of the centred rows up to a factor, float32, shape (rows, rows).
        projected: A note that they are those of rows projected to PROJECTED features; "" if they are not.
    """

    item: np.ndarray
    position: np.ndarray
    group: np.ndarray
    gram: np.ndarray
    projected: str = ""

    def take(self, rows: np.ndarray) -> Sketch:
        """Return the sketch of some of the rows."""
        gram = self.gram[np.ix_(rows, rows)]
        return Sketch(self.item[rows], self.position[rows], self.group[rows], gram, self.projected)


def sketch(statistics: Statistics, most: int = MOST_ROWS) -> Sketch:
    """Return a layer's Sketch; with the same seed it has the same items in every layer and epoch."""
    places, x = statistics.rows_to_compare()
    rows = np.sort(np.argsort(places.key, kind="stable")[:most])
    rows = rows[complete(x[rows])]
    where, gram = places.take(rows), _products(x[rows]).astype(np.float32)
    return Sketch(where.item, where.position, where.group, gram, statistics.projected_to_compare)


def _products(x: np.ndarray) -> np.ndarray:
    """Return the inner products of rows less their mean up to a factor, which does not change CKA.

    Products of large entries would overflow in float32, and those of small ones be 0.
    """
    gram, size = np.zeros((len(x), len(x))), float(max(x.max(initial=0), -x.min(initial=0))) or 1.0
    step = max(_BLOCK // max(len(x), 1), 1)
    for start in range(0, x.shape[1] if len(x) else 0, step):
        part = _centred(x[:, start : start + step].astype(np.float64) / size)
        gram += part @ part.T
    return gram


def _centred(x: np.ndarray) -> np.ndarray:
    """Return rows less their mean; what its rounding leaves of a constant feature is no variation."""
    centred = x - x.mean(axis=0)
    return np.where(np.abs(centred) > _ROUNDING * np.abs(x).max(axis=0), centred, 0)


def pack(sketch: Sketch, text: str) -> bytes:
    """Return a sketch and a text as bytes; of the inner products, which are symmetric, one half.

    >>> x = np.eye(3, dtype=np.float32)
    >>> found, text = unpack(pack(Sketch(np.arange(3), np.zeros(3, int), np.arange(3), x), "text"))
    >>> text, bool((found.gram == x).all())
    ('text', True)
    """
    out, half = io.BytesIO(), sketch.gram[np.tril_indices(len(sketch.gram))]
    np.savez(out, **sketch._replace(gram=half)._asdict(), text=np.frombuffer(text.encode(), np.uint8))
    return out.getvalue()


def unpack(content: bytes) -> tuple[Sketch, str]:
    """Return the sketch and the text that ``pack`` was given."""
    with np.load(io.BytesIO(content), allow_pickle=False) as found:
        parts: dict[str, Any] = {name: found[name] for name in Sketch._fields if name in found}
        text = found["text"].tobytes().decode()
    rows = len(parts["item"])
    gram = np.zeros((rows, rows), np.float32)
    gram[np.tril_indices(rows)] = parts["gram"]
    parts["gram"] = np.where(np.tri(rows, dtype=bool), gram, gram.T)
    parts["projected"] = str(parts.get("projected", _KEPT_BEFORE))
    return Sketch(**parts), text


def shared(a: Sketch, b: Sketch) -> tuple[Sketch, Sketch]:
    """Return both sketches restricted to the rows that they share, in the same order."""
    left, right = shared_rows(a, b)
    return a.take(left), b.take(right)


def shared_rows(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the rows that two samples share, by ``item`` and ``position``, in one order."""
    left, right = (
        {key: row for row, key in enumerate(zip(s.item.tolist(), s.position.tolist(), strict=True))}
        for s in (a, b)
    )
    keys = [key for key in left if key in right]
    return np.array([left[k] for k in keys], int), np.array([right[k] for k in keys], int)


def cka(a: np.ndarray, b: np.ndarray) -> float:
    """Return the unbiased linear centred kernel alignment of two gram matrices (rows, rows).

    It is near 0 for unrelated layers of any width, and 1 for layers that are equal up to rotation and scale
    (Kornblith et al. 2019, section 3; Song et al. 2012, equation 5). NaN with fewer than four rows, or if a
    layer does not vary.

    >>> x = np.random.default_rng(0).normal(size=(50, 4))
    >>> round(cka(x @ x.T, 9 * x @ x.T), 6)
    1.0
    """
    return float(ckas(a, b, np.ones((len(a), 1)))[0])


def ckas(a: np.ndarray, b: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return CKA of several choices of rows; ``kept`` (rows, choices) is 1 for a chosen row, else 0."""
    of_a, of_b = _summed(a, kept), _summed(b, kept)
    cross, own_a, own_b = (_hsics(*pair, kept) for pair in ((of_a, of_b), (of_a, of_a), (of_b, of_b)))
    sound = (kept.sum(axis=0) >= LEAST_ROWS) & (own_a > 0) & (own_b > 0)
    return np.where(sound, cross / np.sqrt(np.where(sound, own_a * own_b, 1)), NAN)


def hsics(a: np.ndarray, b: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return the unbiased HSIC of two gram matrices (Song et al. 2012, eq. 5) for several choices of rows.

    The choices are as for ``ckas``; with fewer than four rows it is 0.
    """
    return _hsics(_summed(a, kept), _summed(b, kept), kept)


#: A gram matrix with zeros on its diagonal, and the sums of its chosen rows, (rows, choices).
_Summed = tuple[np.ndarray, np.ndarray]


def _summed(gram: np.ndarray, kept: np.ndarray) -> _Summed:
    hollow = _hollow(gram)
    return hollow, kept * (hollow @ kept)


def _hsics(summed_a: _Summed, summed_b: _Summed, kept: np.ndarray) -> np.ndarray:
    (a, of_a), (b, of_b) = summed_a, summed_b
    n = np.maximum(kept.sum(axis=0), LEAST_ROWS)
    sums = of_a.sum(axis=0) * of_b.sum(axis=0) / ((n - 1) * (n - 2))
    total = (kept * ((a * b) @ kept)).sum(axis=0) + sums - 2 * (of_a * of_b).sum(axis=0) / (n - 2)
    return np.where(kept.sum(axis=0) >= LEAST_ROWS, total / (n * (n - 3)), 0)


def _hollow(gram: np.ndarray) -> np.ndarray:
    """Return the matrix in float64 with zeros on its diagonal."""
    out = gram.astype(np.float64)
    np.fill_diagonal(out, 0)
    return out


def alignment(a: Sketch, b: Sketch, seed: int = 0) -> tuple[float, float, float, float, int]:
    """Return CKA of two sketches on the rows they share.

    Returns:
        The value, the lower and the upper bound of its 95 % interval, by a jackknife over groups of items,
        the value with rows paired at random, and the number of rows.
    """
    a, b = shared(a, b)
    groups = np.unique(a.group)
    kept = np.column_stack([np.ones(len(a.group)), a.group[:, None] != groups])
    value, *without = ckas(a.gram, b.gram, kept)
    if value != value:
        return NAN, NAN, NAN, NAN, len(a.item)
    low, high = map(float, jackknife(np.asarray(value), np.array(without))[:2])
    if a.projected or b.projected:
        low, high = _before_projection(a, b, float(value), (high - low) / 2)
    order = np.random.default_rng(seed).permutation(len(a.item))
    base = cka(a.gram, b.gram[np.ix_(order, order)])
    return float(value), max(low, -1.0), min(high, 1.0), base, len(a.item)


def _before_projection(a: Sketch, b: Sketch, value: float, half: float) -> tuple[float, float]:
    """Return the interval of CKA before projections, from that of what they left, ``value`` ± ``half``.

    The errors of a projection add to HSIC(K, K), so that the value is too low: by as much at most as if the
    features were in no particular order. Errors of both layers, if these were projected alike, add to
    HSIC(K, L) too, but no more than to HSIC(K, K) and HSIC(L, L) (Cauchy and Schwarz). Other errors have a
    mean of 0.
    """
    shares = np.array([_share(a), _share(b)])
    kept, common = np.sqrt(shares.prod()), np.sqrt((1 - shares).prod())
    half = float(np.hypot(half, 1.96 * (_deviation(a, b, value) + _deviation(b, a, value))))
    low, high = value - half, value + half
    return float(min(low, (low - common) / kept)), float(max(high, high / kept))


def _share(sketch: Sketch) -> float:
    """Return the least part of HSIC(K, K) that is not from the errors of the projection.

    The error of an inner product K_rs has a variance of at most (K_rr K_ss + K_rs²) / PROJECTED.
    """
    if not sketch.projected:
        return 1.0
    gram = sketch.gram.astype(np.float64)
    rows, squares = len(gram), np.diag(gram)
    added = _hollow(np.outer(squares, squares) + gram**2).sum() / PROJECTED * (rows - 3) / (rows - 1)
    return max(1 - float(added) / _size(gram) ** 2, _LEAST_SHARE)


def _deviation(sketch: Sketch, other: Sketch, value: float) -> float:
    """Return the standard deviation of CKA over projections of the first of two layers.

    CKA changes by <E, D>, with E the errors of K, and D = L / |L| - CKA K / |K|, divided by |K|.
    """
    if not sketch.projected:
        return 0.0
    gram, its = sketch.gram.astype(np.float64), other.gram
    change = gram @ (_hollow(its) / _size(its) - value * _hollow(gram) / _size(gram))
    return float(np.sqrt(2 / PROJECTED * max((change * change.T).sum(), 0.0))) / _size(gram)


def _size(gram: np.ndarray) -> float:
    """Return |K|, the root of HSIC(K, K) for sums in place of means."""
    rows = len(gram)
    return float(np.sqrt(rows * (rows - 3) * hsics(gram, gram, np.ones((rows, 1)))[0]))


def why_unaligned(a: Sketch, b: Sketch) -> str:
    """Return the reason why the alignment of two layers has no value.

    >>> nothing = np.zeros(0, int)
    >>> row = Sketch(np.zeros(1, int), np.zeros(1, int), np.zeros(1, int), np.ones((1, 1), np.float32))
    >>> why_unaligned(Sketch(nothing, nothing, nothing, np.zeros((0, 0), np.float32)), row)
    'one of them has no finite rows'
    """
    if not len(a.item) or not len(b.item):
        return "one of them has no finite rows"
    a, b = shared(a, b)
    if not len(a.item):
        return "no rows are known to be in both, as those that are not finite or have no item ids"
    if len(a.item) < LEAST_ROWS:
        return f"finite rows that are known to be in both: {len(a.item)}, and {LEAST_ROWS} are needed"
    return "the rows of one of them do not vary"
