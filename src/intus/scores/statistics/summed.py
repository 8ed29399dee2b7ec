"""Sums of the arrays of training steps: a gradient, an update or a loss, which is one row in each step.

Nothing else is kept of the arrays, so that the number of steps costs no memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...core.projection import SUMMARY
from ...core.record import PROBE_SET_MODE, LayerStatistics, Record
from .row_statistics import ROW_SCALARS

_KINDS = "parameter_grad", "update"
_BLOCK = 1 << 13  # of which the products need no threads
_FINITE = SUMMARY.index("nonfinite")
assert (*ROW_SCALARS, "low", "high", "nonfinite") == SUMMARY


class StepSums(NamedTuple):
    """The sums that scores need of the arrays of some steps.

    Attributes:
        total: The sum of the arrays that are finite, shape (numbers,).
        summary: The scalars that ``SUMMARY`` names, of each step, shape (steps, 8).
        step: The number of each step, -1 if unknown.
        bits: A bit for each number, set unless it was 0 in every finite step.
    """

    total: np.ndarray
    summary: np.ndarray
    step: np.ndarray
    bits: np.ndarray

    @property
    def finite(self) -> np.ndarray:
        """True for a step if all numbers of it are finite, shape (steps,)."""
        finite: np.ndarray = self.summary[:, _FINITE] == 0
        return finite

    @property
    def alive(self) -> np.ndarray:
        """True for numbers that were not 0 in every finite step, shape (numbers,)."""
        return np.unpackbits(self.bits, count=len(self.total)).astype(bool)


def is_of_step(record: Record) -> bool:
    """Return whether a record without rows is of one step, and counts beside those of other steps.

    A parameter is a state instead, and the passes of a probe set are all of one state.
    """
    if record.batch_axis is not None or record.projected_from is not None:
        return False
    is_number = record.array.ndim == 0 and record.kind != "parameter" and record.mode != PROBE_SET_MODE
    return record.kind in _KINDS or is_number


def are_sums(record: Record) -> bool:
    """Return whether a record has the sums of steps."""
    return record.statistics is not None and "steps" in record.statistics.facts


def arrays_in(records: Iterable[Record]) -> int:
    """Return the number of arrays that were sent and are in these records."""
    return sum(
        record.statistics.facts["steps"] if record.statistics is not None and are_sums(record) else 1
        for record in records
    )


def sums_of(record: Record) -> StepSums:
    """Return the sums of a record, or those of its one step."""
    x = record.array.reshape(-1)
    if record.statistics is not None and are_sums(record):
        arrays = record.statistics.arrays
        return StepSums(x, arrays["summary"], arrays["step"], arrays["alive"])
    step = np.array([-1 if record.step is None else record.step])
    nonfinite = int((~np.isfinite(x)).sum())
    if nonfinite:
        x = np.zeros_like(x)
    with np.errstate(all="ignore"):
        summary = np.array([[*_scalars(x), nonfinite]])
    return StepSums(x, summary, step, np.packbits(x != 0))


def go_together(one: Record, other: Record) -> bool:
    """Return whether the steps of two records can be summed, and all that is said of them is the same."""
    return one.array.shape == other.array.shape and one.of_pass == other.of_pass


def summed(before: Record | None, record: Record) -> Record:
    """Return a record with the sums of the steps of two, neither of which changes.

    Args:
        before: Sums of arrays that ``go_together`` with it; None for none.
        record: The array of a step, or sums.
    """
    if before is None and are_sums(record):
        return record
    new = sums_of(record)
    total, summary, step, bits = new.total.astype(np.float64, copy=False), *new[1:]
    if before is not None:
        old = sums_of(before)
        total, bits = old.total + new.total, old.bits | bits
        summary = np.concatenate([old.summary, summary])
        step = np.concatenate([old.step, step])
    facts = {"steps": len(step), "rows": len(step)}
    statistics = LayerStatistics({"summary": summary, "step": step, "alive": bits}, facts)
    return replace(record, array=total.reshape(record.array.shape), statistics=statistics)


def _scalars(x: np.ndarray) -> list[float]:
    """Return the scalars of ``SUMMARY`` but the last of a finite array, by blocks that fit into the cache."""
    n, mean, spread, magnitude, squares, zeros, low, high = 0, 0.0, 0.0, 0.0, 0.0, 0, np.inf, -np.inf
    for start in range(0, len(x), _BLOCK):
        block = x[start : start + _BLOCK].astype(np.float64)
        size, own = len(block), float(block.mean())
        gap, share = own - mean, len(block) / (n + len(block))
        squares += float(block @ block)
        zeros += size - int(np.count_nonzero(block))
        low, high = min(low, float(block.min())), max(high, float(block.max()))
        magnitude += float(np.abs(block).sum())
        block -= own
        spread += float(block @ block) + gap**2 * n * share  # the update of Chan, Golub and LeVeque (1979)
        mean, n = mean + gap * share, n + size
    n = max(n, 1)
    return [mean, magnitude / n, spread / n, squares**0.5, zeros / n, low, high]
