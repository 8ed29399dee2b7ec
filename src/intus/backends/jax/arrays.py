"""Find the arrays of nested arguments, and copy them to numpy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any
from weakref import ref

import jax
import numpy as np
from jax import dtypes

from ...core.collecting import when_gone
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
        known = _SERIALS[at] = when_gone(array, partial(_forget, at)), next(_COUNT)
    return known[1]


def _forget(at: int, gone: ref[Any]) -> None:
    if at in _SERIALS and _SERIALS[at][0] is gone:
        del _SERIALS[at]


def array_names(value: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[str]:
    """Return the paths of the arrays that a module call returned, in the order of ``main_array``."""
    return [path for path, _ in _named_arrays(value, is_leaf)]


def _named_arrays(value: Any, is_leaf: Callable[[Any], bool] | None) -> list[tuple[str, Any]]:
    """Return the arrays of a value, each once, with their paths, in the order in which it has them."""
    leaves = {id(leaf): leaf for leaf in jax.tree.leaves(value, is_leaf=is_leaf) if is_array(leaf)}
    return named(value, list(leaves.values()))


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
    arrays = [array for _, array in _named_arrays(value, is_leaf)]
    if not arrays:
        return None
    index = next((index for index, array in enumerate(arrays) if array.ndim), 0)
    main = arrays[index]

    def replaced(array: Any) -> Any:
        return mapped(lambda leaf: array if leaf is main else leaf, value, is_leaf)

    return index, main, replaced


def mapped(function: Callable[[Any], Any], value: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Return what ``jax.tree.map`` returns, with the keys of each dict in their order, which that sorts.

    Code that gets the value instead of the original may go through a dict by its order.

    Example:
        >>> mapped(abs, {"b": -1, "a": [-2, {"d": -3, "c": None}]})
        {'b': 1, 'a': [2, {'d': 3, 'c': None}]}
    """
    if is_leaf is not None and is_leaf(value):
        return function(value)
    parts, tree = jax.tree.flatten(value, is_leaf=lambda part: part is not value)
    if parts and parts[0] is value:
        return function(value)
    return ordered_as(value, jax.tree.unflatten(tree, [mapped(function, part, is_leaf) for part in parts]))


def ordered_as(value: Any, other: Any) -> Any:
    """Return ``other`` with the keys of its dicts in the order of ``value``, which is built alike.

    Example:
        >>> ordered_as(({"b": 0, "a": 0}, 0), ({"a": 1, "b": 2}, 3))
        ({'b': 2, 'a': 1}, 3)
    """
    if type(value) is not type(other):
        return other
    if isinstance(value, defaultdict):
        return defaultdict(other.default_factory, ordered_as(dict(value), dict(other)))
    if type(value) is dict:
        return {key: ordered_as(part, other[key]) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(ordered_as, value, other))
    return other


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
