"""A picture as SVG: text stays text, every box has a title, and no name can break out of it."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from .shapes import Curve, Group, Picture, Polygon, Rect, Shape, Text

_FONT = "Inter, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
_BASELINE = 0.36  # of a type's size, from the middle of its capitals down to its foot


def svg(picture: Picture) -> str:
    """The picture as one SVG document, without anything from elsewhere."""
    width, height = _number(picture.width), _number(picture.height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="graphics-document" font-family="{_FONT}">'
    )
    parts = [
        head,
        f"<title>{escape(picture.title)}</title>",
        f"<desc>{escape(picture.text)}</desc>",
        f'<rect width="100%" height="100%" fill="{picture.ground}"/>',
        *(part for group in picture.groups for part in _group(group)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _group(group: Group) -> Iterator[str]:
    if not group.shapes:
        return
    role = ' role="graphics-symbol"' if group.title else ' aria-hidden="true"'
    yield f"<g{role}>" + (f"<title>{escape(group.title)}</title>" if group.title else "")
    for shape in group.shapes:
        yield _shape(shape, group.x, group.y)
    yield "</g>"


def _shape(shape: Shape, dx: float, dy: float) -> str:
    match shape:
        case Rect():
            box = " ".join(
                f'{name}="{_number(value)}"'
                for name, value in zip(
                    ("x", "y", "width", "height", "rx"),
                    (shape.x + dx, shape.y + dy, shape.width, shape.height, shape.radius),
                    strict=True,
                )
            )
            dash = ' stroke-dasharray="4 3"' if shape.dashed else ""
            line = (
                f' stroke="{shape.line}" stroke-width="{_number(shape.weight)}"{dash}' if shape.line else ""
            )
            return f'<rect {box} fill="{shape.fill}"{line}/>'
        case Curve():
            first, *rest = shape.points
            way = f"M{_pairs(first, dx, dy)}" + "".join(
                ("L" if len(point) == 2 else "C") + _pairs(point, dx, dy) for point in rest
            )
            return (
                f'<path d="{way}" fill="none" stroke="{shape.line}" stroke-width="{_number(shape.weight)}"/>'
            )
        case Polygon():
            points = " ".join(_pairs(point, dx, dy) for point in shape.points)
            return f'<polygon points="{points}" fill="{shape.fill}"/>'
        case Text():
            return _text(shape, dx, dy)


def _text(text: Text, dx: float, dy: float) -> str:
    place = f'x="{_number(text.x + dx)}" y="{_number(text.y + dy + _BASELINE * text.size)}"'
    style = f' font-size="{_number(text.size)}" fill="{text.ink}"'
    style += ' font-weight="600"' if text.bold else ""
    style += f' text-anchor="{text.anchor}"' if text.anchor != "start" else ""
    if text.ground:
        style += f' stroke="{text.ground}" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
    return f"<text {place}{style}>{escape(text.words, quote=False)}</text>"


def _pairs(numbers: tuple[float, ...], dx: float, dy: float) -> str:
    return " ".join(_number(at + (dy if i % 2 else dx)) for i, at in enumerate(numbers))


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
