"""Copy and hash arrays of numpy, for backends whose tensors numpy can read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

_Key = TypeVar("_Key")

#: The reasons why a batch shows nothing of the order of rows.
ALIKE = "all rows of a first batch are alike, which shows no order"
NO_ARRAYS = "a call has no inputs that intus can read"
_SAMPLE = 1 << 16  # values of each array of a first batch that are hashed


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


def order_of_rows(arrays: Iterable[np.ndarray], axis: int) -> bytes | str:
    """Return a hash of a batch, equal for the same rows in the same order; or why there is none.

    It is of values from all over each array, and of all arrays: one may be the same in every batch, such as
    an attention mask.

    Args:
        arrays: What the model gets.
        axis: The axis of the rows.

    Example:
        >>> order_of_rows([np.ones((2, 3))], 0)
        'all rows of a first batch are alike, which shows no order'
        >>> same = order_of_rows([np.ones((2, 3)), np.array([1, 2])], 0)
        >>> same == order_of_rows([np.ones((2, 3)), np.array([2, 1])], 0)
        False
    """
    digest, are_alike, found = hashlib.blake2b(digest_size=16), None, False
    for array in arrays:
        if not array.ndim:
            continue
        found, flat = True, array.reshape(-1)
        digest.update(f"{array.shape} {array.dtype} ".encode())
        digest.update(np.ascontiguousarray(flat[:: step_of_sample(flat.size)]).tobytes())
        if are_alike is not False and array.ndim > axis and array.shape[axis] > 1:
            rows = iter(np.moveaxis(array, axis, 0))
            first = next(rows).tobytes()
            are_alike = all(row.tobytes() == first for row in rows)
    if not found:
        return NO_ARRAYS
    return ALIKE if are_alike else digest.digest()


def step_of_sample(size: int) -> int:
    """Return the distance of the values of an array of a batch that are hashed."""
    return -(-size // _SAMPLE) or 1
