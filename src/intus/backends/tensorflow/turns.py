"""Let one call of a model be observed at a time, whichever threads call it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NamedTuple

OVERLAPS = (
    "A call of the model is not recorded while another thread's call of it is, so that every record is of "
    "one call. Rows have no labels by order of arrival then. To record all of them, call it one at a time."
)
#: The file of TensorFlow in which a thread waits for the operations and functions that it runs.
_EXECUTES = "tensorflow/python/eager/execute.py"
_READS = 3


class _Turn(NamedTuple):
    """The turn of one call.

    Attributes:
        number: Its number, from 1 on.
        thread: The thread that began it.
        depth: How many times that thread had entered TensorFlow then.
        is_eager: Whether the call is made on that thread, not by a function of TensorFlow, which has any.
        frames: Frames of Python of which one is there as long as a call that is not eager is under way.
    """

    number: int
    thread: int
    depth: int
    is_eager: bool
    frames: list[FrameType]


class Turns:
    """The turns of the calls of a model; one within another is of a pass that a tap makes as one begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._held: list[_Turn] = []
        self._beginning: set[int] = set()  # numbers of turns of whose calls the tap is being told

    def take(self, *, is_eager: bool) -> int:
        """Return the number of a turn, or 0 if another call has it.

        Args:
            is_eager: Whether this thread makes the call; else a function of TensorFlow does, on any thread.
        """
        thread = threading.get_ident()
        with self._lock:
            while self._held and not self._is_alive(self._held[-1]):
                self._held.pop()  # it was interrupted
            if self._held and not self._is_around(self._held[-1], thread):
                return 0
            self._number += 1
            frames = [] if is_eager else _executing()
            turn = _Turn(self._number, thread, len(_entries(sys._getframe())), is_eager, frames)
            self._held.append(turn)
            self._beginning.add(turn.number)
            return turn.number

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

    def _is_alive(self, turn: _Turn) -> bool:
        """Return whether a call is under way. One that is eager ends its turn itself, also if it raises."""
        if turn.is_eager or turn.number in self._beginning:
            return turn.thread in sys._current_frames()
        # A stack can be left while it is read, which ends the reading.
        stacks = [
            frame for _ in range(_READS) for top in sys._current_frames().values() for frame in _stack(top)
        ]
        return any(one is frame for one in turn.frames for frame in stacks)

    def _is_around(self, turn: _Turn, thread: int) -> bool:
        """Return whether a call on a thread is within that of a turn."""
        if turn.thread == thread and (turn.is_eager or turn.number in self._beginning):
            return True
        return turn.number in self._beginning and _depth(turn.thread) > turn.depth


def _executing() -> list[FrameType]:
    """Return a frame of each thread that waits for TensorFlow, one of which made the call."""
    found = (_entries(frame) for frame in sys._current_frames().values())
    return [entries[0] for entries in found if entries]


def _depth(thread: int) -> int:
    return len(_entries(sys._current_frames().get(thread)))


def _entries(frame: FrameType | None) -> list[FrameType]:
    """Return the frames, the innermost first, that run something by TensorFlow."""
    return [one for one in _stack(frame) if one.f_code.co_filename.endswith(_EXECUTES)]


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
