"""Accuracy and macro F1 of predicted classes, with intervals that resample whole items."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .base import NAN

_REPLICATES = 200
#: Description of the interval of a classifier's score.
INTERVAL = "95 %, bootstrap of the held-out items; what was trained is held fixed"


@dataclass(frozen=True, slots=True, eq=False)
class ConfusionCounts:
    """Right, predicted and true counts by item and class, (items, classes) each.

    Accuracy and macro F1 are computed from them, also for a resampled set of items.
    """

    right: np.ndarray
    predicted: np.ndarray
    true: np.ndarray

    @property
    def f1(self) -> float:
        """Macro F1 over the classes that occur or are predicted, as scikit-learn computes it."""
        parts = (self.right, self.predicted, self.true)
        return float(_f1(*(part.sum(axis=0, dtype=np.float64) for part in parts)))

    @property
    def accuracy(self) -> float:
        """Fraction of rows whose class is predicted right."""
        return float(self.right.sum(dtype=np.float64) / self.true.sum(dtype=np.float64))

    def interval(self, what: str, seed: int) -> tuple[float, float]:
        """Return a seeded bootstrap 95 % interval of ``"f1"`` or ``"accuracy"``, resampling whole items.

        If all predictions are right, or all are wrong, a bootstrap has no spread. Then the bound is the one
        that this number of items allows (the rule of three, Hanley and Lippman-Hand 1983).
        """
        items = len(self.true)
        if items < 2:
            return NAN, NAN
        low, high = np.quantile(self._resampled(what, seed), [0.025, 0.975])
        right_rows, rows = self.right.sum(dtype=np.float64), self.true.sum(dtype=np.float64)
        unseen = 1 - 0.025 ** (1 / items)
        return float(1 - unseen if right_rows == rows else low), float(high if right_rows else unseen)

    def above(self, other: ConfusionCounts, what: str, seed: int) -> tuple[float, float, float]:
        """Return the difference to ``other`` on the same items, with the bounds of a bootstrap interval."""
        gap = float(getattr(self, what) - getattr(other, what))
        if len(self.true) < 2:
            return gap, NAN, NAN
        gaps = self._resampled(what, seed) - other._resampled(what, seed)
        low, high = np.quantile(gaps, [0.025, 0.975])
        return gap, float(low), float(high)

    def _resampled(self, what: str, seed: int) -> np.ndarray:
        """Return the measure on items drawn with replacement, (replicates,)."""
        weights = resamples(len(self.true), seed)
        right, predicted, true = (weights @ part for part in (self.right, self.predicted, self.true))
        if what == "f1":
            return _f1(right, predicted, true)
        return np.asarray(right.sum(axis=1) / np.maximum(true.sum(axis=1), 1))


@lru_cache(maxsize=2)
def resamples(items: int, seed: int) -> np.ndarray:
    """Return the number of draws of each item in each bootstrap replicate, (replicates, items) float32.

    The last two results are cached, since all layers hold out the same items.
    """
    draws = np.random.default_rng(seed).integers(0, items, (_REPLICATES, items))
    draws += items * np.arange(_REPLICATES)[:, None]
    out = np.bincount(draws.ravel(), minlength=_REPLICATES * items).astype(np.float32)
    out.flags.writeable = False
    return out.reshape(_REPLICATES, items)


def judge(truth: np.ndarray, guess: np.ndarray, items: np.ndarray | None = None) -> ConfusionCounts:
    """Compare classes (rows,), numbered from 0; without ``items`` each row is an item of its own."""
    items = np.arange(len(truth)) if items is None else np.unique(items, return_inverse=True)[1]
    shape = (int(items.max()) + 1, int(max(truth.max(), guess.max())) + 1)
    right, predicted, true = (np.zeros(shape, np.float32) for _ in range(3))
    np.add.at(right, (items, truth), truth == guess)
    np.add.at(predicted, (items, guess), 1)
    np.add.at(true, (items, truth), 1)
    return ConfusionCounts(right, predicted, true)


def majority_f1(train: np.ndarray, held: np.ndarray) -> float:
    """Return the macro F1, on held-out rows, of always guessing the commonest training class."""
    return judge(held, np.full_like(held, np.bincount(train).argmax())).f1


def _f1(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Return macro F1 over the last axis; classes that neither occur nor are predicted do not count."""
    sizes = predicted + true
    each = 2 * right / np.maximum(sizes, 1)
    return np.asarray(each.sum(axis=-1) / np.maximum((sizes > 0).sum(axis=-1), 1))
