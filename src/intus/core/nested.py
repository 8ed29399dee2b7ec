"""What stands inside containers: one rule for what a model takes and returns, whoever looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")
_DEPTH = 8  # a container that holds itself has no end


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
    if isinstance(value, tuple | list):
        parts: Any = value
    elif isinstance(value, dict | Mapping):  # most are, and to ask an abstract class takes long
        parts = value.values()
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, one.name, None) for one in fields(value)]
    else:
        return []
    return [
        one
        for part in parts
        for one in ((part,) if type(part) is wanted else leaves(part, wanted, depth - 1))
    ]
