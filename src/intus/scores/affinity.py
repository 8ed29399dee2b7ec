"""Affinity of single units with hypotheses: does this unit respond to that idea?

Baseline of every pair is the best any unit reaches, by absolute value, when hypotheses are moved to other
items in a seeded order: position and texture within an item stay, only the link is broken. (For
``mean_difference`` it is the best of that unit, since each unit has its own scale.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from . import pairs
from .base import NAN, Reading, Score, add_score, score
from .jackknife import jackknife, leave_one_out
from .split import GROUPS, Places
from .statistics import Statistics

ROLLS = 3  #: how often hypotheses are moved to other items for the control
QUANTILE = 0.005  #: NetDissect's: a unit is "on" for its top 0.5 % (Bau et al. 2017)
_BLOCK = 1 << 14


# -- from sums over all rows -------------------------------------------------------------------------


@score("correlation", "pairs", "sample", per="unit")
def correlation(statistics: Statistics) -> Iterable[Reading]:
    """Pearson's r of each unit and hypothesis; the interval is a jackknife over items, on atanh r."""
    sums = statistics.pairs.sums
    value = pairs.correlation(sums.sum(axis=1))
    with np.errstate(all="ignore"):
        without = np.array([np.arctanh(pairs.correlation(one)) for one in leave_one_out(sums, 1)])
        low, high = (np.tanh(bound) for bound in jackknife(np.arctanh(value), without))
    base = _best(_control(statistics, pairs.correlation))
    return _spread("correlation", statistics, value, low, high, base)


@score("mean_difference", "pairs", "sample", per="unit")
def mean_difference(statistics: Statistics) -> Iterable[Reading]:
    """Mean of the unit where the hypothesis is 1 less where it is 0, in the unit's own unit."""
    sums = statistics.pairs.sums
    value = np.where(statistics.pairs.binary, pairs.mean_difference(sums.sum(axis=1)), NAN)
    without = np.array([pairs.mean_difference(one) for one in leave_one_out(sums, 1)])
    low, high = jackknife(value, without)
    base = _control(statistics, pairs.mean_difference)
    return _spread("mean_difference", statistics, value, low, high, base, binary=True)


