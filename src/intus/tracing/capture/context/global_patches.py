"""What a pass needs of its process: every call of a module to come by, room to recurse, nothing compiled.

All three hold for the process, so all captures under way share them: the first puts them in, the last takes
them out, whichever that is.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import FunctionType
from typing import cast

import torch
from torch.nn import Module

from .imports import WhenImported

_module_call = cast(FunctionType, Module._wrapped_call_impl)  # ``Module.__call__`` by the name torch wrote it
#: A module's call as torch wrote it, whatever runs in its place.
plain_call = FunctionType(_module_call.__code__, _module_call.__globals__, _module_call.__name__)


class GlobalPatches:
    """Shared by all captures; ``call`` runs for ``Module.__call__`` while any of them is under way."""

    def __init__(self, call: FunctionType) -> None:
        self._call, self._lock, self._captures = call, threading.Lock(), 0
        self._undo: list[Callable[[], None]] = []

    def enter(self) -> None:
        """A capture begins."""
        with self._lock:
            self._captures += 1
            if self._captures == 1:
                self._undo += _run_eagerly(), _make_room(), _run_instead(_module_call, self._call)

    def leave(self) -> None:
        """A capture is over."""
        with self._lock:
            self._captures -= 1
            while self._undo and not self._captures:
                self._undo.pop()()


def _run_instead(function: FunctionType, other: FunctionType) -> Callable[[], None]:
    """Whoever calls ``function`` runs the code of ``other``, which finds what it needs in the defaults of its
    keywords. To assign to ``Module.__call__`` would make Python visit every class of modules there is, and
    forget what it knows of them: of a small model that was a quarter of a trace."""
    code, defaults = function.__code__, function.__kwdefaults__
    function.__kwdefaults__ = other.__kwdefaults__
    function.__code__ = other.__code__

    def undo() -> None:
        function.__code__ = code  # first, for other threads may be calling
        function.__kwdefaults__ = defaults

    return undo


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
