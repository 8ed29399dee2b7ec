"""Paired tests of single units: does a unit correlate more with a hypothesis than another one does?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...core.errors import InputError
from ..statistics import pairs
from ..statistics.concentration import concentration
from ..statistics.jackknife import jackknife
from ..statistics.statistics import Statistics


class Estimates(NamedTuple):
    """The correlations of units and hypotheses.

    Attributes:
        value: Of all items, shape (units, hypotheses).
        without: Of all items but those of a group, shape (groups, units, hypotheses); NaN for pairs that
            rest on too few groups for an interval.
    """

    value: np.ndarray
    without: np.ndarray


class UnitGaps(NamedTuple):
    """Differences of correlations, each array of shape (pairs of units, hypotheses).

    Attributes:
        value: The correlation of the one unit minus that of the other.
        low: Lower bounds of 95 % intervals.
        high: Upper bounds.
        p: Two-sided p-values of no difference.
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray


def correlations(statistics: Statistics) -> Estimates:
    """Return what ``units_above`` compares: the correlations with and without each group of items.

    Args:
        statistics: The statistics of a Scorer that computes ``correlation``.
    """
    sums = statistics.pairs
    value = pairs.partial_correlation(sums.total(), sums.given)
    thin = concentration(sums).thin
    without = [np.where(thin, np.nan, pairs.partial_correlation(one, sums.given)) for one in sums.without()]
    return Estimates(value, np.stack(without) if without else np.empty((0, *value.shape)))


def units_above(
    one: Estimates, other: Estimates, pairing: Sequence[tuple[int, int]] | None = None
) -> UnitGaps:
    """Return how much more units correlate with each hypothesis than other units, on the same items.

    The jackknife leaves out the same group of items on both sides, so what makes an item fit or not fit both
    units does not widen the interval.

    Args:
        one: The correlations of one layer or epoch.
        other: Those of another, with the same items, groups, seed and hypotheses.
        pairing: The numbers of the units to compare, (one's, other's) each. Default: each unit with the unit
            of the same number, as for two epochs of a layer.

    Raises:
        InputError: If the units, hypotheses or groups of items do not fit one another.

    Example:
        >>> from intus.scores import Scorer
        >>> rng = np.random.default_rng(0)
        >>> h = rng.normal(size=500)
        >>> layers = [h[:, None] + noise * rng.normal(size=(500, 1)) for noise in (0.5, 2)]
        >>> scorers = [Scorer("correlation") for _ in layers]
        >>> for scorer, layer in zip(scorers, layers):
        ...     scorer.update(layer, {"h": h})
        >>> gap = units_above(*(correlations(scorer.statistics) for scorer in scorers))
        >>> bool(gap.low[0, 0] > 0)
        True

    References:
        Shao and Tu (1995), "The Jackknife and Bootstrap", section 2.3.
    """
    (units, hypotheses), (others, other_hypotheses) = one.value.shape, other.value.shape
    if (hypotheses, len(one.without)) != (other_hypotheses, len(other.without)):
        raise InputError(
            f"The layers have {hypotheses} and {other_hypotheses} hypotheses, in {len(one.without)} and "
            f"{len(other.without)} groups of items. Compare layers that were given the same data."
        )
    if pairing is None and units != others:
        raise InputError(
            f"The layers have {units} and {others} units. Name the units to compare: pairing=[(0, 3), …]."
        )
    mine, theirs = np.array([(u, u) for u in range(units)] if pairing is None else pairing).reshape(-1, 2).T
    if len(mine) and (min(mine.min(), theirs.min()) < 0 or mine.max() >= units or theirs.max() >= others):
        raise InputError(f"pairing must name units below {units} and {others}, got {list(pairing or ())}.")
    value = one.value[mine] - other.value[theirs]
    with np.errstate(all="ignore"):
        found = jackknife(value, one.without[:, mine] - other.without[:, theirs])
    return UnitGaps(value, *found)
