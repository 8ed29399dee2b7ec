"""Being told that a module's first call is over, however it ended.

torch runs ``always_call`` hooks for an ``Exception`` alone: after a KeyboardInterrupt no hook is heard.
``nn.Module.__call__`` asks each instance for a ``_compiled_call_impl``; what stands there for one call has
a ``finally`` of its own, and neither the model's class nor torch is patched.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

_SLOT = "_compiled_call_impl"  # torch leaves it out when it pickles or copies a module


class FirstCall:
    """Stands in a model's slot until its first call, and tells ``listeners`` when that is over."""

    def __init__(self, model: nn.Module) -> None:
        self.listeners: list[Callable[[], None]] = []
        self.users = 0
        self._model = weakref.ref(model)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module: Any = self._model()
        if torch.compiler.is_compiling():  # the call is yet to come
            return module._call_impl(*args, **kwargs)
        # Not always the model: DataParallel's replicas share what stands in the slot.
        module = sys._getframe(1).f_locals.get("self", module)
        self.leave(module)
        try:
            return module._call_impl(*args, **kwargs)
        finally:
            for listener in self.listeners:
                listener()

    def leave(self, caller: nn.Module | None = None) -> None:
        """Empty the slot, unless something else has come to stand there."""
        for module in (self._model(), caller):
            if module is not None and vars(module).get(_SLOT) is self:
                del vars(module)[_SLOT]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # to classes that pickle all they have, the slot is empty


def after_first_call(model: nn.Module, listener: Callable[[], None]) -> Callable[[], None]:
    """Call ``listener`` on the thread of the next call of ``model`` once that call is over; returns what
    takes it back. A model that is compiled in place is left as it is.
    """
    first = vars(model).get(_SLOT)
    if first is None:
        first = vars(model)[_SLOT] = FirstCall(model)
    if not isinstance(first, FirstCall):
        return lambda: None
    first.listeners.append(listener)
    first.users += 1
    return partial(_forget, first)


def _forget(first: FirstCall) -> None:
    first.users -= 1  # the listener stays: a call that is under way is still told of
    if not first.users:
        first.leave()
