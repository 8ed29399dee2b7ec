"""Scores of single units and hypotheses: how strongly a unit responds to an idea.

The baseline of each pair is the largest absolute value of any unit when hypotheses are moved to other items.
Position and texture within an item are kept; only the link to the unit is broken. ``mean_difference`` is
compared in multiples of the unit's standard deviation, since each unit has its own scale. Scores from sums
move hypotheses among the items of each block (``Scorer.update``), scores from the sample among its items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from ...core.errors import require
from ...core.notes import joined
from ..base import NAN, Score, ScoreColumns, ScoreResult, info_of, score, summary
from ..statistics import pairs
from ..statistics.concentration import Concentration, by_ranks, concentration, least_groups
from ..statistics.jackknife import Jackknife, half_width, jackknife
from ..statistics.moved import sources, taken
from ..statistics.permutation import Strength, absolute_correlation, family_wise
from ..statistics.split import Places
from ..statistics.statistics import Statistics

BLOCK = 1 << 14
_SAMPLED = "from a sample of the rows"
_LEAST = "the least p of {} permutations"
_NO_SPREAD = "no interval: fewer than 4 groups of items, or no spread between them"
_THIN = "{}: the {} varies in too few items, in effect in {} of {} groups ({:.2g} are needed)"
#: Descriptions of the baseline and of the interval of these scores.
MOVED = "the largest absolute value of any unit when hypotheses are moved to other items"
INTERVAL = "95 %, jackknife over groups of items"


# -- from sums over all rows -------------------------------------------------------------------------


def _of_correlation(statistics: Statistics) -> tuple[np.ndarray, np.ndarray]:
    """Return |r| and its error."""
    sums = statistics.pairs
    return _batch_means(sums, lambda planes: pairs.partial_correlation(planes, sums.given))


def _of_difference(statistics: Statistics) -> tuple[np.ndarray, np.ndarray]:
    """Return the difference of means in standard deviations of the unit, and its error."""
    sums = statistics.pairs
    deviation = pairs.deviations(sums.total())[0]
    return _batch_means(
        sums, lambda planes: np.where(sums.binary, pairs.mean_difference(planes) / deviation, NAN)
    )


def _batch_means(
    sums: pairs.Pairs, measure: Callable[[pairs.Planes], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return |measure| and the half-width of its interval from the spread of the measures of groups."""
    value = measure(sums.total())
    half = half_width(_stacked([measure(one) for one in sums.groups()], value))
    return np.abs(value), np.where(concentration(sums).thin, NAN, half)


@score(
    "correlation",
    "pairs",
    per="unit",
    label="Correlation",
    center=0.0,
    formula="Pearson's r",
    low=-1.0,
    high=1.0,
    baseline=MOVED,
    interval=f"{INTERVAL}, of atanh r",
    requires="hypotheses that are numbers",
    precision=_of_correlation,
)
def correlation(statistics: Statistics) -> Iterable[ScoreResult]:
    """Correlation of a unit's behaviour with a hypothesis; given confounders, of what these leave of both."""
    sums = statistics.pairs
    value = pairs.partial_correlation(sums.total(), sums.given)
    without = [_arctanh(pairs.partial_correlation(one, sums.given)) for one in sums.without()]
    found = jackknife(_arctanh(value), _stacked(without, value))
    found = found._replace(
        low=np.tanh(found.low), high=np.tanh(found.high), p=_at_least(found.p, value, sums)
    )
    notes = None
    if statistics.given:
        notes = np.broadcast_to(np.array(f"given {', '.join(statistics.given)}", dtype=object), value.shape)
    base = best(pairs.correlation(sums.null_total()))
    strength = None if statistics.given else absolute_correlation
    return spread("correlation", statistics, value, found, base, notes=notes, strength=strength)


