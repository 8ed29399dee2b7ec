"""How far the rows where a unit is on and those where a hypothesis is true are the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from .affinity import BLOCK, best, drawn, rolls, spread
from .base import NAN, Score, ScoreResult, add_score, score
from .statistics.jackknife import jackknife, leave_one_out
from .statistics.split import GROUPS
from .statistics.statistics import Statistics

QUANTILE = 0.005  #: NetDissect's: a unit is "on" for its top 0.5 % (Bau et al. 2017)


def iou(quantile: float = QUANTILE, name: str | None = None) -> Score:
    """Jaccard index of a unit's top ``quantile`` of rows and the rows where the hypothesis is 1.

    The rule of NetDissect, and DeepBase's LocalIOU. It cannot reach 1 unless the hypothesis is as frequent
    as the quantile: the note says the most that was possible, beside the threshold. Exact while all
    rows fit the sample.

    >>> iou(0.01).name
    'iou_0.01'
    """
    called = name or f"iou_{quantile:g}"

    def compute(statistics: Statistics) -> Iterable[ScoreResult]:
        places, x, values = drawn(statistics)
        threshold, on = _top(x, quantile)
        finite = np.isfinite(x)
        counts = _counts(on, finite, values, places.group)
        value = np.where(np.isfinite(threshold)[:, None], jaccard(counts.sum(axis=1)), NAN)
        base = _control(statistics, lambda moved: _counts(on, finite, moved).sum(axis=1))
        return _told(called, statistics, value, counts, base, threshold[:, None], values, capped=True)

    return Score(called, compute, frozenset({"pairs", "sample"}), "unit")


@score("iou_max", "pairs", "sample", per="unit")
def iou_max(statistics: Statistics) -> Iterable[ScoreResult]:
    """Jaccard index at the best threshold of a pair, chosen on one part of the items, judged on the other."""
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
    return _told("iou_max", statistics, value, counts, base, threshold, values[held], capped=False)


def _control(statistics: Statistics, count: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The best index of any unit, per hypothesis, with the hypotheses of other items."""
    found = [best(jaccard(count(moved))) for moved in rolls(statistics)]
    return best(np.stack(found)) if found else np.full(len(statistics.targets), NAN)


def _top(x: np.ndarray, quantile: float) -> tuple[np.ndarray, np.ndarray]:
    """Each unit's threshold, NaN where it is constant, and which rows lie above it.

    A unit that saturates has its top tied: then the tied rows count, since none lies above. Rows where the
    unit is NaN do not count."""
    known = np.isfinite(x)
    whole, some = known.all(axis=0), known.any(axis=0)
    levels = np.full(x.shape[1], NAN, dtype=x.dtype)
    if len(x):
        levels[whole] = np.quantile(x[:, whole], 1 - quantile, axis=0).astype(x.dtype)
    for unit in np.flatnonzero(some & ~whole):
        levels[unit] = np.quantile(x[known[:, unit], unit], 1 - quantile)
    low = np.where(known, x, np.inf).min(axis=0, initial=np.inf)
    top = np.where(known, x, -np.inf).max(axis=0, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        above = np.where(top > levels, x > levels, x >= top) & known
        threshold = np.where(top > low, levels, NAN)
    return threshold, above


def _counts(
    on: np.ndarray, finite: np.ndarray, values: np.ndarray, group: np.ndarray | None = None
) -> np.ndarray:
    """Rows on and in the hypothesis, on, and in it: (3, groups, units, hypotheses), only of annotated rows
    where the unit is finite."""
    group = np.zeros(len(on), dtype=np.int64) if group is None else group
    out = np.zeros((3, GROUPS, on.shape[1], values.shape[1]))
    given, yes = np.isfinite(values).astype(np.float32), (values == 1).astype(np.float32)
    whole = bool(finite.all())
    for number in np.unique(group):
        for start in range(0, len(on), BLOCK):  # float32 counts exactly up to 2^24
            rows = np.flatnonzero(group[start : start + BLOCK] == number) + start
            lit = on[rows].astype(np.float32)
            out[0, number] += lit.T @ yes[rows]
            out[1, number] += lit.T @ given[rows]
            out[2, number] += (
                yes[rows].sum(axis=0) if whole else finite[rows].T.astype(np.float32) @ yes[rows]
            )
    return out


def _counts_at(
    x: np.ndarray, values: np.ndarray, threshold: np.ndarray, group: np.ndarray | None = None
) -> np.ndarray:
    """As _counts, with a threshold (units, hypotheses) for each pair; a row at it is on."""
    finite, columns = np.isfinite(x), range(values.shape[1])
    parts = [_counts(x >= threshold[:, h], finite, values[:, h : h + 1], group) for h in columns]
    return np.concatenate(parts, axis=3) if parts else np.zeros((3, GROUPS, x.shape[1], 0))


def jaccard(counts: np.ndarray) -> np.ndarray:
    """Intersection over union of counts (3, …); NaN where nothing is on and nothing is true."""
    both, on, true = counts
    with np.errstate(all="ignore"):
        return np.asarray(both / (on + true - both))


def _ranked(x: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each unit: its finite rows from the highest value down, where each run of equal values ends in that
    order, and the values there."""
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
    """For each pair the threshold t for which x >= t has the highest Jaccard index, (units, hypotheses).

    ``ranked`` as _ranked gives it. NaN where no row is true or the unit is constant."""
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


def _told(
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
    """Readings of an index with the jackknife's interval and its notes."""
    without = np.array([jaccard(one) for one in leave_one_out(counts, 1)])
    low, high = jackknife(value, without) if len(without) else (value * NAN, value * NAN)
    notes = _iou_notes(threshold, counts.sum(axis=1), capped=capped)
    rows = np.isfinite(values).sum(axis=0)
    low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
    return spread(name, statistics, value, low, high, base, binary=True, notes=notes, rows=rows)


def _iou_notes(threshold: np.ndarray, counts: np.ndarray, *, capped: bool) -> np.ndarray:
    """For each pair the threshold, and the most that could be reached where the quantile decides."""
    _, on, true = counts
    threshold = np.broadcast_to(threshold, on.shape)
    notes = np.empty(on.shape, dtype=object)
    for place in np.ndindex(on.shape):
        notes[place] = f"threshold {threshold[place]:.4g}"
        if capped and on[place] and true[place]:
            most = min(on[place], true[place]) / max(on[place], true[place])
            notes[place] += f", at most {most:.3g} possible"
    return notes


add_score(iou(name="iou"))
