"""Arrange the output of a layer as (records, units, …positions)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.errors import InputError
from ...core.graph import Graph
from ...core.units import UnitAxes

Shape = tuple[int, ...]
_FUSED = "scaled_dot_product_attention"


def batch_axis(address: str, shape: Shape, records: int, units: int, declared: int | None) -> int:
    """Return the axis of the records in a layer's output.

    It is the first axis, or the second in a sequence (positions, records, features). The layer determines it
    (``declared``), or else the number of records. If both axes fit, it is an error, because a wrong axis
    gives plausible numbers.

    Args:
        address: The address of the layer, for the message.
        shape: The shape of its output for the first block.
        records: The number of records in the block.
        units: The axis of the units.
        declared: The batch axis that the layer declares (``batch_first``); None if it does not.

    Raises:
        InputError: If no axis fits, or two do.
    """
    if units == 1 or len(shape) != 3:
        fits = [0] if shape[0] == records else []
    else:
        fits = [axis for axis in (0, 1) if shape[axis] == records]
        if declared is not None and len(fits) == 2:
            return declared
    if not fits:
        raise no_batch(address, shape, records)
    if len(fits) == 2 and records > 1:
        raise InputError(
            f"{address!r} has shape {shape} for {records} records, so either of two axes may be theirs. "
            f"Pass another batch=, such as batch={records // 2}, so that only one of them fits."
        )
    if fits[0] == units and len(shape) > 1:
        raise InputError(
            f"Axis {units} of {address!r}, of shape {shape}, is that of the records, not of units. Name "
            "another axis after the @."
        )
    return fits[0]


def arrange(array: np.ndarray, records: int, batch: int, units: int, address: str) -> np.ndarray:
    """Return a layer's output as (records, units, …positions).

    Args:
        array: The output for a block.
        records: The number of records in the block.
        batch: The axis of the records.
        units: The axis of the units.
        address: The address of the layer, for the message.

    Raises:
        InputError: If the batch axis has another length.
    """
    if array.ndim <= batch or array.shape[batch] != records:
        raise no_batch(address, array.shape, records)
    if array.ndim == 1:
        return array[:, None]
    return np.moveaxis(array, (batch, units), (0, 1))


class Vectors(NamedTuple):
    """The possible values of a unit at a position: one number, or a vector, as of an attention head.

    Attributes:
        possible: Whether it may be a vector: the caller named the axis of the units of a value of four axes,
            and the operations do not determine that axis; or the operation is fused attention.
        fused: Whether it is known to be (batch, heads, positions, features), as of fused attention.
    """

    possible: bool = False
    fused: bool = False

    @classmethod
    def of(cls, graph: Graph | None, row: int, axis: int | None) -> Vectors:
        """Return this of a row of a graph.

        Args:
            graph: The graph; None if it is not known.
            row: The row; -1 if it is not known.
            axis: The axis of the units that the caller named; None if none.
        """
        if graph is None or row < 0 or len(graph.metas[int(graph.ops.meta[row])].shape) != 4:
            return cls()
        fused = graph.type_of(row) == _FUSED and axis in (None, 1, -3)
        return cls(fused or (axis is not None and UnitAxes(graph).find(row) is None), fused)

    def lengths(
        self, array: np.ndarray, grid: Shape, address: str, hypothesis: str
    ) -> tuple[np.ndarray, str]:
        """Return the Euclidean length of the vector that a unit is at each position, if it is one.

        A mean over features would cancel, since their signs mean nothing together. With a label for each pair
        of positions the array is returned unchanged: its units are maps, such as attention probabilities.

        Args:
            array: The output, (records, units, …rest).
            grid: The shape of the labels of one record.
            address: The address, for the message.
            hypothesis: The name of the hypothesis, for the message.

        Returns:
            The array (records, units, positions), and a note; or the array unchanged, and ``""``.

        Raises:
            InputError: If either of two axes may be that of the positions.
        """
        rest = array.shape[2:]
        if not self.possible or len(rest) != 2 or len(grid) > 1 or (not grid and not self.fused):
            return array, ""
        if grid and not self.fused:
            if rest[0] == rest[1] == grid[0]:
                raise InputError(
                    f"{address!r} has {rest[0]} × {rest[1]} numbers per unit, and the hypothesis "
                    f"{hypothesis!r} labels {grid[0]} symbols, so either axis may be theirs. Give a label "
                    f"for each pair ({rest[0]} × {rest[1]}), as attention probabilities need."
                )
            if grid[0] not in rest:
                return array, ""
        axis = 1 if self.fused else 1 - rest.index(grid[0])
        lengths = np.sqrt(np.square(array, dtype=np.float64).sum(axis=2 + axis)).astype(np.float32)
        return lengths, f"the length of a vector of {rest[axis]} features"


def no_batch(address: str, shape: Shape, records: int) -> InputError:
    """Return the error for an output without a batch axis."""
    if shape and 0 < shape[0] < records:
        return InputError(
            f"{address!r} has shape {shape} for {records} records. If it ran for some of the records only, "
            "as in a mixture of experts, its rows do not say whose they are. Choose a layer that every "
            "record passes through, whose output has an axis for the records."
        )
    return InputError(
        f"{address!r} has shape {shape} for {records} records: no axis is the batch, so it cannot be "
        "inspected. Choose a layer whose output has an axis for the records."
    )
