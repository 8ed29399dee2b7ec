"""Name arguments: inputs of a pass after the model's forward, those of operations after torch's functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from itertools import zip_longest
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.nn import Module

#: The operators of indexing, which have no name of their own.
_OPERATOR = {"getitem": "index", "setitem": "index_put"}


def by_name(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by parameter name; by position if the model's signature is unknown.

    Args:
        model: A module or function.
        args: The positional arguments.
        kwargs: The keyword arguments.

    Example:
        >>> by_name(lambda x, *rest, **more: x, (1, 2), {"mask": 3})
        {'x': 1, 'rest': (2,), 'mask': 3}
    """
    model = getattr(model, "_orig_mod", model)  # the module that was compiled has the signature
    function = model.forward if isinstance(model, Module) else model
    names = _positional(function)
    if not kwargs and len(args) <= len(names):
        return dict(zip(names, args, strict=False))
    try:
        call = inspect.signature(function)
        bound = call.bind(*args, **kwargs)
    except Exception:  # no signature, or arguments that do not fit it: the model itself will raise
        return {**{str(place): value for place, value in enumerate(args)}, **kwargs}
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        open_ended = call.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        named |= value if open_ended else {name: value}
    return named


def _positional(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a plain function's positional parameters; none for other callables.

    ``inspect.signature`` handles all callables, but takes a tenth of the time of a small model's trace.

    >>> _positional(lambda x, *rest: x), _positional(print)
    (('x',), ())
    """
    bound = isinstance(function, MethodType)
    plain = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(plain, FunctionType) or vars(
        plain
    ):  # attributes may come from a decorator that changes the signature
        return ()
    return plain.__code__.co_varnames[bound : plain.__code__.co_argcount]


def of_functions(type_: str, functions: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of the positional parameters of torch functions.

    Args:
        type_: The type of their operations.
        functions: The functions, which have this type in common: ``torch.sub`` and ``torch.Tensor.sub_``.

    Returns:
        The names by position; ``""`` for a position whose name is unknown or not the same in all functions
        and all their overloads.

    Example:
        >>> of_functions("where", [torch.where]), of_functions("where", [torch.Tensor.where])
        (('condition', 'input', 'other'), ('input', 'condition', 'other'))
        >>> of_functions("where", [torch.where, torch.Tensor.where])
        ('', '', 'other')
    """
    columns = zip_longest(*(names for func in functions for names in _signatures(type_, func)), fillvalue="")
    agreed = (set(column) - {""} for column in columns)
    return tuple(names.pop() if len(names) == 1 else "" for names in agreed)


def _signatures(type_: str, func: Any) -> list[tuple[str, ...]]:
    """Return the names of a function's positional parameters that may take tensors, for each overload."""
    unwrapped = inspect.unwrap(func)
    name = str(getattr(func, "__name__", ""))
    if name.startswith("__r") and name.endswith("__"):  # called for a plain left operand: one tensor
        return []
    if isinstance(unwrapped, FunctionType):
        names = unwrapped.__code__.co_varnames[: unwrapped.__code__.co_argcount]
        return [tuple("input" if name == "self" else name for name in names)]
    if isinstance(func, OpOverload):
        schemas = [func._schema]
    elif isinstance(func, OpOverloadPacket):
        packet: Any = func  # its methods are not typed
        schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
    else:
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{_OPERATOR.get(type_, type_)}")
    is_method = not isinstance(func, BuiltinFunctionType | OpOverload | OpOverloadPacket)
    return [_positional_of_schema(schema, is_method) for schema in schemas]


def _positional_of_schema(schema: Any, is_method: bool) -> tuple[str, ...]:
    """Return the names of a schema's positional parameters, ``""`` for those that take no tensor.

    A method is called on ``self``, wherever that is. torch's documentation calls ``self`` ``input``.
    """
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    names = [argument.name if "Tensor" in str(argument.type) else "" for argument in positional]
    if is_method:
        if "Tensor" not in [str(argument.type) for argument in positional if argument.name == "self"]:
            return ()
        names.insert(0, names.pop(names.index("self")))
    return tuple("input" if name == "self" else name for name in names)
