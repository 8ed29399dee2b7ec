"""Linear classifiers from moments: what of a target can be read off a layer by hyperplanes.

``linear``: ridge regression on ±1 codes of the classes, as scikit-learn's RidgeClassifier; one decomposition
per layer serves all targets. ``lda``: linear discriminant analysis with a shrunk covariance, as
scikit-learn's with the solver "lsqr". Both of standardised features and solved from streamed moments: exact.
They are trained on one part of the items and judged on the other; beside them stand what guessing the
commonest class and what learning random labels (the control task of Hewitt and Liang 2019) would give.

The penalty is chosen for each layer and target by generalised cross-validation (Golub, Heath and Wahba
1979), which moments suffice for. No fixed one will do: where features are noise it must be high, and where
most of a layer's spread lies in a few directions, as in trained networks, low. A penalty of 0.1 per row gives
a macro F1 of .58 where the one chosen here gives .90 (768 features whose spread falls as 1/k).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from ..core.errors import require
from .base import NAN, Reading, score
from .judging import Judgement, judge
from .labelled import TOO_MANY, labelled_rows
from .moments import Gram, Sums
from .split import BUCKETS
from .statistics import Statistics

#: Penalties per training row, on standardised features, that are tried.
ALPHAS: tuple[float, ...] = tuple(10.0 ** (half / 2) for half in range(-10, 3))


class Plane(NamedTuple):
    """``coef`` (features, classes) and ``intercept`` (classes,) for rows less the moments' shift."""

    coef: np.ndarray
    intercept: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        """The class of each row (rows, features)."""
        return np.asarray(np.argmax(x @ self.coef + self.intercept, axis=1))


class Factor(NamedTuple):
    """The part of the solution that all targets share: rows, mean, scale, and the eigenvalues and vectors of
    the standardised scatter."""

    n: int
    mean: np.ndarray
    scale: np.ndarray
    values: np.ndarray
    vectors: np.ndarray


def factorise(gram: Gram) -> Factor:
    """Decompose the correlation matrix, times the rows; constant features get scale 1."""
    scale = _scale(gram)
    values, vectors = np.linalg.eigh(gram.scatter() / scale / scale[:, None])
    return Factor(gram.n, gram.mean(), scale, np.maximum(values, 0), vectors)


def _scale(gram: Gram) -> np.ndarray:
    """The standard deviation of each feature; 1 for those that are constant."""
    variance = np.diag(gram.scatter()) / gram.n
    constant = variance <= 1e-12 * np.maximum(np.diag(gram.gram) / gram.n, 1e-300)
    return np.where(constant, 1.0, np.sqrt(np.maximum(variance, 1e-300)))


def solve(factor: Factor, sums: Sums, alpha: float | None = None) -> Plane:
    """The ridge classifier of these class sums; a class without rows is never predicted.

    ``alpha`` is the penalty per row, by default the one that generalised cross-validation chooses.
    """
    cross = _cross(factor, sums)
    if alpha is None:
        alpha = penalty_of(factor, sums)
    coef = regress(factor, cross, alpha) / factor.scale[:, None]
    intercept = 2 * sums.counts / factor.n - 1 - factor.mean @ coef
    return Plane(coef, np.where(sums.counts > 0, intercept, -np.inf))


def _cross(factor: Factor, sums: Sums) -> np.ndarray:
    """Σ z·y (features, classes) of standardised features and ±1 codes of the classes."""
    return np.asarray(2 * (sums.totals - sums.counts[:, None] * factor.mean).T / factor.scale[:, None])


def regress(factor: Factor, cross: np.ndarray, alpha: float) -> np.ndarray:
    """Ridge coefficients (features, outputs) for standardised features, from Σ z·y (features, outputs)."""
    weights = 1 / (factor.values + max(alpha * factor.n, 1e-9))
    return np.asarray(factor.vectors @ (weights[:, None] * (factor.vectors.T @ cross)))


def penalty_of(factor: Factor, sums: Sums) -> float:
    """The penalty per row that generalised cross-validation chooses for these classes."""
    cross = _cross(factor, sums)
    share = sums.counts / factor.n
    return penalty(factor, cross, float(4 * factor.n * (share * (1 - share)).sum()))


