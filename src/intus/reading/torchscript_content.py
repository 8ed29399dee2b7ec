"""Values in a TorchScript program whose graph is read, above all its lists and dicts, as far as known.

Several variables may name one list. So a list or dict is a number (``Held``), and a table has its
``Content``, which each operation on it replaces. An operation on what is known is Python's own. After
another, only what may be inside is known: nothing is guessed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..core.building import Scope

#: A longer list is not followed: a short file can describe one that fills the memory.
_LONGEST = 10_000
_KEYS = (str, int, float)


@dataclass(frozen=True)
class Row:
    """A value that is a row of the graph.

    Attributes:
        row: The row.
        param: The address of a parameter, which has a row only if a module returned it.
        base: If ``row`` wrote into the memory of a tensor: the row of the tensor.
    """

    row: int = -1
    param: str = ""
    base: int = -1


@dataclass(frozen=True)
class Module:
    """A value that is a module."""

    address: str
    script: Any = field(compare=False)


@dataclass(frozen=True)
class Many:
    """A tuple of values."""

    items: tuple[Any, ...]


@dataclass(frozen=True)
class Open:
    """A number or other value that is not known; ``rows`` are those of tensors it was computed from."""

    text: str
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Held:
    """A list or dict, by its number."""

    number: int


@dataclass(frozen=True)
class Decided:
    """The row of a condition that decided on a content."""

    row: int


class Cause(NamedTuple):
    """Reason for which a value is one of several: a branch, a loop, or an unknown place in a list.

    Attributes:
        kind: The type of the operation that stands for it: ``"if"``, ``"loop"`` or ``"getitem"``.
        scope: The module calls it belongs to.
        conditions: Rows that decide.
        names: Names of the values.
    """

    kind: str
    scope: tuple[Scope, ...] = ()
    conditions: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Choice:
    """A value that is one of several."""

    options: tuple[Any, ...]
    cause: Cause


#: No value: of a key that may be missing, or of a variable that is not set.
ABSENT = Choice((), Cause("nothing"))
#: The answer to a question on a content that is not known.
UNKNOWN = Open("unknown")


class Content(NamedTuple):
    """Knowledge about a list or dict.

    Attributes:
        kind: ``"list"`` or ``"dict"``.
        items: Its values, in a list or by key; None if their number or places are not known.
        others: If they are not known: the values that may be inside.
        is_ordered: Whether the order of the keys is known.
    """

    kind: str
    items: Any
    others: tuple[Any, ...] = ()
    is_ordered: bool = True

    @property
    def values(self) -> list[Any]:
        """Return the values that are or may be inside."""
        if self.items is None:
            return list(self.others)
        return list(self.items.values() if isinstance(self.items, dict) else self.items)

    @property
    def is_certain(self) -> bool:
        """Return whether each value and its place is known."""
        return self.items is not None and self.is_ordered and not any(map(_may_be_absent, self.values))

    def blurred(self, *values: Any) -> Content:
        """Return the content of which only is known what may be inside, with further values."""
        inside = [one for value in (*self.values, *values) for one in options_of(value) if one is not ABSENT]
        return Content(self.kind, None, tuple(dict.fromkeys(inside)))


class Result(NamedTuple):
    """Result of an operation on a list or dict: one of ``options``."""

    options: tuple[Any, ...]


def _pop_first(items: dict[Any, Any]) -> Many:
    key = next(iter(items))  # as TorchScript does; Python takes the last
    return Many((key, items.pop(key)))


#: Operations as Python has them. TorchScript names them so, behind ``aten::``.
_OPERATIONS: dict[str, dict[str, Callable[..., Any]]] = {
    "list": {
        "__getitem__": list.__getitem__,
        "_set_item": list.__setitem__,
        "Delete": list.__delitem__,
        "append": list.append,
        "insert": list.insert,
        "extend": list.extend,
        "add_": list.extend,
        "pop": list.pop,
        "reverse": list.reverse,
        "clear": list.clear,
        "copy": list.copy,
        "list": list.copy,
        "add": operator.add,
        "mul": operator.mul,
        "slice": lambda items, start, stop, step: items[start:stop:step],
        "dict": lambda pairs: {pair.items[0]: pair.items[1] for pair in pairs},
        "len": len,
    },
    "dict": {
        "__getitem__": dict.__getitem__,
        "__contains__": dict.__contains__,
        "_set_item": dict.__setitem__,
        "Delete": dict.__delitem__,
        "get": dict.get,
        "setdefault": dict.setdefault,
        "update": dict.update,
        "pop": dict.pop,
        "popitem": _pop_first,
        "clear": dict.clear,
        "copy": dict.copy,
        "keys": list,
        "values": lambda items: list(items.values()),
        "items": lambda items: [Many(pair) for pair in items.items()],
        "len": len,
    },
}
WRITING = frozenset(
    (*("_set_item", "Delete", "append", "insert", "extend", "add_", "pop", "reverse", "clear"),
     *("setdefault", "update", "popitem"))
)  # fmt: skip
#: Operations whose second argument is another list or dict, of which they take the values.
TAKING = frozenset(("extend", "add_", "add", "update"))
_READING = frozenset(("__getitem__", "pop", "get", "setdefault"))
#: Where the arguments are that must be known: a place, a key or a number.
_PLACES = {
    **dict.fromkeys(("__getitem__", "__contains__", "_set_item", "Delete"), slice(0, 1)),
    **dict.fromkeys(("insert", "pop", "get", "setdefault"), slice(0, 1)),
    **dict.fromkeys(("slice", "mul"), slice(None)),
}


def is_followed(name: str, content: Content) -> bool:
    """Return whether ``operated`` knows an operation (``"append"``)."""
    return name in _OPERATIONS[content.kind]


def operated(name: str, content: Content, given: Sequence[Any]) -> tuple[Content, Any]:
    """Return the content after an operation, and what it returns.

    Args:
        name: The operation.
        content: The content of its first argument.
        given: The other arguments; the content where the operation takes the values of another list or dict.

    Returns:
        The content, and a value, a ``Result``, or the ``Content`` of a new list or dict.

    Example:
        >>> words = Content("list", ["a", "b"])
        >>> operated("pop", words, [0])
        (Content(kind='list', items=['b'], others=(), is_ordered=True), 'a')
        >>> operated("pop", words, [Open("i")])
        (Content(kind='list', items=None, others=('a', 'b'), is_ordered=True), Result(options=('a', 'b')))
    """
    if name == "clear":
        return Content(content.kind, {} if content.kind == "dict" else []), None
    if not _is_known(name, content, given):
        return _blurred(name, content, given)
    items = content.items.copy()
    try:
        answer = _OPERATIONS[content.kind][name](
            items, *(one.items if isinstance(one, Content) else one for one in given)
        )
    except (LookupError, StopIteration, TypeError, ValueError):  # the program raises here, or has other types
        return _blurred(name, content, given)
    if isinstance(answer, list | dict):
        if name == "copy":
            return content, content._replace(items=answer)
        return content, Content("dict" if isinstance(answer, dict) else "list", answer)
    return content._replace(items=items), present(answer)


def _is_known(name: str, content: Content, given: Sequence[Any]) -> bool:
    """Return whether the arguments and the content suffice for Python's own operation."""
    places = given[_PLACES[name]] if name in _PLACES else ()
    if not all(place is None or isinstance(place, _KEYS) for place in places):
        return False
    others = [one for one in given if isinstance(one, Content)]
    if content.items is None or not all(one.is_certain for one in others):
        return False
    count = len(content.items) + sum(len(one.items) for one in others)
    if count * (given[0] if name == "mul" else 1) > _LONGEST:
        return False
    if name == "dict":
        return all(isinstance(one, Many) and isinstance(one.items[0], _KEYS) for one in content.items)
    if content.is_certain or name in ("_set_item", "__getitem__", "copy"):
        return True
    if name in ("get", "__contains__"):
        return not _may_be_absent(content.items.get(given[0]))
    return name == "len" and not any(map(_may_be_absent, content.values))


