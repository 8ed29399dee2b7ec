"""Find the pairs of two passes that no output depends on."""

from __future__ import annotations

from collections.abc import Iterable

from ....core.analysis.walks import ancestors
from ....core.graph import BUFFER, OUTPUT, Graph
from ....core.vocabularies import draws_at_random


def idle(a: Graph, b: Graph, pairs: Iterable[tuple[int, int]]) -> set[int]:
    """Return the numbers of pairs that no output depends on, and of random state that is only drawn from.

    Such is a counter of random numbers, which counts on although nothing is drawn, or a running mean that a
    pass updates and does not read. Empty if a pass has no outputs.

    Args:
        a: The first graph.
        b: The second graph.
        pairs: The pairs of rows; -1 where there is none.
    """
    used: list[set[int]] = []
    for graph in (a, b):
        ends = graph.rows_of(OUTPUT)
        live = {*ends, *ancestors(graph, ends)}
        drawn = {row for row in graph.rows_of(BUFFER) if _is_drawn(graph, row, live)}
        used.append(live - drawn if ends else set(range(len(graph.ops))))
    return {number for number, (i, j) in enumerate(pairs) if i not in used[0] and j not in used[1]}


def _is_drawn(graph: Graph, row: int, live: set[int]) -> bool:
    children = [child for child in graph.children(row) if child in live]
    return bool(children) and all(draws_at_random(graph, child) for child in children)