@score(
    "mean_difference",
    "pairs",
    per="unit",
    label="Difference of means",
    center=0.0,
    formula="mean of the unit where the hypothesis is 1, minus its mean where the hypothesis is 0",
    baseline="the largest absolute value of any unit, in multiples of its standard deviation, when "
    "hypotheses are moved to other items",
    interval=INTERVAL,
    requires="hypotheses of 0 and 1",
    precision=_of_difference,
)
def mean_difference(statistics: Statistics) -> Iterable[ScoreResult]:
    """Mean of a unit where a hypothesis is 1 minus its mean where it is 0, in the scale of the unit."""
    sums = statistics.pairs
    total = sums.total()
    value = np.where(sums.binary, pairs.mean_difference(total), NAN)
    without = _stacked([pairs.mean_difference(one) for one in sums.without()], value)
    of_unit, of_hypothesis = pairs.deviations(total)
    with np.errstate(all="ignore"):
        base = best(pairs.correlation(sums.null_total())) * of_unit / of_hypothesis
    bounds = jackknife(value, without)
    bounds = bounds._replace(p=_at_least(bounds.p, pairs.correlation(total), sums))
    return spread(
        "mean_difference", statistics, value, bounds, base, binary=True, strength=absolute_correlation
    )


def _at_least(p: np.ndarray, r: np.ndarray, sums: pairs.Pairs) -> np.ndarray:
    """Return p-values that are not below those from the variance of r over permutations of rows, 1 / (n - 1).

    A unit and a hypothesis that are both rare may meet in no group by chance; r then hardly differs between
    groups, and their spread says nothing.
    """
    special = require("scipy.special", extra="server", why="to give p-values")
    with np.errstate(invalid="ignore"):
        z = np.abs(r) * np.sqrt(np.maximum(sums.counts() - 1, 0))
        return np.asarray(np.maximum(p, special.erfc(z / np.sqrt(2))))


def _arctanh(r: np.ndarray) -> np.ndarray:
    """Return atanh r; an r that is 1 but for rounding is the same for all, and has no spread."""
    return np.asarray(np.arctanh(np.clip(r, 1e-6 - 1, 1 - 1e-6)))


def _stacked(tables: list[np.ndarray], like: np.ndarray) -> np.ndarray:
    """Stack tables of one shape; there may be none."""
    return np.stack(tables) if tables else np.empty((0, *like.shape))


# -- from the sample --------------------------------------------------------------------------------


def of_pairs(function: Callable[[np.ndarray, np.ndarray], float], name: str, **fields: Any) -> Score:
    """Return the score of a function of one unit's behaviours (rows,) and one hypothesis (rows,)."""
    fields = {"about": summary(function), "baseline": MOVED, "interval": INTERVAL, **fields}

    compute = partial(_of_pairs, function, name)
    return Score(name, compute, frozenset({"pairs", "sample"}), "unit", info=info_of(name, "unit", **fields))


def _of_pairs(
    function: Callable[[np.ndarray, np.ndarray], float], name: str, statistics: Statistics
) -> Iterable[ScoreResult]:
    places, x, values = drawn(statistics)
    groups = np.unique(places.group)
    measure = partial(_table, function)
    without = [measure(x[places.group != g], values[places.group != g]) for g in groups]
    value = measure(x, values)
    untested = np.full(value.shape, NAN)  # what a function gives without a relation is not known
    bounds = jackknife(value, np.array(without)) if without else Jackknife(value, value, untested)
    base = best(measure(x, moved(statistics)))
    rows = np.isfinite(values).sum(axis=0)
    return spread(name, statistics, value, bounds._replace(p=untested), base, rows=rows)


