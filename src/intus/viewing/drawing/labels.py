"""The words beside edges, each where it covers no box, no arrow and no other word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .measure import measure
from .shapes import Text, shown
from .stage import HEADER, LABEL, Line
from .style import Theme

if TYPE_CHECKING:
    from .picture import Plan

NOTE = 9.5  # size of what is said of an edge's end
_ROW = 32.0  # height of the rows that what is taken is kept by

Area = tuple[float, float, float, float]  # left, top, right, bottom
Place = tuple[float, float, str]  # x, y, anchor


class _Wish(NamedTuple):
    words: str
    size: float
    ink: str
    bold: bool
    ground: str
    places: list[Place]


def labels_of(plan: Plan, colours: Theme) -> list[Text]:
    """Shapes, arguments' names, passes, and where a branch starts; shapes choose their places first."""
    taken = _Taken()
    for box in plan.frame.boxes:
        taken.add((box.x, box.y, box.x + box.width, box.y + (HEADER if box.open else box.height)))
    for line in plan.frame.lines:
        for area in _ends(line, plan.stage.sideways):
            taken.add(area)
    wishes = [wish for line in plan.frame.lines for wish in _wishes(line, plan, colours)]
    wishes.sort(key=lambda wish: wish.size != LABEL)
    return [taken.put(wish) for wish in wishes]


def ends_said(plan: Plan, raws: list[int]) -> tuple[str, str]:
    """What is said at the two ends of what runs along an edge, apart from its shape: in which passes it runs,
    and which argument it is."""
    notes = {plan.notes[raw] for raw in raws if raw in plan.notes}
    out, into = notes.pop() if len(notes) == 1 else ("", "")
    arguments = sorted({plan.marks.arguments[raw] for raw in raws if raw in plan.marks.arguments})
    end = [f"In {into}"] if into else []
    if arguments:
        position = "arg " if into and arguments[0].isdecimal() else ""
        end.append(position + ", ".join(arguments[:3]) + (", …" if len(arguments) > 3 else ""))
    return f"Out {out}" if out else "", " · ".join(end)


def _wishes(line: Line, plan: Plan, colours: Theme) -> Iterator[_Wish]:
    nodes, first_port = plan.stage.tree.nodes, plan.stage.levels.first_port
    ground = colours[
        "bg" if line.container == 0 else "frame-a" if nodes[line.container].depth % 2 else "frame-b"
    ]
    begin, finish = _places(line.route, plan.stage.sideways)
    start, end = ends_said(plan, line.edge.raw)
    into_box = line.edge.target < first_port and not nodes[line.edge.target].children
    ink = colours["edge-label"]
    if line.label:
        places = finish[::-1] if line.label_at_end else begin
        yield _Wish(line.label, LABEL, ink, False, ground, places)
    if start and line.edge.source < first_port:
        yield _Wish(start, NOTE, ink, False, ground, begin)
    if end and into_box:
        yield _Wish(shown(end), NOTE, ink, False, ground, finish)
    if into_box and any(raw in plan.marks.starts for raw in line.edge.raw):
        yield _Wish("IF", NOTE, colours["decision-line"], True, ground, finish)


def _places(route: list[float], sideways: bool) -> tuple[list[Place], list[Place]]:
    """Where words may stand beside an edge's start and beside its end, the best first."""
    if sideways:
        x, y, u, v = route[2] + 5, route[1], route[-2] - 8, route[-1]
        return (
            [(x, y + away, "start") for away in (-10, 11, -22, 23, -34, 35)],
            [(u, v + away, "end") for away in (-10, 11, -22, 23, -34, 35)],
        )
    x, y, u, v = route[0], route[3], route[-2], route[-1]
    sides = ((6, "start"), (-6, "end"))
    return (
        [(x + side, y + down, anchor) for down in (12, 24, 36) for side, anchor in sides],
        [(u + side, v - up, anchor) for up in (7, 18, 30) for side, anchor in sides],
    )


def _ends(line: Line, sideways: bool) -> Iterator[Area]:
    """What an edge needs free for itself: where it leaves, and its arrow."""
    route = line.route
    for x, y, way in ((route[0], route[1], 1), (route[-2], route[-1], -1)):
        long, half = way * 12, 4
        if sideways:
            yield (min(x, x + long), y - half, max(x, x + long), y + half)
        else:
            yield (x - half, min(y, y + long), x + half, max(y, y + long))


class _Taken:
    """The areas that are taken, by the rows they lie in."""

    def __init__(self) -> None:
        self.rows: dict[int, list[Area]] = {}

    def add(self, area: Area) -> None:
        for row in _rows(area):
            self.rows.setdefault(row, []).append(area)

    def put(self, wish: _Wish) -> Text:
        """The words at the first of their places that is free; at the first where none is."""
        wide = measure(wish.words, wish.size, wish.bold)
        chosen = next((p for p in wish.places if self._free(_area(p, wide, wish.size))), wish.places[0])
        self.add(_area(chosen, wide, wish.size))
        x, y, anchor = chosen
        return Text(x, y, wish.words, wish.size, wish.ink, wish.bold, anchor, wish.ground)

    def _free(self, area: Area) -> bool:
        left, top, right, bottom = area
        return not any(
            left < other[2] and other[0] < right and top < other[3] and other[1] < bottom
            for row in _rows(area)
            for other in self.rows.get(row, ())
        )


def _area(place: Place, wide: float, size: float) -> Area:
    x, y, anchor = place
    left = x - wide if anchor == "end" else x
    return (left, y - size / 2, left + wide, y + size / 2)


def _rows(area: Area) -> range:
    return range(int(area[1] // _ROW), int(area[3] // _ROW) + 1)
