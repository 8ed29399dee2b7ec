"""Find MXNet's arrays in nested values, and convert them to numpy and to what a tap receives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from mxnet import nd
from mxnet.gluon import rnn
from mxnet.ndarray import NDArray

from ...core.nested import leaves
from ..base import CapturedTensor


def to_numpy(array: NDArray, rows: int | None = None, axis: int = 0) -> np.ndarray:
    """Copy an array to numpy.

    Args:
        array: The array; a sparse one becomes dense.
        rows: How many of the first rows to copy; None for all.
        axis: The axis of the rows.
    """
    if array.stype != "default":
        array = array.tostype("default")
    if rows is not None and array.ndim > axis and array.shape[axis] > rows:
        legacy = array.as_nd_ndarray()
        array = nd.slice_axis(legacy.detach(), axis=axis, begin=0, end=rows)
    copied: np.ndarray = array.asnumpy()
    return copied


def batch_axis(part: Any) -> int | None:
    """Return the axis of the batch of a recurrent layer, which has time first by default; else None.

    Example:
        >>> batch_axis(rnn.GRU(4)), batch_axis(rnn.GRU(4, layout="NTC")), batch_axis(object())
        (1, 0, None)
    """
    return part._layout.find("N") if isinstance(part, rnn.RNN | rnn.LSTM | rnn.GRU) else None


def captured(
    address: str, kind: str, array: NDArray, index: int = 0, axis: int | None = None
) -> CapturedTensor:
    """Describe an array for the tap.

    Args:
        address: The operation with its call, or the parameter.
        kind: One of ``core.record.KINDS``.
        array: The array.
        index: The index among several arrays.
        axis: The axis of the rows of sequences; None if the operation does not determine it.
    """
    shape = tuple(array.shape)
    axis = axis if len(shape) == 3 else None
    size = math.prod(shape) * np.dtype(array.dtype).itemsize
    return CapturedTensor(address, kind, index, shape, size, partial(to_numpy, array), axis)


def main_array(value: Any) -> tuple[int, NDArray] | None:
    """Return the first array that has axes, with its index among all arrays; else the first one.

    Args:
        value: The arguments or the result of a call.
    """
    arrays = list(enumerate(leaves(value, NDArray)))
    return next((pair for pair in arrays if pair[1].ndim), arrays[0] if arrays else None)


def replaced(value: Any, old: Any, new: Any) -> Any:
    """Return a value of nested lists, tuples and dicts with one part, found by identity, replaced.

    Example:
        >>> array = object()
        >>> replaced((1, [array, {"b": array, "a": 0}]), array, 2)
        (1, [2, {'b': 2, 'a': 0}])
    """
    if value is old:
        return new
    if isinstance(value, dict):
        changed = copy(value)  # of its class
        changed.update((key, replaced(part, old, new)) for key, part in value.items())
        return changed
    if isinstance(value, list | tuple):
        parts = [replaced(part, old, new) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def first_rows(inputs: Any, axis: int) -> int | None:
    """Return the length along ``axis`` of the first array of the arguments that has that axis, or None."""
    arrays = [array for kind in (NDArray, np.ndarray) for array in leaves(inputs, kind)]
    return next((int(array.shape[axis]) for array in arrays if array.ndim > axis), None)


def as_arrays(data: Any, ctx: Any, dtype: Any) -> Any:
    """Return data with numpy arrays as arrays of MXNet, floats in a given dtype.

    Args:
        data: An array, a tuple of arguments, or a mapping of named ones.
        ctx: The device.
        dtype: The dtype of floats; None to keep theirs.
    """
    if isinstance(data, Mapping):
        return {name: as_arrays(value, ctx, dtype) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(as_arrays(value, ctx, dtype) for value in data)
    if isinstance(data, np.ndarray):
        to = dtype if dtype is not None and np.issubdtype(data.dtype, np.floating) else data.dtype
        return nd.array(data, ctx=ctx, dtype=to)
    return data.as_in_context(ctx) if isinstance(data, NDArray) else data
