"""Sums of the arrays of training steps: of a gradient or an update, which is one row in each step.

Nothing else is kept of the arrays, so that the number of steps costs no memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...core.projection import SUMMARY
from ...core.record import LayerStatistics, Record
from .row_statistics import ROW_SCALARS, RowStatistics

_KINDS = "parameter_grad", "update"
_FINITE = SUMMARY.index("nonfinite")
assert (*ROW_SCALARS, "low", "high", "nonfinite") == SUMMARY


class StepSums(NamedTuple):
    """What scores need of the arrays of some steps.

    Attributes:
        total: The sum of the arrays that are finite, shape (numbers,).
        summary: The scalars that ``SUMMARY`` names, of each step, shape (steps, 8).
        step: The number of each step, -1 if unknown.
        alive: True for numbers that were not 0 in every finite step.
    """

    total: np.ndarray
    summary: np.ndarray
    step: np.ndarray
    alive: np.ndarray

    @property
    def finite(self) -> np.ndarray:
        """Whether all numbers of a step are finite, shape (steps,)."""
        finite: np.ndarray = self.summary[:, _FINITE] == 0
        return finite


def is_of_step(record: Record) -> bool:
    """Return whether a record is the array of one step, or the sums of several."""
    return record.kind in _KINDS and record.batch_axis is None and record.projected_from is None


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
    if record.statistics is not None and are_sums(record):
        arrays = record.statistics.arrays
        alive = np.unpackbits(arrays["alive"], count=record.array.size).astype(bool)
        return StepSums(record.array.reshape(-1), arrays["summary"], arrays["step"], alive)
    x = record.array.reshape(1, -1).astype(np.float64)
    finite = np.asarray(np.isfinite(x).all(axis=1))
    tally = RowStatistics(x.shape[1])
    with np.errstate(all="ignore"):
        tally.update(x, finite, np.zeros(1, np.int64))
    summary = np.array([[*tally.means[0], tally.low, tally.high, tally.nonfinite]])
    step = np.array([-1 if record.step is None else record.step])
    return StepSums(x[0] if finite[0] else np.zeros(x.shape[1]), summary, step, tally.alive)


def summed(before: Record | None, record: Record) -> Record:
    """Return a record with the sums of the steps of two, neither of which changes.

    Args:
        before: Sums of arrays of the same shape; None for none.
        record: The array of a step, or sums.
    """
    if before is None and are_sums(record):
        return record
    new = sums_of(record)
    if before is not None:
        old = sums_of(before)
        summary, step = (
            np.concatenate([getattr(one, name) for one in (old, new)]) for name in ("summary", "step")
        )
        new = StepSums(old.total + new.total, summary, step, old.alive | new.alive)
    arrays = {"summary": new.summary, "step": new.step, "alive": np.packbits(new.alive)}
    statistics = LayerStatistics(arrays, {"steps": len(new.step)})
    return replace(record, array=new.total.reshape(record.array.shape), statistics=statistics)
