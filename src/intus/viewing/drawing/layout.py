"""Layered layout of one container. Time gives a topological order for free (a container's members are
intervals of it), so ranks are longest paths, the first order is the order of execution, and a few median
sweeps and weighted isotonic placements do the rest. Edges that span many ranks run in lanes beside the
boxes, one lane for all edges of one source, so that they cross no box and cost no dummies."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from .cells import IS_DUMMY, IS_PORT, Cell, Chain, Link
from .order import order_ranks
from .place import place_x
from .route import assemble

LONGEST = 6  # ranks an edge may span before it takes a lane
HUB = 3  # so many edges over more than one rank, from or to one box, share a lane


class LayoutNode(NamedTuple):
    """``tail`` is the room that the label of what it gives needs to the right of its centre; a ``pinned``
    node stays in the first rank although nothing leads to it, others move down to whom they feed."""

    id: int
    width: float
    height: float
    tail: float = 0.0
    pinned: bool = False


class LayoutEdge(NamedTuple):
    """``from_dx`` and ``to_dx`` say how far from its box's centre an end is fixed (a port of an open
    container); None where it is free. ``out_mark`` and ``mark`` are the widths of the words at its start and
    at its arrow."""

    source: int
    target: int
    from_dx: float | None = None
    to_dx: float | None = None
    out_mark: float = 0.0
    mark: float = 0.0


class LayoutInput(NamedTuple):
    """What a container holds; ``rank_gap`` is the room between two ranks, ``inset`` how far from a box's
    corners edges keep."""

    nodes: list[LayoutNode]
    ins: list[int]
    outs: list[int]
    edges: list[LayoutEdge]
    min_width: float = 0.0
    rank_gap: float = 34.0
    inset: float = 12.0


class Layout(NamedTuple):
    """Positions of the top left corners; ports and routes in the same coordinates. A route is x, y, x, y, …:
    between two points with different x it bends with vertical tangents, else it is straight."""

    width: float
    height: float
    x: dict[int, float]
    y: dict[int, float]
    port_x: dict[int, float]
    routes: list[list[float]]


def layout_level(level: LayoutInput) -> Layout:
    """Lay out one container.

    >>> boxes = [LayoutNode(1, 50, 20), LayoutNode(2, 50, 20)]
    >>> flat = layout_level(LayoutInput(boxes, [], [], [LayoutEdge(1, 2)]))
    >>> flat.x[1] == flat.x[2], flat.y[2] - flat.y[1]
    (True, 54.0)
    """
    rank, late = _ranks(level)
    last = max(rank, default=0)
    cells = [
        Cell(index, node.id, rank[index], node.width, node.height, late=late[index])
        for index, node in enumerate(level.nodes)
    ]
    for ports, port_rank in ((level.ins, -1), (level.outs, last + 1)):
        cells += [Cell(IS_PORT, port, port_rank, 10, 0) for port in ports]
    by_id = {cell.id: cell for cell in cells}
    chains, lanes = _split(level.edges, by_id, cells)
    ranks = order_ranks(cells, last + 3)
    place_x(ranks)
    return Layout(*assemble(level, ranks, by_id, chains, lanes))


def _ranks(level: LayoutInput) -> tuple[list[int], list[bool]]:
    """Longest paths from above. What nothing holds up moves down to just above the first it feeds: constants,
    and what takes its part of one tensor late, such as a loop's steps from their sequence. Then, which
    moved."""
    nodes = level.nodes
    place = {node.id: index for index, node in enumerate(nodes)}
    ends = [(place.get(edge.source, -1), place.get(edge.target, -1), edge.source) for edge in level.edges]
    forward = sorted((end for end in ends if end[0] < end[1]), key=lambda end: end[1])
    rank = [0] * len(nodes)
    out_of: list[list[int]] = [[] for _ in nodes]
    for a, b, _ in forward:
        if a >= 0:
            out_of[a].append(b)
            rank[b] = max(rank[b], rank[a] + 1)
    held = _held_up(nodes, forward, rank, out_of)
    late = [False] * len(nodes)
    for i in range(len(nodes) - 1, -1, -1):
        least = min((rank[b] for b in out_of[i]), default=0) - 1
        if not held[i] and rank[i] < least:
            rank[i], late[i] = least, True
    return rank, late


def _held_up(
    nodes: list[LayoutNode], forward: list[tuple[int, int, int]], rank: list[int], out_of: list[list[int]]
) -> list[bool]:
    """Which nodes stay where their longest path puts them: those a chain leads to that begins at something
    pinned, or at a port."""
    latest = rank.copy()
    for i in range(len(nodes) - 1, -1, -1):
        if out_of[i]:
            latest[i] = min(latest[b] for b in out_of[i]) - 1
    reach: dict[int, list[int]] = {}
    for _, b, source in forward:
        reach.setdefault(source, []).append(latest[b])
    spread = {source for source, at in reach.items() if len(at) > HUB and max(at) - min(at) > LONGEST}
    held = [node.pinned for node in nodes]
    for a, b, source in forward:
        held[b] = held[b] or ((a < 0 or held[a]) and source not in spread)
    return held


def _split(
    edges: list[LayoutEdge], by_id: dict[int, Cell], cells: list[Cell]
) -> tuple[list[Chain], list[int]]:
    """Link cells along short edges, with a dummy in every rank they pass; leave the long ones to lanes. What
    came late pulls less: the steps of a sum stand below one another, each beside its part."""
    spans = [by_id[edge.target].rank - by_id[edge.source].rank for edge in edges]
    long = [edge for edge, span in zip(edges, spans, strict=True) if span > 1]
    leaving, arriving = Counter(edge.source for edge in long), Counter(edge.target for edge in long)
    chains, lanes = [], []
    for index, (edge, span) in enumerate(zip(edges, spans, strict=True)):
        hub = span > 1 and (leaving[edge.source] >= HUB or arriving[edge.target] >= HUB)
        if span < 1 or span > LONGEST or hub:
            lanes.append(index)
            continue
        a, b = by_id[edge.source], by_id[edge.target]
        dummies = [Cell(IS_DUMMY, -1, rank, 8, 0) for rank in range(a.rank + 1, b.rank)]
        cells += dummies
        chain = [a, *dummies, b]
        _link(edge, chain)
        chains.append(Chain(index, chain))
    return chains, lanes


def _link(edge: LayoutEdge, chain: list[Cell]) -> None:
    last = len(chain) - 1
    for i in range(1, last + 1):
        p, q = chain[i - 1], chain[i]
        inner = p.index == IS_DUMMY and q.index == IS_DUMMY
        weight = 6 if inner else 1 if last > 1 else 2 if p.late else 4
        shift = ((edge.from_dx or 0) if i == 1 else 0) - ((edge.to_dx or 0) if i == last else 0)
        if edge.from_dx is not None and edge.to_dx is not None and last == 1:
            shift = 0  # two open boxes stand centre under centre: a stack must not wander off along its ports
        p.down.append(Link(q, weight, -shift))
        q.up.append(Link(p, weight, shift))
