"""Accuracy and macro F1 of predicted classes, what chance gives, and intervals that respect items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import require
from .base import NAN

#: Description of the interval of a classifier's score.
INTERVAL = (
    "95 %, the wider of two: by the influence of each held-out item (Student's t), and by a Beta interval of "
    "each class (Jeffreys; MOVER, Zou and Donner 2008); what was trained is held fixed"
)
#: Description of the baseline of a classifier's score.
CHANCE = "what these very predictions would score if they did not depend on the labels"
_LEVEL = 0.975
_FEWEST = 2  # degrees of freedom of Student's t, however few items carry the variance


class Judgement(NamedTuple):
    """A score of predictions.

    Attributes:
        value: The score.
        low: Lower bound of a 95 % interval; above ``chance`` in at most 2.5 % of all cases without signal.
        high: Upper bound of the interval.
        chance: The score that the same predictions have if they do not depend on the labels.
        p: The two-sided p-value of the hypothesis that they do not.
    """

    value: float
    low: float
    high: float
    chance: float
    p: float = NAN


@dataclass(frozen=True, slots=True, eq=False)
class ConfusionCounts:
    """Right, predicted and true counts by item and class, (items, classes) each.

    Accuracy and macro F1 are computed from them. An item is what is resampled as a whole: a sentence, a
    document, a subject.
    """

    right: np.ndarray
    predicted: np.ndarray
    true: np.ndarray

    @property
    def f1(self) -> float:
        """Macro F1 over the classes that occur or are predicted, as scikit-learn computes it."""
        return _Totals.of(self).f1

    @property
    def accuracy(self) -> float:
        """Fraction of rows whose class is predicted right."""
        return _Totals.of(self).accuracy

    def judgement(self, what: str) -> Judgement:
        """Return ``"f1"`` or ``"accuracy"`` with its interval and what chance gives."""
        totals = _Totals.of(self)
        value, chance = getattr(totals, what), getattr(totals, f"chance_{what}")
        if len(self.true) < 2:
            return Judgement(value, NAN, NAN, chance)
        own, by_chance = self._influence(what, totals)
        _, low, high, _ = student(value, own)
        _, above, _, p = student(value - chance, own - by_chance)
        rare_low, rare_high = self._rare(totals) if what == "f1" else self._binomial(totals)
        low = min(low, chance + above, rare_low)
        return Judgement(value, max(low, 0.0), min(max(high, rare_high), 1.0), chance, p)

    def above(self, other: ConfusionCounts, what: str) -> tuple[float, float, float, float]:
        """Return the difference to ``other`` on the same items, the bounds of a 95 % interval, and p."""
        totals, others = _Totals.of(self), _Totals.of(other)
        gap = float(getattr(totals, what) - getattr(others, what))
        if len(self.true) < 2:
            return gap, NAN, NAN, NAN
        return student(gap, self._influence(what, totals)[0] - other._influence(what, others)[0])

    def by_class(self) -> np.ndarray:
        """Return the F1 of each class, (classes,); NaN for one that neither occurs nor is predicted."""
        totals = _Totals.of(self)
        return np.where(totals.present, 2 * totals.right / totals.size, NAN)

    def _influence(self, what: str, totals: _Totals) -> tuple[np.ndarray, np.ndarray]:
        """Return the influence of each item on the score, and on what chance gives, (items,) each.

        It is the derivative by the item's weight (Hampel 1974, the infinitesimal jackknife).
        """
        right, predicted, true = (part.astype(np.float64) for part in (self.right, self.predicted, self.true))
        rows, n = true.sum(axis=1), totals.n
        if what == "accuracy":
            share = (predicted @ totals.true + true @ totals.predicted) / n**2
            return (
                (right.sum(axis=1) - totals.accuracy * rows) / n,
                share - 2 * totals.chance_accuracy * rows / n,
            )
        classes = max(int(totals.present.sum()), 1)
        each = np.where(totals.present, 2 * totals.right / totals.size, 0)
        product = 2 * totals.predicted * totals.true / n
        by_chance = np.where(totals.present, product / totals.size, 0)
        own = (2 * right - each * (predicted + true)) / totals.size
        other = 2 * (predicted * totals.true + true * totals.predicted) / n - np.outer(rows, product / n)
        other = (other - by_chance * (predicted + true)) / totals.size
        return (own @ totals.present) / classes, (other @ totals.present) / classes

    def _rare(self, totals: _Totals) -> tuple[float, float]:
        """Return an interval of macro F1 that is right for classes with few rows.

        The F1 of a class is 2J / (1 + J), where J is the share of right rows among those that are right or
        an error of this class. J gets a Beta interval (Jeffreys), for as many rows as its items are worth
        (Kish's design effect). The distances of the classes are added with their correlation.
        """
        present = totals.present
        right = self.right[:, present].astype(np.float64)
        sizes = self.predicted[:, present] + self.true[:, present] - right
        all_right, count, items = totals.right[present], (totals.size - totals.right)[present], len(right)
        share = all_right / np.maximum(count, 1)
        influence = (right - share * sizes) / np.maximum(count, 1)
        variance = items / max(items - 1, 1) * (influence**2).sum(axis=0)
        binomial = np.maximum(share * (1 - share) / np.maximum(count, 1), 1e-300)
        whole = (sizes**2).sum(axis=0) / np.maximum(sizes.sum(axis=0), 1)  # as if items were all alike
        worth = np.where((share > 0) & (share < 1), variance / binomial, whole)
        low, high = _jeffreys(all_right, count, np.maximum(worth, 1))
        value = 2 * share / (1 + share)
        below, over = value - 2 * low / (1 + low), 2 * high / (1 + high) - value
        varies = variance > 1e-200
        scaled = influence[:, varies] / np.sqrt(variance[varies])
        mean = float(value.mean())
        bounds = []
        for distance in (below, over):
            joint = items / max(items - 1, 1) * ((scaled @ distance[varies]) ** 2).sum()
            bounds.append(np.sqrt(joint + (distance[~varies] ** 2).sum()) / len(value))
        return mean - float(bounds[0]), mean + float(bounds[1])

    def _binomial(self, totals: _Totals) -> tuple[float, float]:
        """Return a Beta interval of the accuracy, for as many rows as the items are worth."""
        rows, right = self.true.sum(axis=1, dtype=np.float64), self.right.sum(axis=1, dtype=np.float64)
        share, items = totals.accuracy, len(rows)
        if 0 < share < 1:
            variance = items / max(items - 1, 1) * (((right - share * rows) / totals.n) ** 2).sum()
            worth = variance * totals.n / (share * (1 - share))
        else:
            worth = (rows**2).sum() / rows.sum()
        low, high = _jeffreys(right.sum(), totals.n, max(float(worth), 1.0))
        return float(low), float(high)


@dataclass(frozen=True, slots=True, eq=False)
class _Totals:
    """The counts of all items: right, predicted and true (classes,)."""

    right: np.ndarray
    predicted: np.ndarray
    true: np.ndarray

    @classmethod
    def of(cls, counts: ConfusionCounts) -> _Totals:
        parts = (counts.right, counts.predicted, counts.true)
        return cls(*(part.sum(axis=0, dtype=np.float64) for part in parts))

    @property
    def n(self) -> float:
        return float(self.true.sum())

    @property
    def present(self) -> np.ndarray:
        return np.asarray((self.predicted + self.true) > 0)

    @property
    def size(self) -> np.ndarray:
        return np.asarray(np.maximum(self.predicted + self.true, 1))

    def _mean(self, each: np.ndarray) -> float:
        return float(each.sum() / max(int(self.present.sum()), 1))

    @property
    def f1(self) -> float:
        return self._mean(2 * self.right / self.size)

    @property
    def chance_f1(self) -> float:
        return self._mean(2 * self.predicted * self.true / self.n / self.size)

    @property
    def accuracy(self) -> float:
        return float(self.right.sum() / self.n)

    @property
    def chance_accuracy(self) -> float:
        return float((self.predicted * self.true).sum() / self.n**2)


def student(value: float, influence: np.ndarray) -> tuple[float, float, float, float]:
    """Return a value, the bounds of a 95 % interval and the p-value of 0, from the influence of each item.

    Few items may carry most of the variance, as those with a rare class do. So the degrees of freedom are
    those that the influences are worth (after Satterthwaite 1946).
    """
    special = require("scipy.special", extra="server", why="to compute intervals")
    items = len(influence)
    squares = (influence - influence.mean()) ** 2
    total = float(squares.sum())
    worth = total**2 / max(float((squares**2).sum()), 1e-300) - 1 if total > 0 else items - 1
    freedom = max(min(items - 1, worth), _FEWEST)
    error = float(np.sqrt(items / max(items - 1, 1) * total))
    distance = float(special.stdtrit(freedom, _LEVEL)) * error
    p = float(2 * special.stdtr(freedom, -abs(value) / error)) if error else NAN
    return value, value - distance, value + distance, p


def _jeffreys(right: Any, rows: Any, worth: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of a share of rows, each of which is worth 1 / ``worth`` independent ones.

    Brown, Cai and DasGupta (2001), section 4.1. If all rows or none are right, the other bound is exact
    (Clopper and Pearson 1934): a few documents that happen to be right must not exceed chance.
    """
    special = require("scipy.special", extra="server", why="to compute intervals")
    one, other = right / worth + 0.5, (rows - right) / worth + 0.5
    low, high = special.betaincinv(one, other, 1 - _LEVEL), special.betaincinv(one, other, _LEVEL)
    exact = (1 - _LEVEL) ** (worth / np.maximum(rows, 1))
    low, high = np.where(right == rows, exact, low), np.where(right == 0, 1 - exact, high)
    return np.where(right == 0, 0.0, low), np.where(right == rows, 1.0, high)


def judge(truth: np.ndarray, guess: np.ndarray, items: np.ndarray | None = None) -> ConfusionCounts:
    """Compare classes (rows,), numbered from 0; without ``items`` each row is an item of its own."""
    items = np.arange(len(truth)) if items is None else np.unique(items, return_inverse=True)[1]
    shape = (int(items.max()) + 1, int(max(truth.max(), guess.max())) + 1)
    right, predicted, true = (np.zeros(shape, np.float32) for _ in range(3))
    np.add.at(right, (items, truth), truth == guess)
    np.add.at(predicted, (items, guess), 1)
    np.add.at(true, (items, truth), 1)
    return ConfusionCounts(right, predicted, true)
