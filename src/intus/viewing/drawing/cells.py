"""What a layout works on: a cell for every box, port and dummy, and the links between neighbouring ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

#: Distances in pixels: between boxes of a rank, beside dummies, between lanes, at a container's borders,
#: between the ends of edges along one side of a box, and beside words at such an end.
BESIDE, DUMMY, LANE, SIDE, TOP, BOTTOM, STEP, ASIDE = 28, 16, 12, 22, 20, 20, 16, 16

IS_DUMMY, IS_PORT = -1, -2  # Cell.index of what is no box


class Link(NamedTuple):
    """``shift`` is the x of the other end's attachment minus ours, were both centres equal."""

    cell: Cell
    weight: int
    shift: float


@dataclass(slots=True, eq=False)
class Cell:
    """``x`` is its centre; ``at`` its place in its rank; one that is ``late`` could stand higher."""

    index: int
    id: int
    rank: int
    width: float
    height: float
    x: float = 0.0
    at: int = 0
    late: bool = False
    up: list[Link] = field(default_factory=list)
    down: list[Link] = field(default_factory=list)


class Chain(NamedTuple):
    """An edge's way through the ranks: its two ends, and a dummy in every rank between."""

    edge: int
    cells: list[Cell]


def gap(a: Cell, b: Cell) -> float:
    """How far apart the centres of two neighbours must be."""
    between = DUMMY if a.index == IS_DUMMY or b.index == IS_DUMMY else BESIDE
    return (a.width + b.width) / 2 + between
