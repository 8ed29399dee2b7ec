"""Read the values of a trace as numbers, whether they are torch tensors or numpy arrays.

The values of a pass of PyTorch are tensors; those of another framework and of a model file are numpy arrays.
What shows values reads them with these functions, so that neither needs the other's package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...core.shared_array import shared_array
from ..capture.saving.stored import Value

if TYPE_CHECKING:
    from ...core.units import Index

T = TypeVar("T")
BLOCK = 32_768  # elements: 256 KiB as float64


def blocks(*values: Value) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the elements of values in blocks, as flat float64 arrays of at most ``BLOCK`` elements.

    Args:
        *values: Arrays or CPU tensors with the same number of elements.

    Yields:
        One array for each value, of the same elements in row-major order.

    Example:
        >>> import torch
        >>> [(x.tolist(), y.tolist()) for x, y in blocks(torch.ones(1, 2), np.zeros((2, 1)))]
        [([1.0, 1.0], [0.0, 0.0])]
    """
    flat = [value.reshape(-1) for value in values]
    for start in range(0, max(1, prod(values[0].shape)), BLOCK):
        yield tuple(float64(one[start : start + BLOCK]) for one in flat)


def float64(value: Value) -> np.ndarray:
    """Return a value as a float64 array on the CPU; it may share memory with the value."""
    if isinstance(value, np.ndarray):
        return value.astype(np.float64, copy=False)
    import torch

    return shared_array(value.to("cpu", torch.float64))


def numbers(value: Value) -> Any:
    """Return a value without gradients, of which slices can be read as ``float64``.

    Args:
        value: The value; of a ``DTensor`` the part of this process is returned.

    Returns:
        The array or tensor. None for an array of anything but numbers, and for a tensor on ``meta``, a
        quantized or a sparse tensor.
    """
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "biufc" or is_extended(value.dtype) else None
    import torch

    from ..capture.memory import local_of

    value = local_of(value)
    if value.is_meta or value.is_quantized or value.layout != torch.strided:
        return None
    return value.detach()


def is_extended(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is one of numbers that the package ml_dtypes adds to numpy, as bfloat16."""
    return dtype.type.__module__ == "ml_dtypes"


def is_complex(value: Value) -> bool:
    """Return whether a value has complex numbers."""
    return bool(value.dtype.kind == "c" if isinstance(value, np.ndarray) else value.is_complex())


def is_integer(value: Value) -> bool:
    """Return whether a value has integers, which booleans are not."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iu"
    return not (value.is_floating_point() or value.is_complex() or str(value.dtype) == "torch.bool")


def as_numpy(value: Value) -> np.ndarray:
    """Return a value as an array of its own dtype.

    Raises:
        TypeError: If numpy has no such dtype: a bfloat16 tensor.
    """
    if isinstance(value, np.ndarray):
        return value
    array: np.ndarray = value.detach().cpu().resolve_conj().resolve_neg().numpy()
    return array


def part(value: Value, index: Sequence[Index]) -> Any:
    """Return the part of a value that an index selects.

    Args:
        value: The value.
        index: One entry for each axis; an integer removes its axis, lists are combined as by ``np.ix_``.

    Example:
        >>> part(np.arange(6).reshape(2, 3), [slice(None), [0, 2]]).tolist()
        [[0, 2], [3, 5]]
    """
    if not isinstance(value, np.ndarray):
        from ..replaying.edits import part_of

        return part_of(value, index)[0]
    single = tuple(axis for axis, one in enumerate(index) if isinstance(one, int))
    lists = [
        one if isinstance(one, list) else [one] if isinstance(one, int) else list(range(length)[one])
        for one, length in zip(index, value.shape, strict=True)
    ]
    return value[np.ix_(*lists)].squeeze(single)


def unrecorded(compute: Callable[[Any], T], value: Value) -> T | None:
    """Call a function with a value, while no trace records what it does to tensors.

    Returns:
        Its result; None if the value refuses (fake, nested, a class that refuses).
    """
    if isinstance(value, np.ndarray):
        return compute(value)
    import torch

    from ..capture.context.no_collectives import collectives_refused

    alone = collectives_refused(compute, wraps=True)  # the other processes do not compute it
    with torch._C.DisableTorchFunction(), torch.no_grad(), alone:
        try:
            return compute(value)
        except (RuntimeError, NotImplementedError, TypeError):  # fake, nested, or a class that refuses
            return None
