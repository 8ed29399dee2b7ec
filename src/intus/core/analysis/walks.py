"""Walks over a graph: ancestors, descendants and distances.

Rows are indices into ``Graph.ops``. They are in order of execution, so a parent's index is below its
child's, and every walk is one sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ..graph import Graph


def ancestors(graph: Graph, rows: Iterable[int]) -> list[int]:
    """Return all rows that the given rows were computed from, directly or not, in order of execution."""
    return _reach(rows, graph.parents)


def descendants(graph: Graph, rows: Iterable[int]) -> list[int]:
    """Return all rows computed from the given rows, directly or not, in order of execution."""
    return _reach(rows, graph.children)


def siblings(graph: Graph, row: int) -> list[int]:
    """Return the rows that share a parent with a row."""
    return sorted({other for parent in graph.parents(row) for other in graph.children(parent)} - {row})


def spouses(graph: Graph, row: int) -> list[int]:
    """Return the rows that share a child with a row."""
    return sorted({other for child in graph.children(row) for other in graph.parents(child)} - {row})


def distances(graph: Graph, sources: Iterable[int], *, back: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return the shortest and the longest distance of every row from the sources.

    Args:
        graph: The graph.
        sources: The rows with distance 0.
        back: Follow the edges backwards.

    Returns:
        Two int64 arrays of shape (rows,), in steps; -1 if no source reaches the row.
    """
    near, far = [-1] * len(graph.ops), [-1] * len(graph.ops)
    for row in sources:
        near[row] = far[row] = 0
    pairs = list(zip(graph.edges.src.tolist(), graph.edges.dst.tolist(), strict=True))  # sorted by dst
    if back:
        pairs = sorted(((dst, src) for src, dst in pairs), reverse=True)
    for src, dst in pairs:
        if near[src] >= 0:
            near[dst] = near[src] + 1 if near[dst] < 0 else min(near[dst], near[src] + 1)
            far[dst] = max(far[dst], far[src] + 1)
    return np.array(near, dtype=np.int64), np.array(far, dtype=np.int64)


def _reach(rows: Iterable[int], step: Callable[[int], list[int]]) -> list[int]:
    """Return all rows reachable by repeated steps, sorted."""
    reached: set[int] = set()
    pending = [other for row in rows for other in step(row)]
    while pending:
        row = pending.pop()
        if row not in reached:
            reached.add(row)
            pending += step(row)
    return sorted(reached)
