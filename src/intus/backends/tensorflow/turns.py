"""Let one call of a model be observed at a time, whichever threads call it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from .function_calls import under_way


class _Turn(NamedTuple):
    """The turn of one call.

    Attributes:
        number: Its number, from 1 on.
        thread: The thread that began it.
        caller: That thread if it makes the call; None if a function of TensorFlow does, on any thread.
        functions: The numbers of the calls of functions that were under way then; one of them makes the call
            if no thread does.
    """

    number: int
    thread: int
    caller: threading.Thread | None
    functions: frozenset[int]


class Turns:
    """The turns of the calls of a model; one within another is of a pass that a tap makes as one begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._held: list[_Turn] = []
        self._beginning: set[int] = set()  # numbers of turns of whose calls the tap is being told

    def take(self, *, is_eager: bool, is_evaluation: bool) -> int:
        """Return the number of a turn, or 0 if another call has it.

        Args:
            is_eager: Whether this thread makes the call; else a function of TensorFlow does, on any thread.
            is_evaluation: Whether intus evaluates the model, as the tap does in a call that begins.
        """
        thread = threading.get_ident()
        with self._lock:
            functions = {one.number: one.thread for one in under_way()}
            while self._held and not self._is_alive(self._held[-1], functions):
                self._held.pop()  # it was interrupted
            if self._held and not self._is_around(
                self._held[-1], thread, functions if is_evaluation and not is_eager else {}
            ):
                return 0
            self._number += 1
            caller = threading.current_thread() if is_eager else None
            self._held.append(_Turn(self._number, thread, caller, frozenset(functions)))
            self._beginning.add(self._number)
            return self._number

    def begun(self, number: int) -> None:
        """Handle that the tap was told of a call."""
        self._beginning.discard(number)

    def has(self, number: int) -> bool:
        """Return whether a call still has its turn."""
        return any(one.number == number for one in self._held)

    def give(self, number: int) -> None:
        """End a turn, and those within it."""
        with self._lock:
            self._beginning.discard(number)
            self._held = [one for one in self._held if one.number < number]

    def _is_alive(self, turn: _Turn, functions: Mapping[int, int]) -> bool:
        """Return whether a call may be under way.

        One that is eager ends its turn itself, also if it raises. One that is not is made by a function.
        """
        if turn.caller is not None:
            return turn.caller.is_alive()
        return turn.number in self._beginning or not turn.functions.isdisjoint(functions)

    def _is_around(self, turn: _Turn, thread: int, functions: Mapping[int, int]) -> bool:
        """Return whether a call on a thread is within that of a turn, or made by one of the functions."""
        is_beginning = turn.number in self._beginning
        if turn.thread == thread and (turn.caller is not None or is_beginning):
            return True
        later = functions.keys() - turn.functions
        return is_beginning and any(functions[one] == turn.thread for one in later)
