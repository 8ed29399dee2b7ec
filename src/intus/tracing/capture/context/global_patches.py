"""Install the process-wide changes that a pass needs, and remove them.

Module calls are intercepted, compiled code runs eagerly, autograd follows the functions of ``torch.cond``,
torch's fused attention runs as it does without a capture, and freed storages and calls of functions of
``torch.jit`` are noticed. All active captures share these changes: the first installs them and the last
removes them.

Python's recursion limit is left alone. All threads share it, and lowering it again while another thread is
deeper makes Python abort the process.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import FunctionType
from typing import Any, cast

import torch
from torch.nn import Module

from .branches import followed
from .imports import WhenImported

_module_call = cast(FunctionType, Module._wrapped_call_impl)  # this function is ``Module.__call__``

#: The modules of torch that leave their fused implementation if anything overrides torch functions.
_FUSED = frozenset({"torch.nn.modules.activation", "torch.nn.modules.transformer"})


class GlobalPatches:
    """The process-wide changes, counted by active captures.

    Args:
        call: Replaces ``Module.__call__`` while any capture is active.
        runs_fused: Returns whether torch's fused implementations are to run in this thread although a capture
            overrides torch functions.
        before_shrinking: Called with a storage before it is freed or shrunk.
    """

    def __init__(
        self,
        call: FunctionType,
        runs_fused: Callable[[], bool],
        before_shrinking: Callable[[torch.UntypedStorage], None],
    ) -> None:
        self._runs_fused, self._before_shrinking = runs_fused, before_shrinking
        self._call, self._lock, self._captures = call, threading.Lock(), 0
        self._undo: list[Callable[[], None]] = []

    def enter(self) -> None:
        """Install the changes if this is the first active capture."""
        with self._lock:
            self._captures += 1
            if self._captures == 1:
                self._undo += (
                    _force_eager(),
                    _follow_functions(),
                    _keep_fused(self._runs_fused),
                    _notice_shrinking(self._before_shrinking),
                    _notice_script_functions(),
                    _replace_code(_module_call, self._call),
                )

    def leave(self) -> None:
        """Remove the changes if this was the last active capture."""
        with self._lock:
            self._captures -= 1
            while self._undo and not self._captures:
                self._undo.pop()()


def _replace_code(function: FunctionType, other: FunctionType) -> Callable[[], None]:
    """Make calls of ``function`` run the code of ``other``, which finds its values in its keyword defaults.

    Assigning to ``Module.__call__`` instead would make Python invalidate the attribute caches of all module
    classes, which took a quarter of the time of a small model's trace.
    """
    code, defaults = function.__code__, function.__kwdefaults__
    function.__kwdefaults__ = other.__kwdefaults__
    function.__code__ = other.__code__

    def undo() -> None:
        function.__code__ = code  # first, because other threads may be calling it
        function.__kwdefaults__ = defaults

    return undo


def _keep_fused(runs_fused: Callable[[], bool]) -> Callable[[], None]:
    """Let torch's attention and transformer layers run their fused implementation inside a capture.

    They leave it if ``has_torch_function`` says that something overrides torch functions, as a capture does.
    Their other implementation rounds differently, and computes other values where a mask hides positions.
    """
    original = torch.overrides.has_torch_function

    def has_torch_function(args: Any) -> bool:
        if sys._getframe(1).f_globals.get("__name__") in _FUSED and runs_fused():
            return any(map(_is_overriding, args))
        return bool(original(args))

    torch.overrides.has_torch_function = has_torch_function

    def undo() -> None:
        torch.overrides.has_torch_function = original

    return undo


def _notice_shrinking(before: Callable[[torch.UntypedStorage], None]) -> Callable[[], None]:
    """Call ``before`` with each storage that Python code frees or shrinks, which loses its contents."""
    original = torch.UntypedStorage.resize_

    def resize_(self: torch.UntypedStorage, size: int) -> Any:
        if size < self.nbytes():
            before(self)
        return original(self, size)

    torch.UntypedStorage.resize_ = resize_  # type: ignore[assignment,method-assign]

    def undo() -> None:
        del torch.UntypedStorage.resize_  # the original is that of its base class

    return undo


def _notice_script_functions() -> Callable[[], None]:
    """Let modes that override torch functions see calls of functions that ``torch.jit`` compiled."""
    script: Any = torch.jit.ScriptFunction
    original = script.__call__

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if torch._C._is_torch_function_mode_enabled():
            return torch.overrides.handle_torch_function(self, (), *args, **kwargs)
        return original(self, *args, **kwargs)

    script.__call__ = call

    def undo() -> None:
        script.__call__ = original

    return undo


def _is_overriding(argument: Any) -> bool:
    """Return whether an argument is of a class that overrides torch functions."""
    disabled = torch._C._disabled_torch_function_impl
    return (
        type(argument) is not torch.Tensor
        and getattr(type(argument), "__torch_function__", disabled) is not disabled
    )


def _force_eager() -> Callable[[], None]:
    """Make compiled functions run eagerly.

    Importing torch's compiler takes seconds. If it has not been imported, its stance is set as soon as it is,
    for example by the first call of ``torch.cond``.
    """
    undo = ExitStack()

    def set_stance() -> None:
        with suppress(RuntimeError):  # inside a compiled function the stance cannot be changed
            undo.push(torch.compiler.set_stance("force_eager").__exit__)

    if "torch._dynamo" in sys.modules:
        set_stance()
    else:
        undo.callback(WhenImported("torch._dynamo", set_stance).cancel)
    return undo.close


def _follow_functions() -> Callable[[], None]:
    """Let autograd follow the functions that ``torch.cond`` and torch's loops are given."""
    undo = ExitStack()
    undo.enter_context(followed())
    return undo.close
