"""Run a callback after a module's first call, even if the call is interrupted.

torch runs ``always_call`` hooks only after an ``Exception``: none runs after a KeyboardInterrupt.
``nn.Module.__call__`` looks up ``_compiled_call_impl`` on each instance. A ``FirstCall`` is stored there for
one call and has its own ``finally``, so neither the model's class nor torch is patched.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from .unseen import has_proxies, is_symbolic

_SLOT = "_compiled_call_impl"  # torch omits it when it pickles or copies a module


class FirstCall:
    """Occupies a model's slot until its first call, and calls ``listeners`` when that call is over."""

    def __init__(self, model: nn.Module) -> None:
        self.listeners: list[Callable[[], None]] = []
        self.users = 0
        self._model = weakref.ref(model)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model's call, then the listeners."""
        module: Any = self._model()
        if is_symbolic() or has_proxies(args, kwargs):  # not the call itself
            return module._call_impl(*args, **kwargs)
        # Not always the model: replicas of DataParallel share the slot.
        module = sys._getframe(1).f_locals.get("self", module)
        self.vacate(module)
        try:
            return module._call_impl(*args, **kwargs)
        finally:
            for listener in self.listeners:
                listener()

    def vacate(self, caller: nn.Module | None = None) -> None:
        """Empty the slot, unless something else occupies it by now."""
        for module in (self._model(), caller):
            if module is not None and vars(module).get(_SLOT) is self:
                del vars(module)[_SLOT]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # pickled as None by classes that pickle every attribute


def is_compiled(module: nn.Module) -> bool:
    """Return whether a module was made by ``torch.compile``, or compiled in place by ``Module.compile``."""
    in_place = vars(module).get(_SLOT)
    return "_orig_mod" in module._modules or not (in_place is None or isinstance(in_place, FirstCall))


def after_first_call(model: nn.Module, listener: Callable[[], None]) -> Callable[[], None]:
    """Call a function once the next call of a model is over, on the thread of that call.

    A model that is compiled in place is left unchanged, and the listener is never called.

    Args:
        model: The model.
        listener: The function to call.

    Returns:
        A function that cancels this.
    """
    first = vars(model).get(_SLOT)
    if first is None:
        first = vars(model)[_SLOT] = FirstCall(model)
    if not isinstance(first, FirstCall):
        return lambda: None
    first.listeners.append(listener)
    first.users += 1
    return partial(_cancel, first)


def _cancel(first: FirstCall) -> None:
    first.users -= 1  # the listener stays, for a call that is under way
    if not first.users:
        first.vacate()
