"""Linear classifiers from moments: how well a target can be predicted linearly from a layer.

``linear`` is ridge regression on ±1 codes of the classes, as scikit-learn's RidgeClassifier; one
decomposition of a layer serves all targets. ``lda`` is linear discriminant analysis with a shrunk covariance,
as scikit-learn's with the solver "lsqr". Both use standardised features and are solved exactly from streamed
moments. They are trained on one part of the items and evaluated on the other. Their baselines are guessing
the commonest class, and learning random labels.

The penalty is chosen for each layer and target by generalised cross-validation (Golub, Heath and Wahba 1979),
which needs only moments. No fixed penalty works: it must be high if features are noise, and low if most of a
layer's variance lies in a few directions, as in trained networks. With 768 features whose variance falls as
1/k, a penalty of 0.1 per row gives a macro F1 of .58 and the chosen one .90.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from .base import NAN, Need, ScoreResult, info_of, score
from .judging import INTERVAL, ConfusionCounts, judge
from .labelled import CLASSES, NO_FEATURES, TOO_MANY, labelled_rows
from .statistics.moments import HUGE, Gram, Sums
from .statistics.ridge import Factor, factorise, penalty, regress
from .statistics.split import BUCKETS
from .statistics.statistics import Statistics


class LinearClassifier(NamedTuple):
    """``coef`` (features, classes) and ``intercept`` (classes,), for rows minus the moments' shift."""

    coef: np.ndarray
    intercept: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the class of each row of (rows, features)."""
        return np.asarray(np.argmax(x @ self.coef + self.intercept, axis=1))


def solve(factor: Factor, sums: Sums, alpha: float | None = None) -> LinearClassifier:
    """Return the ridge classifier of these class sums; a class without rows is never predicted.

    ``alpha`` is the penalty per row, by default the one that generalised cross-validation chooses.
    """
    turned = _turned(factor, sums)
    alpha = _chosen(factor, sums, turned) if alpha is None else alpha
    coef = regress(factor, turned, alpha) / factor.scale[:, None]
    intercept = 2 * sums.counts / factor.n - 1 - factor.mean @ coef
    return LinearClassifier(coef, np.where(sums.counts > 0, intercept, -np.inf))


def discriminate(factor: Factor, sums: Sums, alpha: float | None = None) -> LinearClassifier:
    """Return the linear discriminant of these class sums; a class without rows is never predicted.

    ``alpha`` is added to the variances within classes, relative to the covariance's scale (Friedman 1989).
    That is scikit-learn's LinearDiscriminantAnalysis("lsqr", shrinkage=alpha / (alpha + v)) of standardised
    rows, with v their mean variance within classes. By default it is the penalty chosen for ``solve``. The
    covariance within classes is that of all rows minus that of the means, W Wᵀ, so Woodbury's identity solves
    it.
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
    """Return the penalty per row that generalised cross-validation chooses for these classes."""
    return _chosen(factor, sums, _turned(factor, sums))


def _chosen(factor: Factor, sums: Sums, turned: np.ndarray) -> float:
    share = sums.counts / factor.n
    return penalty(factor, turned, float(4 * factor.n * (share * (1 - share)).sum()))


def _turned(factor: Factor, sums: Sums) -> np.ndarray:
    """Return Qᵀ Σ z·y (features, classes), of standardised features and ±1 codes of the classes."""
    centred = sums.totals - sums.counts[:, None] * factor.mean
    return factor.turn(2 * centred.T / factor.scale[:, None])


# -- scores ------------------------------------------------------------------------------------------


class ClassifierResult(NamedTuple):
    """Predictions of a classifier and its two baselines on held-out rows.

    Attributes:
        real: Counts of the classifier; None if it could not be trained.
        majority: Counts of guessing the commonest training class.
        control: Counts of the same classifier trained on random labels.
        n: The number of held-out rows.
        note: A note for the reader, such as the reason why there are no counts.
    """

    real: ConfusionCounts | None
    majority: ConfusionCounts | None
    control: ConfusionCounts | None
    n: int
    note: str


#: Trains a classifier on the decomposed moments of the rows and their class sums.
Method = Callable[[Factor, Sums], LinearClassifier]

METHODS: dict[str, Method] = {"linear": solve, "lda": discriminate}


def outcome(statistics: Statistics, target: str, method: str = "linear") -> ClassifierResult:
    """Train and judge a classifier, once for all scores that use it."""
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
    """Return the decomposition, computed once for all targets that label the same rows."""
    return statistics.once(("factor", id(gram)), lambda: factorise(gram))


def _why_not(statistics: Statistics, target: str, sums: Sums, held: int) -> str:
    """Return the reason why a classifier cannot be trained or evaluated, "" if it can."""
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
    """Return class sums in the order of their labels."""
    sums.grow(len(order))
    out = Sums(0, sums.totals.shape[1])
    out.counts, out.totals = sums.counts[order], sums.totals[order]
    return out


def _of_buckets(buckets: Sums, draw: np.ndarray, classes: int) -> Sums:
    """Return the class sums as if every row had the random label of its bucket."""
    out = Sums(classes, buckets.totals.shape[1])
    np.add.at(out.counts, draw, buckets.counts)
    np.add.at(out.totals, draw, buckets.totals)
    return out


