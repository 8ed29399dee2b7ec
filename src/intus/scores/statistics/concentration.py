"""The number of groups of items that the variance of a unit or a hypothesis is spread over.

The jackknife measures an error by the spread between groups. If one record or a few carry all the variance,
most groups do not change the estimate, and the spread is far below the error. Noise then has tiny p-values.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from .pairs import HH, UU, H, N, Pairs, U
from .permutation import midranks
from .split import GROUPS

LEAST_SPREAD = 6  #: groups of 16 that the variance of both sides must be spread over, in effect

_Number = TypeVar("_Number", float, np.ndarray)


def least_groups(filled: _Number) -> _Number:
    """Return how many groups a side must be spread over in effect, of those that have rows."""
    return LEAST_SPREAD / GROUPS * filled


class Concentration(NamedTuple):
    """Effective numbers of groups, each array of a shape that broadcasts to (units, hypotheses).

    Attributes:
        units: That of each unit; NaN if the unit is constant.
        hypotheses: That of each hypothesis.
        filled: The number of groups that have rows.
    """

    units: np.ndarray
    hypotheses: np.ndarray
    filled: np.ndarray

    @property
    def least(self) -> np.ndarray:
        """The least number that intervals and p-values need; fewer if not all groups have rows."""
        return np.asarray(least_groups(self.filled))

    @property
    def thin(self) -> np.ndarray:
        """True where the variance of one side is in too few groups for an interval, (units, hypotheses)."""
        return np.asarray((self.units < self.least) | (self.hypotheses < self.least))


def concentration(sums: Pairs) -> Concentration:
    """Return the effective numbers of groups from the sums of pairs."""
    n, u, uu, h, hh = (sums.planes[place] for place in (N, U, UU, H, HH))
    filled = np.asarray((n > 0).sum(axis=0))
    return Concentration(_effective(n, u, uu), _effective(n, h, hh), filled)


def by_ranks(found: Concentration, x: np.ndarray, values: np.ndarray, group: np.ndarray) -> Concentration:
    """Return the numbers for scores that depend on ranks alone, in which an outlier does not count more.

    Args:
        found: The numbers of the values. Only columns with too small ones are ranked.
        x: The units, shape (rows, units).
        values: The hypotheses, shape (rows, hypotheses).
        group: The group of each row, shape (rows,).
    """
    units, hypotheses = found.units.copy(), found.hypotheses.copy()
    for unit in np.flatnonzero((units < found.least).any(axis=1)):
        units[unit] = _of_ranks(x[:, unit], group)
    for column in np.flatnonzero((hypotheses < found.least).any(axis=0)):
        hypotheses[:, column] = _of_ranks(values[:, column], group)
    return found._replace(units=units, hypotheses=hypotheses)


def _effective(n: np.ndarray, total: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Return (Σ S)² / Σ S² for the sums S of squared deviations in each group, along axis 0."""
    with np.errstate(all="ignore"):
        mean = total.sum(axis=0) / n.sum(axis=0)
        parts = np.maximum(squares - 2 * mean * total + mean**2 * n, 0)
        return np.asarray(1 / ((parts / parts.sum(axis=0)) ** 2).sum(axis=0))


def _of_ranks(column: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return the effective number of groups of the ranks of one column."""
    known = np.isfinite(column)
    ranks = midranks(column[known, None]).astype(np.float64)
    return of_columns(ranks, group[known])[0] if known.any() else np.asarray(np.nan)


def of_columns(table: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return the effective numbers of groups of columns without NaN, shape (columns,).

    Args:
        table: The columns, shape (rows, columns).
        group: The group of each row, shape (rows,).
    """
    parts = [table[group == number].astype(np.float64) for number in np.unique(group)]
    n = np.array([[len(part)] for part in parts])
    total, squares = (np.array([(part**power).sum(axis=0) for part in parts]) for power in (1, 2))
    return _effective(n, total, squares)