def _table(
    function: Callable[[np.ndarray, np.ndarray], float], x: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Return a function of each pair, (units, hypotheses)."""
    out = np.full((x.shape[1], values.shape[1]), NAN)
    annotated, finite = np.isfinite(values), np.isfinite(x)
    for u, h in np.ndindex(out.shape):
        rows = annotated[:, h] & finite[:, u]
        if rows.any():
            out[u, h] = float(function(x[rows, u], values[rows, h]))
    return out


def moved(statistics: Statistics) -> np.ndarray:
    """Return the sample's hypotheses moved to other items, (rows, hypotheses).

    Each row gets the hypotheses of the row in the same position of another item, NaN if that item has no such
    row, and if there is no other item.
    """

    def compute() -> np.ndarray:
        places, _, values = drawn(statistics)
        return taken(values, sources(places))

    return statistics.once("moved", compute)


def drawn(statistics: Statistics) -> tuple[Places, np.ndarray, np.ndarray]:
    """Return the sample: places, behaviours (rows, units) and hypotheses (rows, hypotheses)."""
    places, x, _, values = statistics.drawn()
    return places, x, values.reshape(len(x), len(statistics.targets))


# -- results -----------------------------------------------------------------------------------------


def best(table: np.ndarray) -> np.ndarray:
    """Return the largest absolute value along axis 0, NaN only where all are NaN."""
    filled = np.where(np.isfinite(table), np.abs(table), -1).max(axis=0, initial=-1)
    return np.where(filled >= 0, filled, NAN)


def spread(
    name: str,
    statistics: Statistics,
    value: np.ndarray,
    bounds: Jackknife,
    base: np.ndarray,
    *,
    binary: bool = False,
    notes: np.ndarray | None = None,
    rows: np.ndarray | None = None,
    strength: Strength | None = None,
    ranked: bool = False,
) -> ScoreColumns:
    """Return a result for each hypothesis and unit, as columns.

    Args:
        name: The score's name.
        statistics: The statistics it was computed from.
        value: The values, shape (units, hypotheses).
        bounds: Their intervals and p-values.
        base: The baselines, of the same shape or (hypotheses,).
        binary: Whether the score needs hypotheses of 0 and 1.
        notes: The notes, shape (units, hypotheses); None for none.
        rows: The number of rows of the sample per hypothesis, shape (hypotheses,), for a score that was
            computed from the sample; None for one that was computed from all rows.
        strength: The statistic for p-values from permutations of the sample, if they are requested; None for
            a score without such p-values.
        ranked: Whether the score depends on the order of values alone.
    """
    units, count = value.shape
    targets = statistics.targets
    base = np.broadcast_to(base, value.shape)
    spread_over = _concentration(statistics, sampled=rows is not None, ranked=ranked)
    thin = np.broadcast_to(spread_over.thin, value.shape)
    permuted = bool(statistics.null) and strength is not None
    bounds = Jackknife(*[np.where(thin, NAN, part) for part in bounds])
    if statistics.null and strength is not None:
        bounds = bounds._replace(p=_permuted(statistics, strength))
    wrong = [_unfit(statistics, target, h, binary) for h, target in enumerate(targets)]
    counted = statistics.pairs.counts()
    n = counted if rows is None else np.minimum(rows, counted)
    sampled = rows is not None and not statistics.sample.complete
    left_out = counted.max(axis=0, initial=0) - counted  # annotated rows where only some units are finite
    without_interval = np.isfinite(value) & ~np.isfinite(bounds.low) & ~thin
    note = _notes(value, n, notes, wrong, sampled, left_out, without_interval)
    _add_thin(note, spread_over, np.isfinite(value), "no interval" if permuted else "no interval, no p")
    if permuted:
        _add(note, np.isclose(bounds.p, 1 / (1 + statistics.null)), _LEAST.format(statistics.null))
    unfit = np.array([bool(reason) for reason in wrong], dtype=bool)
    exists = np.isfinite(value) & ~unfit

    def column(table: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(exists, table, NAN).T.ravel())

    low, high, p = (column(part) for part in bounds)
    return ScoreColumns(
        score=np.repeat(np.array([name], dtype=object), value.size),
        value=np.where(unfit, NAN, value).T.ravel(),
        target=np.repeat(np.array([*targets, ""], dtype=object)[:-1], units),
        unit=np.tile(np.arange(units), count),
        low=low,
        high=high,
        baseline=np.where(unfit, NAN, base).T.ravel(),
        n=n.T.ravel().astype(np.int64),
        note=note.T.ravel(),
        p=p,
    )


def _concentration(statistics: Statistics, *, sampled: bool, ranked: bool) -> Concentration:
    """Return over how many groups of items units and hypotheses are spread, once for scores of one kind."""

    def compute() -> Concentration:
        sums = statistics.pairs
        if sampled and not statistics.sample.complete:
            places, x, values = drawn(statistics)
            sums = pairs.Pairs(x.shape[1], values.shape[1])
            sums.update(x, values, places.group)
        found = concentration(sums)
        if not ranked or not found.thin.any():
            return found
        places, x, values = drawn(statistics)
        return by_ranks(found, x, values, places.group)

    return statistics.once(("concentration", sampled, ranked), compute)


def _add_thin(notes: np.ndarray, found: Concentration, exists: np.ndarray, lacking: str) -> None:
    """Note over how few groups a side is spread, the hypothesis if both are."""
    rest = exists.copy()
    for side, groups in (("hypothesis", found.hypotheses), ("unit", found.units)):
        few = np.broadcast_to(groups < found.least, notes.shape) & rest
        rest &= ~few
        count = np.broadcast_to(np.floor(np.nan_to_num(groups) + 1e-6), notes.shape)
        filled = np.broadcast_to(found.filled, notes.shape)
        for number, of in sorted({*zip(count[few].tolist(), filled[few].tolist(), strict=True)}):
            text = _THIN.format(lacking, side, int(number), of, least_groups(of))
            _add(notes, few & (count == number) & (filled == of), text)


def _permuted(statistics: Statistics, strength: Strength) -> np.ndarray:
    """Return family-wise p-values, once for scores of the same statistic."""
    places, x, values = drawn(statistics)
    arguments = x, values, places, statistics.null, statistics.seed
    return statistics.once(("permuted", strength), lambda: family_wise(strength, *arguments))


def _notes(
    value: np.ndarray,
    n: np.ndarray,
    notes: np.ndarray | None,
    wrong: list[str],
    sampled: bool,
    left_out: np.ndarray,
    without_interval: np.ndarray,
) -> np.ndarray:
    """Return the note of each pair (units, hypotheses); pairs without a note of their own share strings."""
    shared = np.array(["", "no annotated rows", "the unit or the hypothesis is constant"], dtype=object)
    missing = ~np.isfinite(value)
    out = np.asarray(shared[np.where(missing, 1 + (n > 0), 0)])
    if notes is not None:
        out = np.where(missing, out, notes)
    for u, h in zip(*np.nonzero(left_out), strict=True):
        missed = f"{left_out[u, h]:.0f} rows left out: NaN or infinite"
        out[u, h] = joined(out[u, h], missed)
    _add(out, without_interval, _NO_SPREAD)
    if sampled:
        _add(out, np.ones(out.shape, dtype=bool), _SAMPLED)
    for h, reason in enumerate(wrong):
        if reason:
            out[:, h] = reason
    return out


def _add(notes: np.ndarray, where: np.ndarray, more: str) -> None:
    """Add a note to some pairs; those without a note share one string."""
    chosen = notes[where]
    has = chosen != ""
    chosen[~has] = more
    chosen[has] = [f"{note}; {more}" for note in chosen[has]]
    notes[where] = chosen


def _unfit(statistics: Statistics, target: str, column: int, binary: bool) -> str:
    """Return the reason why the score is not defined for these labels, "" if it is."""
    if target in statistics.not_numbers:
        return "the labels are not numbers"
    if binary and not statistics.pairs.binary[column]:
        return "needs labels 0 and 1"
    return ""
