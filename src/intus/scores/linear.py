"""A linear classifier from moments: what of a target can be read off a layer by a hyperplane.

Ridge regression on ±1 codes of the classes, as scikit-learn's RidgeClassifier, of standardised features,
solved from streamed moments: exact, and one factorisation per layer serves all targets. It is trained on
one part of the items and judged on the other; beside it stand what guessing the commonest class and
what learning random labels (the control task of Hewitt and Liang 2019) would give.

The penalty of 0.1 per training row matters where rows are about as many as features: on noisy digits
with 1,348 rows and 1,024 features it gives a macro F1 of .93, a penalty of 1 in all gives .81.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import require
from .base import NAN, Reading, score
from .labelled import TOO_MANY, labelled_rows
from .moments import Gram, Sums
from .split import BUCKETS
from .statistics import Statistics

ALPHA = 0.1  #: ridge penalty per training row, on standardised features
_REPLICATES = 200


class Plane(NamedTuple):
    """``coef`` (features, classes) and ``intercept`` (classes,) for rows less the moments' shift."""

    coef: np.ndarray
    intercept: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        """The class of each row (rows, features)."""
        return np.asarray(np.argmax(x @ self.coef + self.intercept, axis=1))


class Factor(NamedTuple):
    """The part of the solution that all targets share: scale, mean and Cholesky factor."""

    n: int
    mean: np.ndarray
    scale: np.ndarray
    cholesky: Any


def factorise(gram: Gram, alpha: float = ALPHA) -> Factor:
    """Factorise the correlation matrix plus the penalty; constant features get scale 1."""
    linalg = require("scipy.linalg", extra="server", why="to fit linear classifiers")
    scatter = gram.scatter()
    variance = np.diag(scatter) / gram.n
    constant = variance <= 1e-12 * np.maximum(np.diag(gram.gram) / gram.n, 1e-300)
    scale = np.where(constant, 1.0, np.sqrt(np.maximum(variance, 1e-300)))
    matrix = scatter / scale / scale[:, None]
    matrix[np.diag_indices_from(matrix)] += alpha * gram.n
    return Factor(gram.n, gram.mean(), scale, linalg.cho_factor(matrix, lower=True, check_finite=False))


def solve(factor: Factor, sums: Sums) -> Plane:
    """The ridge classifier of these class sums; a class without rows is never predicted."""
    linalg = require("scipy.linalg", extra="server", why="to fit linear classifiers")
    cross = 2 * (sums.totals - sums.counts[:, None] * factor.mean) / factor.scale
    coef = linalg.cho_solve(factor.cholesky, cross.T, check_finite=False) / factor.scale[:, None]
    intercept = 2 * sums.counts / factor.n - 1 - factor.mean @ coef
    return Plane(coef, np.where(sums.counts > 0, intercept, -np.inf))


# -- judging -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """Right, predicted and true counts by item and class, (items, classes) each: all that accuracy and
    macro F1 need, also of a resampled set of items."""

    right: np.ndarray
    predicted: np.ndarray
    true: np.ndarray

    @property
    def f1(self) -> float:
        """Macro F1 over the classes that occur or are predicted, as scikit-learn's."""
        parts = (self.right, self.predicted, self.true)
        return float(_f1(*(part.sum(axis=0, dtype=np.float64) for part in parts)))

    @property
    def accuracy(self) -> float:
        """Share of rows predicted right."""
        return float(self.right.sum(dtype=np.float64) / self.true.sum(dtype=np.float64))

    def interval(self, what: str, seed: int) -> tuple[float, float]:
        """A seeded bootstrap 95 % interval of ``"f1"`` or ``"accuracy"``, resampling whole items.

        Where nothing (or everything) was wrong a bootstrap is blind: there the bound is what so many items
        in a row allow (the rule of three, Hanley and Lippman-Hand 1983).
        """
        items = len(self.true)
        if items < 2:
            return NAN, NAN
        weights = np.random.default_rng(seed).multinomial(items, np.full(items, 1 / items), _REPLICATES)
        right, predicted, true = (weights @ part for part in (self.right, self.predicted, self.true))
        if what == "f1":
            values = _f1(right, predicted, true)
        else:
            values = right.sum(axis=1) / np.maximum(true.sum(axis=1), 1)
        low, high = np.quantile(values, [0.025, 0.975])
        right_rows, rows = self.right.sum(dtype=np.float64), self.true.sum(dtype=np.float64)
        unseen = 1 - 0.025 ** (1 / items)
        return float(1 - unseen if right_rows == rows else low), float(high if right_rows else unseen)


