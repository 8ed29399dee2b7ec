"""Confidence intervals by the delete-a-group jackknife.

Whole groups of items are left out in turn. Rows of one sentence or one image resemble each other; leaving out
single rows would make the interval too narrow.
"""

from __future__ import annotations

import numpy as np

from ...core.errors import require

LEAST_GROUPS = 4  #: estimates that an interval needs


def jackknife(value: np.ndarray, without: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of a 95 % jackknife interval.

    It is a t interval with groups - 1 degrees of freedom (Shao and Tu 1995, section 2.3). NaN entries of
    ``without`` are ignored. The bounds are NaN if fewer than LEAST_GROUPS values are left, or if all of them
    are equal and the spread is therefore unknown.

    Args:
        value: The estimate from all rows, of any shape (…).
        without: The estimates from all groups but one, shape (groups, …).

    Returns:
        The lower and the upper bounds, each of the shape of ``value``.
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
    """Return the sums over all groups but one, for each group that is not all zero.

    Args:
        sums: Sums per group.
        axis: The axis of the groups; in the result it is axis 0.

    Example:
        >>> leave_one_out(np.array([[1.0, 0.0, 2.0]]), axis=1)
        array([[2.],
               [1.]])
    """
    sums = np.moveaxis(sums, axis, 0)
    filled = [number for number in range(len(sums)) if sums[number].any()]
    return np.asarray(sums.sum(axis=0) - sums[filled])
