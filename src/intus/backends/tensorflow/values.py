"""Convert arrays and tensors to the ``CapturedTensor`` that a tap receives, and hash them."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...core.errors import InputError
from ..base import CapturedTensor, check_kinds
from ..host_arrays import copied, order_of_rows


class LazyArguments(Sequence[Any]):
    """The arguments of a call, ``(args, kwargs)``, which are nested only when somebody reads them.

    Most calls are not observed, and to nest values takes longer than to decide that.

    Args:
        nest: Returns the arguments.
    """

    def __init__(self, nest: Callable[[], tuple[Any, Any]]) -> None:
        self._nest = nest
        self._nested: tuple[Any, Any] | None = None

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: Any) -> Any:
        if self._nested is None:
            self._nested = self._nest()
        return self._nested[index]


def captured(
    address: str, kind: str, index: int, array: Any, began: tuple[float, float] | None = None
) -> CapturedTensor:
    """Describe an array, or a tensor that numpy can read, for the tap.

    Args:
        address: The operation with its call, or the parameter.
        kind: One of ``core.record.KINDS``.
        index: The index among several tensors.
        array: The values.
        began: When the work for it began; see ``CapturedTensor``.
    """
    shape = tuple(int(length) for length in array.shape)
    nbytes = math.prod(shape) * _item_size(array)
    return CapturedTensor(address, kind, index, shape, nbytes, partial(to_numpy, array), began=began)


def to_numpy(array: Any, rows: int | None = None, axis: int = 0) -> np.ndarray:
    """Copy an array or a tensor to numpy; see ``copied``."""
    return copied(as_array(array), rows, axis)


def as_array(value: Any) -> np.ndarray:
    """Return an array or tensor of any framework that Keras runs on as an array."""
    if hasattr(value, "detach"):  # a tensor of torch may require a gradient
        value = value.detach().cpu()
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _item_size(array: Any) -> int:
    """Return the size of an element as ``copied`` returns it."""
    dtype = array.dtype
    if hasattr(dtype, "as_numpy_dtype"):  # of TensorFlow
        dtype = np.dtype(dtype.as_numpy_dtype)
    elif not isinstance(dtype, np.dtype):  # of torch
        dtype = np.dtype(str(dtype).rpartition(".")[2])
    return dtype.itemsize if dtype.kind in "fiub" else 4


def arrays_in(value: Any) -> Iterator[Any]:
    """Yield the arrays and tensors inside tuples, lists and mappings, in order."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | LazyArguments):
        for part in value:
            yield from arrays_in(part)
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        yield value


def first_rows(inputs: Any, axis: int) -> int | None:
    """Return the length along ``axis`` of the first array that has that axis, or None."""
    return next((int(one.shape[axis]) for one in arrays_in(inputs) if len(one.shape) > axis), None)


def first_batch(inputs: Any, axis: int) -> bytes | str:
    """Return a hash of the arrays of a call's arguments, or the reason why there is none."""
    return order_of_rows(map(as_array, arrays_in(inputs)), axis)


def checksum(arrays: Iterable[np.ndarray]) -> int:
    """Return a number that depends on the content of arrays."""
    total = 0
    for array in arrays:
        total = zlib.crc32(array.tobytes(), total)
    return total


def content_hash(parts: Iterable[str | np.ndarray]) -> str:
    """Return a hash of texts and arrays."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        head, body = (part, b"") if isinstance(part, str) else (f"{part.dtype}{part.shape}", part.tobytes())
        digest.update(f"{len(head)} {head} {len(body)} ".encode() + body)
    return digest.hexdigest()


def as_inputs(data: Any, dtype: str) -> Any:
    """Return data with all floating-point arrays in another dtype.

    Args:
        data: An array or tensor, a tuple of positional arguments, or a mapping of keyword arguments.
        dtype: The dtype of the model's inputs; ``""`` to leave it.
    """
    if isinstance(data, Mapping):
        return {key: as_inputs(value, dtype) for key, value in data.items()}
    if isinstance(data, tuple | list):
        return type(data)(as_inputs(value, dtype) for value in data)
    if isinstance(data, np.ndarray) and data.dtype.kind == "f" and dtype:
        return data.astype(dtype, copy=False)
    return data


def possible_kinds(kinds: Collection[str], possible: tuple[str, ...], of: str) -> tuple[str, ...]:
    """Return the kinds, without duplicates.

    Args:
        kinds: The kinds to capture.
        possible: Those that can be captured.
        of: The type of the model, for the error.

    Raises:
        InputError: If one cannot be captured.
    """
    checked = check_kinds(kinds)
    if impossible := [kind for kind in checked if kind not in possible]:
        raise InputError(f"kinds of {of} must be of {', '.join(possible)}, got {impossible[0]}.")
    return checked
