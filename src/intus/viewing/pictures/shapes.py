"""What a picture is made of, whatever it is written as. Coordinates are pixels from the top left.

The page's program gives these as JSON (``web/src/pictures/recorder.ts``). Colours are ``#rrggbb``, and ``""``
where there is no fill or no outline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Rect(NamedTuple):
    """A box with round corners; ``dash`` are the lengths of strokes and gaps of a dashed outline."""

    x: float
    y: float
    width: float
    height: float
    radius: float
    fill: str = ""
    line: str = ""
    weight: float = 1.0
    dash: tuple[float, ...] = ()
    round: bool = False


class Path(NamedTuple):
    """Lines and curves in SVG's commands M, L, C and Z; ``round`` says how lines end and meet."""

    d: str
    fill: str = ""
    line: str = ""
    weight: float = 1.0
    dash: tuple[float, ...] = ()
    round: bool = False


class Text(NamedTuple):
    """One line of words around the height ``y``; ``anchor`` is the part at ``x``: start, middle or end."""

    x: float
    y: float
    words: str
    size: float
    bold: bool
    ink: str
    anchor: str


class Clip(NamedTuple):
    """Shapes of which only what lies inside ``by`` is seen."""

    by: Rect | Path
    shapes: list[Shape]


Shape = Rect | Path | Text | Clip


class Group(NamedTuple):
    """Shapes that are one thing, and what it is in words; ``""`` where it is decoration."""

    title: str
    shapes: list[Shape]


class Picture(NamedTuple):
    """A graph as shapes, what lies below first.

    ``title`` and ``summary`` say in words what it shows; ``entry`` is the x of the box to look at first, its
    middle.
    """

    width: float
    height: float
    ground: str
    title: str
    summary: str
    entry: float
    groups: list[Group]


def picture_of(data: Mapping[str, Any]) -> Picture:
    """Return the picture that the page's program gave as JSON."""
    groups = [Group(group["title"], _shapes(group["shapes"])) for group in data["groups"]]
    return Picture(**{**data, "groups": groups})


def _shapes(data: list[dict[str, Any]]) -> list[Shape]:
    return [_shape(**each) for each in data]


def _shape(kind: str, **data: Any) -> Shape:
    if kind == "clip":
        by = _shape(**data["by"])
        assert isinstance(by, Rect | Path)
        return Clip(by, _shapes(data["shapes"]))
    if kind == "text":
        return Text(**data)
    return Rect(**data) if kind == "rect" else Path(**data)
