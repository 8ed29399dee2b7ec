"""Overlap of the rows where a unit is active with those where a hypothesis holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from .affinity import BLOCK, INTERVAL, MOVED, best, drawn, rolls, spread
from .base import NAN, Score, ScoreResult, add_score, info_of, score
from .statistics.jackknife import Jackknife, jackknife, leave_one_out
from .statistics.split import GROUPS
from .statistics.statistics import Statistics

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
    value = np.where(np.isfinite(threshold)[:, None], jaccard(counts.sum(axis=1)), NAN)
    base = _control(statistics, lambda moved: _counts(on, finite, moved).sum(axis=1))
    return _with_notes(name, statistics, value, counts, base, threshold[:, None], values, capped=True)


@score(
    "iou_max",
    "pairs",
    "sample",
    per="unit",
    label="Intersection over union, best threshold",
    formula=f"{_JACCARD}; the threshold is chosen on one part of the items and judged on the other",
    source="after Bau et al. 2017, whose threshold is fixed",
    **_INFO,
)
def iou_max(statistics: Statistics) -> Iterable[ScoreResult]:
    """Overlap of the rows where a unit is above its best threshold with those where a hypothesis holds."""
    places, x, values = drawn(statistics)
    held = places.held
    ranked, judged, group = _ranked(x[~held]), x[held], places.group[held]
    threshold = best_thresholds(ranked, values[~held])
    counts = _counts_at(judged, values[held], threshold, group)
    value = np.where(np.isfinite(threshold), jaccard(counts.sum(axis=1)), NAN)

    def control(moved: np.ndarray) -> np.ndarray:
        chosen = best_thresholds(ranked, moved[~held])
        return np.asarray(_counts_at(judged, moved[held], chosen).sum(axis=1))

    base = _control(statistics, control)
    return _with_notes("iou_max", statistics, value, counts, base, threshold, values[held], capped=False)


def _control(statistics: Statistics, count: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the best index of any unit, per hypothesis, with hypotheses moved to other items."""
    values = [best(jaccard(count(moved))) for moved in rolls(statistics)]
    return best(np.stack(values)) if values else np.full(len(statistics.targets), NAN)


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
) -> np.ndarray:
    """Count rows, (4, groups, units, hypotheses): active and in the hypothesis, active, in it, and all.

    Only annotated rows count where the unit is finite.
    """
    group = np.zeros(len(on), dtype=np.int64) if group is None else group
    out = np.zeros((4, GROUPS, on.shape[1], values.shape[1]))
    given, yes = np.isfinite(values).astype(np.float32), (values == 1).astype(np.float32)
    whole = bool(finite.all())
    for number in np.unique(group):
        for start in range(0, len(on), BLOCK):  # float32 counts exactly up to 2^24
            rows = np.flatnonzero(group[start : start + BLOCK] == number) + start
            lit = on[rows].astype(np.float32)
            out[0, number] += lit.T @ yes[rows]
            out[1, number] += lit.T @ given[rows]
            for plane, column in ((2, yes), (3, given)):
                out[plane, number] += (
                    column[rows].sum(axis=0) if whole else finite[rows].T.astype(np.float32) @ column[rows]
                )
    return out


def _counts_at(
    x: np.ndarray, values: np.ndarray, threshold: np.ndarray, group: np.ndarray | None = None
) -> np.ndarray:
    """Count as _counts does, with a threshold (units, hypotheses) for each pair; a row at it is active."""
    finite, columns = np.isfinite(x), range(values.shape[1])
    parts = [_counts(x >= threshold[:, h], finite, values[:, h : h + 1], group) for h in columns]
    return np.concatenate(parts, axis=3) if parts else np.zeros((4, GROUPS, x.shape[1], 0))


def jaccard(counts: np.ndarray) -> np.ndarray:
    """Return intersection over union of counts (4, …); NaN if nothing is active and nothing is true."""
    both, on, true, _ = counts
    with np.errstate(all="ignore"):
        return np.asarray(both / (on + true - both))


def _independent(counts: np.ndarray) -> np.ndarray:
    """Return the counts (4, …) that are expected if activity and hypothesis are independent."""
    _, on, true, rows = counts
    with np.errstate(all="ignore"):
        return np.stack([on * true / rows, on, true, rows])


def _ranked(x: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return for each unit its finite rows by falling value, the ends of runs of equal values, and these."""
    out = []
    for unit in x.T:
        order = np.argsort(-unit, kind="stable").astype(np.int32)[: int(np.isfinite(unit).sum())]
        falling = unit[order]
        last = np.flatnonzero(np.r_[falling[1:] != falling[:-1], True][: len(falling)])
        out.append((order, last, falling[last]))
    return out


def best_thresholds(
    ranked: list[tuple[np.ndarray, np.ndarray, np.ndarray]], values: np.ndarray
) -> np.ndarray:
    """Return for each pair (units, hypotheses) the threshold t for which x >= t has the best Jaccard index.

    ``ranked`` is what _ranked returns. NaN if no row is true or the unit is constant.
    """
    out = np.full((len(ranked), values.shape[1]), NAN)
    given, yes = np.isfinite(values), values == 1
    for h in np.flatnonzero(yes.any(axis=0)):
        every = bool(given[:, h].all())
        for u, (order, last, level) in enumerate(ranked):
            if len(last) > 1 and (total := int(yes[order, h].sum())):
                right = np.cumsum(yes[order, h], dtype=np.int32)[last]
                on = last + 1 if every else np.cumsum(given[order, h], dtype=np.int32)[last]
                out[u, h] = level[np.argmax(right / (on + total - right))]
    return out


def _with_notes(
    name: str,
    statistics: Statistics,
    value: np.ndarray,
    counts: np.ndarray,
    base: np.ndarray,
    threshold: np.ndarray,
    values: np.ndarray,
    *,
    capped: bool,
) -> Iterable[ScoreResult]:
    """Return results with jackknife intervals, p-values and notes.

    The null hypothesis is that activity and hypothesis are independent, which fixes the expected overlap.
    """
    parts = leave_one_out(counts, 1)
    if len(parts):
        gaps = np.array([jaccard(one) - jaccard(_independent(one)) for one in parts])
        gap = value - jaccard(_independent(counts.sum(axis=1)))
        bounds = jackknife(value, np.array([jaccard(one) for one in parts]))
        bounds = Jackknife(np.clip(bounds.low, 0, 1), np.clip(bounds.high, 0, 1), jackknife(gap, gaps).p)
    else:
        bounds = Jackknife(*[value * NAN] * 3)
    notes = _iou_notes(threshold, counts.sum(axis=1), capped=capped)
    rows = np.isfinite(values).sum(axis=0)
    return spread(name, statistics, value, bounds, base, binary=True, notes=notes, rows=rows)


def _iou_notes(threshold: np.ndarray, counts: np.ndarray, *, capped: bool) -> np.ndarray:
    """Return notes: the threshold of each pair and, if the quantile decides, the largest value possible."""
    _, on, true, _ = counts
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
