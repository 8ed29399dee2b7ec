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

from .base import NAN, ScoreResult, score
from .judging import ConfusionCounts, judge
from .labelled import NO_FEATURES, TOO_MANY, labelled_rows
from .statistics.moments import HUGE, Gram, Sums
from .statistics.ridge import Factor, factorise, penalty, regress
from .statistics.split import BUCKETS
from .statistics.statistics import Statistics


class LinearClassifier(NamedTuple):
    """``coef`` (features, classes) and ``intercept`` (classes,) for rows less the moments' shift."""

    coef: np.ndarray
    intercept: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        """The class of each row (rows, features)."""
        return np.asarray(np.argmax(x @ self.coef + self.intercept, axis=1))


def solve(factor: Factor, sums: Sums, alpha: float | None = None) -> LinearClassifier:
    """The ridge classifier of these class sums; a class without rows is never predicted.

    ``alpha`` is the penalty per row, by default the one that generalised cross-validation chooses.
    """
    turned = _turned(factor, sums)
    alpha = _chosen(factor, sums, turned) if alpha is None else alpha
    coef = regress(factor, turned, alpha) / factor.scale[:, None]
    intercept = 2 * sums.counts / factor.n - 1 - factor.mean @ coef
    return LinearClassifier(coef, np.where(sums.counts > 0, intercept, -np.inf))


def discriminate(factor: Factor, sums: Sums, alpha: float | None = None) -> LinearClassifier:
    """The linear discriminant of these class sums; a class without rows is never predicted.

    To the variances within classes ``alpha`` is added, relative to the covariance's scale (Friedman 1989):
    scikit-learn's LinearDiscriminantAnalysis("lsqr", shrinkage=alpha / (alpha + v)) of standardised rows,
    with v their mean variance within classes; by default it is the penalty chosen for ``solve``. The
    covariance within classes is that of all rows less that of the means, W Wᵀ: Woodbury's identity solves it.
    """
    turned = _turned(factor, sums)
    alpha = _chosen(factor, sums, turned) if alpha is None else alpha
    root = np.sqrt(np.maximum(sums.counts, 1) / factor.n)
    turned = turned / (2 * factor.n * root)  # Qᵀ W: the classes' means (features, classes) times root
    coef = factor.n * factor.solve(turned, alpha * factor.n)
    gap = np.eye(len(root)) - turned.T @ coef
    level = max(float(factor.values.sum()) / factor.n - float((turned**2).sum()), 1e-12) / len(turned)
    coef = (level + alpha) / level * np.linalg.solve(gap, coef.T).T / root
    with np.errstate(divide="ignore"):
        prior = np.log(sums.counts / sums.counts.sum())
    intercept = prior - (turned / root * coef).sum(axis=0) / 2
    coef = factor.back(coef) / factor.scale[:, None]
    return LinearClassifier(coef, intercept - factor.mean @ coef)


def penalty_of(factor: Factor, sums: Sums) -> float:
    """The penalty per row that generalised cross-validation chooses for these classes."""
    return _chosen(factor, sums, _turned(factor, sums))


def _chosen(factor: Factor, sums: Sums, turned: np.ndarray) -> float:
    share = sums.counts / factor.n
    return penalty(factor, turned, float(4 * factor.n * (share * (1 - share)).sum()))


def _turned(factor: Factor, sums: Sums) -> np.ndarray:
    """Qᵀ Σ z·y (features, classes) of standardised features and ±1 codes of the classes."""
    centred = sums.totals - sums.counts[:, None] * factor.mean
    return factor.turn(2 * centred.T / factor.scale[:, None])


# -- scores ------------------------------------------------------------------------------------------


class ClassifierResult(NamedTuple):
    """How the classifier, the majority and the control did on held-out rows; ``note`` why they did not."""

    real: ConfusionCounts | None
    majority: ConfusionCounts | None
    control: ConfusionCounts | None
    n: int
    note: str


#: How to train: from the decomposed moments of the rows and their class sums.
Method = Callable[[Factor, Sums], LinearClassifier]

METHODS: dict[str, Method] = {"linear": solve, "lda": discriminate}


