"""Defer Ctrl-C and other signals while a pass is prepared, undone or stored."""

from __future__ import annotations

import _signal  # the functions of ``signal`` convert to enumerations, which takes ten times as long
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: The signals whose Python handlers usually raise: KeyboardInterrupt, SystemExit, an exception for a timeout.
_SIGNALS = tuple(
    int(getattr(signal, name)) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name)
)


class interrupts_deferred:  # noqa: N801 - used like a function
    """A context in which signals wait: their handlers are called at its end, or inside ``run``.

    An exception of a handler (KeyboardInterrupt) may be raised after any call of a function. In the midst of
    entering or leaving a capture it would leave the model half restored.

    Only the main thread handles signals, so elsewhere this does nothing. Signals that have no handler in
    Python end the process, as before.

    Example:
        >>> with interrupts_deferred() as interrupts:
        ...     interrupts.run(max, 1, 2)
        2
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[..., Any]] = {}
        self._pending: list[int] = []
        self._deferring = True

    def __enter__(self) -> interrupts_deferred:
        if threading.current_thread() is threading.main_thread():
            try:
                for number in _SIGNALS:
                    before = _signal.getsignal(number)
                    if callable(before):
                        self._handlers[number] = before
                        _signal.signal(number, self._handle)
            except BaseException:  # of a handler that is not replaced yet
                self._restore()
                raise
        return self

    def __exit__(self, *error: Any) -> None:
        self._deferring = False
        try:
            self._restore()
        except BaseException:
            self._restore()
            raise
        if self._pending:
            self._deliver()

    def _restore(self) -> None:
        for number, before in self._handlers.items():
            _signal.signal(number, before)

    def run(self, function: Callable[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call a function, the model's own code, during which signals are handled as usual.

        Python handles signals only after calls and at jumps. So none is handled between an exception and the
        assignment in ``finally``.
        """
        try:
            self._deferring = False
            if self._pending:
                self._deliver()
            return function(*args, **kwargs)
        finally:
            self._deferring = True

    def _handle(self, number: int, frame: Any) -> None:
        if self._deferring:
            self._pending += [number]
        else:
            self._handlers[number](number, frame)

    def _deliver(self) -> None:
        pending, self._pending = self._pending, []
        for number in dict.fromkeys(pending):
            self._handlers[number](number, sys._getframe())
