"""Pair what only moves elements with what does so in the other pass, and with the last of several.

An exporter writes a roll over two axes as two rolls, each of slices that are joined. All of their results
have the same elements, by which rows are paired, so that the first of them may be taken for the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ....core.analysis.alignment import in_order
from ....core.graph import OP, Graph
from ....core.vocabularies import common_types
from ....core.vocabularies.families import MOVES
from ..values.differences import SAME, difference
from ..values.elements import plain

if TYPE_CHECKING:
    from ...results.trace import Trace


def with_last_moves(a: Trace, b: Trace, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return pairs in which a move of other elements is paired with a later one that has the same, if any.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: Pairs of rows, as ``align`` returns them.
    """
    graphs, types = (a.graph, b.graph), (common_types(a.graph), common_types(b.graph))
    partner = {i: j for i, j in pairs if i >= 0}
    taken = {j: i for i, j in partner.items() if j >= 0}
    is_changed = False
    for i, j in [(i, j) for i, j in pairs if i >= 0 and j >= 0]:
        if not (_moves(graphs[0], types[0], i) and _moves(graphs[1], types[1], j)) or _same(a, i, b, j):
            continue
        later = [n for n in _later(graphs[1], types[1], j) if n not in taken and _same(a, i, b, n)]
        if later:
            del taken[j]
            partner[i], taken[later[0]] = later[0], i
            is_changed = True
    if not is_changed:
        return list(pairs)
    return in_order([partner.get(i, -1) for i in range(len(graphs[0].ops))], len(graphs[1].ops))


def with_unmoved(a: Trace, b: Trace, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return pairs in which what is computed is not paired with what the same result is moved to.

    A transposition has the elements of what it is given, by which rows are paired, and may have its shape.
    What it is given corresponds to the result of the other pass, and the transposition has no partner.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: Pairs of rows, as ``align`` returns them.
    """
    both = {i: j for i, j in pairs if i >= 0 and j >= 0}
    turned = _unmoved(b, a, {j: i for i, j in _unmoved(a, b, both).items()})
    partner = {i: j for j, i in turned.items()}
    if partner == both:
        return list(pairs)
    return in_order([partner.get(i, -1) for i in range(len(a.graph.ops))], len(b.graph.ops))


def _unmoved(a: Trace, b: Trace, partner: Mapping[int, int]) -> dict[int, int]:
    """Return the rows of ``b``, by those of ``a``; of what ``a`` computes the one before it is moved."""
    types, taken = (common_types(a.graph), common_types(b.graph)), {*partner.values()}
    found = dict(partner)
    for i, j in partner.items():
        is_computed = a.graph.ops.kind[i] == OP and not _moves(a.graph, types[0], i)
        if is_computed and _moves(b.graph, types[1], j) and not _same(a, i, b, j):
            before = (n for n in _earlier(b.graph, types[1], j) if n not in taken)
            found[i] = next((n for n in before if _same(a, i, b, n)), j)
    return found


def _earlier(graph: Graph, types: Sequence[str], row: int) -> list[int]:
    """Return the rows that a row is made of by operations that only move elements, the first one first."""
    found: list[int] = []
    while _moves(graph, types, row) and len(parents := set(graph.parents(row))) == 1:
        (row,) = parents
        found.append(row)
    return found[::-1]


def _moves(graph: Graph, types: Sequence[str], row: int) -> bool:
    return graph.ops.kind[row] == OP and types[int(graph.ops.type[row])] in MOVES


def _later(graph: Graph, types: Sequence[str], row: int) -> list[int]:
    """Return the rows that a row reaches by operations that only move elements."""
    waiting, found = [row], set[int]()
    while waiting:
        following = {n for n in graph.children(waiting.pop()) if _moves(graph, types, n)} - found
        found |= following
        waiting += following
    return sorted(found)


def _same(a: Trace, i: int, b: Trace, j: int) -> bool:
    x, y = plain(a.values.get(i)), plain(b.values.get(j))
    if x is None or y is None or x.array.shape != y.array.shape:
        return False
    apart = difference(x, y)
    return apart.relative <= SAME and not apart.lopsided
