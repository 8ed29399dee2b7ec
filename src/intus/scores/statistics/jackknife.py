"""Confidence intervals by the delete-a-group jackknife.

Whole groups of items are left out in turn. Rows of one sentence or one image resemble each other; leaving out
single rows would make the interval too narrow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.errors import require

LEAST_GROUPS = 4  #: estimates that an interval needs
LEAST_BATCHES = 3  #: groups that an interval by batch means needs


class Jackknife(NamedTuple):
    """Intervals and p-values of estimates, each array of the shape of the estimates.

    Attributes:
        low: Lower bounds of 95 % intervals.
        high: Upper bounds.
        p: Two-sided p-values of the hypothesis that the true values are the null values.
    """

    low: np.ndarray
    high: np.ndarray
    p: np.ndarray


def jackknife(value: np.ndarray, without: np.ndarray, null: np.ndarray | float = 0.0) -> Jackknife:
    """Return 95 % intervals and p-values of estimates by the jackknife.

    They are those of Student's t with groups - 1 degrees of freedom (Shao and Tu 1995, section 2.3). NaN
    entries of ``without`` are ignored. All are NaN if fewer than LEAST_GROUPS values are left, or if all of
    them are equal and the spread is therefore unknown.

    Args:
        value: The estimates from all rows, of any shape (…).
        without: The estimates from all groups but one, shape (groups, …).
        null: The values under the null hypothesis.
    """
    special = require("scipy.special", extra="server", why="to give intervals")
    valid = np.isfinite(without)
    count = valid.sum(axis=0)
    enough = np.maximum(count, 1)
    mean = np.where(valid, without, 0).sum(axis=0) / enough
    spread = (np.where(valid, without - mean, 0) ** 2).sum(axis=0) * (count - 1) / enough
    freedom, error = np.maximum(count - 1, 1), np.sqrt(np.maximum(spread, 0))
    rounding = 1e-12 * np.abs(mean)
    error = np.where((count >= LEAST_GROUPS) & (error > rounding), error, np.nan)
    half = special.stdtrit(freedom, 0.975) * error
    p = 2 * special.stdtr(freedom, -np.abs(value - null) / error)
    return Jackknife(np.asarray(value - half), np.asarray(value + half), np.asarray(p))


def half_width(parts: np.ndarray) -> np.ndarray:
    """Return the half-widths of 95 % intervals by batch means: Student's t of the estimates of groups.

    NaN estimates are ignored; NaN if fewer than three are left (Law and Carson 1979).

    Args:
        parts: The estimates from each group alone, shape (groups, …).
    """
    special = require("scipy.special", extra="server", why="to give intervals")
    valid = np.isfinite(parts)
    count = valid.sum(axis=0)
    enough = np.maximum(count, 2)
    mean = np.where(valid, parts, 0).sum(axis=0) / enough
    squares = (np.where(valid, parts - mean, 0) ** 2).sum(axis=0) / (enough - 1)
    half = special.stdtrit(enough - 1, 0.975) * np.sqrt(squares / enough)
    return np.where(count >= LEAST_BATCHES, half, np.nan)


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