def penalty(factor: Factor, cross: np.ndarray, square: float) -> float:
    """The penalty per row with the least (squared error) / (1 - degrees of freedom / rows)², of equals the
    greatest; ``square`` is the sum of squares of the centred outputs."""
    turned = ((factor.vectors.T @ cross) ** 2).sum(axis=1)
    best, chosen = np.inf, ALPHAS[-1]
    for alpha in reversed(ALPHAS):
        weights = 1 / (factor.values + alpha * factor.n)
        missed = square - (turned * weights * (2 - factor.values * weights)).sum()
        free = 1 - (1 + (factor.values * weights).sum()) / factor.n
        loss = float(missed / free**2) if free > 0 else np.inf
        if loss < best * (1 - 1e-9):
            best, chosen = loss, alpha
    return chosen


def discriminate(gram: Gram, sums: Sums, alpha: float) -> Plane:
    """The linear discriminant of these moments; a class without rows is never predicted.

    To the variances within classes ``alpha`` is added, relative to the covariance's scale (Friedman 1989):
    scikit-learn's LinearDiscriminantAnalysis("lsqr", shrinkage=alpha / (alpha + v)) of standardised rows,
    with v their mean variance within classes.
    """
    linalg = require("scipy.linalg", extra="server", why="to fit linear classifiers")
    mean, scale = gram.mean(), _scale(gram)
    centres = np.where(sums.counts[:, None] > 0, sums.totals / np.maximum(sums.counts, 1)[:, None] - mean, 0)
    centres = centres / scale
    weighted = centres * np.sqrt(sums.counts / gram.n)[:, None]
    within = gram.scatter() / scale / scale[:, None] / gram.n - weighted.T @ weighted
    level = max(float(np.trace(within)) / len(within), 1e-12)
    within[np.diag_indices_from(within)] += alpha
    within *= level / (level + alpha)
    coef = linalg.solve(within, centres.T, assume_a="pos", check_finite=False)
    with np.errstate(divide="ignore"):
        prior = np.log(sums.counts / sums.counts.sum())
    intercept = prior - (centres.T * coef).sum(axis=0) / 2
    coef = coef / scale[:, None]
    return Plane(coef, intercept - mean @ coef)


# -- scores ------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """How the classifier, the majority and the control did on held-out rows; ``note`` why they did not."""

    real: Judgement | None
    majority: Judgement | None
    control: Judgement | None
    n: int
    note: str


#: How to train: from the moments of the rows, their decomposition, and their class sums.
Method = Callable[[Gram, Factor, Sums], Plane]

METHODS: dict[str, Method] = {
    "linear": lambda gram, factor, sums: solve(factor, sums),
    "lda": lambda gram, factor, sums: discriminate(gram, sums, penalty_of(factor, sums)),
}


def outcome(statistics: Statistics, target: str, method: str = "linear") -> Outcome:
    """Fit and judge, once for all scores that read it."""
    return statistics.once((method, target), lambda: _outcome(statistics, target, METHODS[method]))


def _outcome(statistics: Statistics, target: str, fit: Method) -> Outcome:
    moments, classes = statistics.moments, statistics.classes[target]
    places, x, truth = labelled_rows(statistics, target)
    x, truth, places = x[places.held], truth[places.held], places.take(places.held)
    sums = _ranked(moments.classes[target], classes.order())
    if note := _why_not(classes.overflowed, sums, len(truth)):
        return Outcome(None, None, None, len(truth), note)
    x = x - moments.shift
    gram, factor = moments.labelled(target), statistics.once("factor", lambda: factorise(moments.train))
    own = factor
    if gram is not moments.train:
        own = statistics.once(("factor", target), lambda: factorise(gram))
    guess = fit(gram, own, sums).predict(x)
    draw = np.searchsorted(np.cumsum(sums.counts) / sums.counts.sum(), _evenly(BUCKETS, statistics.seed))
    fake = _of_buckets(moments.buckets, draw, len(sums.counts))
    control = fit(moments.train, factor, fake).predict(x)
    return Outcome(
        judge(truth, guess, places.item),
        judge(truth, np.full_like(truth, sums.counts.argmax()), places.item),
        judge(draw[places.bucket], control, places.item),
        len(truth),
        statistics.projection.note,
    )


