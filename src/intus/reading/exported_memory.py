"""Find which tensors of an exported program share memory, and what is written into it.

The file states the sizes, strides and offset of each tensor, so no operation has to run. A length that the
file leaves open is taken to reach anywhere: this can only add a tensor that something may come from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.vocabularies.families import DROPOUTS, RESHAPES, VIEWS
from .ancestry import is_before

#: Operators that return what they are given if there is nothing to do, otherwise a copy.
_UNCHANGED = DROPOUTS | {"contiguous", "to", "type_as"}
#: Their arguments by which they return a copy in any case.
_COPYING = frozenset(("copy", "train"))
_IN_PLACE = re.compile(r"\w*[^_]_|__i\w+__")


def is_in_place(name: str) -> bool:
    """Return whether an operator writes into its first argument, by its name.

    >>> [is_in_place(name) for name in ("add_", "__ior__", "__or__", "_softmax", "add")]
    [True, True, False, False, False]
    """
    return _IN_PLACE.fullmatch(name) is not None


def written_by(node: Mapping[str, Any]) -> list[str]:
    """Return the names of the tensors that a node writes into, by the name of its operator."""
    _, name, overload = ["", *node["target"].split(".")][-3:]
    if is_in_place(name):
        return [name for one in node["inputs"][:1] for _, name in tensors_in(one["arg"])]
    if overload == "out" or overload.endswith("_out"):
        return [name for one in node["inputs"] if one.get("kind") == 2 for _, name in tensors_in(one["arg"])]
    return []


def shared_by(
    node: Mapping[str, Any], type_: str, metas: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    """Yield the names of the tensors that a node returns and that have the memory of another, with the other.

    Args:
        node: The node.
        type_: The type of its operation.
        metas: What the file states of tensors, by name.
    """
    made = [name for one in node["outputs"] for _, name in tensors_in(one)]
    written = written_by(node)
    if written:
        yield from zip(made, written, strict=False)
    elif type_ in VIEWS | RESHAPES | _UNCHANGED and node["inputs"]:
        given = [name for _, name in tensors_in(node["inputs"][0]["arg"])]
        others = given if len(given) == len(made) else given[:1] * len(made)
        for one, other in zip(made, others, strict=False):
            if type_ in VIEWS or _is_shared(node, type_, metas.get(other), metas.get(one)):
                yield one, other


def _is_shared(
    node: Mapping[str, Any],
    type_: str,
    given: Mapping[str, Any] | None,
    made: Mapping[str, Any] | None,
) -> bool:
    """Return whether an operator that may copy did not, which the strides of its result tell."""
    if given is None or made is None:
        return True
    if given["dtype"] != made["dtype"] or _number(given["storage_offset"]) != _number(made["storage_offset"]):
        return False
    if type_ in RESHAPES:
        return _is_contiguous(given) or not _is_contiguous(made)
    copies = any(one["name"] in _COPYING and one["arg"].get("as_bool") for one in node["inputs"])
    return not copies and given["strides"] == made["strides"]


def _is_contiguous(meta: Mapping[str, Any]) -> bool:
    step = 1
    for size, stride in zip(reversed(meta["sizes"]), reversed(meta["strides"]), strict=True):
        length = _number(size)
        if length != 1 and _number(stride) != step:
            return False
        step *= length
    return True


def _number(size: Mapping[str, Any]) -> int:
    """Return a length; of one that is open, that of the inputs that the program was exported with."""
    if "as_int" in size:
        return int(size["as_int"])
    return int(((size.get("as_expr") or {}).get("hint") or {}).get("as_int", -1))


class Place(NamedTuple):
    """A part of a memory.

    Attributes:
        memory: The name of the tensor that the memory was made for.
        first: Its first byte.
        last: Its last byte.
    """

    memory: str
    first: float = 0
    last: float = math.inf

    def overlaps(self, other: Place) -> bool:
        """Return whether a tensor in one place may have elements of another."""
        return self.memory == other.memory and self.first <= other.last and other.first <= self.last


def place_of(memory: str, meta: Mapping[str, Any] | None, size: int) -> Place:
    """Return the place of a tensor.

    Args:
        memory: Its memory.
        meta: What the file states of it.
        size: The bytes of one element; 0 if that is not known.

    Example:
        >>> row = {"sizes": [{"as_int": 3}], "strides": [{"as_int": 1}], "storage_offset": {"as_int": 3}}
        >>> place_of("x", row, 4)
        Place(memory='x', first=12, last=23)
    """
    numbers = [] if meta is None else [*meta["sizes"], *meta["strides"], meta["storage_offset"]]
    if not size or meta is None or not all("as_int" in one for one in numbers):
        return Place(memory)
    first = _number(meta["storage_offset"])
    steps = [(_number(n) - 1) * _number(by) for n, by in zip(meta["sizes"], meta["strides"], strict=True)]
    return Place(memory, first * size, (first + sum(max(step, 0) for step in steps) + 1) * size - 1)


class Writes:
    """The rows that wrote into memory, and the parents by which a row descends from another."""

    def __init__(self) -> None:
        self._writes: dict[str, list[tuple[int, Place]]] = {}
        self._parents: dict[int, Sequence[int]] = {}

    def descends(self, row: int, parents: Sequence[int]) -> None:
        """State the parents of a row."""
        self._parents[row] = parents

    def add(self, row: int, place: Place) -> None:
        """State that a row wrote into a place."""
        self._writes.setdefault(place.memory, []).append((row, place))

    def sources(self, row: int | None, place: Place) -> list[int]:
        """Return the rows that what a tensor contains comes from, the last first.

        As in a trace, these are the operations that wrote into its memory after its own row, and that row,
        without those that a later one descends from.

        Args:
            row: The row of the tensor; None if it has none.
            place: Where it is.
        """
        found: list[int] = []
        for writer, at in reversed(self._writes.get(place.memory, ())):
            if row is not None and writer <= row:
                break
            if place.overlaps(at) and not self._is_ancestor(writer, found):
                found.append(writer)
        if row is not None and not self._is_ancestor(row, found):
            found.append(row)
        return found

    def _is_ancestor(self, row: int, others: Sequence[int]) -> bool:
        return any(is_before(row, other, self._parents) for other in others)


def tensors_in(argument: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of every tensor in an argument: ``("", "x")``, ``("1", "y")``."""
    if not isinstance(argument, dict):
        return
    for kind, value in argument.items():
        if kind in ("as_tensor", "as_optional_tensor") and isinstance(value, dict):
            inner = value.get("as_tensor", value)  # an optional one is wrapped once more
            if isinstance(inner, dict) and "name" in inner:
                yield "", inner["name"]
        elif kind in ("as_tensors", "as_optional_tensors", "as_nested_tensors") and isinstance(value, list):
            for place, one in enumerate(value):
                found = {"as_tensor": one} if isinstance(one, dict) and "name" in one else one
                if isinstance(found, list):
                    found = {"as_tensors": found}
                yield from ((f"{place}.{rest}".rstrip("."), name) for rest, name in tensors_in(found))
