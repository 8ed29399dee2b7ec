"""The writes of one pass by memory: which tensors were written into which part of it, in order."""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

from torch import Tensor

from .memory import Geometry, extent_of, geometry_of, memory_of
from .recording import ROW, Recording

#: Maximum number of rows visited to find out whether one tensor descends from another.
_MAX_VISITED = 64


class Write(NamedTuple):
    """A write to a memory.

    Attributes:
        offset: The offset of the tensor that was written.
        first: The first byte that it may have changed.
        last: The last byte that it may have changed.
        place: The part of the memory that the tensor was written to; None if the tensor at ``offset`` is not
            the value that was written.
    """

    offset: int
    first: int
    last: int
    place: Geometry | None


class Writes:
    """The writes of one pass, by memory, in the order they were made."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._by_memory: dict[int | None, list[Write]] = {}
        self._starts = [
            0
        ]  # by recorded row: the start of its inputs in ``Recording.inputs``, built on demand

    def add(self, t: Tensor, offset: int, *, is_value: bool) -> None:
        """Add a write to the part of its memory that ``t`` views.

        Args:
            t: The tensor that was written into.
            offset: The offset of the call's row.
            is_value: Whether the tensor at ``offset`` is the value that was written.
        """
        write = Write(offset, *extent_of(t), geometry_of(t) if is_value else None)
        self._by_memory.setdefault(memory_of(t), []).append(write)

    def since(self, t: Tensor, offset: int) -> tuple[list[Write], bool]:
        """Return the writes after ``offset`` that overlap ``t``, and whether its memory had any after it."""
        writes = self._by_memory.get(memory_of(t), [])
        later = list(takewhile(lambda write: write.offset > offset, reversed(writes)))[::-1]
        if not later:
            return [], False
        first, last = extent_of(t)
        return [write for write in later if write.first <= last and first <= write.last], True

    def writers(self, t: Tensor, offset: int) -> list[int]:
        """Return the producers of what ``t`` now contains, if it was written since ``offset``.

        Args:
            t: The tensor.
            offset: The producer of ``t`` before the writes.

        Returns:
            The offsets of the writes that overlap ``t``, last first, and ``offset`` itself, without those
            that a later one descends from. Empty if there were no such writes.
        """
        writes = self._by_memory.get(memory_of(t))
        found: list[int] = []
        if writes:
            first, last = extent_of(t)
            for write in reversed(writes):
                if write.offset <= offset:
                    break
                if write.first <= last and first <= write.last and not self._is_ancestor(write.offset, found):
                    found.append(write.offset)
        if found and not self._is_ancestor(offset, found):
            found.append(offset)
        return found

    def _is_ancestor(self, ancestor: int, offsets: list[int]) -> bool:
        return any(self._descends(offset, ancestor) for offset in offsets)

    def _descends(self, offset: int, ancestor: int) -> bool:
        """Return whether a bounded search finds that one tensor descends from another.

        Missing it only adds an edge that is true but redundant.
        """
        rows, inputs = self._recording.rows, self._recording.inputs
        todo, visited = [offset], {offset}
        while todo and len(visited) < _MAX_VISITED:
            current = todo.pop()
            start = self._start(current // len(ROW))
            for parent in inputs[start : start + rows[current + len(ROW) - 1] : 2]:
                if parent == ancestor:
                    return True
                if parent > max(ancestor, -1) and parent not in visited:
                    visited.add(parent)
                    todo.append(parent)
        return offset == ancestor

    def _start(self, row: int) -> int:
        """Return where the inputs of a recorded row begin."""
        starts, rows = self._starts, self._recording.rows
        while len(starts) <= row:
            starts.append(starts[-1] + rows[len(starts) * len(ROW) - 1])
        return starts[row]
