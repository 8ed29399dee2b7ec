"""Arrange the output of a layer as (records, units, …positions)."""

from __future__ import annotations

import numpy as np

from ..core.errors import InputError

Shape = tuple[int, ...]


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
            f"Pass another batch=, such as batch={records - 1}, so that only one of them fits."
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


def no_batch(address: str, shape: Shape, records: int) -> InputError:
    """Return the error for an output without a batch axis."""
    return InputError(
        f"{address!r} has shape {shape} for {records} records: no axis is the batch, so it cannot be "
        "inspected. Choose a layer whose output has an axis for the records."
    )
