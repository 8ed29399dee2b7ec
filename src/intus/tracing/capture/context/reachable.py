"""Find the modules, optimizers and random generators that a call can reach, to know their state before it."""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ....core.nested import slots
from .randomness import is_generator

_MOST = 5_000  # objects visited
#: Packages whose functions and objects are not followed.
KNOWN = {"torch", "numpy", "intus"} | sys.stdlib_module_names
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type, Tensor, CodeType, ModuleType)
_CONTAINERS = frozenset({dict, OrderedDict, list, set, tuple})  # most in a module are empty


def stateful(*values: Any) -> Iterator[Any]:
    """Yield the modules, optimizers and generators that can be reached from values, each once; no code runs.

    Functions are followed to what their closures hold and to the globals, also of imported modules, that they
    name; other objects to their attributes. Submodules of a module are not yielded.

    Args:
        *values: What a call consists of: a function and its arguments.

    Example:
        >>> net = Module()
        >>> list(stateful([{"net": net}])) == [net]
        True
    """
    yield from _found(values, {})


def generators_of(module: Module) -> Iterator[Any]:
    """Yield the random generators that calls of a module can reach, each once; no code runs.

    They are sought in the attributes of the module, of its submodules and of modules that these refer to, and
    in what their ``forward`` and the methods that it names refer to.

    Args:
        module: The module.

    Example:
        >>> import random
        >>> net = Module()
        >>> net.noise = {"of": random.Random(0)}
        >>> list(generators_of(net)) == [net.noise["of"]]
        True
    """
    todo, visited = [module], dict[int, Any]()
    while todo:
        one = todo.pop()
        for found in _found((*vars(one).values(), *_methods(type(one))), visited):
            if isinstance(found, Module):
                todo.append(found)
            elif not isinstance(found, Optimizer):
                yield found


def _found(values: Iterable[Any], visited: dict[int, Any]) -> Iterator[Any]:
    """Yield what ``stateful`` does, except what was visited; keeping the objects prevents reuse of ids."""
    todo, most = deque(values), len(visited) + _MOST
    while todo and len(visited) < most:
        value = todo.popleft()  # what is near comes first, if there is too much
        kind = type(value)
        if (kind in _CONTAINERS and not value) or issubclass(kind, _PLAIN) or id(value) in visited:
            continue
        visited[id(value)] = value
        if issubclass(kind, Module | Optimizer) or is_generator(value):
            yield value
        else:
            todo.extend(_parts(value))


def _methods(kind: type) -> Iterator[FunctionType]:
    """Yield the ``forward`` of a class of modules, the methods that it names, and those that these name."""
    todo, done = ["forward"], set[str]()
    while todo:
        name = todo.pop()
        if name in done:
            continue
        done.add(name)
        for base in kind.__mro__:
            method = vars(base).get(name)
            if isinstance(method, staticmethod | classmethod | property):
                method = method.fget if isinstance(method, property) else method.__func__
            if isinstance(method, FunctionType) and not is_known(method):
                yield method
                todo.extend(_names(method.__code__))


def _parts(value: Any) -> Iterable[Any]:
    """Return what a value refers to; no code of the caller runs."""
    parts = parts_of(value)
    if parts is not None:
        return parts
    kind = type(value)
    if is_known(kind):
        return ()
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        attributes = {}
    return [*attributes.values(), *slots(value).values(), vars(kind).get("__call__")]


def parts_of(value: Any) -> Iterable[Any] | None:
    """Return what a function, a method, a partial or a container refers to; None for any other value.

    Reads by type and bypasses ``__getattribute__``, so that no code of the caller runs.
    """
    kind = type(value)
    if issubclass(kind, FunctionType):
        return () if is_known(value) else named_by(value)
    if issubclass(kind, MethodType):
        return value.__func__, value.__self__
    if issubclass(kind, partial):
        return value.func, value.args, value.keywords
    if issubclass(kind, dict):
        return list(dict.values(value))
    if issubclass(kind, list | tuple | set | frozenset):
        return list(value)
    return None


def named_by(function: FunctionType) -> Iterator[Any]:
    """Yield what the code of a function can refer to: its closure, defaults, attributes and globals."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # an empty cell
    yield function.__defaults__
    yield function.__kwdefaults__
    yield function.__dict__
    names = set(_names(function.__code__))
    for name in names & function.__globals__.keys():
        yield from _attributes(function.__globals__[name], names)


def _attributes(value: Any, names: set[str], depth: int = 4) -> Iterator[Any]:
    """Yield a value and, if it is a module, its attributes that the function names (``ops.gelu.fused``)."""
    yield value
    if issubclass(type(value), ModuleType) and depth and value.__name__.partition(".")[0] not in KNOWN:
        attributes = vars(value)
        for name in names & attributes.keys():
            yield from _attributes(attributes[name], names, depth - 1)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def is_known(thing: Any) -> bool:
    """Return whether a function or class comes from one of the ``KNOWN`` packages."""
    name = getattr(thing, "__module__", None)
    return isinstance(name, str) and name.partition(".")[0] in KNOWN
