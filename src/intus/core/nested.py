"""Find values in nested containers.

One rule defines what counts as a container of a model's inputs and outputs, for every caller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")
_MAX_DEPTH = 8  # a container may contain itself
_MAX_OBJECTS = 1000  # an object may refer to a whole program
_SEQUENCES = (tuple, list, deque)
_CONTAINERS = (*_SEQUENCES, dict, Mapping)  # dict separately: isinstance with an abstract class is slow
_NO_OBJECTS = frozenset({int, float, bool, str, bytes, complex, type(None), type(...), slice, range})


def leaves(value: Any, wanted: type[T]) -> list[T]:
    """Return all values of a type inside tuples, lists, mappings, dataclasses and objects, in order.

    The parts of an object (a ``Data`` of PyG, a cache of keys and values) are its attributes. Callable
    objects are not searched: functions, classes, modules.

    Args:
        value: The container, or a single value.
        wanted: The type to find.

    Example:
        >>> leaves({"a": (1, [2, "b"]), "c": 3.0}, int)
        [1, 2]
    """
    return [one for _, one in paths(value, wanted)]


def paths(value: Any, wanted: type[T]) -> Iterator[tuple[str, T]]:
    """Yield the values that ``leaves`` returns, each with its path.

    A path joins keys, fields, attributes and indices by dots. Private attributes are left out of it, and so
    is the one attribute of an object that holds its elements.

    Args:
        value: The container, or a single value.
        wanted: The type to find.

    Yields:
        Pairs of a path and a value.

    Example:
        >>> list(paths({"a": (1, [2, "b"]), "c": 3.0}, int))
        [('a.0', 1), ('a.1.0', 2)]
        >>> from types import SimpleNamespace
        >>> list(paths(SimpleNamespace(a=1, _store={"b": 2}), int))
        [('a', 1), ('b', 2)]
    """
    yield from _search(value, wanted, "", _MAX_DEPTH, {})


def named(value: Any, parts: Sequence[T]) -> list[tuple[str, T]]:
    """Return parts of what a model returned with their paths, in the order in which the model returned them.

    A framework's own function that takes containers apart may sort the keys of a dict, and names none.

    Args:
        value: The container, or a single value.
        parts: The parts that the framework found. Those to which no path leads come last, without a name.

    Returns:
        Pairs of a path and a part. A path that is only a number carries no information, so it is ``""``.

    Example:
        >>> named({"late": 1.5, "early": (2.5, 3.5)}, [2.5, 3.5, 1.5])
        [('late', 1.5), ('early.0', 2.5), ('early.1', 3.5)]
    """
    left = {id(part): part for part in parts}
    wanted: Any = tuple({type(part) for part in parts})
    found = [(path, part) for path, part in paths(value, wanted) if id(part) in left]
    for _, part in found:
        left.pop(id(part), None)
    ordered = [("" if path.isdigit() else path, part) for path, part in found]
    return [*ordered, *(("", part) for part in left.values())]


def holders(value: Any) -> list[Any]:
    """Return the containers and objects that ``paths`` searches: whatever may be changed in place.

    Args:
        value: The container or object.

    Example:
        >>> holders({"a": (1, [2])})
        [{'a': (1, [2])}, (1, [2]), [2]]
    """
    found: dict[int, Any] = {}
    for _ in _search(value, _Nothing, "", _MAX_DEPTH, found):
        pass
    return list(found.values())


class _Nothing:
    """A type without instances."""


def _search(
    value: Any, wanted: type[T], path: str, depth: int, holders: dict[int, Any]
) -> Iterator[tuple[str, T]]:
    """Yield the values inside ``value``, and collect what holds them by id."""
    if isinstance(value, wanted):
        yield path, value
        return
    if type(value) in _NO_OBJECTS or depth < 0:
        return
    if isinstance(value, _CONTAINERS) or is_dataclass(value):
        parts: Iterable[tuple[Any, Any]] = _elements(value)
    elif id(value) in holders or len(holders) > _MAX_OBJECTS:  # objects often refer to each other
        return
    else:
        parts = _attributes(value)
    holders[id(value)] = value
    for key, part in parts:
        inner = path if key is None else f"{path}.{key}" if path else str(key)
        yield from _search(part, wanted, inner, depth - 1, holders)


def _elements(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the elements of a container with their indices, keys or fields."""
    if isinstance(value, _SEQUENCES):
        return enumerate(value)
    if isinstance(value, dict | Mapping):
        return value.items()
    if isinstance(value, type):
        return ()
    return [(one.name, _field(value, one.name)) for one in fields(value)]


def _field(value: Any, name: str) -> Any:
    """Return a field of a dataclass without running code of its class; None if it has no value."""
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return None


def _attributes(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the attributes of an object with their names; None for names that are left out of paths."""
    attributes = {**getattr(value, "__dict__", {}), **slots(value)}
    if not attributes or callable(value) or isinstance(value, ModuleType):
        return ()
    lists = [name for name, part in attributes.items() if isinstance(part, list)]
    is_sequence = len(lists) == 1 and _length(value) == len(attributes[lists[0]])
    return [
        (None if str(name).startswith("_") or (is_sequence and name == lists[0]) else name, part)
        for name, part in list(attributes.items())
    ]


def slots(value: Any) -> dict[str, Any]:
    """Return the attributes of an object that its classes declare as ``__slots__``, as far as they are set.

    Args:
        value: The object.

    Example:
        >>> class Point:
        ...     __slots__ = ("x", "y")
        >>> point = Point()
        >>> point.x = 1
        >>> slots(point)
        {'x': 1}
    """
    found = {}
    for cls in type(value).__mro__:
        names = vars(cls).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else tuple(names):
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{cls.__name__.lstrip('_')}{name}"
            part = getattr(value, name, _Nothing)
            if part is not _Nothing and name not in ("__dict__", "__weakref__"):
                found[name] = part
    return found


def _length(value: Any) -> int:
    try:
        return len(value)
    except Exception:  # it has none, or it is the user's code
        return -1
