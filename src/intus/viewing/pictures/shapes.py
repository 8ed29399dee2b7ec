"""The shapes of a picture, independent of the file format.

The page's program returns them as JSON (``web/src/pictures/recorder.ts``). Coordinates are pixels from the
top left corner. Colors are ``#rrggbb``, or ``""`` for no fill or no outline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Rect(NamedTuple):
    """A rectangle, possibly with round corners.

    Attributes:
        x: The left edge.
        y: The top edge.
        width: The width.
        height: The height.
        radius: The radius of the corners.
        fill: The fill color.
        line: The color of the outline.
        weight: The width of the outline.
        dash: The lengths of strokes and gaps of a dashed outline; empty for a solid one.
        round: Whether lines have round caps and joins.
    """

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
    """Lines and curves.

    Attributes:
        d: SVG path data with absolute coordinates and the commands M, L, C and Z.
        fill: The fill color.
        line: The color of the lines.
        weight: The width of the lines.
        dash: The lengths of strokes and gaps of dashed lines; empty for solid ones.
        round: Whether lines have round caps and joins.
    """

    d: str
    fill: str = ""
    line: str = ""
    weight: float = 1.0
    dash: tuple[float, ...] = ()
    round: bool = False


class Text(NamedTuple):
    """One line of text.

    Attributes:
        x: The horizontal position of the anchor.
        y: The vertical middle of the text.
        words: The text.
        size: The font size.
        bold: Whether the text is bold.
        ink: The color.
        anchor: The part of the text at ``x``: ``"start"``, ``"middle"`` or ``"end"``.
    """

    x: float
    y: float
    words: str
    size: float
    bold: bool
    ink: str
    anchor: str


class Clip(NamedTuple):
    """Shapes that are visible only inside the shape ``by``."""

    by: Rect | Path
    shapes: list[Shape]


Shape = Rect | Path | Text | Clip


class Group(NamedTuple):
    """Shapes that make up one thing, with its description; ``""`` for decoration."""

    title: str
    shapes: list[Shape]


class Picture(NamedTuple):
    """A graph as shapes.

    Attributes:
        width: The width in pixels.
        height: The height in pixels.
        ground: The background color.
        title: The heading.
        summary: A description in one or two sentences.
        entry: The x of the middle of the first box of the model, such as its input.
        groups: The shapes in drawing order, background first.
    """

    width: float
    height: float
    ground: str
    title: str
    summary: str
    entry: float
    groups: list[Group]


def picture_of(data: Mapping[str, Any]) -> Picture:
    """Return the picture for the JSON data that the page's program returned."""
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
