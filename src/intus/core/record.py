"""A Record: one array that a probe recorded, and its origin.

Records are sent from the training process to the server and collected by the aggregator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from .errors import InputError
from .projection import SUMMARY

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

#: The modes of passes that train the model, and of those that evaluate it. A script may name others.
TRAINING_MODE, EVALUATION_MODE = "train", "eval"
#: The mode of passes of a probe set, and the separator before the run's name in the owner of its labels.
PROBE_SET_MODE, OF_PROBE_SET = "probe", "/probe set of "


@dataclass(frozen=True, slots=True, eq=False)
class LayerStatistics:
    """Statistics of all rows of a pass, made where the model runs; ``scores.statistics.sent`` reads them.

    Attributes:
        arrays: The arrays, by name.
        facts: Everything else, as JSON values.
    """

    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays.values())


@dataclass(frozen=True, slots=True)
class PassFacts:
    """Facts of the pass that a record is of, from which notes follow on the scores of records put together.

    Attributes:
        data: A number of the data that its rows are of; 0 if unknown.
        rows_of: The same in words.
        is_unsure: Whether these name several data, of which the rows may be.
        turn: Of a pass that trains nothing, a number that changes when the model did in between.
        is_part: Whether it is of an epoch inside of which the training was resumed.
        has_copies: Whether many items of its dataset are known to be exact copies of others.

    Example:
        >>> PassFacts(turn=2).stated()
        {'turn': 2}
    """

    data: int = 0
    rows_of: str = ""
    is_unsure: bool = False
    turn: int = 0
    is_part: bool = False
    has_copies: bool = False

    def stated(self) -> dict[str, Any]:
        """Return those that are known, by name."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) != one.default}


#: Those of a pass of which nothing is known.
NO_FACTS = PassFacts()


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One array and its origin.

    Args:
        array: The values, with the rows of the batch along ``batch_axis``.
        address: The operation with its call (``fc1:2``), or the parameter (``fc1.weight``).
        kind: One of ``KINDS``.
        run: The name of the training run.
        model: The name of the model.
        step: The number of the model's call, from 0; None if unknown.
        epoch: The epoch; None if unknown.
        mode: ``"train"``, ``"eval"`` or the caller's own word.
        batch_axis: The axis of the rows; None if there is none (a parameter).
        index: The index among several tensors of one module call, 0 for the first.
        items: The ids of the rows, int64 of shape (rows,). Without them, rows are identified by their order
            of arrival.
        projected_from: The number of features of a row (or of each position) before random projection; None
            if the values were not projected.
        summary: The statistics ``SUMMARY`` of the rows before projection, float32 of shape (rows, 8).
        cut_from: The number of rows of the batch, of which these are the first that fit into the queue; None
            if they are all that was to be recorded.
        statistics: The statistics of all rows, of which the array has those that were kept; None for an array
            of all rows.
        of_pass: Facts of the pass.
        channels_first: Whether the framework defines the axes of each row as (channels, positions).

    Raises:
        InputError: If the arguments contradict each other.

    Example:
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
    cut_from: int | None = None
    statistics: LayerStatistics | None = field(default=None)
    of_pass: PassFacts = NO_FACTS
    channels_first: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(
                f"The record at {self.address!r} must have a kind of {KINDS}, got {self.kind!r}."
            )
        if self.batch_axis is not None and not 0 <= self.batch_axis < max(self.array.ndim, 1):
            raise InputError(
                f"The record at {self.address!r} has shape {self.array.shape}, which has no "
                f"batch_axis={self.batch_axis}."
            )
        if self.items is not None and self.items.shape != (self.rows,):
            raise InputError(
                f"The record at {self.address!r} has {self.rows} rows but {self.items.size} item ids. Give "
                "one id per row."
            )
        if self.summary is not None and self.summary.shape != (self.rows, len(SUMMARY)):
            raise InputError(
                f"The summary of the record at {self.address!r} must have shape "
                f"{(self.rows, len(SUMMARY))}, got {self.summary.shape}."
            )

    @property
    def rows(self) -> int:
        """The number of rows: the length of the batch axis, or 1 without one."""
        return self.array.shape[self.batch_axis] if self.batch_axis is not None and self.array.ndim else 1

    def features(self) -> np.ndarray:
        """Return the array as (rows, features), with the batch axis first and all other axes flattened.

        Example:
            >>> Record(np.zeros((2, 3, 4)), "x").features().shape
            (2, 12)
        """
        if self.batch_axis is None or self.array.ndim == 0:
            return self.array.reshape(1, -1)
        moved = np.moveaxis(self.array, self.batch_axis, 0)
        return moved.reshape(
            self.rows, math.prod(moved.shape[1:])
        )  # reshape cannot infer -1 if there are no rows


@dataclass(frozen=True, slots=True, eq=False)
class LateRecord:
    """A record of statistics that a device may not have made yet.

    Attributes:
        made: Returns the kept rows, the ids of their items and the statistics, once they are there; always
            the same objects.
        address: The operation with its call, or the parameter.
        kind: One of ``KINDS``.
        run: The name of the training run.
        model: The name of the model.
        step: The number of the model's call.
        epoch: The epoch.
        mode: The mode.
        index: The index among several tensors.
        of_pass: Facts of the pass.
        channels_first: Whether the framework defines the axes of each row as (channels, positions).
    """

    made: Callable[[], tuple[np.ndarray, np.ndarray, LayerStatistics]]
    address: str
    kind: str = "output"
    run: str = ""
    model: str = ""
    step: int | None = None
    epoch: float | None = None
    mode: str = ""
    index: int = 0
    of_pass: PassFacts = NO_FACTS
    channels_first: bool = False

    def record(self) -> Record:
        """Return the record, once it is there."""
        array, items, statistics = self.made()
        origin = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "made"}
        return Record(array, items=items, statistics=statistics, **origin)
