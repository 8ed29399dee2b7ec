"""A Record: one array, and where it came from.

The same whether ``trace`` saved it, ``probe`` shipped it or ``inspect`` extracted it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from .errors import InputError

#: What a record may hold, and how people call it.
KIND_LABELS = {
    "output": "output",
    "input": "input",
    "grad_output": "gradient of the output",
    "grad_input": "gradient of the input",
    "parameter": "parameter",
    "parameter_grad": "gradient of the parameter",
    "update": "update of the parameter",
}
KINDS = tuple(KIND_LABELS)

#: The mode of a probe set's passes, and what stands in the owner of its labels before the run's name.
PROBE_SET_MODE, OF_PROBE_SET = "probe", "/probe set of "

#: Features that a row which is too wide is projected to, by probes before it is sent or by who scores it; a
#: probe's ranking of layers survives down to 128, not below.
PROJECTED = 1024
#: What is measured of each row before it is projected.
SUMMARY = ("mean", "mean_abs", "variance", "norm", "sparsity", "low", "high", "nonfinite")


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One array with its origin.

    ``array`` has the batch along ``batch_axis``; ``None`` means that it has no batch (a parameter).
    ``items`` are the ids of the batch's rows, int64 of shape (rows,); without them rows are known by
    their order of arrival. ``index`` tells a module's first output from its second.

    Of rows too wide to be sent, ``projected_from`` is how many numbers each had (each position, where there
    are some) before they were projected at random to those in ``array``; ``summary``, float32 of shape
    (rows, 8), has what ``SUMMARY`` names of them as they were.
    Raises InputError when the parts contradict each other.

    >>> Record(np.zeros((4, 3), np.float32), "fc1", items=np.arange(4)).rows
    4
    """

    array: np.ndarray
    address: str
    kind: str = "output"
    run: str = ""
    model: str = ""
    step: int | None = None
    epoch: float | None = None
    mode: str = ""
    batch_axis: int | None = 0
    index: int = 0
    items: np.ndarray | None = field(default=None)
    projected_from: int | None = None
    summary: np.ndarray | None = field(default=None)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind={self.kind!r} of the record at {self.address!r} is not one of {KINDS}.")
        if self.batch_axis is not None and not 0 <= self.batch_axis < max(self.array.ndim, 1):
            raise InputError(
                f"batch_axis={self.batch_axis} of the record at {self.address!r} does not fit its shape "
                f"{self.array.shape}."
            )
        if self.items is not None and self.items.shape != (self.rows,):
            raise InputError(
                f"The record at {self.address!r} has {self.rows} rows but {self.items.size} item ids."
            )
        if self.summary is not None and self.summary.shape != (self.rows, len(SUMMARY)):
            raise InputError(
                f"The summary at {self.address!r} has shape {self.summary.shape}; of {self.rows} rows it has "
                f"{(self.rows, len(SUMMARY))}."
            )

    @property
    def rows(self) -> int:
        """How many items the array holds: the length of its batch axis, 1 where it has none."""
        return self.array.shape[self.batch_axis] if self.batch_axis is not None and self.array.ndim else 1

    def features(self) -> np.ndarray:
        """The array as (rows, features), the batch first and everything else flattened.

        >>> Record(np.zeros((2, 3, 4)), "x").features().shape
        (2, 12)
        """
        if self.batch_axis is None or self.array.ndim == 0:
            return self.array.reshape(1, -1)
        moved = np.moveaxis(self.array, self.batch_axis, 0)
        return moved.reshape(self.rows, math.prod(moved.shape[1:]))  # reshape cannot infer it of no rows
