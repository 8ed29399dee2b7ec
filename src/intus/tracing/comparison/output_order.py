"""Find outputs that two passes return in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.graph import OUTPUT, Graph
from .values.elements import plain

if TYPE_CHECKING:
    from ..results.trace import Trace
    from .judging.pairs import Pair


def reordered_outputs(a: Trace, b: Trace, pairs: Sequence[Pair]) -> list[str]:
    """Return which outputs have another place in ``b`` than in ``a``, as sentences.

    An output is known by the operation that computed it. If one pass has more outputs than the other, only
    the order of those that both have counts.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The pairs of rows, with what was found.
    """
    partner = {pair.a: pair.b for pair in pairs if pair.a >= 0 and pair.b >= 0 and pair.is_explained}
    ends_a, ends_b = a.graph.rows_of(OUTPUT), b.graph.rows_of(OUTPUT)
    returned = [_returned(b.graph, end) for end in ends_b]
    found: list[tuple[int, int]] = []  # the places of an output in a and b, from 0
    for at, end in enumerate(ends_a):
        others = [n for n, row in enumerate(returned) if row == partner.get(_returned(a.graph, end), -1)]
        if others:
            found.append((at, at if at in others else others[0]))
    if len(ends_a) != len(ends_b):
        ranks = {place: rank for rank, place in enumerate(sorted({place for _, place in found}))}
        moved = [(at, place) for rank, (at, place) in enumerate(found) if ranks[place] != rank]
    else:
        moved = [(at, place) for at, place in found if at != place]
    return [
        f"Output {at + 1} of {a.graph.model} is output {place + 1} of {b.graph.model}."
        for at, place in moved
        if at >= len(ends_b) or not _equal(b, ends_b[at], ends_b[place])
    ]


def _returned(graph: Graph, end: int) -> int:
    """Return the row whose value is an output."""
    return next(iter(graph.parents(end)), -2)


def _equal(trace: Trace, end: int, other: int) -> bool:
    """Return whether two outputs have the same value, so that their order has no effect."""
    one, two = (plain(trace.values.get(row)) for row in (end, other))
    return one is not None and two is not None and one.equals(two)
