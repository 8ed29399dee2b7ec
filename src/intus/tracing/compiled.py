"""Find out whether a model can reach code that ``torch.compile`` made.

Such code runs uncompiled while a capture is active, and its results then differ in the last bits.

torch does not tell what a call will reach, so this module follows names: from the model's modules through
their methods and attributes, and from each function to the globals, closures and defaults that it names.
Torch, numpy and the standard library are assumed to compile nothing by themselves. Not found are functions
that a function imports itself, looks up by a name made at run time, or compiles while it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from .capture.context.reachable import is_known, named_by, parts_of

MOST = 200_000  # objects visited, in about half a second; a model that reaches more counts as compiled
_PLAIN = (str, bytes, int, float, complex, bool, type(None), BuiltinFunctionType, CodeType)


def reaches_compiled(model: Any) -> bool:
    """Return whether a function that ``torch.compile`` made can be reached from ``model``.

    Example:
        >>> reaches_compiled(torch.nn.Linear(2, 2))
        False
    """
    if "torch._dynamo.eval_frame" not in sys.modules:
        return False
    return any(number == MOST or is_compiled(value) for number, value in enumerate(reached(model)))


def reached(model: Any) -> Iterator[Any]:
    """Yield what can be reached from ``model``, each object once: modules, functions, containers, tensors.

    Example:
        >>> net = torch.nn.Linear(2, 2)
        >>> any(value is net.weight for value in reached(net))
        True
    """
    todo: list[Any] = [model]
    seen: dict[int, Any] = {}  # by id; keeping the object prevents its id from being reused
    while todo:
        value = todo.pop()
        if issubclass(type(value), _PLAIN) or id(value) in seen:
            continue
        seen[id(value)] = value
        yield value
        if not issubclass(type(value), torch.Tensor):
            todo.extend(_reachable(value))


def compiled_parts(model: Any, called: Mapping[str, torch.nn.Module]) -> list[str]:
    """Return what ``torch.compile`` made, among the modules of a pass and the functions that they name.

    Only functions are followed, so that it takes a few milliseconds.

    Args:
        model: What ran: a module, or a function.
        called: The modules that were called, by address.

    Example:
        >>> net = torch.nn.Linear(2, 2)
        >>> net.compile(backend="eager")
        >>> compiled_parts(net, {"": net})
        ['the model']
    """
    if "torch._dynamo.eval_frame" not in sys.modules:
        return []
    found, todo = [], [model]
    for address, module in called.items():
        is_wrapper = "_orig_mod" in module._modules  # of a module that is called too
        if is_wrapper or module._compiled_call_impl is not None:
            found.append(repr(address) if address else "the model")
        if not is_wrapper:
            own = {**module.__dict__, "_compiled_call_impl": None}
            todo += [type(module).forward, *own.values()]
    seen: set[int] = set()
    while todo:
        value = todo.pop()
        if issubclass(type(value), MethodType | staticmethod):
            value = value.__func__
        if issubclass(type(value), FunctionType) and id(value) not in seen:
            seen.add(id(value))
            if is_compiled(value):
                found.append(f"the function {value.__name__!r}")
            todo += () if is_known(value) else named_by(value)
    return list(dict.fromkeys(found))


def is_compiled(value: Any) -> bool:
    """Return whether ``torch.compile`` made a function."""
    attributes = value.__dict__ if issubclass(type(value), FunctionType) else {}
    return "_torchdynamo_orig_callable" in attributes and not attributes.get("_torchdynamo_disable")


def _reachable(value: Any) -> Iterable[Any]:
    """Return what a value refers to: what a function names, a container's items, an object's class and state.

    Reads by type and bypasses ``__getattribute__``, so that no code of the model runs.
    """
    parts = parts_of(value)
    if parts is not None:
        return parts
    kind = type(value)
    if issubclass(kind, staticmethod | classmethod):
        return (value.__func__,)
    if issubclass(kind, property):
        return value.fget, value.fset
    if issubclass(kind, type):
        return [inner for cls in type.mro(value) if not is_known(cls) for inner in vars(cls).values()]
    if issubclass(kind, ModuleType) or (is_known(kind) and not issubclass(kind, torch.nn.Module)):
        return ()  # of a module, only what a function names counts
    try:
        return kind, object.__getattribute__(value, "__dict__")
    except AttributeError:
        return (kind,)