def _blurred(name: str, content: Content, given: Sequence[Any]) -> tuple[Content, Any]:
    """Return what is known after an operation on what is not known; see ``operated``."""
    added = [one for part in given if isinstance(part, Content) for one in part.blurred().others]
    if name not in ("slice", "mul"):
        first = _PLACES[name].stop if name in _PLACES else 0
        added += [one for one in given[first:] if not isinstance(one, Content)]
    whole = content.blurred(*added)
    after = whole if name in WRITING else content
    if name in _READING:
        options = whole if name != "__getitem__" else content.blurred()
        return after, Result((*options.others, *((None,) if name == "get" and len(given) < 2 else ())))
    pairs = tuple(Many((Open("key"), one)) for one in whole.others)
    if name == "popitem":
        return after, Result(pairs)
    if name in ("len", "__contains__"):
        return after, UNKNOWN
    if name in WRITING:
        return after, None
    if name == "dict":
        inside = [one.items[1] if isinstance(one, Many) else one for one in whole.others]
        return after, Content("dict", None, tuple(dict.fromkeys(inside)))
    if name == "copy":
        return after, whole
    return after, Content("list", None, {"keys": (Open("key"),), "items": pairs}.get(name, whole.others))


def joined(a: Content, b: Content, cause: Cause) -> Content:
    """Return what is known of a list or dict that has one of two contents."""
    if a == b:
        return a
    if a.items is not None and b.items is not None:
        if a.kind == "dict":
            keys = list(dict.fromkeys([*a.items, *b.items]))
            is_ordered = a.is_ordered and b.is_ordered and list(a.items) == list(b.items)
            values = {
                key: one_of((a.items.get(key, ABSENT), b.items.get(key, ABSENT)), cause) for key in keys
            }
            return Content("dict", values, (), is_ordered)
        if len(a.items) == len(b.items):
            return Content("list", [one_of(pair, cause) for pair in zip(a.items, b.items, strict=True)])
    return a.blurred(*b.blurred().others, *map(Decided, cause.conditions))


