"""Find out whether a row of a graph that is being read descends from another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: The largest number of rows visited.
_MOST_VISITED = 64


def is_before(row: int, other: int, parents: Mapping[int, Sequence[int]]) -> bool:
    """Return whether a bounded search finds that a row is another one, or that the other descends from it.

    It serves to leave out parents that a later one descends from. To miss one only adds a parent that is
    true, though not the nearest.

    Args:
        row: The row.
        other: The other row.
        parents: The parents of rows, all of which are earlier rows.

    Example:
        >>> is_before(0, 2, {1: [0], 2: [1]}), is_before(1, 2, {2: [0]})
        (True, False)
    """
    waiting, visited = [other], {other}
    while waiting and len(visited) < _MOST_VISITED:
        for parent in parents.get(waiting.pop(), ()):
            if parent == row:
                return True
            if parent > row and parent not in visited:
                visited.add(parent)
                waiting.append(parent)
    return row == other
