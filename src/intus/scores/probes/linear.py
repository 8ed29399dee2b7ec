"""Linear probes: how well a target can be predicted linearly from a layer, on held-out rows.

``linear`` is the logistic regression of ``classifiers.logistic``, and ``lda`` the discriminant that it is
shrunk towards. One decomposition of a layer serves all targets. They are trained on one part of the items and
judged on the other. The baseline is what the very predictions would score if they did not depend on the
labels, so that no second classifier is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...core.notes import Facts, joined
from ..base import NAN, Judge, Need, ScoreResult, info_of, score
from ..statistics.moments import HUGE, Gram, Sums
from ..statistics.ridge import Factor, factorise
from ..statistics.split import NO_TYPE
from ..statistics.statistics import Statistics
from .classifiers import KEPT, MOST_CLASSES, LinearClassifier, balanced, discriminate, logistic, logistics
from .judging import CHANCE, INTERVAL, ConfusionCounts, judge
from .labelled import CLASSES, NO_FEATURES, TOO_MANY, labelled_rows, rows_to_fit


class ClassifierResult(NamedTuple):
    """Predictions of a classifier on held-out rows.

    Attributes:
        counts: Counts of the classifier; None if it could not be trained.
        majority: Counts of guessing the commonest training class; None likewise.
        n: The number of held-out rows.
        note: A note for the reader, such as the reason why there are no counts.
    """

    counts: ConfusionCounts | None
    majority: ConfusionCounts | None
    n: int
    note: str


#: Trains a classifier on the decomposed moments of the training rows, their class sums, some of these rows
#: and their classes, and the discriminant of these class sums.
Method = Callable[[Factor, Sums, np.ndarray, np.ndarray, LinearClassifier], LinearClassifier]

SELECTIVITY = "linear_selectivity"  #: the name of the score that needs types
DRAWS = 5  #: random labellings of types that a target is compared with: each classifier learns some better

METHODS: dict[str, Method] = {
    "linear": logistic,
    "lda": lambda factor, sums, x, codes, start: start,
}


#: Below how many trained rows per class a score says how few they are. On digits, wine, iris and breast
#: cancer of scikit-learn, 5 per class have 0.14 to 0.24 less F1 than 20 (and a standard deviation of 0.07 to
#: 0.13 over which they are), 10 have 0.02 to 0.10 less.
LEAST_PER_CLASS = 10

_FEW = 8  # binary targets that are fitted one by one if there are fewer


def outcome(statistics: Statistics, target: str, method: str = "linear") -> ClassifierResult:
    """Train and judge a classifier, once for all scores that use it."""
    return statistics.once((method, target), lambda: _outcome(statistics, target, METHODS[method]))


def _outcome(statistics: Statistics, target: str, fit: Method) -> ClassifierResult:
    moments, classes = statistics.moments, statistics.classes[target]
    places, x, codes = rows_to_fit(statistics, target)
    held, truth = places.held, codes[places.held]
    sums = _ranked(moments.classes[target], classes.order())
    if note := _why_not(statistics, target, sums, len(truth)):
        return ClassifierResult(None, None, len(truth), joined(note, statistics.note))
    trained = moments.labelled[target].n
    few = trained if trained < LEAST_PER_CLASS * np.count_nonzero(sums.counts) else 0
    together, fitted_to = merged(statistics) if fit is logistic else {}, ""
    if target in together:
        guess = together[target]
    else:
        factor = _factor(statistics, moments.labelled[target], x, held)
        x = x - moments.shift
        kept = np.flatnonzero(~held)
        kept = kept[balanced(codes[kept], len(sums.counts))]
        if statistics.thinned and fit is logistic:
            fitted_to = f"fitted to {len(kept):,} of {moments.labelled[target].n:,} trained rows"
        start = statistics.once(("discriminant", target), lambda: discriminate(factor, sums))
        guess = fit(factor, sums, x[kept], codes[kept], start).predict(x[held])
    groups = places.cluster[held]
    commonest = np.full_like(truth, sums.counts.argmax())
    return ClassifierResult(
        judge(truth, guess, groups),
        statistics.once(("majority", target), lambda: judge(truth, commonest, groups)),
        len(truth),
        joined(statistics.note, fitted_to, Facts(few_fitted=few).note, _unseen(sums, truth)),
    )


def _unseen(sums: Sums, truth: np.ndarray) -> str:
    """Return how many classes have no held-out row, so that a score says nothing of them; "" if none.

    Args:
        sums: The sums of the training rows by class.
        truth: The classes of the held-out rows.
    """
    trained = np.flatnonzero(sums.counts)
    known, missing = np.union1d(trained, truth), np.setdiff1d(trained, truth)
    if not len(missing):
        return ""
    have, them = ("has", "it") if len(missing) == 1 else ("have", "them")
    return f"{len(missing):,} of {len(known):,} classes {have} no held-out row: this says nothing of {them}"


def merged(statistics: Statistics) -> dict[str, np.ndarray]:
    """Return the predicted classes of held-out rows for the binary targets of all rows, if there are many.

    The logistic regressions of these targets are fitted in one optimization, to the same rows.
    """

    def compute() -> dict[str, np.ndarray]:
        if statistics.by_class:
            return {}
        moments = statistics.moments
        names = [
            name
            for name in statistics.targets
            if moments.labelled[name] is moments.train and (moments.classes[name].counts > 0).sum() == 2
        ]
        names = [name for name in names if len(statistics.classes[name]) == 2]
        if len(names) < _FEW:
            return {}
        labelled = [labelled_rows(statistics, name) for name in names]
        (places, x, _), *_ = labelled
        held = places.held
        kept = np.flatnonzero(~held)
        codes = np.stack([codes[kept] for _, _, codes in labelled], axis=1)
        sums = [_ranked(moments.classes[name], statistics.classes[name].order()) for name in names]
        usable = [n for n in range(len(names)) if 0 < codes[:, n].sum() < len(kept)]
        factor = _factor(statistics, moments.train, x, held)
        z = factor.standardized(x, moments.shift, kept)
        fitted = logistics(factor, [sums[n] for n in usable], z, codes[:, usable])
        guess = (x[held] - moments.shift) @ fitted.coef + fitted.intercept > 0
        return {names[n]: guess[:, place].astype(np.int64) for place, n in enumerate(usable)}

    return statistics.once("merged", compute)


def control(statistics: Statistics, target: str, seed: int = 0) -> ConfusionCounts | None:
    """Return counts of the classifier on random labels of types; None if there are no types.

    This is the control task of Hewitt and Liang (2019, section 2): every type (a word) has a random label, so
    that only the identity of types helps. Types are hashed to buckets with a label each. The labels are drawn
    so that the classes are as frequent among the training rows as those of the target.

    Args:
        statistics: The statistics of the layer.
        target: The target.
        seed: The number of the draw.
    """
    moments = statistics.moments
    places, x, _ = rows_to_fit(statistics, target)
    if statistics.thinned or (places.bucket == NO_TYPE).any():
        return None
    sums = _ranked(moments.classes[target], statistics.classes[target].order())
    draw = _labels_of_buckets(moments.buckets.counts, sums.counts, [statistics.seed, seed])
    fake, held = draw[places.bucket], places.held
    factor = _factor(statistics, moments.train, x, held)
    x = x - moments.shift
    kept = np.flatnonzero(~held)
    kept = kept[balanced(fake[kept], len(sums.counts))]
    by_type = _of_buckets(moments.buckets, draw, len(sums.counts))
    guess = logistic(factor, by_type, x[kept], fake[kept]).predict(x[held])
    return judge(fake[held], guess, places.cluster[held])


def _factor(statistics: Statistics, gram: Gram, x: np.ndarray, held: np.ndarray) -> Factor:
    """Return the decomposition, computed once for all targets that label the same rows.

    Args:
        statistics: The statistics of the layer.
        gram: The moments of the training rows.
        x: Rows of the sample, shape (rows, features).
        held: True for rows that are held out, shape (rows,).
    """

    def compute() -> Factor:
        few = gram.n < x.shape[1] and not statistics.thinned  # whose rows are less exact than the moments
        return factorise(gram, x[~held] - statistics.moments.shift if few else None)

    return statistics.once(("factor", id(gram)), compute)


def _why_not(statistics: Statistics, target: str, sums: Sums, held: int) -> str:
    """Return the reason why a classifier cannot be trained or evaluated, "" if it can."""
    if statistics.classes[target].overflowed:
        return TOO_MANY
    if not statistics.width:
        return NO_FEATURES
    if not np.isfinite(statistics.moments.train.squares.sum()):
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


def _labels_of_buckets(rows: np.ndarray, classes: np.ndarray, seed: list[int]) -> np.ndarray:
    """Return a random class for each bucket, so that the classes get their shares of the rows.

    Buckets are put in a random order, and classes are assigned by the share of the rows up to their middle.

    Args:
        rows: Number of rows of each bucket, shape (buckets,).
        classes: Number of rows of each class, shape (classes,).
        seed: Seeds of the order.
    """
    order = np.random.default_rng(seed).permutation(len(rows))
    size = rows[order] + 1e-9  # buckets without training rows get a class as well
    middle = (np.cumsum(size) - size / 2) / size.sum()
    draw = np.empty(len(rows), dtype=np.int64)
    draw[order] = np.searchsorted(np.cumsum(classes)[:-1] / classes.sum(), middle)
    return draw


def _counts(method: str, statistics: Statistics, target: str) -> ConfusionCounts | None:
    """Return the counts of a method's predictions on held-out rows."""
    return outcome(statistics, target, method).counts


