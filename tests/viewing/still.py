"""What a picture shows, for tests: asked of the same program that draws it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from intus.core.graph import Graph
from intus.viewing.html import content
from intus.viewing.pictures.draw import diagram, draw
from intus.viewing.pictures.shapes import Path, Picture

Point = tuple[float, float]


def _content(graph: Graph, values: dict[str, Any] | None = None, **view: Any) -> dict[str, Any]:
    return content(graph, values=values, **view)


def diagram_of(graph: Graph, *, direction: str = "down", dark: bool = False, **view: Any) -> dict[str, Any]:
    """Return boxes, edges and routes as ``View(graph, **view)`` saves them."""
    return diagram(_content(graph, **view), title=graph.model, direction=direction, dark=dark)


def picture_of(graph: Graph, *, direction: str = "down", dark: bool = False, **view: Any) -> Picture:
    """Return the shapes of the same."""
    return draw(_content(graph, **view), title=graph.model, direction=direction, dark=dark)


def boxes_by_address(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {box["address"]: box for box in found["boxes"]}


def points_along(path: Path) -> Iterator[Point]:
    """Yield places along a path, by halving its curves (de Casteljau)."""
    at: Point = (0.0, 0.0)
    for command, numbers in re.findall(r"([MLC])([^MLCZ]*)", path.d):
        values = [float(number) for number in numbers.split()]
        ends = list(zip(values[::2], values[1::2], strict=True))
        if command != "M":
            for share in np.linspace(0, 1, 33):
                level = [np.asarray(end, float) for end in (at, *ends)]
                while len(level) > 1:
                    level = [a + (b - a) * share for a, b in itertools.pairwise(level)]
                yield float(level[0][0]), float(level[0][1])
        at = ends[-1]