def _control(statistics: Statistics, measure: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The best |measure| (units, hypotheses) when hypotheses belong to other items."""

    def sums_of_rolls() -> list[np.ndarray]:
        out = []
        for x, values, _ in rolls(statistics):
            moved = pairs.Pairs(x.shape[1], values.shape[1])
            moved.shift = np.nan_to_num(statistics.pairs.shift)
            for start in range(0, len(x), _BLOCK):
                part = slice(start, start + _BLOCK)
                moved.update(x[part].astype(np.float64), values[part], np.zeros(len(x[part]), int))
            out.append(moved.sums.sum(axis=1))
        return out

    found = [measure(sums) for sums in statistics.once("rolled sums", sums_of_rolls)]
    return _best(np.stack(found)) if found else np.full((statistics.features, len(statistics.targets)), NAN)


# -- from the sample ---------------------------------------------------------------------------------


def iou(quantile: float = QUANTILE, name: str | None = None) -> Score:
    """Jaccard index of a unit's top ``quantile`` of rows and the rows where the hypothesis is 1.

    The rule of NetDissect, and DeepBase's LocalIOU. It cannot reach 1 unless the hypothesis is as frequent
    as the quantile: the note says the most that was possible, beside the threshold. Exact while all
    rows fit the sample.

    >>> iou(0.01).name
    'iou_0.01'
    """
    called = name or f"iou_{quantile:g}"

    def compute(statistics: Statistics) -> Iterable[Reading]:
        places, x, values, _ = _sample(statistics)
        threshold, above = _top(x, quantile)
        counts = _counts(above, values, places.group)
        low, high = _interval(counts)

        def control(x: np.ndarray, values: np.ndarray, held: np.ndarray) -> np.ndarray:
            return jaccard(_counts(_top(x, quantile)[1], values).sum(axis=1))

        base = _control_iou(statistics, control)
        value = np.where(np.isfinite(threshold)[:, None], jaccard(counts.sum(axis=1)), NAN)
        notes = _iou_notes(threshold, counts.sum(axis=1), capped=True)
        rows = np.isfinite(values).sum(axis=0)
        return _spread(called, statistics, value, low, high, base, binary=True, notes=notes, rows=rows)

    return Score(called, compute, frozenset({"pairs", "sample"}), "unit")


@score("iou_max", "pairs", "sample", per="unit")
def iou_max(statistics: Statistics) -> Iterable[Reading]:
    """Jaccard index at the best threshold of each pair, chosen on one part of the items, judged on the other."""
    places, x, values, _ = _sample(statistics)
    held = places.held
    threshold = best_thresholds(x[~held], values[~held])
    counts = _counts_at(x[held], values[held], threshold, places.group[held])
    low, high = _interval(counts)

    def control(x: np.ndarray, values: np.ndarray, held: np.ndarray) -> np.ndarray:
        chosen = best_thresholds(x[~held], values[~held])
        return jaccard(_counts_at(x[held], values[held], chosen).sum(axis=1))

    value = np.where(np.isfinite(threshold), jaccard(counts.sum(axis=1)), NAN)
    notes = _iou_notes(threshold, counts.sum(axis=1), capped=False)
    rows = np.isfinite(values[held]).sum(axis=0)
    base = _control_iou(statistics, control)
    return _spread("iou_max", statistics, value, low, high, base, binary=True, notes=notes, rows=rows)


def of_pairs(function: Callable[[np.ndarray, np.ndarray], float], name: str) -> Score:
    """A score from a function of one unit's behaviours (rows,) and one hypothesis (rows,), over the sample."""

    def table(x: np.ndarray, values: np.ndarray) -> np.ndarray:
        out = np.full((x.shape[1], values.shape[1]), NAN)
        for h in range(values.shape[1]):
            rows = np.isfinite(values[:, h])
            for u in range(x.shape[1] if rows.any() else 0):
                out[u, h] = float(function(x[rows, u], values[rows, h]))
        return out

    def compute(statistics: Statistics) -> Iterable[Reading]:
        places, x, values, _ = _sample(statistics)
        groups = np.unique(places.group)
        without = [table(x[places.group != g], values[places.group != g]) for g in groups]
        value = table(x, values)
        low, high = jackknife(value, np.array(without)) if without else (value, value)
        found = [_best(table(x, moved)) for x, moved, _ in rolls(statistics)]
        base = _best(np.stack(found)) if found else np.full(values.shape[1], NAN)
        rows = np.isfinite(values).sum(axis=0)
        return _spread(name, statistics, value, low, high, base, rows=rows)

    return Score(name, compute, frozenset({"pairs", "sample"}), "unit")


def rolls(statistics: Statistics) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The sample with hypotheses moved to other items: x, values, held-out mask, ROLLS times.

    Items are put in a seeded order and each gets the hypotheses of the one some places on; rows keep their
    order within the item. Nothing where there are fewer than two items.
    """
    places, x, values, order = _sample(statistics)
    items, which = np.unique(places.item, return_inverse=True)
    if len(items) < 2:
        return
    rank = np.random.default_rng(statistics.seed).permutation(len(items))[which]
    here = np.lexsort((places.position, rank))
    for roll in range(1, min(ROLLS, len(items) - 1) + 1):
        moved = np.lexsort((places.position, (rank - roll) % len(items)))
        yield x[here], values[moved], places.held[here]


def _sample(statistics: Statistics) -> tuple[Places, np.ndarray, np.ndarray, np.ndarray]:
    places, x, codes, values = statistics.drawn()
    return places, x, values.reshape(len(x), len(statistics.targets)), codes


def _top(x: np.ndarray, quantile: float) -> tuple[np.ndarray, np.ndarray]:
    """Each unit's threshold, NaN where it is constant, and which rows lie above it.

    A unit that saturates has its top tied: then the tied rows count, since none lies above."""
    if not len(x):
        return np.full(x.shape[1], NAN), np.zeros(x.shape, dtype=bool)
    threshold = np.quantile(x, 1 - quantile, axis=0).astype(x.dtype)
    top = x.max(axis=0)
    above = np.where(top > threshold, x > threshold, x >= top)
    return np.where(top > x.min(axis=0), threshold, NAN), above


def _counts(on: np.ndarray, values: np.ndarray, group: np.ndarray | None = None) -> np.ndarray:
    """Rows on and in the hypothesis, on, and in it: (3, groups, units, hypotheses), annotated rows only."""
    group = np.zeros(len(on), dtype=np.int64) if group is None else group
    out = np.zeros((3, GROUPS, on.shape[1], values.shape[1]))
    given, yes = np.isfinite(values).astype(np.float32), (values == 1).astype(np.float32)
    for number in np.unique(group):
        for start in range(0, len(on), _BLOCK):  # float32 counts exactly up to 2^24
            rows = np.flatnonzero(group[start : start + _BLOCK] == number) + start
            lit = on[rows].astype(np.float32)
            out[0, number] += lit.T @ yes[rows]
            out[1, number] += lit.T @ given[rows]
            out[2, number] += yes[rows].sum(axis=0)
    return out


def _counts_at(
    x: np.ndarray, values: np.ndarray, threshold: np.ndarray, group: np.ndarray | None = None
) -> np.ndarray:
    """As _counts, with a threshold (units, hypotheses) for each pair; a row at it is on."""
    parts = [_counts(x >= threshold[:, h], values[:, h : h + 1], group) for h in range(values.shape[1])]
    return np.concatenate(parts, axis=3) if parts else np.zeros((3, GROUPS, x.shape[1], 0))


def jaccard(counts: np.ndarray) -> np.ndarray:
    """Intersection over union of counts (3, …); NaN where nothing is on and nothing is true."""
    both, on, true = counts
    with np.errstate(all="ignore"):
        return np.asarray(both / (on + true - both))


def best_thresholds(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each pair the threshold t for which x >= t has the highest Jaccard index; NaN where no row is
    true or the unit is constant. Shape (units, hypotheses)."""
    out = np.full((x.shape[1], values.shape[1]), NAN)
    for h in range(values.shape[1]):
        rows = np.isfinite(values[:, h])
        yes = values[rows, h] == 1
        if not yes.any():
            continue
        for u in range(x.shape[1]):
            order = np.argsort(-x[rows, u], kind="stable")
            ranked = x[rows, u][order]
            last = np.flatnonzero(np.r_[ranked[1:] != ranked[:-1], True])  # of each run of equal values
            if len(last) > 1:
                right = np.cumsum(yes[order])[last]
                out[u, h] = ranked[last[np.argmax(right / (last + 1 + yes.sum() - right))]]
    return out


def _control_iou(
    statistics: Statistics, measure: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    found = [_best(measure(x, values, held)) for x, values, held in rolls(statistics)]
    return _best(np.stack(found)) if found else np.full(len(statistics.targets), NAN)


def _interval(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    without = np.array([jaccard(one) for one in leave_one_out(counts, 1)])
    value = jaccard(counts.sum(axis=1))
    low, high = jackknife(value, without) if len(without) else (value * NAN, value * NAN)
    return np.clip(low, 0, 1), np.clip(high, 0, 1)


def _iou_notes(threshold: np.ndarray, counts: np.ndarray, *, capped: bool) -> np.ndarray:
    """For each pair the threshold, and the most that could be reached where the quantile decides."""
    _, on, true = counts
    threshold = np.broadcast_to(threshold if threshold.ndim == 2 else threshold[:, None], on.shape)
    notes = np.empty(on.shape, dtype=object)
    for place in np.ndindex(on.shape):
        if not np.isfinite(threshold[place]):
            notes[place] = "the unit is constant or the hypothesis never true"
            continue
        notes[place] = f"threshold {threshold[place]:.4g}"
        if capped and on[place] and true[place]:
            most = min(on[place], true[place]) / max(on[place], true[place])
            notes[place] += f", at most {most:.3g} possible"
    return notes


# -- readings ----------------------------------------------------------------------------------------


def _best(table: np.ndarray) -> np.ndarray:
    """The greatest absolute value along axis 0, NaN only where all are."""
    filled = np.where(np.isfinite(table), np.abs(table), -1).max(axis=0, initial=-1)
    return np.where(filled >= 0, filled, NAN)


def _spread(
    name: str,
    statistics: Statistics,
    value: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    base: np.ndarray,
    *,
    binary: bool = False,
    notes: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> Iterator[Reading]:
    """One reading per hypothesis and unit of tables (units, hypotheses); ``base`` may be (hypotheses,),
    ``rows`` is."""
    base = np.broadcast_to(base, value.shape)
    sampled = rows is not None and not statistics.sample.complete
    for h, target in enumerate(statistics.targets):
        wrong = _unfit(statistics, target, h, binary)
        for u in range(statistics.features):
            count = rows[h] if rows is not None else statistics.pairs.sums[pairs.N, :, u, h].sum()
            if wrong:
                yield Reading(name, NAN, target, u, n=int(count), note=wrong)
                continue
            note = notes[u, h] if notes is not None else ""
            if not note and not np.isfinite(value[u, h]):
                note = "the unit or the hypothesis is constant" if count else "no annotated rows"
            if sampled:
                note += f"{', ' if note else ''}from a sample of the rows"
            bounds = (float(low[u, h]), float(high[u, h])) if np.isfinite(value[u, h]) else (NAN, NAN)
            yield Reading(name, float(value[u, h]), target, u, *bounds, float(base[u, h]), int(count), note)


def _unfit(statistics: Statistics, target: str, column: int, binary: bool) -> str:
    """Why no affinity can be had with these labels, "" if it can."""
    if target in statistics.not_numbers:
        return "the labels are not numbers"
    if binary and not statistics.pairs.binary[column]:
        return "needs labels 0 and 1"
    return ""


add_score(iou(name="iou"))
