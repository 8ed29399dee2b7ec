"""Accuracy and F1 of predicted classes, what chance gives, and intervals that respect items.

Everything is computed from ConfusionCounts: the scores of a classifier, the table of the classes that it
confuses, and the paired comparison of two classifiers on the same held-out items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import require
from ..base import NAN

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


class Gap(NamedTuple):
    """The difference of two scores on the same held-out items.

    Attributes:
        value: The score of the one minus that of the other.
        low: Lower bound of a 95 % interval.
        high: Upper bound of the interval.
        p: The two-sided p-value of no difference.
        n: The number of held-out rows that both predict.
        note: What to know about it; "" if nothing.
    """

    value: float
    low: float
    high: float
    p: float
    n: int = 0
    note: str = ""


class Confusion(NamedTuple):
    """The classes that a classifier takes for each other, on held-out rows.

    Attributes:
        classes: The labels, sorted.
        matrix: Number of rows by true class and predicted class, shape (classes, classes).
        f1: F1 of each class, shape (classes,); NaN for a class that neither occurs nor is predicted.
        low: Lower bounds of 95 % intervals of ``f1``.
        high: Upper bounds.
    """

    classes: tuple[Any, ...]
    matrix: np.ndarray
    f1: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def n(self) -> int:
        """Number of held-out rows."""
        return int(self.matrix.sum())


@dataclass(frozen=True, slots=True, eq=False)
class ConfusionCounts:
    """Right, predicted and true counts by item and class, (items, classes) each.

    Accuracy and macro F1 are computed from them. An item is what is resampled as a whole: a sentence, a
    document, a subject.

    Attributes:
        right: Number of rows of an item that are of a class and predicted as it.
        predicted: Number of rows that are predicted as the class.
        true: Number of rows that are of the class.
        items: The id of each item, in ascending order.
        rows: The class of each row, the predicted one, and the number of its item, shape (3, rows).
    """

    right: np.ndarray
    predicted: np.ndarray
    true: np.ndarray
    items: np.ndarray
    rows: np.ndarray

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
        _, above, _, _ = student(value - chance, own - by_chance)
        *_, p = student(value - chance, own - by_chance, totals.permuted(what))
        rare_low, rare_high = self._rare(totals) if what == "f1" else self._binomial(totals)
        low = min(low, chance + above, rare_low)
        return Judgement(value, max(low, 0.0), min(max(high, rare_high), 1.0), chance, p)

    def above(self, other: ConfusionCounts, what: str) -> Gap:
        """Return the difference of ``"f1"`` or ``"accuracy"`` to ``other``, on the items that both have.

        The comparison is paired: what makes an item easy or hard for both does not widen the interval.
        """
        _, one, two = np.intersect1d(self.items, other.items, assume_unique=True, return_indices=True)
        alike = self.true[one].sum(axis=1) == other.true[two].sum(axis=1)
        mine, theirs = self._of_items(one[alike]), other._of_items(two[alike])
        most, n = max(len(self.items), len(other.items)), int(mine.true.sum())
        note = f"on {alike.sum()} of {most} held-out items, which both have" if alike.sum() < most else ""
        if not n:
            return Gap(NAN, NAN, NAN, NAN, 0, "no held-out items in common")
        totals, others = _Totals.of(mine), _Totals.of(theirs)
        gap = float(getattr(totals, what) - getattr(others, what))
        if len(mine.true) < 2:
            return Gap(gap, NAN, NAN, NAN, n, "a single held-out item")
        gaps = mine._influence(what, totals)[0] - theirs._influence(what, others)[0]
        if not gaps.any():
            alike_note = "no difference between held-out items, so the spread is not known"
            return Gap(gap, gap, gap, 1.0, n, note) if gap == 0 else Gap(gap, NAN, NAN, NAN, n, alike_note)
        return Gap(*student(gap, gaps), n, note)

    def above_mean(self, others: Sequence[ConfusionCounts], what: str) -> Gap:
        """Return the difference of ``"f1"`` or ``"accuracy"`` to the mean of equivalent random tasks.

        All are predictions on the same held-out items. The interval includes the spread between the tasks, of
        which this would be one more if it were no different (Student's t, Satterthwaite 1946).

        Args:
            others: Counts of two random tasks or more.
            what: The score.
        """
        every = [self, *others]
        totals = [_Totals.of(one) for one in every]
        values = np.array([getattr(one, what) for one in totals])
        influences = [one._influence(what, total)[0] for one, total in zip(every, totals, strict=True)]
        gap, n, count = float(values[0] - values[1:].mean()), int(self.true.sum()), len(others)
        if len(self.true) < 2:
            return Gap(gap, NAN, NAN, NAN, n, "a single held-out item")
        of_items, freedom = _variance(influences[0] - np.mean(influences[1:], axis=0))
        of_tasks = float(values[1:].var(ddof=1)) * (1 + 1 / count)
        variance = of_items + of_tasks
        if not variance:
            return Gap(gap, gap, gap, 1.0, n) if gap == 0 else Gap(gap, NAN, NAN, NAN, n)
        freedom = variance**2 / (of_items**2 / freedom + of_tasks**2 / (count - 1))
        return Gap(*_bounds(gap, variance, freedom), n)

    def _of_items(self, numbers: np.ndarray) -> ConfusionCounts:
        """Return the counts of some items, given by number; the rows are not needed and left out."""
        right, predicted, true = (part[numbers] for part in (self.right, self.predicted, self.true))
        return ConfusionCounts(right, predicted, true, self.items[numbers], self.rows[:, :0])

    def by_class(self) -> np.ndarray:
        """Return the F1 of each class, (classes,); NaN for one that neither occurs nor is predicted."""
        totals = _Totals.of(self)
        return np.where(totals.present, 2 * totals.right / totals.size, NAN)

    def confusion(self, classes: Sequence[Any]) -> Confusion:
        """Return the table of confused classes; ``classes`` are all labels, in order."""
        size = len(classes)
        matrix = np.bincount(self.rows[0] * size + self.rows[1], minlength=size * size).reshape(size, size)
        f1, low, high = np.full((3, size), NAN)
        known = self.true.shape[1]
        totals = _Totals.of(self)
        f1[:known] = self.by_class()
        bounds = self._class_bounds(totals)[:2]
        low[:known][totals.present], high[:known][totals.present] = bounds
        return Confusion(tuple(classes), matrix, f1, low, high)

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

        The distances of the classes' bounds are added with their correlation.
        """
        low, high, value, influence, variance = self._class_bounds(totals)
        below, over, items = value - low, high - value, len(self.right)
        varies = variance > 1e-200
        scaled = influence[:, varies] / np.sqrt(variance[varies])
        mean = float(value.mean())
        bounds = []
        for distance in (below, over):
            joint = items / max(items - 1, 1) * ((scaled @ distance[varies]) ** 2).sum()
            bounds.append(np.sqrt(joint + (distance[~varies] ** 2).sum()) / len(value))
        return mean - float(bounds[0]), mean + float(bounds[1])

    def _class_bounds(self, totals: _Totals) -> tuple[np.ndarray, ...]:
        """Return 95 % intervals of the F1 of each class that is present.

        The F1 of a class is 2J / (1 + J), where J is the share of right rows among those that are right or
        an error of this class. J gets a Beta interval (Jeffreys), for as many rows as its items are worth
        (Kish's design effect).

        Returns:
            Lower bounds, upper bounds and F1, (present classes,); the influence of each item on J, (items,
            present classes); and its variance, (present classes,).
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
        low, high, value = (2 * part / (1 + part) for part in (low, high, share))
        return low, high, value, influence, variance

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

    def permuted(self, what: str) -> float:
        """Return the variance of a score if the predictions are permuted among the rows (Hoeffding 1951)."""
        classes = max(int(self.present.sum()), 1)
        weight = np.full(len(self.true), 1 / self.n) if what == "accuracy" else 2 / self.size / classes
        of_predicted, of_true = weight * self.true / self.n, weight * self.predicted / self.n
        mean = float(of_predicted @ self.predicted) / self.n
        # Of the squares of weight * (predicted is true) - of_predicted - of_true + mean, over all pairs of
        # rows, without a table of classes by classes.
        off = mean - of_predicted
        every = self.n * (off**2 @ self.predicted) + self.n * (of_true**2 @ self.true)
        every -= 2 * (off @ self.predicted) * (of_true @ self.true)
        same = off - of_true
        every += ((2 * weight * same + weight**2) * self.predicted) @ self.true
        return max(float(every), 0.0) / max(self.n - 1, 1)

    @property
    def accuracy(self) -> float:
        return float(self.right.sum() / self.n)

    @property
    def chance_accuracy(self) -> float:
        return float((self.predicted * self.true).sum() / self.n**2)


def student(value: float, influence: np.ndarray, least: float = 0.0) -> tuple[float, float, float, float]:
    """Return a value, the bounds of a 95 % interval and the p-value of 0, from the influence of each item.

    Args:
        value: The value.
        influence: The influence of each item, shape (items,).
        least: The least variance: the influences do not vary where a rare class was never predicted right.
    """
    variance, freedom = _variance(influence)
    return _bounds(value, max(variance, least), freedom)


def _variance(influence: np.ndarray) -> tuple[float, float]:
    """Return the variance of a value and its degrees of freedom, from the influence of each item.

    Few items may carry most of the variance, as those with a rare class do. So the degrees of freedom are
    those that the influences are worth (after Satterthwaite 1946).
    """
    items = len(influence)
    squares = (influence - influence.mean()) ** 2
    total = float(squares.sum())
    worth = total**2 / max(float((squares**2).sum()), 1e-300) - 1 if total > 0 else items - 1
    return items / max(items - 1, 1) * total, max(min(items - 1, worth), _FEWEST)


def _bounds(value: float, variance: float, freedom: float) -> tuple[float, float, float, float]:
    """Return a value, the bounds of its 95 % interval and the p-value of 0 by Student's t."""
    special = require("scipy.special", extra="server", why="to compute intervals")
    error = float(np.sqrt(variance))
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
    ids, items = np.unique(np.arange(len(truth)) if items is None else items, return_inverse=True)
    shape = (len(ids), int(max(truth.max(), guess.max())) + 1)
    same = truth == guess

    def counts(rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
        table = np.bincount(rows * shape[1] + classes, minlength=shape[0] * shape[1])
        return table.reshape(shape).astype(np.float32)

    right, predicted, true = counts(items[same], truth[same]), counts(items, guess), counts(items, truth)
    return ConfusionCounts(right, predicted, true, ids, np.stack([truth, guess, items]))
