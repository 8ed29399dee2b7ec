"""What modules hold besides tensors' values, as it was before a pass: a forward that assigns to ``self`` (a
state, a cache, a re-bound buffer, the training flag) leaves nothing behind."""

from __future__ import annotations

from collections import OrderedDict, deque
from operator import is_
from typing import Any

from torch.nn import Module
from torch.nn.modules.lazy import LazyModuleMixin

#: Attributes of these very types are looked into: what a forward appends or puts there is taken out again.
_CONTAINERS = frozenset({list, dict, OrderedDict, set, deque})
_MISSING = object()


class Attributes:
    """The attributes of modules, one level into plain containers.

    A lazy module is left as its first pass makes it: what was put off until then cannot be put off again.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._empty: list[Any] = []  # containers that were, as most are
        self._full: list[tuple[Any, Any]] = []

    def remember(self, module: Module) -> None:
        """Note what a module holds now."""
        if isinstance(module, LazyModuleMixin):
            return
        own = vars(module)
        self._kept.append((own, own.copy()))
        for value in own.values():
            if type(value) in _CONTAINERS:
                if value:
                    self._full.append((value, value.copy()))
                else:
                    self._empty.append(value)

    def put_back(self) -> None:
        """Give every module back what it held."""
        for own, before in self._kept:
            _put_back_dict(own, before)
        for container in self._empty:
            if container:
                container.clear()
        for container, was in self._full:
            _put_back(container, was)
        for kept in (self._kept, self._empty, self._full):
            kept.clear()


def _put_back(container: Any, was: Any) -> None:
    if isinstance(container, dict):
        _put_back_dict(container, was)
    elif isinstance(container, set):
        if container != was:
            container.clear()
            container.update(was)
    elif len(container) != len(was) or not all(map(is_, container, was)):
        container.clear()
        container.extend(was)


def _put_back_dict(now: dict[Any, Any], before: dict[Any, Any]) -> None:
    """Compares by identity, for what is equal may be another, and tensors do not compare. No key that stays
    is ever missing meanwhile: another thread may be using the module."""
    if now.keys() == before.keys() and all(map(is_, now.values(), before.values())):
        return
    for key, value in before.items():
        if now.get(key, _MISSING) is not value:
            now[key] = value
    for key in [key for key in now if key not in before]:
        del now[key]
