"""Scores of a layer that need no target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..core.errors import require
from ..core.notes import joined
from ..core.projection import PROJECTED
from ..core.score_info import ScoreInfo
from .base import NAN, ScoreResult, score
from .statistics.jackknife import jackknife, leave_one_out
from .statistics.moments import HUGE
from .statistics.row_statistics import ROW_SCALARS
from .statistics.statistics import Statistics

_FINITE = "rows that are finite; the others are left out and counted"


def _row_mean(
    name: str, label: str, about: str, formula: str, low: float | None = None, high: float | None = None
) -> None:
    """Register a score that is the mean over rows of one scalar per row."""
    place = ROW_SCALARS.index(name)

    def compute(statistics: Statistics) -> Iterable[ScoreResult]:
        tally = statistics.tally
        if not tally.rows:
            return [_result(name, NAN, statistics)]
        value = tally.mean()[place]
        sums = np.stack([tally.counts, tally.counts * tally.means[:, place]])
        with np.errstate(all="ignore"):
            without = np.array([total / rows for rows, total in leave_one_out(sums, 1)])
            bounds = jackknife(value, without)[:2]
        return [_result(name, float(value), statistics, *map(float, bounds))]

    interval = "95 %, jackknife over groups of items"
    fields: dict[str, Any] = {"label": label, "about": about, "formula": formula, "low": low, "high": high}
    score(name, "tally", requires=_FINITE, interval=interval, **fields)(compute)


def _scalar(
    name: str,
    label: str,
    about: str,
    formula: str,
    compute: Callable[[Statistics], float],
    low: float | None = None,
) -> None:
    """Register a score that is one number of all entries."""

    def results(statistics: Statistics) -> Iterable[ScoreResult]:
        return [_result(name, compute(statistics), statistics)]

    score(name, "tally", label=label, about=about, formula=formula, low=low, requires=_FINITE)(results)


def _variance(statistics: Statistics) -> float:
    """Return the variance of all entries: the variance within rows plus that of the rows' means."""
    tally = statistics.tally
    if not tally.rows:
        return NAN
    within, between = tally.mean()[ROW_SCALARS.index("variance")], tally.m2()[ROW_SCALARS.index("mean")]
    return float(within + between / tally.rows)


_row_mean("mean", "Mean", "Mean of all entries.", "mean over rows of the mean of a row", None, None)
_row_mean(
    "mean_abs", "Mean magnitude", "Mean absolute value of all entries.", "mean over rows of mean |x|", 0, None
)
_scalar(
    "std",
    "Standard deviation",
    "Standard deviation of all entries.",
    "square root of the variance",
    lambda statistics: math.sqrt(_variance(statistics)),
    low=0,
)
_scalar(
    "variance",
    "Variance",
    "Variance of all entries.",
    "mean variance within rows plus the variance of the rows' means",
    _variance,
    low=0,
)
_scalar(
    "min",
    "Minimum",
    "Smallest entry.",
    "min x",
    lambda statistics: statistics.tally.low if statistics.tally.rows else NAN,
)
_scalar(
    "max",
    "Maximum",
    "Largest entry.",
    "max x",
    lambda statistics: statistics.tally.high if statistics.tally.rows else NAN,
)
_row_mean("norm", "Norm", "Mean Euclidean norm of the rows.", "mean over rows of sqrt(Σ x²)", 0, None)
_row_mean(
    "sparsity",
    "Sparsity (share of zeros)",
    "Fraction of entries that are exactly zero.",
    "mean over rows of the fraction of zeros",
    0,
    1,
)


@score(
    "dead",
    "tally",
    label="Dead units",
    formula="1 - (features with an entry other than 0) / features",
    low=0.0,
    high=1.0,
    requires="rows that were not projected; probe(width=) sends wide ones whole",
)
def dead(statistics: Statistics) -> Iterable[ScoreResult]:
    """Fraction of features that are zero in every row."""
    if len(statistics.tally.alive) < statistics.whole:
        note = f"not where rows are projected: probe(width=) of {statistics.whole} or more sends them whole"
        return [ScoreResult("dead", NAN, n=statistics.tally.rows, note=note)]
    value = float(1 - statistics.tally.alive.mean()) if statistics.tally.rows else NAN
    return [_result("dead", value, statistics)]


_NONFINITE_STEP = ScoreInfo(
    name="nonfinite_step",
    label="First step with NaN or infinite values",
    about="Number of the first recorded pass of an epoch in which the layer had such values. Its note says "
    "if the pass before was not recorded. Only servers compute it, of the passes of a training.",
    formula="the smallest step of a record with an entry that is not finite",
    low=0.0,
    requires="a layer that has such values",
)


