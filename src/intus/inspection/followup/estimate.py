"""A mean with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...scores.statistics.jackknife import LEAST_GROUPS, jackknife


class Estimate(NamedTuple):
    """A mean with a 95 % interval.

    Attributes:
        value: The mean.
        low: The lower end.
        high: The upper end.
        n: The number of values.
    """

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def estimates(value: np.ndarray, without: np.ndarray, counts: Sequence[int]) -> list[Estimate]:
    """Return means with intervals by the jackknife.

    If all groups give the same value, the interval is that value.

    Args:
        value: The means, (means,).
        without: The means without each group, (groups, means).
        counts: The number of values of each mean.
    """
    low, high, _ = jackknife(value, without)
    if len(without) >= LEAST_GROUPS:
        equal = (without == value).all(axis=0)
        low, high = np.where(equal, value, low), np.where(equal, value, high)
    columns = zip(value.tolist(), low.tolist(), high.tolist(), counts, strict=True)
    return [Estimate(*one) for one in columns]
