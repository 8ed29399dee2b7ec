"""Find values in nested containers.

One rule defines what counts as a container of a model's inputs and outputs, for every caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")
_MAX_DEPTH = 8  # a container may contain itself
_SEQUENCES = (tuple, list)
_CONTAINERS = (*_SEQUENCES, dict, Mapping)  # dict separately: isinstance with an abstract class is slow


def leaves(value: Any, wanted: type[T], depth: int = _MAX_DEPTH) -> list[T]:
    """Return all values of a type inside tuples, lists, mappings and dataclasses, in order.

    Other objects are not searched.

    Args:
        value: The container, or a single value.
        wanted: The type to find.
        depth: The maximum nesting depth.

    Example:
        >>> leaves({"a": (1, [2, "b"]), "c": 3.0}, int)
        [1, 2]
    """
    if isinstance(value, wanted):
        return [value]
    if depth < 0:
        return []
    parts = _parts(value)
    return [
        one
        for part in (parts if isinstance(parts, _SEQUENCES) else parts.values())
        for one in ((part,) if type(part) is wanted else leaves(part, wanted, depth - 1))
    ]


def paths(value: Any, wanted: type[T], path: str = "", depth: int = _MAX_DEPTH) -> Iterator[tuple[str, T]]:
    """Yield the values that ``leaves`` returns, each with its path: keys, fields and indices joined by dots.

    Args:
        value: The container, or a single value.
        wanted: The type to find.
        path: The path of ``value`` itself.
        depth: The maximum nesting depth.

    Yields:
        Pairs of a path and a value.

    Example:
        >>> list(paths({"a": (1, [2, "b"]), "c": 3.0}, int))
        [('a.0', 1), ('a.1.0', 2)]
    """
    if isinstance(value, wanted):
        yield path, value
    if isinstance(value, wanted) or depth < 0:
        return
    parts = _parts(value)
    for key, part in enumerate(parts) if isinstance(parts, _SEQUENCES) else parts.items():
        yield from paths(part, wanted, f"{path}.{key}" if path else str(key), depth - 1)


def _parts(value: Any) -> tuple[Any, ...] | list[Any] | Mapping[Any, Any]:
    """Return the elements of a container, by index or by name; empty for other objects."""
    if isinstance(value, _CONTAINERS):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name, None) for one in fields(value)}
    return ()
