"""Intervals by the delete-a-group jackknife: whole groups of items are left out in turn, so rows of one
sentence or one image, which resemble each other, do not make an interval too narrow."""

from __future__ import annotations

import numpy as np

from ...core.errors import require

LEAST_GROUPS = 4


def jackknife(value: np.ndarray, without: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """95 % interval around ``value`` (…) from the values ``without`` each group (groups, …).

    Leave-outs that are NaN do not count; with fewer than four left, or where all are equal and so say nothing
    of the spread, the interval is NaN. A t interval
    with groups - 1 degrees of freedom (Shao and Tu 1995, section 2.3).
    """
    special = require("scipy.special", extra="server", why="to give intervals")
    valid = np.isfinite(without)
    count = valid.sum(axis=0)
    enough = np.maximum(count, 1)
    mean = np.where(valid, without, 0).sum(axis=0) / enough
    spread = (np.where(valid, without - mean, 0) ** 2).sum(axis=0) * (count - 1) / enough
    half = special.stdtrit(np.maximum(count - 1, 1), 0.975) * np.sqrt(np.maximum(spread, 0))
    half = np.where((count >= LEAST_GROUPS) & (half > 0), half, np.nan)
    return np.asarray(value - half), np.asarray(value + half)


def leave_one_out(sums: np.ndarray, axis: int) -> np.ndarray:
    """Sums over all groups but one, the groups that hold anything first along axis 0.

    >>> leave_one_out(np.array([[1.0, 0.0, 2.0]]), axis=1)
    array([[2.],
           [1.]])
    """
    sums = np.moveaxis(sums, axis, 0)
    filled = [number for number in range(len(sums)) if sums[number].any()]
    return np.asarray(sums.sum(axis=0) - sums[filled])