@score(
    "nonfinite",
    "tally",
    beside=(_NONFINITE_STEP,),
    label="NaN and infinite values",
    formula="a count of entries",
    low=0.0,
)
def nonfinite(statistics: Statistics) -> Iterable[ScoreResult]:
    """Count of the entries that are NaN or infinite."""
    tally = statistics.tally
    return [ScoreResult("nonfinite", float(tally.nonfinite), n=tally.seen)]


@score(
    "participation_ratio",
    "moments",
    "whole",
    label="Participation ratio",
    formula="(tr C)² / tr(C²), with C the covariance of the features",
    low=1.0,
    requires="two rows or more",
    source="Gao et al. 2017",
)
def participation_ratio(statistics: Statistics) -> Iterable[ScoreResult]:
    """Effective number of directions in which the rows of a layer vary.

    A random projection to m features gives 1/PR + 1/m instead of 1/PR on average, and somewhat less if it was
    made before the rows were sent; what it adds is subtracted.
    """
    scatter, n = _scatter(statistics)
    trace = float(np.trace(scatter))
    square = float(((scatter / trace) ** 2).sum()) if trace > 0 else 0.0
    value = 1 / square if square > 0 else NAN
    if statistics.projected and value == value:
        value = 1 / max(1 / value - statistics.projection.added, 1 / statistics.whole)
    return [_covariance_result("participation_ratio", value, n, statistics)]


@score(
    "effective_rank",
    "moments",
    "whole",
    label="Effective rank",
    formula="exp(-Σ p ln p), with p the singular values of the centred rows divided by their sum",
    low=1.0,
    requires=f"two rows or more; at most {PROJECTED:,} features",
    source="Roy and Vetterli 2007",
)
def effective_rank(statistics: Statistics) -> Iterable[ScoreResult]:
    """Effective number of directions in which the rows vary, by the entropy of the singular values."""
    if statistics.projected:
        note = f"not for more than {statistics.width} features"
        return [ScoreResult("effective_rank", NAN, n=_scatter(statistics)[1], note=note)]
    scatter, n = _scatter(statistics)
    value = NAN
    if n > 1 and np.isfinite(scatter).all() and np.trace(scatter) > 0:
        if n <= len(scatter):
            scatter = _in_span(scatter)
        singular = np.sqrt(np.clip(np.linalg.eigvalsh(scatter), 0, None))
        share = singular / singular.sum()
        share = share[share > 1e-12]
        value = float(np.exp(-(share * np.log(share)).sum()))
    return [_covariance_result("effective_rank", value, n, statistics)]


def _in_span(scatter: np.ndarray) -> np.ndarray:
    """Return a smaller matrix with the eigenvalues of a scatter that are not 0.

    If rows are no more than features some are 0, and would be found as rounding errors, whose square roots
    count.
    """
    linalg = require("scipy.linalg", extra="server", why="to compute the rank of fewer rows than features")
    factor, _, rank, _ = linalg.lapack.dpstrf(scatter, lower=1)  # Cholesky with pivoting
    columns = np.tril(factor[:, :rank])
    return np.asarray(columns.T @ columns)


def _scatter(statistics: Statistics) -> tuple[np.ndarray, int]:
    """Return the scatter of all rows, training and held out, and the number of rows.

    Of few rows it is a smaller matrix with the same eigenvalues, other than 0.
    Statistics made where the model runs have no products of held-out rows if there are many rows.
    """
    moments = statistics.moments
    every = statistics.once(
        "every", lambda: moments.train.plus(moments.held) if moments.whole else moments.train
    )
    return statistics.once("scatter", lambda: every.reduced(statistics.even)), every.n


def _covariance_result(name: str, value: float, n: int, statistics: Statistics) -> ScoreResult:
    of_trained = f"of the {n} rows that classifiers are trained on" * (not statistics.moments.whole)
    note = joined(statistics.note, of_trained)
    if value != value:
        note = "fewer than two finite rows" if n < 2 else "the behaviours do not vary"
        if not np.isfinite(np.trace(_scatter(statistics)[0])):
            note = HUGE
    return ScoreResult(name, value, n=n, note=note)


def _result(
    name: str, value: float, statistics: Statistics, low: float = NAN, high: float = NAN
) -> ScoreResult:
    tally = statistics.tally
    left_out = tally.seen - tally.rows
    note = f"{left_out} of {tally.seen} rows left out: NaN or infinite" if left_out else ""
    if not tally.rows:
        note = note or "no rows"
    elif not math.isfinite(value):
        note = joined(note, f"sums of entries of up to {max(-tally.low, tally.high):.0e} overflow")
    return ScoreResult(name, value, low=low, high=high, n=tally.rows, note=note)
