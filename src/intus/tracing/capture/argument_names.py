"""Name the inputs of a pass after the parameters of the model's forward."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from torch.nn import Module


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
