"""Walking a graph: who feeds whom, how far apart. Rows are numbers of ``Graph.ops``; time only moves on, so a
parent's number is below its child's and every walk is one sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from .graph import Graph


def ancestors(graph: Graph, rows: Iterable[int]) -> list[int]:
    """Everything the rows were computed from, directly or not, in order of execution."""
    return _reach(rows, graph.parents)


def descendants(graph: Graph, rows: Iterable[int]) -> list[int]:
    """Everything computed from the rows, directly or not, in order of execution."""
    return _reach(rows, graph.children)


def siblings(graph: Graph, row: int) -> list[int]:
    """Rows that share a parent with the row."""
    return sorted({other for parent in graph.parents(row) for other in graph.children(parent)} - {row})


def spouses(graph: Graph, row: int) -> list[int]:
    """Rows that share a child with the row."""
    return sorted({other for child in graph.children(row) for other in graph.parents(child)} - {row})


def distances(graph: Graph, sources: Iterable[int], *, back: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """How many steps every row is from a source, at the least and at the most; -1 where none leads to it.

    Steps follow the computation, or with ``back`` go against it. Returns two int64 arrays (rows,).
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
    seen: set[int] = set()
    waiting = [other for row in rows for other in step(row)]
    while waiting:
        row = waiting.pop()
        if row not in seen:
            seen.add(row)
            waiting += step(row)
    return sorted(seen)
