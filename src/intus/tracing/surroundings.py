"""What a pass needs of its process: every call of a module to come by, room to recurse, nothing compiled.

All three hold for the process, so all captures under way share them: the first puts them in, the last takes
them out, whichever that is.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import torch
from torch.nn import Module

from ..core.errors import CaptureError


class Surroundings:
    """Shared by all captures; ``call`` stands in for ``Module.__call__`` while any of them is under way."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.plain_call: Callable[..., Any] = Module.__call__
        self._call, self._lock, self._captures, self._undo = call, threading.Lock(), 0, ExitStack()

    def enter(self) -> None:
        """A capture begins."""
        with self._lock:
            self._captures += 1
            if self._captures == 1:
                self._undo.callback(_run_eagerly())
                self._undo.callback(_make_room())
                self.plain_call = Module.__call__
                Module.__call__ = self._call  # type: ignore[method-assign]

    def leave(self) -> None:
        """A capture is over."""
        with self._lock:
            self._captures -= 1
            if self._captures == 0:
                Module.__call__ = self.plain_call  # type: ignore[method-assign]
                self._undo.close()


def _make_room() -> Callable[[], None]:
    """A traced call of a module is a frame deeper than a plain one: what runs plainly must not overflow."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(2 * before)

    def undo() -> None:
        if sys.getrecursionlimit() == 2 * before:  # else the model set a limit of its own
            sys.setrecursionlimit(before)

    return undo


def _run_eagerly() -> Callable[[], None]:
    """What torch compiled, and what it is about to compile, runs as it is written. Where its compiler has
    never been imported, nothing is compiled; to import it takes seconds."""
    if "torch._dynamo" in sys.modules:
        with suppress(RuntimeError):  # inside a compiled function the stance cannot be changed
            stance = torch.compiler.set_stance("force_eager")
            return lambda: stance.__exit__(None, None, None)
    return lambda: None


def refused_compiling(error: BaseException) -> BaseException:
    """What to raise for ``error``: itself, or the way out where torch's compiler came in with the pass
    (``torch.cond`` imports it when first called), too late to be told to run everything as it is written."""
    if not type(error).__module__.startswith("torch._dynamo"):
        return error
    refusal = CaptureError(
        "The model calls torch.cond or the like, and torch's compiler was first imported by that call, too "
        "late to be told to let everything run as it is written. Say import torch._dynamo before tracing."
    )
    refusal.__cause__ = error
    return refusal
