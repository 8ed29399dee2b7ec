"""Restore the attributes of modules that a forward assigns: a state, a cache, a buffer, the training flag."""

from __future__ import annotations

from collections import OrderedDict, deque
from operator import is_
from typing import Any

from torch.nn import Module
from torch.nn.modules.lazy import LazyModuleMixin

#: Attributes of exactly these types are copied, so that what a forward adds to them can be removed.
_CONTAINERS = frozenset({list, dict, OrderedDict, set, deque})
_MISSING = object()


class Attributes:
    """Copies of the attributes of modules, one level deep into plain containers.

    Lazy modules are not restored: once their first pass has initialized them, that cannot be undone.
    """

    def __init__(self) -> None:
        self._copies: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._empty: list[Any] = []  # containers that were empty, as most are
        self._full: list[tuple[Any, Any]] = []  # other containers, with copies

    def remember(self, module: Module) -> None:
        """Copy the attributes of a module."""
        if isinstance(module, LazyModuleMixin):
            return
        attributes = vars(module)
        self._copies.append((attributes, attributes.copy()))
        for value in attributes.values():
            if type(value) in _CONTAINERS:
                if value:
                    self._full.append((value, value.copy()))
                else:
                    self._empty.append(value)

    def restore(self) -> None:
        """Restore the attributes of all modules, and delete the copies."""
        for attributes, before in self._copies:
            _restore_dict(attributes, before)
        for container in self._empty:
            if container:
                container.clear()
        for container, before in self._full:
            _restore(container, before)
        for entries in (self._copies, self._empty, self._full):
            entries.clear()


def _restore(container: Any, before: Any) -> None:
    if isinstance(container, dict):
        _restore_dict(container, before)
    elif isinstance(container, set):
        if container != before:
            container.clear()
            container.update(before)
    elif len(container) != len(before) or not all(map(is_, container, before)):
        container.clear()
        container.extend(before)


def _restore_dict(now: dict[Any, Any], before: dict[Any, Any]) -> None:
    """Restore a dict in place.

    Values are compared by identity, because equal objects may be different ones and tensors do not compare.
    Keys that remain are never removed in between, because another thread may be using the module.
    """
    if now.keys() == before.keys() and all(map(is_, now.values(), before.values())):
        return
    for key, value in before.items():
        if now.get(key, _MISSING) is not value:
            now[key] = value
    for key in [key for key in now if key not in before]:
        del now[key]