def one_of(values: Iterable[Any], cause: Cause) -> Any:
    """Return a value that is one of several; of tuples of one length, a tuple of such values."""
    found = list(dict.fromkeys(values))
    if len(found) == 1:
        return found[0]
    if all(isinstance(one, Many) for one in found) and len({len(one.items) for one in found}) == 1:
        return Many(tuple(one_of(part, cause) for part in zip(*(one.items for one in found), strict=True)))
    return Choice(tuple(found), cause)


def options_of(value: Any) -> Iterator[Any]:
    """Yield the values that a value may be."""
    if isinstance(value, Choice) and value is not ABSENT:
        for one in value.options:
            yield from options_of(one)
    else:
        yield value


def present(value: Any) -> Any:
    """Return a value of which is known that it is there."""
    return without(ABSENT, value)


def without(what: Any, value: Any) -> Any:
    """Return a value of which is known that it is not ``what``."""
    if not isinstance(value, Choice) or not any(one is what for one in options_of(value)):
        return value
    return one_of([one for one in options_of(value) if one is not what], value.cause)


def _may_be_absent(value: Any) -> bool:
    return any(one is ABSENT for one in options_of(value))


@dataclass
class State:
    """State that a program may change while it runs.

    Attributes:
        contents: The content of every list and dict by number.
        attributes: Values that were assigned to attributes of modules, by address.
        written: For rows that memory was made by, the row of the operation that wrote into it last.
    """

    contents: dict[int, Content] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    written: dict[int, Row] = field(default_factory=dict)

    def copy(self) -> State:
        """Return a copy, which changes by itself."""
        return State(dict(self.contents), dict(self.attributes), dict(self.written))

    def changed(self, before: State, initial: Mapping[int, Content]) -> set[int | str]:
        """Return the numbers and addresses of what an earlier state had otherwise.

        Args:
            before: The earlier state.
            initial: The contents of lists and dicts that neither state may have.
        """
        then = {**initial, **before.contents}
        contents = {key for key, one in self.contents.items() if key in then and then[key] != one}
        none = object()
        return contents | {
            address for address, one in self.attributes.items() if before.attributes.get(address, none) != one
        }
