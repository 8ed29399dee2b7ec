"""The words beside edges, each where it covers no box, no edge and no other word."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from .lines import shapes_of
from .measure import measure
from .shapes import Curve, Polygon, Text, shown
from .stage import HEADER, LABEL, NOTE, Line
from .style import Theme

if TYPE_CHECKING:
    from .picture import Plan

_ROW = 32.0  # height of the rows that what is taken is kept by
_PIECE = 8.0  # length of the straight pieces of a curve

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
    """Arguments' names, passes, and where a branch starts, which choose their places first, then shapes. What
    finds no room is left out."""
    taken = _Taken()
    for box in plan.frame.boxes:
        taken.add((box.x, box.y, box.x + box.width, box.y + (HEADER if box.open else box.height)))
    for line in plan.frame.lines:
        for shape in shapes_of(line, plan.stage, colours):
            for area in _areas(shape):
                taken.add(area)
    wishes = [wish for line in plan.frame.lines for wish in _wishes(line, plan, colours)]
    wishes.sort(key=lambda wish: wish.size == LABEL)
    return [text for wish in wishes if (text := taken.put(wish))]


def ends_said(plan: Plan, raws: list[int]) -> tuple[str, str]:
    """What is said at the two ends of what runs along an edge, apart from its shape: in which passes it runs,
    and which argument it is."""
    return said(plan.notes, plan.marks.arguments, raws)


def said(
    notes: Mapping[int, tuple[str, str]], arguments: Mapping[int, str], raws: list[int]
) -> tuple[str, str]:
    """``ends_said``, of notes and arguments by edge."""
    passes = {notes[raw] for raw in raws if raw in notes}
    out, into = passes.pop() if len(passes) == 1 else ("", "")
    names = sorted({arguments[raw] for raw in raws if raw in arguments})
    end = [f"In {into}"] if into else []
    if names:
        position = "arg " if into and names[0].isdecimal() else ""
        end.append(position + ", ".join(names[:3]) + (", …" if len(names) > 3 else ""))
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
        places = finish if line.label_at_end else begin
        yield _Wish(line.label, LABEL, ink, False, ground, places)
    if start and line.edge.source < first_port:
        yield _Wish(start, NOTE, ink, False, ground, begin)
    if end and into_box:
        yield _Wish(shown(end), NOTE, ink, False, ground, finish)
    if into_box and any(raw in plan.marks.starts for raw in line.edge.raw):
        yield _Wish("IF", NOTE, colours["decision-line"], True, ground, finish)


def _places(route: list[float], sideways: bool) -> tuple[list[Place], list[Place]]:
    """Where words may stand beside an edge's start and beside its end: first where it does not bend to."""
    if sideways:
        x, y, u, v = route[2] + 5, route[1], route[-2] - 8, route[-1]
        begin, end = (-1 if bend > 0.5 else 1 for bend in (y - route[5], v - route[-5]))
        aways = (-10, 11, -22, 23, -34, 35)
        return (
            [(x, y + away * begin, "start") for away in aways],
            [(u, v + away * end, "end") for away in aways],
        )
    x, y, u, v = route[0], route[3], route[-2], route[-1]
    begin, end = (-1 if bend > 0.5 else 1 for bend in (route[4] - x, route[-6] - u))
    anchors = {1: "start", -1: "end"}
    starts = [(x + 6 * side, y + far, anchors[side]) for far in (12, 24, 36) for side in (begin, -begin)]
    ends = [(u + 6 * side, v - far, anchors[side]) for far in (9, 21, 33) for side in (end, -end)]
    if route[7] < route[5]:  # against the flow: beside its lane too
        lane, side = route[4], -1 if route[4] < x else 1
        starts.append((lane + 6 * side, y - 8, anchors[side]))
        ends.append((lane + 6 * side, v + 8, anchors[side]))
    return starts, ends


def _areas(shape: object) -> Iterator[Area]:
    """What an edge's line or arrow takes, piece by piece."""
    if isinstance(shape, Polygon):
        xs, ys = zip(*shape.points, strict=True)
        yield min(xs), min(ys), max(xs), max(ys)
    elif isinstance(shape, Curve):
        x, y = shape.points[0]
        for part in shape.points[1:]:
            (*controls, u, v), a, b = part, x, y
            steps = math.ceil(math.hypot(u - x, v - y) / _PIECE) if controls else 1
            for step in range(1, min(steps, 64) + 1):
                t = step / min(steps, 64)
                c, d = _at(t, (x, *controls[::2], u)), _at(t, (y, *controls[1::2], v))
                yield min(a, c) - 2, min(b, d) - 1, max(a, c) + 2, max(b, d) + 1
                a, b = c, d
            x, y = u, v


def _at(t: float, points: tuple[float, ...]) -> float:
    """A coordinate of a line between two points, or of a Bézier curve with two more."""
    if len(points) == 2:
        return points[0] + (points[1] - points[0]) * t
    s = 1 - t
    p, q, r, u = points
    return p * s**3 + 3 * q * s * s * t + 3 * r * s * t * t + u * t**3


class _Taken:
    """The areas that are taken, by the rows they lie in."""

    def __init__(self) -> None:
        self.rows: dict[int, list[Area]] = {}

    def add(self, area: Area) -> None:
        for row in _rows(area):
            self.rows.setdefault(row, []).append(area)

    def put(self, wish: _Wish) -> Text | None:
        """The words at the first of their places that is free; None where none is."""
        wide = measure(wish.words, wish.size, wish.bold)
        chosen = next((p for p in wish.places if self._free(_area(p, wide, wish.size))), None)
        if chosen is None:
            return None
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