def _evenly(count: int, seed: int) -> np.ndarray:
    """Return evenly spaced points of (0, 1) in a seeded random order, so that classes get their shares."""
    return (np.random.default_rng(seed).permutation(count) + 0.5) / count


def _results(method: str, what: str, statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    result = outcome(statistics, target, method)
    parts = {"": result.real, ".majority": result.majority, ".shuffled": result.control}
    values = {suffix: NAN if part is None else float(getattr(part, what)) for suffix, part in parts.items()}
    base = max(values[".majority"], values[".shuffled"])
    for suffix, part in parts.items():
        low, high = (NAN, NAN) if part is None else part.interval(what, statistics.seed)
        name, under = f"{method}_{what}{suffix}", NAN if suffix else base
        yield ScoreResult(name, values[suffix], target, -1, low, high, under, result.n, result.note)


_NEEDS: tuple[Need, ...] = ("moments", "classes", "sample")
#: What the baseline of a classifier is.
MAJORITY_OR_SHUFFLED = (
    "the higher of guessing the commonest class and of training the same classifier on random labels"
)
_RIDGE = "ridge regression on ±1 codes of the classes; the penalty is chosen by generalised cross-validation"
_LDA = "linear discriminant analysis with a shrunk covariance, by the penalty chosen for the linear probe"
_F1 = "the mean over classes of 2 TP / (2 TP + FP + FN), on held-out rows"
_ACCURACY = "the fraction of held-out rows whose class is predicted right"
_PROBES = "Alain and Bengio 2016; scikit-learn's RidgeClassifier"
_BOUNDS: dict[str, Any] = {"low": 0.0, "high": 1.0, "interval": INTERVAL, "requires": CLASSES}
_BESIDE = [
    info_of(
        "linear_f1.majority",
        "target",
        label="Baseline: majority class",
        about="Macro F1 of guessing the commonest training class on the held-out rows.",
        formula=_F1,
        baseline_of="linear_f1",
        **_BOUNDS,
    ),
    info_of(
        "linear_f1.shuffled",
        "target",
        label="Baseline: shuffled labels",
        about="Macro F1 of the same classifier, trained and judged on random labels.",
        formula=f"{_F1}; labels are drawn at random for groups of rows, in the proportions of the classes",
        baseline_of="linear_f1",
        **_BOUNDS,
    ),
]


@score(
    "linear_f1",
    *_NEEDS,
    per="target",
    beside=_BESIDE,
    label="Linear probe, macro F1",
    formula=f"{_F1}; {_RIDGE}",
    baseline=MAJORITY_OR_SHUFFLED,
    source=_PROBES,
    **_BOUNDS,
)
def linear_f1(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Macro F1 of a linear classifier that predicts the target from the layer, on held-out rows.

    Its two baselines are rows of their own, ``linear_f1.majority`` and ``linear_f1.shuffled``.
    """
    return _results("linear", "f1", statistics, target)


@score(
    "linear_accuracy",
    *_NEEDS,
    per="target",
    label="Linear probe, accuracy",
    formula=f"{_ACCURACY}; {_RIDGE}",
    baseline=MAJORITY_OR_SHUFFLED,
    source=_PROBES,
    **_BOUNDS,
)
def linear_accuracy(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Accuracy of a linear classifier that predicts the target from the layer, on held-out rows."""
    return list(_results("linear", "accuracy", statistics, target))[:1]


@score(
    "linear_selectivity",
    *_NEEDS,
    per="target",
    label="Linear probe, selectivity (accuracy above shuffled labels)",
    formula="accuracy on the target minus accuracy on random labels, both on held-out rows",
    baseline="0",
    source="after Hewitt and Liang 2019, who draw random labels for each word type instead of for rows",
    **_BOUNDS | {"low": -1.0, "interval": "95 %, paired bootstrap of the held-out items"},
)
def linear_selectivity(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Accuracy of a linear classifier on the target minus its accuracy on random labels.

    The random labels are drawn for groups of rows, so that they cannot be learnt from the layer.
    """
    found = outcome(statistics, target)
    if found.real is None or found.control is None:
        return [ScoreResult("linear_selectivity", NAN, target, n=found.n, note=found.note)]
    gap, low, high = found.real.above(found.control, "accuracy", statistics.seed)
    return [ScoreResult("linear_selectivity", gap, target, -1, low, high, 0.0, found.n, found.note)]


@score(
    "lda_f1",
    *_NEEDS,
    per="target",
    label="Discriminant analysis, macro F1",
    formula=f"{_F1}; {_LDA}",
    baseline=MAJORITY_OR_SHUFFLED,
    source="Friedman 1989; scikit-learn's LinearDiscriminantAnalysis",
    **_BOUNDS,
)
def lda_f1(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Macro F1 of a linear discriminant that predicts the target from the layer, on held-out rows."""
    return list(_results("lda", "f1", statistics, target))[:1]


@score(
    "lda_accuracy",
    *_NEEDS,
    per="target",
    label="Discriminant analysis, accuracy",
    formula=f"{_ACCURACY}; {_LDA}",
    baseline=MAJORITY_OR_SHUFFLED,
    source="Friedman 1989; scikit-learn's LinearDiscriminantAnalysis",
    **_BOUNDS,
)
def lda_accuracy(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Accuracy of a linear discriminant that predicts the target from the layer, on held-out rows."""
    return list(_results("lda", "accuracy", statistics, target))[:1]
