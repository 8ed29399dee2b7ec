"""Overlap of the rows where a unit is active with those where a hypothesis holds."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from ...core.errors import require
from ..base import NAN, Score, ScoreResult, add_score, info_of, score
from ..statistics.jackknife import LEAST_GROUPS, Jackknife, jackknife
from ..statistics.permutation import Strength
from ..statistics.split import GROUPS
from ..statistics.statistics import Statistics
from ..statistics.thresholds import Counts, best_thresholds, counts_at
from .affinity import BLOCK, INTERVAL, MOVED, best, drawn, moved, spread

QUANTILE = 0.005  #: NetDissect's: a unit is active for its top 0.5 % (Bau et al. 2017)
_INFO: dict[str, Any] = {
    "low": 0.0,
    "high": 1.0,
    "baseline": MOVED,
    "interval": INTERVAL,
    "requires": "hypotheses of 0 and 1",
}
_JACCARD = "rows where the unit is active and the hypothesis holds, divided by rows where either is so"


def iou(quantile: float = QUANTILE, name: str | None = None) -> Score:
    """Return the score "intersection over union" of a unit's top ``quantile`` of rows and a hypothesis.

    This is the rule of NetDissect, and DeepBase's LocalIOU. It can reach 1 only if the hypothesis is as
    frequent as the quantile. The note of a result gives the threshold and the largest possible value. The
    score is exact if all rows fit into the sample.

    >>> iou(0.01).name
    'iou_0.01'
    """
    score_name = name or f"iou_{quantile:g}"

    info = info_of(
        score_name,
        "unit",
        label="Intersection over union" + ("" if quantile == QUANTILE else f", top {quantile:g}"),
        about=f"Overlap of the {100 * quantile:g} % of rows where a unit is largest with those where a "
        "hypothesis holds.",
        formula=_JACCARD,
        source="Bau et al. 2017 (NetDissect); DeepBase's LocalIOU",
        **_INFO,
    )
    compute = partial(_iou, score_name, quantile)
    return Score(score_name, compute, frozenset({"pairs", "sample"}), "unit", info=info)


def _iou(name: str, quantile: float, statistics: Statistics) -> Iterable[ScoreResult]:
    places, x, values = drawn(statistics)
    threshold, on = _top(x, quantile)
    finite = np.isfinite(x)
    counts = _counts(on, finite, values, places.group)
    varies = np.isfinite(threshold)[:, None]
    value = np.where(varies, jaccard(total(counts)), NAN)

    def strength(_: np.ndarray, permuted: np.ndarray) -> np.ndarray:
        return np.where(varies, jaccard(total(_counts(on, finite, permuted))), NAN)

    elsewhere = _counts(on, finite, moved(statistics), places.group)
    base = best(np.where(varies, jaccard(total(elsewhere)), NAN))
    return _with_notes(
        name, statistics, value, counts, elsewhere, base, threshold[:, None], values, strength, capped=True
    )


@score(
    "iou_max",
    "pairs",
    "sample",
    per="unit",
    label="Intersection over union, best threshold",
    formula=f"{_JACCARD}; the threshold is chosen on one part of the items and judged on the other",
    source="after Bau et al. 2017, whose threshold is fixed",
    **_INFO | {"interval": f"{INTERVAL}, of arcsin √IoU"},
)
def iou_max(statistics: Statistics) -> Iterable[ScoreResult]:
    """Overlap of the rows where a unit is above its best threshold with those where a hypothesis holds."""
    places, x, values = drawn(statistics)
    held = places.held
    trained, judged, group = x[~held], x[held], places.group[held]
    threshold = best_thresholds(trained, values[~held])
    counts = counts_at(judged, values[held], threshold, group, GROUPS)
    value = np.where(np.isfinite(threshold), jaccard(total(counts)), NAN)

    def strength(_: np.ndarray, permuted: np.ndarray) -> np.ndarray:
        tried = best_thresholds(trained, permuted[~held], exact=False)
        return jaccard(total(counts_at(judged, permuted[held], tried, np.zeros(len(judged), np.int64), 1)))

    permuted = moved(statistics)
    base = best(strength(x, permuted))
    elsewhere = counts_at(judged, permuted[held], threshold, group, GROUPS)
    return _with_notes(
        "iou_max", statistics, value, counts, elsewhere, base, threshold, values[held], strength, capped=False
    )


def _top(x: np.ndarray, quantile: float) -> tuple[np.ndarray, np.ndarray]:
    """Return each unit's threshold, NaN if the unit is constant, and which rows are above it.

    If a unit saturates, its top rows are tied and no row is above the threshold. Then the tied rows count as
    above. Rows where the unit is NaN do not.
    """
    finite = np.isfinite(x)
    whole, some = finite.all(axis=0), finite.any(axis=0)
    levels = np.full(x.shape[1], NAN, dtype=x.dtype)
    if len(x):
        levels[whole] = np.quantile(x[:, whole], 1 - quantile, axis=0).astype(x.dtype)
    for unit in np.flatnonzero(some & ~whole):
        levels[unit] = np.quantile(x[finite[:, unit], unit], 1 - quantile)
    low = np.where(finite, x, np.inf).min(axis=0, initial=np.inf)
    top = np.where(finite, x, -np.inf).max(axis=0, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        above = np.where(top > levels, x > levels, x >= top) & finite
        threshold = np.where(top > low, levels, NAN)
    return threshold, above


def _counts(
    on: np.ndarray, finite: np.ndarray, values: np.ndarray, group: np.ndarray | None = None
) -> Counts:
    """Count rows per group; only annotated rows count where the unit is finite."""
    group = np.zeros(len(on), dtype=np.int64) if group is None else group
    groups = int(group.max(initial=0)) + 1
    given, yes = np.isfinite(values).astype(np.float32), (values == 1).astype(np.float32)
    whole = bool(finite.all())
    units, wide = on.shape[1], 1 if whole else on.shape[1]
    out = [np.zeros((groups, size, values.shape[1]), np.float32) for size in (units, units, wide, wide)]
    order = np.argsort(group, kind="stable")
    ends = np.searchsorted(group[order], np.arange(groups + 1))
    for number in range(groups):
        for start in range(ends[number], ends[number + 1], BLOCK):  # float32 counts exactly up to 2^24
            rows = order[start : min(start + BLOCK, ends[number + 1])]
            lit = on[rows].astype(np.float32)
            out[0][number] += lit.T @ yes[rows]
            out[1][number] += lit.T @ given[rows]
            for plane, column in ((2, yes), (3, given)):
                part = column[rows]
                out[plane][number] += part.sum(axis=0) if whole else finite[rows].astype(np.float32).T @ part
    return out


def total(counts: Counts) -> Counts:
    """Return counts of all groups together."""
    return [plane.sum(axis=0, dtype=np.float64) for plane in counts]


def jaccard(counts: Counts) -> np.ndarray:
    """Return intersection over union; NaN if nothing is active and nothing is true."""
    both, on, true, _ = counts
    with np.errstate(all="ignore"):
        return np.asarray(both / (on + true - both))


def _by_angle(value: np.ndarray, found: np.ndarray) -> Jackknife:
    """Return intervals of arcsin √IoU in terms of the index: of few items they contain it more often.

    If all parts of the items have one value, its spread is not known and there is no interval.
    """
    bounds = jackknife(np.arcsin(np.sqrt(value)), np.arcsin(np.sqrt(found)))
    known = np.isfinite(jackknife(value, found).low)
    low, high = (np.sin(np.clip(bound, 0, np.pi / 2)) ** 2 for bound in bounds[:2])
    return Jackknife(np.where(known, low, NAN), np.where(known, high, NAN), bounds.p)


def _by_chance(counts: Counts, elsewhere: Counts) -> np.ndarray:
    """Return two-sided p-values of the overlaps if activity and hypothesis are independent.

    The number of rows in both is compared with a scaled Poisson distribution, which has the expected number
    as its mean, and is as skewed as small numbers are. Its variance is as many times that number as in the
    largest of three cases, since rows of an item resemble each other: independent rows (hypergeometric), and
    the spread between groups of items, of the hypothesis and of the hypothesis moved to other items. If no
    row is in both, p is 1, since the spread of the hypothesis is not known.

    Args:
        counts: Counts per group.
        elsewhere: The same of hypotheses moved to other items.
    """
    special = require("scipy.special", extra="server", why="to compute p-values")
    both, on, true, rows = total(counts)
    with np.errstate(all="ignore"):
        expected = on * true / rows
        scale = (1 - on / rows) * (1 - true / rows) * rows / (rows - 1)
        scale = np.fmax(scale, np.fmax(_dispersion(counts), _dispersion(elsewhere)))
        k, mean = both / scale, expected / scale
        above = special.gammainc(np.maximum(k, 1e-300), mean)
        p = np.where(both > 0, 2 * np.minimum(above, special.gammaincc(k + 1, mean)), 1.0)
    return np.where(scale > 0, np.minimum(p, 1.0), NAN)


def _dispersion(counts: Counts) -> np.ndarray:
    """Return the variance of the overlap by its spread between groups, as a multiple of its size."""
    overlap, active, holds, whole = total(counts)
    filled = np.flatnonzero(counts[3].any(axis=(1, 2)))
    squares = np.zeros(overlap.shape)
    with np.errstate(all="ignore"):
        expected = active * holds / whole
        for number in filled:
            both, on, true, rows = (plane[number].astype(np.float64) for plane in counts)
            off = both - on * (holds / whole) - true * (active / whole)
            squares += (off + rows * (2 * expected - overlap) / whole) ** 2
        return np.asarray(
            squares * len(filled) / np.maximum(len(filled) - 1, 1) / np.maximum(overlap, expected)
        )


def _with_notes(
    name: str,
    statistics: Statistics,
    value: np.ndarray,
    counts: Counts,
    elsewhere: Counts,
    base: np.ndarray,
    threshold: np.ndarray,
    values: np.ndarray,
    strength: Strength,
    *,
    capped: bool,
) -> Iterable[ScoreResult]:
    """Return results with jackknife intervals, p-values and notes.

    The null hypothesis is that activity and hypothesis are independent, which fixes the expected overlap.
    """
    whole = total(counts)
    filled = np.flatnonzero(counts[3].any(axis=(1, 2)))
    if len(filled):
        found = np.empty((len(filled), *value.shape))
        for place, number in enumerate(filled):
            found[place] = jaccard([plane - one[number] for plane, one in zip(whole, counts, strict=True)])
        bounds = jackknife(value, found) if capped else _by_angle(value, found)
        p = _by_chance(counts, elsewhere) if len(filled) >= LEAST_GROUPS else value * NAN
        bounds = Jackknife(bounds.low, bounds.high, p)
    else:
        bounds = Jackknife(*[value * NAN] * 3)
    notes = _iou_notes(threshold, whole, capped=capped)
    rows = np.isfinite(values).sum(axis=0)
    return spread(
        name,
        statistics,
        value,
        bounds,
        base,
        binary=True,
        notes=notes,
        rows=rows,
        strength=strength,
        ranked=True,
    )


def _iou_notes(threshold: np.ndarray, counts: Counts, *, capped: bool) -> np.ndarray:
    """Return notes: the threshold of each pair and, if the quantile decides, the largest value possible."""
    on, true = np.broadcast_arrays(counts[1], counts[2])
    threshold = np.broadcast_to(threshold, on.shape)
    texts = [f"threshold {one:.4g}" for one in threshold.ravel().tolist()]
    if capped:
        with np.errstate(all="ignore"):
            most = np.minimum(on, true) / np.maximum(on, true) * np.where(on * true > 0, 1, NAN)
        limits = most.ravel().tolist()
        texts = [
            text if limit != limit else f"{text}, at most {limit:.3g} possible"
            for text, limit in zip(texts, limits, strict=True)
        ]
    return np.array([*texts, ""], dtype=object)[:-1].reshape(on.shape)


add_score(iou(name="iou"))
