"""Restore what a forward assigns to modules and to the objects it is given: a state, a cache, a flag."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.jit import ScriptModule
from torch.nn import Module, Parameter
from torch.nn.modules.lazy import LazyModuleMixin
from torch.optim import Optimizer

from ....core.nested import holders, slots
from ....core.restoring import are_same, restore_container, restore_dict, restore_slots
from .randomness import is_generator, restorer_of
from .script_state import ScriptState

#: Attributes of exactly these types are copied, so that what a forward adds to them can be removed.
_CONTAINERS = frozenset({list, dict, OrderedDict, defaultdict, set, deque})
_SIMPLE = frozenset(
    {int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, Tensor, Parameter}
)
_NUMBERS = frozenset({int, float, bool, str, bytes, complex})
#: Containers of torch, whose elements are modules and tensors.
_OWN = frozenset({"_modules", "_parameters", "_buffers"})
#: How far the references of a module are followed.
_DEPTH = 6
_MISSING = object()


class Attributes:
    """Copies of the attributes of modules, and of the objects and containers that hold state.

    Of the objects that a module refers to, those that its own package defines are copied, caches, and
    optimizers: others may belong to the whole program (a trainer, a queue). Lazy modules are not restored:
    once their first pass has initialized them, that cannot be undone.
    """

    def __init__(self) -> None:
        self._scripts: list[ScriptState] = []
        self._remembered: set[int] = set()  # ids of objects
        self._copies: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._slots: list[tuple[Any, dict[str, Any]]] = []  # objects with ``__slots__``, and their attributes
        self._empty: list[Any] = []  # containers that were empty, as most are
        self._full: list[tuple[Any, Any]] = []  # other containers, with copies
        self._generators: list[Callable[[], Any]] = []  # functions that restore the state of one each
        #: Modules that were found in the midst of the pass, with copies of their attributes at that time.
        self._late: list[tuple[Module, dict[str, Any]]] = []

    def remember_late(self, module: Module) -> None:
        """Notice whether the attributes of a module change from now on.

        It was found in the midst of the pass, when a forward or its caller may have changed it already, so
        its attributes cannot be restored.
        """
        if id(module) not in self._remembered:
            self._remembered.add(id(module))
            self._late.append((module, vars(module).copy()))

    def changed_late(self) -> list[Module]:
        """Return the modules that were found in the midst of the pass and changed after that."""
        return [module for module, before in self._late if not are_same(vars(module), before)]

    def remember(self, module: Module) -> None:
        """Copy the attributes of a module."""
        if isinstance(module, LazyModuleMixin) or id(module) in self._remembered:
            return
        self._remembered.add(id(module))
        if isinstance(module, ScriptModule):
            self._scripts.append(ScriptState(module))
        attributes = vars(module)
        self._copies.append((attributes, attributes.copy()))
        package = type(module).__module__.partition(".")[0]
        for name, value in attributes.items():
            cls = type(value)
            if cls in _SIMPLE:
                continue
            if cls not in _CONTAINERS:
                self._remember_value(value, package, _DEPTH)
            elif not value:
                self._empty.append(value)
            elif name in _OWN:
                self._full.append((value, value.copy()))
            else:
                self._remember_value(value, package, _DEPTH)

    def remember_arguments(self, value: Any) -> None:
        """Copy the attributes and elements of all objects in a value: of the arguments of a pass."""
        for one in holders(value):
            self._remember_object(one)

    def remember_generator(self, generator: Any) -> None:
        """Remember the state of a random generator."""
        if id(generator) not in self._remembered:
            self._remembered.add(id(generator))
            self._generators.append(restorer_of(generator))

    def remember_optimizer(self, optimizer: Optimizer) -> None:
        """Copy the attributes of an optimizer, and the dicts that hold its state."""
        self._remember_value(optimizer, "", _DEPTH)

    def _remember_value(self, value: Any, package: str, depth: int) -> None:
        """Copy what a module refers to, and what that refers to, as far as it is state of the module."""
        if is_generator(value):
            self.remember_generator(value)
            return
        if isinstance(value, Module):  # one that is not registered, such as a teacher in a list
            for module in value.modules():
                self.remember(module)
            return
        if type(value) in _CONTAINERS:
            self._remember_object(value)
            parts = value.values() if isinstance(value, dict) else value
        elif depth and _is_state(value, package) and self._remember_object(value):
            parts = [*getattr(value, "__dict__", {}).values(), *slots(value).values()]
        else:
            return
        if depth:
            for part in parts:
                if type(part) not in _SIMPLE:
                    self._remember_value(part, package, depth - 1)

    def _remember_object(self, one: Any) -> bool:
        """Copy a container or the attributes of an object; return whether that was done now."""
        if type(one) in _CONTAINERS and not one:
            self._empty.append(one)
            return False
        if id(one) in self._remembered:
            return False
        self._remembered.add(id(one))
        if type(one) in _CONTAINERS:
            self._full.append((one, one.copy()))
            return True
        own, attributes = slots(one), getattr(one, "__dict__", None)
        if own:
            self._slots.append((one, own))
        if isinstance(attributes, dict):
            self._copies.append((attributes, attributes.copy()))
        return bool(own) or isinstance(attributes, dict)

    def changed(self) -> Iterator[tuple[Any, Any]]:
        """Yield what was assigned since: a dict of attributes with the key, or a container with None."""
        for attributes, before in self._copies:
            for key in attributes.keys() | before.keys():
                if not _is_same(attributes.get(key, _MISSING), before.get(key, _MISSING)):
                    yield attributes, key
        yield from ((container, None) for container in self._empty if container)
        for container, before in self._full:
            values = (container, before)
            now, then = (list(one.items()) if isinstance(one, dict) else list(one) for one in values)
            pairs = zip(now, then, strict=False)
            if len(now) != len(then) or not all(one is other or _is_same(one, other) for one, other in pairs):
                yield container, None

    def restore(self) -> None:
        """Restore the attributes of all modules, and delete the copies."""
        for script in self._scripts:
            script.restore()
        while self._generators:
            self._generators.pop()()
        for attributes, before in self._copies:
            restore_dict(attributes, before)
        for one, before in self._slots:
            restore_slots(one, before)
        for container in self._empty:
            if container:
                container.clear()
        for container, before in self._full:
            restore_container(container, before)
        for entries in (self._scripts, self._copies, self._slots, self._empty, self._full, self._late):
            entries.clear()
        self._remembered.clear()


def _is_state(value: Any, package: str) -> bool:
    """Return whether an object is to be copied with the module that refers to it.

    Args:
        value: The object.
        package: The package that defines the class of the module.
    """
    cls = type(value)
    if isinstance(value, Module) or callable(value):
        return False
    if isinstance(value, Optimizer) or cls.__name__.endswith("Cache"):
        return True
    return cls.__module__.partition(".")[0] in (package, "types")


def _is_same(now: Any, before: Any) -> bool:
    """Return whether two values are one object, or equal numbers or texts, or pairs of such."""
    if isinstance(now, tuple) and isinstance(before, tuple):
        return len(now) == len(before) and all(map(_is_same, now, before))
    return now is before or (type(now) is type(before) and type(now) in _NUMBERS and now == before)
