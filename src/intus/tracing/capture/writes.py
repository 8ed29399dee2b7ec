"""Who wrote to which memory, and who is to be asked for what stands there."""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

from torch import Tensor

from .memory import Geometry, extent_of, geometry_of, memory_of
from .recording import ROW, Recording

_FAR = 64  # rows looked through for whether one write descends from another


class Write(NamedTuple):
    """A write to a memory: the row that made it, the first and last byte it may have changed, and where its
    value lies in the memory, None where the row's value is not what was written."""

    row: int
    first: int
    last: int
    place: Geometry | None


class Writes:
    """The writes of one pass, by memory, in the order they were made."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._by_memory: dict[int | None, list[Write]] = {}
        self._starts = [0]  # where a row's inputs begin, by the row's number, as far as asked

    def add(self, t: Tensor, row: int, *, own: bool) -> None:
        """The row wrote what ``t`` sees; ``own`` is whether its value is what was written."""
        write = Write(row, *extent_of(t), geometry_of(t) if own else None)
        self._by_memory.setdefault(memory_of(t), []).append(write)

    def since(self, t: Tensor, row: int) -> tuple[list[Write], bool]:
        """The writes after a row to what ``t`` sees, and whether there were any to its memory at all."""
        writes = self._by_memory.get(memory_of(t), [])
        later = list(takewhile(lambda write: write.row > row, reversed(writes)))[::-1]
        if not later:
            return [], False
        first, last = extent_of(t)
        return [write for write in later if write.first <= last and first <= write.last], True

    def writers(self, t: Tensor, row: int) -> list[int]:
        """Who wrote to what ``t`` sees since it came from ``row``, the last first, and ``row`` itself, but
        for those that a later one descends from; nobody where nobody wrote."""
        writes = self._by_memory.get(memory_of(t))
        found: list[int] = []
        if writes:
            first, last = extent_of(t)
            for write in reversed(writes):
                if write.row <= row:
                    break
                if write.first <= last and first <= write.last and not self._is_above(write.row, found):
                    found.append(write.row)
        if found and not self._is_above(row, found):
            found.append(row)
        return found

    def _is_above(self, above: int, rows: list[int]) -> bool:
        return any(self._descends(row, above) for row in rows)

    def _descends(self, row: int, above: int) -> bool:
        """Whether a row descends from another, as far as a short look tells; not to see it costs an edge that
        is true and says nothing new."""
        rows, inputs = self._recording.rows, self._recording.inputs
        todo, met = [row], {row}
        while todo and len(met) < _FAR:
            at = todo.pop()
            start = self._start(at // len(ROW))
            for parent in inputs[start : start + rows[at + len(ROW) - 1] : 2]:
                if parent == above:
                    return True
                if parent > max(above, -1) and parent not in met:
                    met.add(parent)
                    todo.append(parent)
        return row == above

    def _start(self, number: int) -> int:
        """Where the inputs of the row of that number begin."""
        starts, rows = self._starts, self._recording.rows
        while len(starts) <= number:
            starts.append(starts[-1] + rows[len(starts) * len(ROW) - 1])
        return starts[number]
