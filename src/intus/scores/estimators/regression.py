"""Linear regression: how well a measured number can be predicted from a layer."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..base import NAN, ScoreResult, score
from ..probes.judging import student
from ..probes.labelled import MOST_ROWS, complete, shuffled
from ..statistics.moments import Gram
from ..statistics.ridge import factorise, penalty, regress
from ..statistics.statistics import Statistics


def predicted(x: np.ndarray, y: np.ndarray, new: np.ndarray, alpha: float | None = None) -> np.ndarray:
    """Return the predictions of a ridge regression on (x, y) for ``new`` rows.

    Features are standardised and ``alpha`` is the penalty per row, as in scikit-learn's Ridge(alpha * rows)
    after StandardScaler. By default generalised cross-validation chooses it.

    >>> x = np.arange(6.0)[:, None]
    >>> predicted(x, 2 * x[:, 0] + 1, np.array([[10.0]]), alpha=0.0).round(6)
    array([21.])
    """
    shift, level = x.mean(axis=0), y.mean()
    gram = Gram(x.shape[1])
    gram.add(x - shift)
    factor = factorise(gram, x - shift)
    turned = factor.turn(((x - shift) / factor.scale).T @ (y - level)[:, None])
    if alpha is None:
        alpha = penalty(factor, turned, float(((y - level) ** 2).sum()))
    coef = regress(factor, turned, alpha)[:, 0] / factor.scale
    return np.asarray((new - shift) @ coef + level)


def _measured(statistics: Statistics, target: str) -> bool:
    """Return whether the labels are measurements."""
    return target not in statistics.not_numbers and statistics.classes[target].are_measured


@score(
    "r2",
    "sample",
    "classes",
    "values",
    per="target",
    suits=_measured,
    label="Linear regression, R²",
    formula="1 - Σ (y - ŷ)² / Σ (y - mean of the training rows)², on held-out rows; ŷ by ridge regression "
    "whose penalty is chosen by generalised cross-validation",
    high=1.0,
    baseline="0, which the mean of the training rows gives, or what shuffled numbers give if that is higher",
    interval="95 %, by the influence of each held-out item (Student's t); what was trained is held fixed",
    requires="labels that are numbers; by default only if some are not whole, or more than 50 differ",
    source="scikit-learn's Ridge and r2_score",
)
def r2(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Fraction of a measured number's variance that a linear regression on the layer explains.

    It is evaluated on held-out rows. At most 40,000 rows of the sample are used.
    """
    if target in statistics.not_numbers:
        return [ScoreResult("r2", NAN, target, note="the labels are not numbers")]
    places, x, _, values = statistics.drawn()
    if not len(x):
        return [ScoreResult("r2", NAN, target, note=statistics.note or "no rows")]
    column = values[:, statistics.targets.index(target)]
    rows = np.flatnonzero(np.isfinite(column) & complete(x))[:MOST_ROWS]
    x, y, places = x[rows].astype(np.float64), column[rows], places.take(rows)
    x = statistics.projection.apply(x) if statistics.raw else x
    held = places.held
    if held.sum() < 2 or (~held).sum() < 2 or y[held].std() == 0:
        note = "no spread among the held-out rows" if held.sum() > 1 else "too few rows to hold any out"
        return [ScoreResult("r2", NAN, target, n=int(held.sum()), note=note)]
    fake = shuffled(y, statistics.seed)
    value, low, high, p = _explained(x, y, held, places.cluster)
    base = max(0.0, _explained(x, fake, held, places.cluster)[0])
    note = statistics.note
    return [ScoreResult("r2", value, target, -1, low, high, base, int(held.sum()), note, p)]


def explained(
    y: np.ndarray, guess: np.ndarray, level: float, items: np.ndarray
) -> tuple[float, float, float, float]:
    """Return R² of predictions, the bounds of a 95 % interval, and p; whole items are the observations.

    Args:
        y: The numbers, shape (rows,).
        guess: What was predicted, shape (rows,).
        level: The mean of the training rows, with which the predictions are compared.
        items: The id of each row's item, shape (rows,).
    """
    missed, spread = (y - guess) ** 2, (y - level) ** 2
    item = np.unique(items, return_inverse=True)[1]
    count, total = int(item.max()) + 1, float(spread.sum())
    value = float(1 - missed.sum() / total)
    if count < 2:
        return value, NAN, NAN, NAN
    influence = (np.bincount(item, missed, count) - (1 - value) * np.bincount(item, spread, count)) / total
    return student(value, -influence)


def _explained(
    x: np.ndarray, y: np.ndarray, held: np.ndarray, items: np.ndarray
) -> tuple[float, float, float, float]:
    """Return ``explained`` of a ridge regression on the training rows."""
    guess = predicted(x[~held], y[~held], x[held])
    return explained(y[held], guess, float(y[~held].mean()), items[held])
