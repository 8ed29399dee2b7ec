"""Write a picture as SVG: text stays text, every box has a title, and no name can break out of it."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import count
from zlib import crc32

from .shapes import Clip, Group, Path, Picture, Rect, Shape, Text

_FONT = "Inter, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
_BASELINE = 0.36  # of a type's size, from the middle of its capitals down to its foot


def svg(picture: Picture) -> str:
    """Return the picture as one SVG document that needs nothing from elsewhere."""
    width, height = _number(picture.width), _number(picture.height)
    # Pages may hold several such documents, and a name means one thing on a page.
    own = crc32(repr((width, height, [group.title for group in picture.groups])).encode("utf-8", "replace"))
    clips = (f"clip-{own:x}-{number}" for number in count())
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="graphics-document" font-family="{_FONT}">'
    )
    parts = [
        head,
        f"<title>{escape(picture.title)}</title>",
        f"<desc>{escape(picture.summary)}</desc>",
        f'<rect width="100%" height="100%" fill="{picture.ground}"/>',
        *(part for group in picture.groups for part in _group(group, clips)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _group(group: Group, clips: Iterator[str]) -> Iterator[str]:
    if not group.shapes:
        return
    role = ' role="graphics-symbol"' if group.title else ' aria-hidden="true"'
    yield f"<g{role}>" + (f"<title>{escape(group.title)}</title>" if group.title else "")
    for shape in group.shapes:
        yield from _shape(shape, clips)
    yield "</g>"


def _shape(shape: Shape, clips: Iterator[str]) -> Iterator[str]:
    match shape:
        case Rect():
            radius = f' rx="{_number(shape.radius)}"' if shape.radius else ""
            place = f'x="{_number(shape.x)}" y="{_number(shape.y)}"'
            size = f'width="{_number(shape.width)}" height="{_number(shape.height)}"'
            yield f"<rect {place} {size}{radius}{_ink(shape)}/>"
        case Path():
            yield f'<path d="{shape.d}"{_ink(shape)}/>'
        case Text():
            yield _text(shape)
        case Clip():
            name = next(clips)
            yield f'<clipPath id="{name}">{"".join(_shape(shape.by, clips))}</clipPath>'
            yield f'<g clip-path="url(#{name})">'
            for inside in shape.shapes:
                yield from _shape(inside, clips)
            yield "</g>"


def _ink(shape: Rect | Path) -> str:
    ink = f' fill="{shape.fill or "none"}"'
    if shape.line:
        ink += f' stroke="{shape.line}" stroke-width="{_number(shape.weight)}"'
        ink += f' stroke-dasharray="{" ".join(map(_number, shape.dash))}"' if shape.dash else ""
        ink += ' stroke-linecap="round" stroke-linejoin="round"' if shape.round else ""
    return ink


def _text(text: Text) -> str:
    style = f' font-size="{_number(text.size)}" fill="{text.ink}"'
    style += ' font-weight="600"' if text.bold else ""
    style += f' text-anchor="{text.anchor}"' if text.anchor != "start" else ""
    place = f'x="{_number(text.x)}" y="{_number(text.y + _BASELINE * text.size)}"'
    return f"<text {place}{style}>{escape(text.words, quote=False)}</text>"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
