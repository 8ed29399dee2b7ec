"""The range of each unit in float64, where squares of very small or very large values are 0 or infinite."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..base import ScoreColumns

#: Sums of squares of values that spread less, or are larger, are not float64 numbers.
SMALLEST, LARGEST = 1e-145, 1e145
#: Scores that do not square values.
_MEANS = ("mean", "mean_abs")
_OF_ANY_SIZE = (*_MEANS, "min", "max", "sparsity", "dead", "nonfinite", "majority_f1", "random_f1")


class Magnitude:
    """The smallest and the largest value of each unit. Narrower types than float64 need no such care.

    Attributes:
        low: The smallest finite values, shape (units,); None before the first rows in float64.
        high: The largest.
    """

    def __init__(self) -> None:
        self.low: np.ndarray | None = None
        self.high: np.ndarray | None = None

    def update(self, x: np.ndarray) -> None:
        """Add rows, (rows, units)."""
        if x.dtype != np.float64 or not len(x):
            return
        low, high = x.min(axis=0), x.max(axis=0)
        if not (np.isfinite(low) & np.isfinite(high)).all():
            there = np.isfinite(x)
            low, high = np.where(there, x, np.inf).min(axis=0), np.where(there, x, -np.inf).max(axis=0)
        self._add(low, high)

    def merge(self, other: Magnitude) -> None:
        """Add the rows of another one."""
        if other.low is not None and other.high is not None:
            self._add(other.low, other.high)

    def _add(self, low: np.ndarray, high: np.ndarray) -> None:
        if self.low is not None and self.high is not None:
            low, high = np.minimum(self.low, low), np.maximum(self.high, high)
        self.low, self.high = low, high

    @property
    def too_large(self) -> str:
        """Why scores of all units together are not computed: the largest is too large; "" if none is."""
        large, _ = self._odd()
        return f"not computed: {_note(large)}" if large.any() else ""

    def checked(self, found: ScoreColumns) -> ScoreColumns:
        """Return results without those of units that are too small or too large, with a note on these.

        A score of several units is not computed if one of them is too large, or if all that vary are too
        small. If only some are too small, it treats them as constant, and the note says so.
        """
        large, small = self._odd()
        if not (large.any() or small.any()):
            return found
        assert self.low is not None
        assert self.high is not None
        whole, squared = found.unit < 0, ~np.isin(found.score, _OF_ANY_SIZE)
        is_large = np.where(whole, large.any(), np.append(large, 0)[found.unit] > 0)
        all_small = small.astype(bool).sum() == (self.high > self.low).sum()
        is_small = np.where(whole, all_small, np.append(small, 0)[found.unit] > 0)
        odd = is_large | is_small
        missing, means = squared & odd, np.isin(found.score, _MEANS) & odd
        some = squared & whole & small.any() & ~missing
        constant = f"{np.count_nonzero(small)} units vary too little to be squared, and count as constant"
        note = np.where(some & (found.note == ""), constant, found.note)
        why = np.where(is_large, _note(large), _note(-small)).astype(object)
        note = np.where(missing, "not computed: " + why, np.where(means, "no interval: " + why, note))
        numbers = {
            name: np.where(missing, np.nan, getattr(found, name)) for name in ("value", "baseline", "p")
        }
        interval = {name: np.where(missing | means, np.nan, getattr(found, name)) for name in ("low", "high")}
        return replace(found, note=note, **numbers, **interval)

    def _odd(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the size of each unit that is too large, and the spread of each that varies too little."""
        if self.low is None or self.high is None:
            return np.zeros(0), np.zeros(0)
        with np.errstate(over="ignore", invalid="ignore"):
            spread, size = self.high - self.low, np.maximum(np.abs(self.low), np.abs(self.high))
        any_rows = self.low <= self.high
        small = any_rows & (spread > 0) & (spread < SMALLEST)
        return np.where(any_rows & (size > LARGEST), size, 0), np.where(small, spread, 0)


def _note(sizes: np.ndarray) -> str:
    """Return why, from the sizes of units that are too large, or the negative spreads of those too small."""
    if (sizes > 0).any():
        return f"behaviours of up to {sizes.max():.0e} are too large to be squared"
    return f"behaviours that vary by {-sizes.min(initial=0):.0e} are too small to be squared"
