"""Restore what a call of a model leaves in Python: attributes, containers, generators and arrays of numpy."""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import is_
from typing import Any

import numpy as np

from .nested import slots

_MISSING = object()
_CONTAINERS = (list, dict, set, deque)
_SIMPLE = frozenset({int, float, bool, str, bytes, complex, type(None)})
#: How far objects that are no parts of a model are followed.
_DEPTH = 6


class PythonState:
    """Copies of what a model refers to, as far as it is state of the model, to be restored after a call.

    Followed are the parts of the model, containers, and objects of classes that the package of a part
    defines: others may belong to the whole program (a trainer, a queue).

    Args:
        model: The model.
        parts: The classes of a framework whose instances are parts of a model: layers, metrics.
        leaf: The classes of a framework whose instances hold values. They are found, and not followed.
        left_out: Names of attributes of parts that are not restored.

    Attributes:
        leaves: The instances of ``leaf``, each once.

    Example:
        >>> class Layer:
        ...     seen = [1]
        >>> layer = Layer()
        >>> layer.calls, layer.seen = 0, []
        >>> state = PythonState(layer, (Layer,))
        >>> layer.calls += 1
        >>> layer.seen.append("x")
        >>> state.restore()
        >>> layer.calls, layer.seen
        (0, [])
    """

    def __init__(
        self,
        model: Any,
        parts: tuple[type, ...],
        leaf: tuple[type, ...] = (),
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        self._left_out = left_out
        self._frameworks = {cls.__module__.partition(".")[0] for cls in parts}
        self._restorers: list[Callable[[], Any]] = []
        self.leaves: list[Any] = []
        seen: set[int] = set()
        todo: list[tuple[Any, str, int]] = [(model, "", _DEPTH)]
        while todo:
            value, package, depth = todo.pop()
            if type(value) in _SIMPLE or id(value) in seen or isinstance(value, type):
                continue
            seen.add(id(value))
            if isinstance(value, leaf):
                self.leaves.append(value)
            elif isinstance(value, np.ndarray):
                self._restorers.append(partial(_restore_array, value, value.copy()))
            elif is_generator(value):
                self._restorers.append(restorer_of(value))
            elif isinstance(value, parts):
                own = type(value).__module__.partition(".")[0]
                todo += [(one, own, _DEPTH) for one in self._attributes(value)]
            elif isinstance(value, (*_CONTAINERS, tuple)):
                todo += [(one, package, depth) for one in self._elements(value)]
            elif depth and self._is_state(value, package):
                todo += [(one, package, depth - 1) for one in self._attributes(value)]

    def restore(self) -> None:
        """Restore all that was copied."""
        for restore in self._restorers:
            restore()

    def _is_state(self, value: Any, package: str) -> bool:
        defined = type(value).__module__.partition(".")[0]
        return defined == "types" or (defined == package and package not in self._frameworks)

    def _attributes(self, value: Any) -> Iterator[Any]:
        """Copy the attributes of an object, and yield them."""
        attributes, own = getattr(value, "__dict__", None), slots(value)
        if own:
            self._restorers.append(partial(restore_slots, value, own))
            yield from own.values()
        if isinstance(attributes, dict):
            kept = {name: one for name, one in attributes.items() if name not in self._left_out}
            self._restorers.append(partial(restore_dict, attributes, kept, self._left_out))
            yield from kept.values()

    def _elements(self, value: Any) -> Iterator[Any]:
        """Copy a container, and yield its elements."""
        container = getattr(value, "__wrapped__", value)  # a dict of a tf.Module is a proxy of the real one
        if isinstance(container, _CONTAINERS):
            self._restorers.append(partial(restore_container, container, _contents(container)))
        yield from dict.values(container) if isinstance(container, dict) else container
        yield from self._attributes(value)  # a list of a tf.Module keeps its elements in an attribute


@contextmanager
def python_kept(
    model: Any,
    parts: tuple[type, ...],
    leaf: tuple[type, ...] = (),
    left_out: frozenset[str] = frozenset(),
) -> Iterator[list[Any]]:
    """Restore at the end the Python state of a model, and the random states of Python and numpy.

    Args:
        model: The model.
        parts: As of ``PythonState``.
        leaf: As of ``PythonState``.
        left_out: As of ``PythonState``.

    Yields:
        The leaves.
    """
    state, restorers = PythonState(model, parts, leaf, left_out), global_restorers()
    try:
        yield state.leaves
    finally:
        for restore in restorers:
            restore()
        state.restore()


def is_generator(value: Any) -> bool:
    """Return whether a value is a random generator of numpy or Python."""
    numpy_random = sys.modules.get("numpy.random")  # numpy imports it on first use
    if numpy_random is not None and isinstance(value, numpy_random.Generator | numpy_random.RandomState):
        return True
    return isinstance(value, random.Random)


def restorer_of(generator: Any) -> Callable[[], Any]:
    """Return a function that gives a generator (see ``is_generator``) its present state again.

    Example:
        >>> generator = random.Random(0)
        >>> restore = restorer_of(generator)
        >>> one = generator.random()
        >>> restore()
        >>> one == generator.random()
        True
    """
    if isinstance(generator, random.Random):
        return partial(generator.setstate, generator.getstate())
    if hasattr(generator, "bit_generator"):
        return partial(setattr, generator.bit_generator, "state", generator.bit_generator.state)
    return partial(generator.set_state, generator.get_state(legacy=False))


def global_restorers() -> list[Callable[[], Any]]:
    """Return functions that restore the present random states of Python and numpy."""
    return [
        partial(random.setstate, random.getstate()),
        partial(np.random.set_state, np.random.get_state(legacy=False)),
    ]


def are_same(now: dict[Any, Any], before: dict[Any, Any]) -> bool:
    """Return whether two dicts have the same keys and, as objects, the same values."""
    return now.keys() == before.keys() and all(map(is_, now.values(), before.values()))


def restore_dict(now: dict[Any, Any], before: dict[Any, Any], left_out: frozenset[str] = frozenset()) -> None:
    """Restore a dict in place.

    Values are compared by identity, because equal objects may be different ones and arrays do not compare.
    Keys that remain are never removed in between, because another thread may be using the dict.

    Args:
        now: The dict.
        before: What it had, except what is left out.
        left_out: Keys that stay as they are.
    """
    if are_same(now, before):
        return
    kind: Any = OrderedDict if isinstance(now, OrderedDict) else dict
    for key, value in before.items():
        if now.get(key, _MISSING) is not value:
            kind.__setitem__(now, key, value)
    for key in [key for key in now if key not in before and key not in left_out]:
        kind.__delitem__(now, key)


def restore_slots(one: Any, before: dict[str, Any]) -> None:
    """Restore attributes that are declared as ``__slots__``, also of an object that forbids assignments."""
    now = slots(one)
    for name, value in before.items():
        if now.get(name, _MISSING) is not value:
            object.__setattr__(one, name, value)
    for name in now.keys() - before.keys():
        object.__delattr__(one, name)


def _kind(container: Any) -> Any:
    """Return the class of Python that a container derives from."""
    return next(kind for kind in (OrderedDict, *_CONTAINERS) if isinstance(container, kind))


def _contents(container: Any) -> Any:
    """Return a plain copy of a container, also of one whose class does more when it is copied."""
    kind = _kind(container)
    return kind(kind.items(container) if issubclass(kind, dict) else kind.__iter__(container))


def restore_container(container: Any, before: Any) -> None:
    """Restore a container in place, without the methods of a class that notices changes.

    Args:
        container: A list, dict, set or deque.
        before: A copy.
    """
    kind = _kind(container)
    if issubclass(kind, dict):
        restore_dict(container, before)
        if list(container) != list(before):
            kind.clear(container)
            kind.update(container, before)
    elif kind is set:
        if container != before:
            kind.clear(container)
            kind.update(container, before)
    elif len(container) != len(before) or not all(map(is_, container, before)):
        kind.clear(container)
        kind.extend(container, before)


def _restore_array(array: np.ndarray, before: np.ndarray) -> None:
    """Restore an array, if it was written to."""
    if array.tobytes() != before.tobytes():
        array[...] = before
