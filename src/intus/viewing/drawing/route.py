"""Heights of the ranks, and the routes of the edges between and beside them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from .cells import ASIDE, BOTTOM, IS_PORT, LANE, SIDE, STEP, TOP, Cell, Chain

if TYPE_CHECKING:
    from .layout import LayoutInput

_FAR = 36  # most extra room between two ranks whose edges go far sideways
_SLACK = 1  # so little to the left of the middle is in the middle


class _Bands(NamedTuple):
    top: list[float]
    bottom: list[float]


class _End(NamedTuple):
    """An edge's end at a box: where its way comes from or goes to, and the lane it shares, -1 for none."""

    edge: int
    start: bool
    towards: float
    bus: int


@dataclass(slots=True, eq=False)
class _Bus:
    """A lane: which ranks it passes, and the sum of its ends' x, which says to which side it belongs."""

    id: int
    first: int
    last: int
    lean: float = 0.0
    edges: list[int] = field(default_factory=list)


def assemble(
    level: LayoutInput, ranks: list[list[Cell]], by_id: dict[int, Cell], chains: list[Chain], lanes: list[int]
) -> tuple[float, float, dict[int, float], dict[int, float], dict[int, float], list[list[float]]]:
    """Width, height, x, y, ports' x and routes, with the left border at 0."""
    bands = _bands(level, ranks)
    y = {}
    for node in level.nodes:
        r = by_id[node.id].rank + 1
        y[node.id] = bands.top[r] + (bands.bottom[r] - bands.top[r] - node.height) / 2
    router = _Router(level, by_id, bands, y)
    for chain in chains:
        router.chain(chain)
    router.lanes(lanes)
    routes = router.finish()
    low, high = _extent([cell for rank in ranks for cell in rank], routes)
    high = max([high, *(by_id[node.id].x + node.tail - SIDE + 8 for node in level.nodes)])
    marked = [(route[-2], edge.mark) for edge, route in zip(level.edges, routes, strict=True) if edge.mark]
    high = max([high, *(x + mark - SIDE + 8 for x, mark in marked)])
    for edge, route in zip(level.edges, routes, strict=True):
        room = max(edge.mark, edge.out_mark) - SIDE + 8
        if route[7] < route[5]:  # words may stand beside the lane of an edge against the flow
            low, high = (
                (min(low, route[4] - room), high)
                if route[4] < route[0]
                else (low, max(high, route[4] + room))
            )
    if not math.isfinite(low):
        low = high = 0.0
    width = max(high - low + 2 * SIDE, level.min_width)
    dx = (width - (high + low)) / 2
    for route in routes:
        for i in range(0, len(route), 2):
            route[i] += dx
    x = {node.id: by_id[node.id].x - node.width / 2 + dx for node in level.nodes}
    port_x = {port: by_id[port].x + dx for port in (*level.ins, *level.outs)}
    return width, bands.bottom[-1], x, y, port_x, routes


def _extent(cells: list[Cell], routes: list[list[float]]) -> tuple[float, float]:
    low, high = math.inf, -math.inf
    for cell in cells:
        low = min(low, cell.x - cell.width / 2)
        high = max(high, cell.x + cell.width / 2)
    for route in routes:
        if route:
            low, high = min(low, *route[::2]), max(high, *route[::2])
    return low, high


def _bands(level: LayoutInput, ranks: list[list[Cell]]) -> _Bands:
    top, bottom = [0.0] * len(ranks), [0.0] * len(ranks)
    for r, rank in enumerate(ranks):
        height = reach = 0.0
        for cell in rank:
            height = max(height, cell.height)
            for link in cell.up:
                reach = max(reach, abs(link.cell.x + link.shift - cell.x))
        between = (TOP if level.ins else TOP - 4) if r == 1 else level.rank_gap
        if r == len(ranks) - 1:
            between = BOTTOM
        top[r] = bottom[r - 1] + between + min(_FAR, reach * 0.08) if r else 0.0
        bottom[r] = top[r] + height
    return _Bands(top, bottom)