def _why_not(overflowed: bool, sums: Sums, held: int) -> str:
    """Why a classifier cannot be trained or judged, "" if it can."""
    if overflowed:
        return TOO_MANY
    present = int((sums.counts > 0).sum())
    if present < 2:
        return "a single class among the training rows" if present else "no labelled training rows"
    return "too few rows to hold any out" if held < 2 else ""


def _ranked(sums: Sums, order: np.ndarray) -> Sums:
    """Class sums in the order of their labels."""
    sums.grow(len(order))
    out = Sums(0, sums.totals.shape[1])
    out.counts, out.totals = sums.counts[order], sums.totals[order]
    return out


def _of_buckets(buckets: Sums, draw: np.ndarray, classes: int) -> Sums:
    """Class sums if every row had the random label of its bucket."""
    out = Sums(classes, buckets.totals.shape[1])
    np.add.at(out.counts, draw, buckets.counts)
    np.add.at(out.totals, draw, buckets.totals)
    return out


def _evenly(count: int, seed: int) -> np.ndarray:
    """Evenly spaced points of (0, 1) in a seeded random order: each class gets its share of buckets."""
    return (np.random.default_rng(seed).permutation(count) + 0.5) / count


def _readings(method: str, what: str, statistics: Statistics, target: str) -> Iterable[Reading]:
    found = outcome(statistics, target, method)
    parts = {"": found.real, ".majority": found.majority, ".shuffled": found.control}
    values = {suffix: NAN if part is None else float(getattr(part, what)) for suffix, part in parts.items()}
    base = max(values[".majority"], values[".shuffled"])
    for suffix, part in parts.items():
        low, high = (NAN, NAN) if part is None else part.interval(what, statistics.seed)
        name, under = f"{method}_{what}{suffix}", NAN if suffix else base
        yield Reading(name, values[suffix], target, -1, low, high, under, found.n, found.note)


@score("linear_f1", "moments", "classes", "sample", per="target")
def linear_f1(statistics: Statistics, target: str) -> Iterable[Reading]:
    """Held-out macro F1, with rows ``linear_f1.majority`` and ``linear_f1.shuffled`` beside it."""
    return _readings("linear", "f1", statistics, target)


@score("linear_accuracy", "moments", "classes", "sample", per="target")
def linear_accuracy(statistics: Statistics, target: str) -> Iterable[Reading]:
    """Held-out accuracy; its baseline is the higher of majority and control."""
    return list(_readings("linear", "accuracy", statistics, target))[:1]


@score("linear_selectivity", "moments", "classes", "sample", per="target")
def linear_selectivity(statistics: Statistics, target: str) -> Iterable[Reading]:
    """Accuracy on the target less that on the control task (Hewitt and Liang 2019): what the layer, not the
    classifier, knows."""
    found = outcome(statistics, target)
    if found.real is None or found.control is None:
        return [Reading("linear_selectivity", NAN, target, n=found.n, note=found.note)]
    gap, low, high = found.real.above(found.control, "accuracy", statistics.seed)
    return [Reading("linear_selectivity", gap, target, -1, low, high, 0.0, found.n, found.note)]


@score("lda_f1", "moments", "classes", "sample", per="target")
def lda_f1(statistics: Statistics, target: str) -> Iterable[Reading]:
    """Held-out macro F1 of the linear discriminant; its baseline is the higher of majority and control."""
    return list(_readings("lda", "f1", statistics, target))[:1]


@score("lda_accuracy", "moments", "classes", "sample", per="target")
def lda_accuracy(statistics: Statistics, target: str) -> Iterable[Reading]:
    """Held-out accuracy of the linear discriminant; its baseline is the higher of majority and control."""
    return list(_readings("lda", "accuracy", statistics, target))[:1]
