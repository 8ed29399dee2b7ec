"""Scores of a layer that need no labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from .base import NAN, ScoreResult, score
from .statistics.jackknife import jackknife, leave_one_out
from .statistics.moments import HUGE
from .statistics.row_statistics import ROW_SCALARS
from .statistics.statistics import Statistics


def _row_mean(name: str, meaning: str) -> None:
    """Register the mean over rows of one number per row; the interval is a jackknife over items."""
    place = ROW_SCALARS.index(name)

    def compute(statistics: Statistics) -> Iterable[ScoreResult]:
        tally = statistics.tally
        if not tally.rows:
            return [_reading(name, NAN, statistics)]
        value = tally.mean()[place]
        sums = np.stack([tally.counts, tally.counts * tally.means[:, place]])
        with np.errstate(all="ignore"):
            without = np.array([total / rows for rows, total in leave_one_out(sums, 1)])
            low, high = jackknife(value, without)
        return [_reading(name, float(value), statistics, float(low), float(high))]

    compute.__doc__ = meaning
    score(name, "tally")(compute)


def _simple(name: str, read: Callable[[Statistics], float]) -> None:
    score(name, "tally")(lambda statistics: [_reading(name, read(statistics), statistics)])


_row_mean("mean", "Mean of all entries.")
_row_mean("mean_abs", "Mean absolute value of all entries.")
_row_mean("norm", "Mean Euclidean norm of the rows.")
_row_mean("sparsity", "Share of entries that are exactly zero.")


def _variance(statistics: Statistics) -> float:
    """Variance of all entries: that within rows and that of the rows' means."""
    tally = statistics.tally
    if not tally.rows:
        return NAN
    within, between = tally.mean()[ROW_SCALARS.index("variance")], tally.m2()[ROW_SCALARS.index("mean")]
    return float(within + between / tally.rows)


_simple("variance", _variance)
_simple("std", lambda statistics: math.sqrt(_variance(statistics)))
_simple("min", lambda statistics: statistics.tally.low if statistics.tally.rows else NAN)
_simple("max", lambda statistics: statistics.tally.high if statistics.tally.rows else NAN)


@score("dead", "tally")
def dead(statistics: Statistics) -> Iterable[ScoreResult]:
    """Share of features that are zero in every row; unknown where a layer came projected."""
    if statistics.projected_from is not None:
        note = f"not where rows are projected: probe(width=) of {statistics.whole} or more sends them whole"
        return [ScoreResult("dead", NAN, n=statistics.tally.rows, note=note)]
    value = float(1 - statistics.tally.alive.mean()) if statistics.tally.rows else NAN
    return [_reading("dead", value, statistics)]


@score("nonfinite", "tally")
def nonfinite(statistics: Statistics) -> Iterable[ScoreResult]:
    """How many entries are NaN or infinite."""
    tally = statistics.tally
    return [ScoreResult("nonfinite", float(tally.nonfinite), n=tally.seen)]


@score("participation_ratio", "moments", "whole")
def participation_ratio(statistics: Statistics) -> Iterable[ScoreResult]:
    """(tr C)² / tr(C²) of the covariance C: how many directions the layer uses, without an eigenvalue.

    A random projection to m features gives 1/PR + 1/m instead of 1/PR on average: that is taken off.
    """
    scatter, n = _scatter(statistics)
    square = float((scatter * scatter).sum())
    value = float(np.trace(scatter)) ** 2 / square if square > 0 else NAN
    if statistics.projected and value == value:
        value = 1 / max(1 / value - 1 / statistics.width, 1 / statistics.whole)
    return [_of_covariance("participation_ratio", value, n, statistics)]


@score("effective_rank", "moments", "whole")
def effective_rank(statistics: Statistics) -> Iterable[ScoreResult]:
    """exp of the entropy of the normalised singular values of the centred rows (Roy and Vetterli 2007).

    NaN for layers so wide that they are projected: small singular values do not survive that.
    """
    if statistics.projected:
        note = f"not for more than {statistics.width} features"
        return [ScoreResult("effective_rank", NAN, n=_scatter(statistics)[1], note=note)]
    scatter, n = _scatter(statistics)
    value = NAN
    if n > 1 and np.isfinite(scatter).all() and np.trace(scatter) > 0:
        singular = np.sqrt(np.clip(np.linalg.eigvalsh(scatter), 0, None))
        share = singular / singular.sum()
        share = share[share > 1e-12]
        value = float(np.exp(-(share * np.log(share)).sum()))
    return [_of_covariance("effective_rank", value, n, statistics)]


def _scatter(statistics: Statistics) -> tuple[np.ndarray, int]:
    """Scatter of all rows, trained on or held out, and how many they are."""
    moments = statistics.moments
    every = statistics.once("every", lambda: moments.train.plus(moments.held))
    return statistics.once("scatter", every.scatter), every.n


def _of_covariance(name: str, value: float, n: int, statistics: Statistics) -> ScoreResult:
    note = statistics.note
    if value != value:
        note = "fewer than two finite rows" if n < 2 else "the behaviours do not vary"
        if not np.isfinite(np.trace(_scatter(statistics)[0])):
            note = HUGE
    return ScoreResult(name, value, n=n, note=note)


def _reading(
    name: str, value: float, statistics: Statistics, low: float = NAN, high: float = NAN
) -> ScoreResult:
    tally = statistics.tally
    left_out = tally.seen - tally.rows
    note = f"{left_out} of {tally.seen} rows left out: NaN or infinite" if left_out else ""
    return ScoreResult(
        name, value, low=low, high=high, n=tally.rows, note=note or ("no rows" * (not tally.rows))
    )
