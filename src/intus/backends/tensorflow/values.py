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

_SAMPLE = 1 << 16  # values of the first batch that are hashed
NO_INPUTS = "a step has no inputs that the host can read"


class CallInputs(Sequence[Any]):
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


def captured(address: str, kind: str, index: int, array: Any) -> CapturedTensor:
    """Describe an array, or a tensor that numpy can read, for the tap.

    Args:
        address: The operation with its call, or the parameter.
        kind: One of ``core.record.KINDS``.
        index: The index among several tensors.
        array: The values.
    """
    shape = tuple(int(length) for length in array.shape)
    size = np.dtype(_dtype(array)).itemsize
    return CapturedTensor(address, kind, index, shape, math.prod(shape) * size, partial(to_numpy, array))


def to_numpy(array: Any, rows: int | None = None, axis: int = 0) -> np.ndarray:
    """Copy an array to a C-contiguous one of a dtype that numpy has itself.

    Args:
        array: The array; bfloat16 and 8-bit floats become float32.
        rows: How many of the first rows to copy; None for all.
        axis: The axis of the rows.

    Raises:
        TypeError: If the numbers are complex.
    """
    if np.dtype(_numpy_dtype(array)).kind == "c":
        raise TypeError(f"complex tensors ({array.dtype}) cannot be recorded")
    values = as_array(array)
    if rows is not None and values.ndim > axis:
        values = values[(slice(None),) * axis + (slice(rows),)]
    return np.array(values, dtype=_dtype(array), order="C")


def as_array(value: Any) -> np.ndarray:
    """Return an array or tensor of any framework that Keras runs on as an array."""
    if hasattr(value, "detach"):  # a tensor of torch may require a gradient
        value = value.detach().cpu()
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _numpy_dtype(array: Any) -> Any:
    dtype = array.dtype
    if hasattr(dtype, "as_numpy_dtype"):  # of TensorFlow
        return dtype.as_numpy_dtype
    return dtype if isinstance(dtype, np.dtype) else np.dtype(str(dtype).rpartition(".")[2])  # of torch


def _dtype(array: Any) -> Any:
    dtype = np.dtype(_numpy_dtype(array))
    return dtype if dtype.kind in "fiub" else np.dtype(np.float32)


def arrays_in(value: Any) -> Iterator[Any]:
    """Yield the arrays and tensors inside tuples, lists and mappings, in order."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | CallInputs):
        for part in value:
            yield from arrays_in(part)
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        yield value


def first_rows(inputs: Any, axis: int) -> int | None:
    """Return the length along ``axis`` of the first array that has that axis, or None."""
    return next((int(one.shape[axis]) for one in arrays_in(inputs) if len(one.shape) > axis), None)


def first_batch(inputs: Any) -> bytes | str:
    """Return a hash of the first array that has axes, or the reason why there is none."""
    array = next((one for one in arrays_in(inputs) if len(one.shape)), None)
    if array is None:
        return NO_INPUTS
    values = as_array(array)
    digest = hashlib.blake2b(str((values.shape, values.dtype)).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(values.reshape(-1)[:_SAMPLE]).tobytes())
    return digest.digest()


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
