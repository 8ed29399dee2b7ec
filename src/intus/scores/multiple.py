"""Several tests, and several splits: false discovery rates, and scores over repeated splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..core.errors import InputError, require
from ..core.notes import joined
from ..core.score_info import ScoreInfo
from .base import NAN, ScoreResult
from .statistics.split import HELD_OUT


def false_discovery_rates(p: np.ndarray) -> np.ndarray:
    """Return the adjusted p-values of Benjamini and Hochberg (1995), often called q-values.

    If all tests with q at most .05 count as findings, at most 5 % of these are expected to be false.

    Args:
        p: The p-values, shape (tests,). NaN is no test.

    Example:
        >>> false_discovery_rates(np.array([0.01, 0.5, np.nan, 0.03])).tolist()
        [0.03, 0.5, nan, 0.045]
    """
    out = np.full(len(p), np.nan)
    tests = np.flatnonzero(np.isfinite(p))
    order = tests[np.argsort(p[tests], kind="stable")]
    adjusted = p[order] * len(order) / np.arange(1, len(order) + 1)
    out[order] = np.minimum(np.minimum.accumulate(adjusted[::-1])[::-1], 1)
    return out


class Repeated(NamedTuple):
    """A quantity over repeated splits: its mean, a 95 % interval, and the two-sided p-value of 0."""

    value: float
    low: float
    high: float
    p: float


def over_splits(values: Sequence[float], held_out: float = HELD_OUT) -> Repeated:
    """Return the mean of a score, or of a gap between two, over several seeded splits of the same items.

    The splits share items, so their spread understates the error. The corrected resampled t-test adds what
    they share.

    Args:
        values: A value of each split; NaN is left out.
        held_out: The fraction of the items that each split holds out.

    Returns:
        The mean. Interval and p are NaN for fewer than two values, or if all are equal.

    Example:
        >>> over_splits([0.81, 0.84, 0.79, 0.83]).value
        0.8175

    References:
        Nadeau and Bengio (2003), "Inference for the generalization error", section 5: the variance of the
        mean is (1/K + held out / trained) times that between the K splits.
    """
    special = require("scipy.special", extra="server", why="to compute intervals")
    known = np.array([value for value in values if np.isfinite(value)])
    if not len(known):
        return Repeated(NAN, NAN, NAN, NAN)
    mean = float(known.mean())
    spread = float(known.var(ddof=1)) if len(known) > 1 else 0.0
    if not spread > 0:
        return Repeated(mean, NAN, NAN, NAN)
    error = np.sqrt((1 / len(known) + held_out / (1 - held_out)) * spread)
    half, freedom = float(special.stdtrit(len(known) - 1, 0.975) * error), len(known) - 1
    return Repeated(mean, mean - half, mean + half, float(2 * special.stdtr(freedom, -abs(mean) / error)))


def depends_on_split(info: ScoreInfo) -> bool:
    """Return whether a score may hold items out: whether it is one of a layer and a target."""
    return info.needs_target and info.level == "layer"


def info_over_splits(info: ScoreInfo, splits: int) -> ScoreInfo:
    """Return the description of a score whose values are means over several splits.

    Args:
        info: The description for one split.
        splits: The number of splits. A score that holds nothing out keeps its description.
    """
    if splits < 2 or not depends_on_split(info):
        return info
    interval = f"95 %, corrected resampled t over {splits} splits (Nadeau and Bengio 2003)"
    return replace(info, interval=f"{interval}; that of the first split where all give one value")


def merged_splits(splits: Sequence[Sequence[ScoreResult]]) -> list[ScoreResult]:
    """Return the results of several scorers with different seeds as one result for each score.

    Value and baseline are means over the splits, interval and p those of ``over_splits``. A result that does
    not depend on the split, such as a correlation, is left as it is.

    Args:
        splits: The results of each scorer (``Scorer.result``), in the same order.

    Raises:
        InputError: If the scorers do not have the same scores, targets and units.
    """
    out = []
    for same in zip(*splits, strict=True):
        first = same[0]
        if len({(one.score, one.target, one.unit) for one in same}) > 1:
            raise InputError("The splits have different scores, targets or units. Give all the same data.")
        values = [one.value for one in same]
        whole = over_splits(values)
        if np.isnan(whole.low):
            out.append(first)
            continue
        gain = over_splits([one.value - one.baseline for one in same])
        base = over_splits([one.baseline for one in same]).value
        note = joined(first.note, f"mean of {np.isfinite(values).sum()} splits")
        n = round(float(np.mean([one.n for one in same])))
        out.append(first._replace(**whole._asdict() | {"p": gain.p, "baseline": base, "n": n, "note": note}))
    return out
