"""Copy and hash arrays of numpy, for backends whose tensors numpy can read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

_Key = TypeVar("_Key")

_SAMPLE = 1 << 16  # values of the first batch that are hashed


def copied(array: np.ndarray, rows: int | None = None, axis: int = 0) -> np.ndarray:
    """Copy an array to a C-contiguous one of a dtype that numpy has itself.

    Args:
        array: The array; bfloat16 and 8-bit floats become float32.
        rows: How many of the first rows to copy; None for all.
        axis: The axis of the rows.

    Raises:
        TypeError: If the numbers are complex.
    """
    if array.dtype.kind == "c":
        raise TypeError(f"complex tensors ({array.dtype}) cannot be recorded")
    if rows is not None and array.ndim > axis:
        array = array[(slice(None),) * axis + (slice(rows),)]
    return whole(array)


def whole(array: np.ndarray) -> np.ndarray:
    """Copy an array, of complex numbers too, to a C-contiguous one of a dtype that numpy has itself.

    Raises:
        TypeError: If it has no numbers.
    """
    return np.array(array, array.dtype if array.dtype.kind in "fiubc" else np.float32, order="C")


def whole_of_numbers(arrays: Mapping[_Key, Any]) -> dict[_Key, np.ndarray]:
    """Return copies of those arrays that have numbers; see ``whole``."""
    found = {}
    for key, array in arrays.items():
        with suppress(TypeError, ValueError):  # quantized numbers of TensorFlow, which numpy has as records
            found[key] = whole(array)
    return found


class OnAccess(Mapping[str, np.ndarray]):
    """Arrays by address, which are copied to numpy when they are read.

    Args:
        tensors: Tensors that nothing writes to.
        read: Returns the array of one.
    """

    def __init__(self, tensors: Mapping[str, Any], read: Callable[[Any], Any]) -> None:
        self._tensors, self._read = tensors, read

    def __getitem__(self, address: str) -> np.ndarray:
        return whole(np.asarray(self._read(self._tensors[address])))

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def hashed(array: np.ndarray) -> bytes:
    """Return a hash of the first values of an array, which is equal for equal data."""
    digest = hashlib.blake2b(str((array.shape, array.dtype)).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(array.reshape(-1)[:_SAMPLE]).tobytes())
    return digest.digest()
