"""Which axis of what a layer gives is the batch and which its units: decided once per layer, never guessed.

A convolution has its units second, a linear layer last, a recurrent one says ``batch_first``. What keeps
the shape of its input (an activation, a dropout, a block) has them where the module that produced the same
shape before it had. What is left is refused, for a wrong axis gives plausible numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..backends.base import Operation
from ..core.address import Address
from ..core.errors import InputError

_SECOND = re.compile(
    r"Conv(Transpose)?[123]d|BatchNorm|InstanceNorm|GroupNorm|LocalResponseNorm|(Norm|Dropout|Pad)[123]d|Pool"
    r"|Upsampl|Pixel(Uns|S)huffle|ChannelShuffle"
)
_LAST = re.compile(r"^(RNN|LSTM|GRU|MultiheadAttention)$")
_WIDTHS = ("out_features", "embedding_dim", "normalized_shape", "nf")  # nf: the Conv1D of transformers

Shape = tuple[int, ...]


class Layout(NamedTuple):
    """The axes of the batch and of the units."""

    batch: int
    units: int

    def apply(self, array: np.ndarray, records: int, address: str) -> np.ndarray:
        """What the layer gave for ``records`` records as (records, units, …positions)."""
        if array.ndim <= self.batch or array.shape[self.batch] != records:
            raise _no_batch(address, array.shape, records)
        if array.ndim == 1:
            return array[:, None]
        return np.moveaxis(array, (self.batch, self.units), (0, 1))


def decide(
    address: str,
    outputs: Sequence[tuple[str, Shape]],
    operations: Mapping[str, Operation],
    records: int,
    units_axis: int | None = None,
) -> Layout:
    """The layout of a layer, from the first block.

    ``outputs`` are the (address, shape) of all modules' outputs in the order in which these finished. Raises
    InputError where neither the kind of the layer nor its producer tells, unless ``units_axis`` does.
    """
    place = next(i for i, (name, _) in enumerate(outputs) if name == address)
    shape = outputs[place][1]
    if len(shape) < 3:
        return Layout(0, len(shape) - 1)
    for name, before in reversed(outputs[: place + 1]):
        layer = _of(name, operations)
        units = _units(layer, shape) if before == shape else None
        if units is not None:
            break
    else:
        layer = _of(address, operations)
    units = units if units_axis is None else _checked(units_axis, address, shape)
    if units is None:
        raise InputError(
            f"{address!r} gave shape {shape}, and a {layer.type} may have its units in the second or in the "
            "last axis: say which with units_axis=1 or units_axis=-1."
        )
    batch = 0 if units == 1 else _batch(layer, address, shape, records)
    if batch == units:
        raise InputError(
            f"units_axis={units_axis} is the axis of the records in {address!r}, of shape {shape}."
        )
    return Layout(batch, units)


def _of(address: str, operations: Mapping[str, Operation]) -> Operation:
    """The operation of an address that may name one of its calls."""
    return operations[str(Address(Address.parse(address).name))]


def _units(layer: Operation, shape: Shape) -> int | None:
    """The axis of the units as the kind of the layer tells it, None where it does not."""
    if _SECOND.search(layer.type):
        return 1
    if _LAST.match(layer.type):
        return len(shape) - 1
    for name in _WIDTHS:
        width = getattr(layer.module, name, None)
        if width in (shape[-1], shape[-1:]):
            return len(shape) - 1
    return None


def _checked(axis: int, address: str, shape: Shape) -> int:
    if not -len(shape) <= axis < len(shape):
        raise InputError(f"units_axis={axis} is no axis of {address!r}, which gave shape {shape}.")
    return axis % len(shape)


def _batch(layer: Operation, address: str, shape: Shape, records: int) -> int:
    """The axis of the records: sequences may have it second, behind time."""
    first = getattr(layer.module, "batch_first", None)
    fits = [axis for axis in ((0, 1) if len(shape) == 3 else (0,)) if shape[axis] == records]
    if isinstance(first, bool) and len(fits) == 2:
        return 0 if first else 1
    if not fits:
        raise _no_batch(address, shape, records)
    if len(fits) == 2 and records > 1:
        raise InputError(
            f"{address!r} gave shape {shape} for {records} records, so either of two axes may be theirs. "
            f"Inspect with another batch=, such as batch={records - 1}, or with units_axis=1 if the units "
            "are second."
        )
    return fits[0]


def _no_batch(address: str, shape: Shape, records: int) -> InputError:
    return InputError(
        f"{address!r} gave shape {shape} for {records} records: no axis is the batch, so it cannot be "
        "inspected. Choose a layer that keeps the records apart."
    )