class _Router:
    """Collects the routes: ends are spread over a box's side once all its edges are known."""

    def __init__(
        self, level: LayoutInput, by_id: dict[int, Cell], bands: _Bands, y: dict[int, float]
    ) -> None:
        self.level, self.by_id, self.bands, self.y = level, by_id, bands, y
        self.routes: list[list[float]] = [[] for _ in level.edges]
        self.sides: dict[tuple[bool, int], list[_End]] = {}
        self.buses: dict[int, _Bus] = {}

    def chain(self, chain: Chain) -> None:
        top, bottom = self.bands
        cells = chain.cells
        points = [cells[0].x, self._bottom(cells[0]), cells[0].x, bottom[cells[0].rank + 1]]
        for cell in cells[1:-1]:
            points += [cell.x, top[cell.rank + 1], cell.x, bottom[cell.rank + 1]]
        points += [cells[-1].x, top[cells[-1].rank + 1], cells[-1].x, self._top(cells[-1])]
        self.routes[chain.edge] = points
        self._attach(cells[0], _End(chain.edge, True, cells[1].x, -1))
        self._attach(cells[-1], _End(chain.edge, False, cells[-2].x, -1))

    def lanes(self, edges: list[int]) -> None:
        """Long edges share a lane with those of one source, or of one target where those are more."""
        ends = [self.level.edges[edge] for edge in edges]
        sources, targets = Counter(end.source for end in ends), Counter(end.target for end in ends)
        for index, end in zip(edges, ends, strict=True):
            shared = end.target if targets[end.target] > sources[end.source] else end.source
            a, b = self.by_id[end.source], self.by_id[end.target]
            bus = self.buses.setdefault(shared, _Bus(shared, a.rank, b.rank))
            bus.lean += a.x + b.x
            bus.first = min(bus.first, a.rank, b.rank)
            bus.last = max(bus.last, a.rank, b.rank)
            bus.edges.append(index)

    def finish(self) -> list[list[float]]:
        self._place_buses()
        for (_, id), ends in self.sides.items():
            self._spread(self.by_id[id], ends)
        return self.routes

    def _top(self, cell: Cell) -> float:
        return self.y.get(cell.id, self.bands.top[cell.rank + 1])

    def _bottom(self, cell: Cell) -> float:
        return self._top(cell) + cell.height

    def _attach(self, cell: Cell, end: _End) -> None:
        self.sides.setdefault((end.start, cell.id), []).append(end)

    def _place_buses(self) -> None:
        """Lanes outside everything, those of shorter reach nearer; two share one where they do not meet."""
        left, right = _extent(list(self.by_id.values()), self.routes)
        columns: dict[bool, list[list[tuple[int, int]]]] = {True: [], False: []}  # on the left, on the right
        for bus in sorted(self.buses.values(), key=lambda bus: bus.last - bus.first):
            middle = bus.lean / len(bus.edges) - (left + right)
            more = len(columns[True]) - len(columns[False])
            balanced = more != 0 and abs(middle) < max(2 * SIDE, (right - left) / 2)
            on_left = more < 0 if balanced else middle < -_SLACK
            column = _free_column(columns[on_left], bus)
            away = SIDE + column * LANE
            x = left - away if on_left else right + away
            for edge in bus.edges:
                self._lane(edge, bus, x)

    def _lane(self, edge: int, bus: _Bus, x: float) -> None:
        ends = self.level.edges[edge]
        a, b = self.by_id[ends.source], self.by_id[ends.target]
        top, bottom = self.bands
        leave, arrive = bottom[a.rank + 1], top[b.rank + 1]
        bend = self.level.rank_gap if b.rank > a.rank else 0.0  # against the flow it turns round at once
        after = min(top[min(a.rank + 2, len(top) - 1)], leave + bend)
        before = max(bottom[b.rank], arrive - bend)
        self.routes[edge] = [
            *(a.x, self._bottom(a), a.x, leave, x, after),
            *(x, before, b.x, arrive, b.x, self._top(b)),
        ]
        self._attach(a, _End(edge, True, x, bus.id))
        self._attach(b, _End(edge, False, x, bus.id))

    def _spread(self, cell: Cell, ends: list[_End]) -> None:
        """Spread the ends along one side of a box: the straightest in the middle, fixed ones where they must
        be. Ends of one lane share a place."""
        ends.sort(key=lambda end: end.towards)
        slots: list[float] = []
        slot_of = []
        for i, end in enumerate(ends):
            if not (i and end.bus != -1 and end.bus == ends[i - 1].bus):
                slots.append(end.towards - cell.x)
            slot_of.append(len(slots) - 1)
        straightest = 0
        for i, away in enumerate(slots):
            if abs(away) < abs(slots[straightest]) - 0.5:
                straightest = i
        # Two alike, one to each side: better than one straight and one askew.
        last = len(slots) - 1
        even = last % 2 == 1 and abs(slots[0] + slots[-1]) < 2
        marks = (self.level.edges[end.edge] for end in ends)
        widest = max(edge.out_mark if end.start else edge.mark for end, edge in zip(ends, marks, strict=True))
        words = widest + ASIDE if widest + 9 > STEP else 0.0  # shorter ones fit between the arrows
        middle = last / 2 if even or words else straightest
        reach = max(last / 2, 0.5) if words else max(straightest, last - straightest, 1)
        room = max(0.0, cell.width / 2 - self.level.inset)
        step = 0.0 if cell.index == IS_PORT else min(max(STEP, words), room / reach)
        for end, slot in zip(ends, slot_of, strict=True):
            edge = self.level.edges[end.edge]
            fixed = edge.from_dx if end.start else edge.to_dx
            x = cell.x + ((slot - middle) * step if fixed is None else fixed)
            route = self.routes[end.edge]
            at = 0 if end.start else len(route) - 4
            route[at] = route[at + 2] = x


def _free_column(columns: list[list[tuple[int, int]]], bus: _Bus) -> int:
    for column, taken in enumerate(columns):
        if not any(first < bus.last and bus.first < last for first, last in taken):
            taken.append((bus.first, bus.last))
            return column
    columns.append([(bus.first, bus.last)])
    return len(columns) - 1
