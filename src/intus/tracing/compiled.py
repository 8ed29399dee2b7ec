"""Whether a model can come to what ``torch.compile`` made: watched from Python, such code runs uncompiled,
and its numbers differ in the last bits.

torch does not tell what a call will lead to, so this follows names: from the model's modules through their
methods and attributes, and from each function to the globals, closures and defaults that it names. Torch,
numpy and the standard library are taken to compile nothing by themselves. What a function imports itself,
looks up by a name made at run time, or only compiles while it runs, escapes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

MOST = 200_000  # things looked at, in about half a second; a model that leads to more counts as compiled
_KNOWN = {"torch", "numpy", "intus"} | sys.stdlib_module_names
_PLAIN = (str, bytes, int, float, complex, bool, type(None), torch.Tensor, BuiltinFunctionType, CodeType)


def reaches_compiled(model: Any) -> bool:
    """Whether a function that ``torch.compile`` made can be come to from ``model``.

    >>> net = torch.nn.Linear(2, 2)
    >>> reaches_compiled(net), reaches_compiled(torch.compile(net, backend="eager"))
    (False, True)
    """
    todo: list[Any] = [model] if "torch._dynamo.eval_frame" in sys.modules else []
    seen: dict[int, Any] = {}  # by id, and held, so that the id stays its own
    while todo:
        value = todo.pop()
        if issubclass(type(value), _PLAIN) or id(value) in seen:
            continue
        seen[id(value)] = value
        if _is_compiled(value) or len(seen) > MOST:
            return True
        todo.extend(_next(value))
    return False


def _is_compiled(value: Any) -> bool:
    own = value.__dict__ if issubclass(type(value), FunctionType) else {}
    return "_torchdynamo_orig_callable" in own and not own.get("_torchdynamo_disable")


def _next(value: Any) -> Iterable[Any]:
    """What a value leads to: a function what it names, a container its items, an object its class and state.

    Goes by types and bypasses their own ways of giving attributes: nothing of the model's is run.
    """
    kind = type(value)
    if issubclass(kind, FunctionType):
        return () if _is_known(value) else _named(value)
    if issubclass(kind, MethodType):
        return value.__func__, value.__self__
    if issubclass(kind, partial):
        return value.func, value.args, value.keywords
    if issubclass(kind, dict):
        return list(dict.values(value))
    if issubclass(kind, list | tuple | set | frozenset):
        return list(value)
    if issubclass(kind, staticmethod | classmethod):
        return (value.__func__,)
    if issubclass(kind, property):
        return value.fget, value.fset
    if issubclass(kind, type):
        return [inner for cls in type.mro(value) if not _is_known(cls) for inner in vars(cls).values()]
    if issubclass(kind, ModuleType) or (_is_known(kind) and not issubclass(kind, torch.nn.Module)):
        return ()  # of a module only what a function names
    try:
        return kind, object.__getattribute__(value, "__dict__")
    except AttributeError:
        return (kind,)


def _named(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # not filled yet
    yield function.__defaults__
    yield function.__kwdefaults__
    yield function.__dict__
    names = set(_names(function.__code__))
    for name in names & function.__globals__.keys():
        yield from _attributes(function.__globals__[name], names)


def _attributes(value: Any, names: set[str], depth: int = 4) -> Iterator[Any]:
    """A value; of a module what else the function names, as in ``ops.gelu.fused``."""
    yield value
    if issubclass(type(value), ModuleType) and depth and value.__name__.partition(".")[0] not in _KNOWN:
        inside = vars(value)
        for name in names & inside.keys():
            yield from _attributes(inside[name], names, depth - 1)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_known(thing: Any) -> bool:
    name = thing.__module__
    return isinstance(name, str) and name.partition(".")[0] in _KNOWN
