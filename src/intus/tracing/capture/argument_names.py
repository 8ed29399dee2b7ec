"""What a pass's inputs are called: as the model's own code calls its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from torch.nn import Module


def by_name(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments under the names that the model's code has for them; the places, where it tells none.

    >>> by_name(lambda x, *rest, **more: x, (1, 2), {"mask": 3})
    {'x': 1, 'rest': (2,), 'mask': 3}
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile was given knows the names
    function = model.forward if isinstance(model, Module) else model
    names = _positional(function)
    if not kwargs and len(args) <= len(names):
        return dict(zip(names, args, strict=False))
    try:
        call = inspect.signature(function)
        bound = call.bind(*args, **kwargs)
    except Exception:  # no signature, or arguments that it does not take: the model will say so
        return {**{str(place): value for place, value in enumerate(args)}, **kwargs}
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        open_ended = call.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        named |= value if open_ended else {name: value}
    return named


def _positional(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a plain function's positional arguments, none of anything else's: ``inspect`` knows those
    too, and would take a tenth of a small model's trace for it.

    >>> _positional(lambda x, *rest: x), _positional(print)
    (('x',), ())
    """
    itself = isinstance(function, MethodType)
    plain = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(plain, FunctionType) or vars(plain):  # a decorator may have left another signature
        return ()
    return plain.__code__.co_varnames[itself : plain.__code__.co_argcount]