def outcome(statistics: Statistics, target: str, method: str = "linear") -> ClassifierResult:
    """Fit and judge, once for all scores that read it."""
    return statistics.once((method, target), lambda: _outcome(statistics, target, METHODS[method]))


def _outcome(statistics: Statistics, target: str, fit: Method) -> ClassifierResult:
    moments, classes = statistics.moments, statistics.classes[target]
    places, x, truth = labelled_rows(statistics, target)
    x, truth, places = x[places.held], truth[places.held], places.take(places.held)
    sums = _ranked(moments.classes[target], classes.order())
    if note := _why_not(statistics, target, sums, len(truth)):
        return ClassifierResult(
            None, None, None, len(truth), "; ".join(filter(None, [note, statistics.note]))
        )
    x = x - moments.shift
    guess = fit(_factor(statistics, moments.labelled[target]), sums).predict(x)
    draw = np.searchsorted(np.cumsum(sums.counts) / sums.counts.sum(), _evenly(BUCKETS, statistics.seed))
    fake = _of_buckets(moments.buckets, draw, len(sums.counts))
    control = fit(_factor(statistics, moments.train), fake).predict(x)
    return ClassifierResult(
        judge(truth, guess, places.item),
        judge(truth, np.full_like(truth, sums.counts.argmax()), places.item),
        judge(draw[places.bucket], control, places.item),
        len(truth),
        statistics.note,
    )


def _factor(statistics: Statistics, gram: Gram) -> Factor:
    """The decomposition, once for all targets that have labels of the same rows."""
    return statistics.once(("factor", id(gram)), lambda: factorise(gram))


def _why_not(statistics: Statistics, target: str, sums: Sums, held: int) -> str:
    """Why a classifier cannot be trained or judged, "" if it can."""
    if statistics.classes[target].overflowed:
        return TOO_MANY
    if not statistics.width:
        return NO_FEATURES
    if not np.isfinite(np.trace(statistics.moments.train.gram)):
        return HUGE
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


def _readings(method: str, what: str, statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    found = outcome(statistics, target, method)
    parts = {"": found.real, ".majority": found.majority, ".shuffled": found.control}
    values = {suffix: NAN if part is None else float(getattr(part, what)) for suffix, part in parts.items()}
    base = max(values[".majority"], values[".shuffled"])
    for suffix, part in parts.items():
        low, high = (NAN, NAN) if part is None else part.interval(what, statistics.seed)
        name, under = f"{method}_{what}{suffix}", NAN if suffix else base
        yield ScoreResult(name, values[suffix], target, -1, low, high, under, found.n, found.note)


@score("linear_f1", "moments", "classes", "sample", per="target")
def linear_f1(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Held-out macro F1, with rows ``linear_f1.majority`` and ``linear_f1.shuffled`` beside it."""
    return _readings("linear", "f1", statistics, target)


@score("linear_accuracy", "moments", "classes", "sample", per="target")
def linear_accuracy(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Held-out accuracy; its baseline is the higher of majority and control."""
    return list(_readings("linear", "accuracy", statistics, target))[:1]


@score("linear_selectivity", "moments", "classes", "sample", per="target")
def linear_selectivity(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Accuracy on the target less that on the control task (Hewitt and Liang 2019): what the layer, not the
    classifier, knows."""
    found = outcome(statistics, target)
    if found.real is None or found.control is None:
        return [ScoreResult("linear_selectivity", NAN, target, n=found.n, note=found.note)]
    gap, low, high = found.real.above(found.control, "accuracy", statistics.seed)
    return [ScoreResult("linear_selectivity", gap, target, -1, low, high, 0.0, found.n, found.note)]


@score("lda_f1", "moments", "classes", "sample", per="target")
def lda_f1(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Held-out macro F1 of the linear discriminant; its baseline is the higher of majority and control."""
    return list(_readings("lda", "f1", statistics, target))[:1]


@score("lda_accuracy", "moments", "classes", "sample", per="target")
def lda_accuracy(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Held-out accuracy of the linear discriminant; its baseline is the higher of majority and control."""
    return list(_readings("lda", "accuracy", statistics, target))[:1]