def judge(truth: np.ndarray, guess: np.ndarray, items: np.ndarray | None = None) -> Judgement:
    """Compare classes (rows,), both of them numbers from 0; without ``items`` each row is one."""
    items = np.arange(len(truth)) if items is None else np.unique(items, return_inverse=True)[1]
    shape = (int(items.max()) + 1, int(max(truth.max(), guess.max())) + 1)
    right, predicted, true = (np.zeros(shape, np.float32) for _ in range(3))
    np.add.at(right, (items, truth), truth == guess)
    np.add.at(predicted, (items, guess), 1)
    np.add.at(true, (items, truth), 1)
    return Judgement(right, predicted, true)


def majority_f1(train: np.ndarray, held: np.ndarray) -> float:
    """Macro F1 on held-out rows of always guessing the commonest training class."""
    return judge(held, np.full_like(held, np.bincount(train).argmax())).f1


def _f1(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Macro F1 over the last axis; classes neither occurring nor predicted do not count."""
    sizes = predicted + true
    each = 2 * right / np.maximum(sizes, 1)
    return np.asarray(each.sum(axis=-1) / np.maximum((sizes > 0).sum(axis=-1), 1))


# -- scores ------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """How the classifier, the majority and the control did on held-out rows; ``note`` why they did not."""

    real: Judgement | None
    majority: Judgement | None
    control: Judgement | None
    n: int
    note: str


def outcome(statistics: Statistics, target: str) -> Outcome:
    """Fit and judge, once for all scores that read it."""
    return statistics.once(("linear", target), lambda: _outcome(statistics, target))


def _outcome(statistics: Statistics, target: str) -> Outcome:
    moments, classes = statistics.moments, statistics.classes[target]
    places, x, truth = labelled_rows(statistics, target)
    x, truth, places = x[places.held], truth[places.held], places.take(places.held)
    gram, sums = moments.labelled(target), _ranked(moments.classes[target], classes.order())
    if note := _why_not(classes.overflowed, sums, len(truth)):
        return Outcome(None, None, None, len(truth), note)
    x = x - moments.shift
    complete = gram is moments.train
    factor = statistics.once("factor", lambda: factorise(moments.train))
    guess = solve(factor if complete else factorise(gram), sums).predict(x)
    draw = np.searchsorted(np.cumsum(sums.counts) / sums.counts.sum(), _evenly(BUCKETS, statistics.seed))
    control = solve(factor, _of_buckets(moments.buckets, draw, len(sums.counts))).predict(x)
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


def _readings(name: str, what: str, statistics: Statistics, target: str) -> Iterable[Reading]:
    found = outcome(statistics, target)
    parts = {"": found.real, ".majority": found.majority, ".shuffled": found.control}
    values = {suffix: NAN if part is None else float(getattr(part, what)) for suffix, part in parts.items()}
    base = max(values[".majority"], values[".shuffled"])
    for suffix, part in parts.items():
        low, high = (NAN, NAN) if part is None else part.interval(what, statistics.seed)
        yield Reading(
            name + suffix, values[suffix], target, -1, low, high, NAN if suffix else base, found.n, found.note
        )


@score("linear_f1", "moments", "classes", "sample", per="target")
def linear_f1(statistics: Statistics, target: str) -> Iterable[Reading]:
    """Held-out macro F1, with rows ``linear_f1.majority`` and ``linear_f1.shuffled`` beside it."""
    return _readings("linear_f1", "f1", statistics, target)


@score("linear_accuracy", "moments", "classes", "sample", per="target")
def linear_accuracy(statistics: Statistics, target: str) -> Iterable[Reading]:
    """Held-out accuracy; its baseline is the higher of majority and control."""
    return list(_readings("linear_accuracy", "accuracy", statistics, target))[:1]
