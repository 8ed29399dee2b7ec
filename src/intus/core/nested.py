"""What stands inside containers: one rule for what a model takes and returns, whoever looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")
_DEPTH = 8  # a container that holds itself has no end
_SEQUENCES = (tuple, list)
_CONTAINERS = (*_SEQUENCES, dict, Mapping)  # dict by itself, since an abstract class takes long to ask


def leaves(value: Any, wanted: type[T], depth: int = _DEPTH) -> list[T]:
    """Every ``wanted`` inside tuples, lists, mappings and dataclasses, eight deep, in order.

    Any other object is foreign and not looked into.

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


def paths(value: Any, wanted: type[T], path: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, T]]:
    """What ``leaves`` finds, each with the way to it: keys, fields and places, joined by dots.

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
    """What a container holds, by place or by name; nothing where it is foreign."""
    if isinstance(value, _CONTAINERS):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name, None) for one in fields(value)}
    return ()
