"""Convert torch tensors to the ``CapturedTensor`` that a tap receives, and to numpy."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ...core.errors import InputError
from ...core.nested import leaves, paths
from ...core.shared_array import shared_array
from ..base import CapturedTensor
from .random_projection import projected, summary
from .row_fingerprints import fingerprints
from .row_sums import begin_sums, has_doubles

#: Real dtypes that numpy has; others are converted to float32.
_NUMPY = {
    torch.float64, torch.float32, torch.float16, torch.bool, torch.uint8,
    torch.int8, torch.int16, torch.int32, torch.int64,
}  # fmt: skip


class Contents:
    """The memory of a tensor, as long as nothing is written to it.

    Two are equal if they are of one tensor, with the same memory and version. PyTorch counts every operation
    in place in the version, but not what is written through ``.data`` or NumPy.

    Args:
        tensor: The tensor, of which no reference is kept.
    """

    __slots__ = ("_memory", "_tensor")

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = weakref.ref(tensor)
        self._memory = tensor._version, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()

    @classmethod
    def of(cls, tensor: Tensor) -> Contents | None:
        """Return the contents of a tensor; None if its writes are not counted, or its memory is not plain."""
        plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided
        return cls(tensor) if plain and not tensor.is_inference() else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Contents) or self._memory != other._memory:
            return False
        tensor = self._tensor()
        return tensor is not None and tensor is other._tensor()

    def __hash__(self) -> int:
        return hash(self._memory)


def captured(
    address: str,
    kind: str,
    index: int,
    tensor: Tensor,
    axis: int | None = None,
    *,
    channels_first: bool = False,
) -> CapturedTensor:
    """Describe a tensor for the tap.

    Args:
        address: The operation with its call, or the parameter.
        kind: One of ``core.record.KINDS``.
        index: The index among several tensors.
        tensor: The tensor.
        axis: The axis of its rows; None if the module does not determine it.
        channels_first: Whether axis 1 is that of channels, and axis 2 that of positions.

    Raises:
        InputError: If it has no values.
    """
    if tensor.is_meta:
        raise InputError(
            f"{address!r} is on the meta device, where tensors have no values. Give the model its weights "
            "before it is recorded, as by model.to_empty(device=...) and load_state_dict."
        )
    size = tensor.element_size() if tensor.dtype in _NUMPY else 4
    copy, shape = partial(to_numpy, tensor), tuple(tensor.shape)
    plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided
    is_float, doubles = tensor.is_floating_point(), has_doubles(tensor)
    return CapturedTensor(
        *(address, kind, index, shape, tensor.numel() * size, copy, axis, partial(to_projected, tensor)),
        sums=partial(begin_sums, tensor) if plain and is_float else None,
        accelerated=tensor.device.type != "cpu" and doubles,
        contents=Contents.of(tensor),
        fingerprints=partial(fingerprints, tensor) if plain and doubles and not tensor.is_complex() else None,
        channels_first=channels_first,
    )


#: A tensor of a module call, or one of items of different lengths.
Part = Tensor | PackedSequence


def parts(value: Any) -> list[tuple[str, Part]]:
    """Return the tensors of a module call with their paths, in order; one of packed items is one part."""
    wanted: Any = (PackedSequence, Tensor)
    return list(paths(value, wanted))


def main_part(found: Sequence[tuple[str, Part]]) -> int | None:
    """Return the number of the first part that has axes, else that of the first scalar; see ``main_tensor``.

    Args:
        found: The parts, from ``parts``.
    """
    with_axes = (at for at, (_, part) in enumerate(found) if isinstance(part, PackedSequence) or part.ndim)
    return next(with_axes, 0 if found else None)


class Packed(NamedTuple):
    """The items of a ``PackedSequence``.

    Attributes:
        rows: The items, shape (items, positions, …), with zeros behind their ends.
        lengths: How many positions each has.
        is_sorted: Whether the caller says that they were sorted, so that the order before is not kept.
    """

    rows: Tensor
    lengths: Tensor
    is_sorted: bool

    @classmethod
    def of(cls, packed: PackedSequence) -> Packed:
        """Return the items in the order in which they were packed.

        It is that of ``pad_packed_sequence``, which knows from the batch sizes and the sorted indices which
        entry belongs to which position of which item.
        """
        with torch.no_grad():
            plain = packed._replace(data=packed.data.detach())
            rows, lengths = pad_packed_sequence(plain, batch_first=True)
        return cls(rows, lengths, packed.sorted_indices is None)


def unpacked(packed: PackedSequence) -> Tensor:
    """Return the items in the order of the batch; see ``Packed``."""
    return Packed.of(packed).rows


def main_tensor(value: Any) -> tuple[int, Tensor] | None:
    """Return the first tensor that has axes, with its index among all tensors; else the first scalar.

    A model that is called with labels returns its loss first, then the logits, which are the main tensor.

    Args:
        value: The arguments or the result of a module call.
    """
    tensors = list(enumerate(leaves(value, Tensor)))
    return next((pair for pair in tensors if pair[1].ndim), tensors[0] if tensors else None)


def to_numpy(tensor: Tensor, rows: int | None = None, axis: int = 0) -> np.ndarray:
    """Copy a tensor to a C-contiguous numpy array.

    Args:
        tensor: The tensor. bfloat16 and 8-bit floats become float32.
        rows: How many of the first rows to copy; None for all.
        axis: The axis of the rows.

    Raises:
        TypeError: If the tensor is complex.
    """
    if tensor.is_complex():
        raise TypeError(f"complex tensors ({tensor.dtype}) cannot be recorded")
    part = _first(tensor.detach(), rows, axis)
    shares_memory = part.is_cpu and part.dtype in _NUMPY
    if part.dtype not in _NUMPY:
        part = part.float()
    if not shares_memory:
        return np.asarray(part.cpu().numpy(), order="C")
    if part.dtype == torch.bool:
        return np.array(shared_array(part.view(torch.uint8)), order="C").view(bool)
    return np.array(shared_array(part), order="C")


def to_projected(tensor: Tensor, rows: int | None = None, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Project the rows of a tensor, and compute their summary; see ``core.projection``.

    Args:
        tensor: The tensor.
        rows: How many of the first rows to use; None for all.
        axis: The axis of the rows.

    Returns:
        The projected rows and the summary of the rows before projection.

    Raises:
        TypeError: If the tensor is complex.
    """
    if tensor.is_complex():
        raise TypeError(f"complex tensors ({tensor.dtype}) cannot be recorded")
    with torch.no_grad():
        part = _first(tensor.detach(), rows, axis).float()
        features = part if part.ndim == 3 else part.flatten(1)
        return to_numpy(projected(features)), to_numpy(summary(part.movedim(axis, 0).flatten(1)))


def _first(tensor: Tensor, rows: int | None, axis: int) -> Tensor:
    if rows is not None and tensor.ndim > axis and tensor.shape[axis] > rows:
        return tensor.narrow(axis, 0, rows)
    return tensor