#: One for each method, so that scores of the same predictions can be recognized.
_LINEAR: Judge = partial(_counts, "linear")
_DISCRIMINANT: Judge = partial(_counts, "lda")


def _result(name: str, what: str, statistics: Statistics, target: str) -> ScoreResult:
    found = outcome(statistics, target, name.partition("_")[0])
    if found.counts is None:
        return ScoreResult(name, NAN, target, n=found.n, note=found.note)
    judged = found.counts.judgement(what)
    many = len(statistics.classes[target]) > MOST_CLASSES and not name.startswith("lda")
    classes = statistics.classes[target]
    told = Facts(are_numbers=classes.are_fractional).note
    numbers = ", which look like numbers (see r2)" * (classes.are_measured and not told)
    simple = f"more than {MOST_CLASSES} classes{numbers}: the discriminant alone" * many
    note = joined(found.note, told, simple)
    value, low, high, chance, p = judged
    return ScoreResult(name, value, target, -1, low, high, chance, found.n, note, p)


_NO_TYPES = "no types were given, of which the control task has random labels"
_ONE_TYPE = "all rows have one type, so that the control task has one label"
_THINNED = "the control task needs all rows, of which the probe sent statistics (statistics=False sends them)"
_NEEDS: tuple[Need, ...] = ("moments", "classes", "sample")
_LOGISTIC = (
    f"logistic regression on standardised features of at most {KEPT:,} rows, with as many of each class as "
    f"there are (of all sampled rows if there are {_FEW} targets of two classes or more); shrunk towards the "
    "discriminant of all rows"
)
_LDA = "linear discriminant analysis with a shrunk covariance; generalised cross-validation chooses how much"
_F1 = "the mean over classes of 2 TP / (2 TP + FP + FN), on held-out rows"
_ACCURACY = "the fraction of held-out rows whose class is predicted right"
_PROBES = "Alain and Bengio 2016"
_BOUNDS: dict[str, Any] = {"low": 0.0, "high": 1.0, "interval": INTERVAL, "requires": CLASSES}
_BESIDE = [
    info_of(
        "linear_f1.majority",
        "target",
        label="Baseline: majority class",
        about="Macro F1 of guessing the commonest training class on the held-out rows.",
        formula=_F1,
        baseline_of="linear_f1",
        **_BOUNDS | {"interval": ""},
    ),
]


