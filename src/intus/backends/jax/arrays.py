"""Find the arrays of nested arguments, and copy them to numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any
from weakref import ref

import jax
import numpy as np
from jax import dtypes

from ...core.nested import named
from ..base import CapturedTensor
from ..host_arrays import copied


def is_array(value: Any) -> bool:
    """Return whether a value is an array of numbers: of JAX, traced, abstract or of numpy."""
    if not isinstance(value, jax.Array | jax.ShapeDtypeStruct | np.ndarray | np.generic):
        return False
    return not dtypes.issubdtype(value.dtype, dtypes.extended)  # keys of random numbers


_COUNT = count(1)
_SERIALS: dict[int, tuple[ref[Any], int]] = {}  # by the identity of an array that may be gone


def serial(array: Any) -> int:
    """Return a number of an array that no other array of the process has, unlike ``id``, which is used again.

    Example:
        >>> one = jax.numpy.zeros(2)
        >>> serial(one) == serial(one), serial(one) == serial(jax.numpy.zeros(2))
        (True, False)
    """
    if isinstance(array, np.generic):
        return hash(array)
    at = id(array)
    known = _SERIALS.get(at)
    if known is None or known[0]() is not array:
        known = _SERIALS[at] = ref(array, lambda gone: _forget(at, gone)), next(_COUNT)
    return known[1]


def _forget(at: int, gone: ref[Any]) -> None:
    if at in _SERIALS and _SERIALS[at][0] is gone:
        del _SERIALS[at]


def array_names(value: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[str]:
    """Return the paths of the arrays that a module call returned, in the order of ``main_array``."""
    leaves = {id(leaf): leaf for leaf in jax.tree.leaves(value, is_leaf=is_leaf) if is_array(leaf)}
    return [path for path, _ in named(value, list(leaves.values()))]


def main_array(
    value: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[int, Any, Callable[[Any], Any]] | None:
    """Find the first array that has axes, else the first scalar.

    Args:
        value: The arguments or the result of a module call.
        is_leaf: Returns whether an object is not searched. Default: none.

    Returns:
        Its index among all arrays, the array, and a function that returns ``value`` with another in its
        place; None if there is no array.
    """
    leaves, tree = jax.tree.flatten(value, is_leaf=is_leaf)
    positions = {id(leaf): position for position, leaf in enumerate(leaves) if is_array(leaf)}
    arrays = [array for _, array in named(value, [leaves[position] for position in positions.values()])]
    if not arrays:
        return None
    index = next((index for index, array in enumerate(arrays) if array.ndim), 0)
    main = positions[id(arrays[index])]

    def replaced(array: Any) -> Any:
        return jax.tree.unflatten(tree, [*leaves[:main], array, *leaves[main + 1 :]])

    return index, leaves[main], replaced


def captured(
    address: str,
    kind: str,
    index: int,
    aval: Any,
    value: Callable[[], Any],
    began: tuple[float, float] | None = None,
    *,
    without_rows: str = "",
) -> CapturedTensor:
    """Describe an array for the tap.

    Args:
        address: The operation with its call, or the parameter.
        kind: One of ``core.record.KINDS``.
        index: The index among several arrays.
        aval: Its shape and dtype.
        value: Returns the array, which may have to be computed.
        began: When the work for it began; see ``CapturedTensor``.
        without_rows: Why its batch axis cannot be known; "" if it can.
    """
    nbytes = int(np.prod(aval.shape, dtype=np.int64)) * max(np.dtype(aval.dtype).itemsize, 1)
    copy = partial(_copy, value)
    return CapturedTensor(
        address,
        kind,
        index,
        tuple(aval.shape),
        nbytes,
        copy,
        began=began,
        pass_apart=began is not None,
        without_rows=without_rows,
    )


def _copy(value: Callable[[], Any], rows: int | None = None, axis: int = 0) -> np.ndarray:
    return to_numpy(value(), rows, axis)


def to_numpy(array: Any, rows: int | None = None, axis: int = 0) -> np.ndarray:
    """Copy an array to numpy; see ``copied``."""
    return copied(np.asarray(array), rows, axis)  # asarray shares memory, which the training may overwrite


def first_rows(inputs: Any, axis: int) -> int | None:
    """Return the length along ``axis`` of the first array that has that axis, or None."""
    return next((leaf.shape[axis] for leaf in jax.tree.leaves(inputs) if np.ndim(leaf) > axis), None)
