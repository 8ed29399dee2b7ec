"""The shapes of edges: curves and arrows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from .shapes import Curve, Polygon, Shape
from .stage import Line, Stage
from .style import Theme

ARROW = 6.5
HALF = 3.6  # half an arrow's width


def shapes_of(line: Line, stage: Stage, colours: Theme) -> Iterator[Shape]:
    """An edge's curve, and the arrow at its end."""
    route, sideways = line.route, stage.sideways
    points = list(zip(route[::2], route[1::2], strict=True))
    tip = points[-1]
    if line.arrow:
        points[-1] = (tip[0] - (ARROW - 1), tip[1]) if sideways else (tip[0], tip[1] - (ARROW - 1))
    curve: list[tuple[float, ...]] = [points[0]]
    along = 0 if sideways else 1
    if points[-1][along] < points[0][along]:
        curve += _back(points, sideways)
    else:
        curve += [_bend(a, b, sideways) for a, b in pairwise(points)]
    yield Curve(curve, colours["edge"])
    if line.arrow:
        x, y = tip
        ends = (
            ((x - ARROW, y - HALF), (x - ARROW, y + HALF))
            if sideways
            else ((x - HALF, y - ARROW), (x + HALF, y - ARROW))
        )
        yield Polygon([(x - 0.5, y) if sideways else (x, y - 0.5), *ends], colours["edge"])


def _bend(a: tuple[float, float], b: tuple[float, float], sideways: bool) -> tuple[float, ...]:
    """The way from a to b: straight along the flow, else a curve that leaves and arrives along it."""
    along, across = (0, 1) if sideways else (1, 0)
    if abs(a[across] - b[across]) < 0.5:
        return b
    reach = max((b[along] - a[along]) / 2, min(abs(b[across] - a[across]) * 0.35, 26))
    if sideways:
        return (a[0] + reach, a[1], b[0] - reach, b[1], *b)
    return (a[0], a[1] + reach, b[0], b[1] - reach, *b)


def _back(points: list[tuple[float, float]], sideways: bool) -> list[tuple[float, ...]]:
    """The way of an edge against the flow: it turns round into its lane, and round again out of it."""
    _, leave, _, _, arrive, tip = points
    lane = points[2][1 if sideways else 0]
    turn = 24.0
    if sideways:
        return [
            *(leave, (leave[0] + turn, leave[1], leave[0] + turn, lane, leave[0], lane), (arrive[0], lane)),
            *((arrive[0] - turn, lane, arrive[0] - turn, arrive[1], *arrive), tip),
        ]
    return [
        *(leave, (leave[0], leave[1] + turn, lane, leave[1] + turn, lane, leave[1]), (lane, arrive[1])),
        *((lane, arrive[1] - turn, arrive[0], arrive[1] - turn, *arrive), tip),
    ]