@score(
    "linear_f1",
    *_NEEDS,
    per="target",
    judged=_LINEAR,
    beside=_BESIDE,
    label="Linear probe, macro F1",
    formula=f"{_F1}; {_LOGISTIC}",
    baseline=CHANCE,
    source=_PROBES,
    **_BOUNDS,
)
def linear_f1(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Macro F1 of a linear classifier that predicts the target from the layer, on held-out rows.

    A row of its own, ``linear_f1.majority``, has that of guessing the commonest class.
    """
    found = outcome(statistics, target)
    majority = NAN if found.majority is None else found.majority.f1
    yield _result("linear_f1", "f1", statistics, target)
    yield ScoreResult("linear_f1.majority", majority, target, n=found.n, note=found.note)


@score(
    "linear_accuracy",
    *_NEEDS,
    per="target",
    judged=_LINEAR,
    measure="accuracy",
    label="Linear probe, accuracy",
    formula=f"{_ACCURACY}; {_LOGISTIC}",
    baseline=CHANCE,
    source=_PROBES,
    **_BOUNDS,
)
def linear_accuracy(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Accuracy of a linear classifier that predicts the target from the layer, on held-out rows."""
    return [_result("linear_accuracy", "accuracy", statistics, target)]


def _has_types(statistics: Statistics, target: str) -> bool:
    """Return whether the types of rows are known, which the control task needs."""
    return bool(statistics.moments.buckets.counts.any())


@score(
    SELECTIVITY,
    *_NEEDS,
    per="target",
    default=False,
    suits=_has_types,
    label="Linear probe, selectivity (accuracy above the control task)",
    formula=f"accuracy on the target minus the mean accuracy on {DRAWS} random labellings of types, all on "
    "held-out rows",
    baseline="0",
    source="Hewitt and Liang 2019",
    **_BOUNDS
    | {
        "low": -1.0,
        "interval": "95 %, by the influence of each held-out item and the spread between the labellings "
        "(Student's t)",
    }
    | {"requires": f"{CLASSES}; the type of each row (its word)"},
)
def linear_selectivity(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Accuracy of a linear classifier on the target minus its accuracy on random labels of types.

    A type is what a row is an instance of, such as a word. A layer that only knows which type a row is of
    gives about 0, since the classifier can learn random labels of types as well. Some labellings are learned
    better than others by chance, so that the interval includes the spread between them.
    """
    found = outcome(statistics, target)
    if found.counts is None:
        return [ScoreResult(SELECTIVITY, NAN, target, n=found.n, note=found.note)]
    if np.count_nonzero(statistics.moments.buckets.counts) == 1:
        note = joined(_ONE_TYPE, found.note)
        return [ScoreResult(SELECTIVITY, NAN, target, n=found.n, note=note)]
    fakes = [control(statistics, target, draw) for draw in range(DRAWS)]
    if None in fakes:
        note = joined(_THINNED if statistics.thinned else _NO_TYPES, found.note)
        return [ScoreResult(SELECTIVITY, NAN, target, n=found.n, note=note)]
    gap = found.counts.above_mean([one for one in fakes if one], "accuracy")
    return [
        ScoreResult(SELECTIVITY, gap.value, target, -1, gap.low, gap.high, 0.0, found.n, found.note, gap.p)
    ]


@score(
    "lda_f1",
    *_NEEDS,
    per="target",
    judged=_DISCRIMINANT,
    label="Discriminant analysis, macro F1",
    formula=f"{_F1}; {_LDA}",
    baseline=CHANCE,
    source="Friedman 1989; scikit-learn's LinearDiscriminantAnalysis",
    **_BOUNDS,
)
def lda_f1(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Macro F1 of a linear discriminant that predicts the target from the layer, on held-out rows."""
    return [_result("lda_f1", "f1", statistics, target)]


@score(
    "lda_accuracy",
    *_NEEDS,
    per="target",
    judged=_DISCRIMINANT,
    measure="accuracy",
    label="Discriminant analysis, accuracy",
    formula=f"{_ACCURACY}; {_LDA}",
    baseline=CHANCE,
    source="Friedman 1989; scikit-learn's LinearDiscriminantAnalysis",
    **_BOUNDS,
)
def lda_accuracy(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Accuracy of a linear discriminant that predicts the target from the layer, on held-out rows."""
    return [_result("lda_accuracy", "accuracy", statistics, target)]
