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

from .imports import WhenImported


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
    """What torch compiled, and what it is about to compile, runs as it is written. Its compiler takes seconds
    to import: where it has not been imported it is told as soon as it is, which ``torch.cond`` does when it
    is first called."""
    undo = ExitStack()

    def tell() -> None:
        with suppress(RuntimeError):  # inside a compiled function the stance cannot be changed
            undo.push(torch.compiler.set_stance("force_eager").__exit__)

    if "torch._dynamo" in sys.modules:
        tell()
    else:
        undo.callback(WhenImported("torch._dynamo", tell).forget)
    return undo.close
