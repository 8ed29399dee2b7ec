"""Write a picture as PNG or PDF with matplotlib's renderers and its default font."""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path as File
from typing import Any

from ...core.errors import require
from .fonts import runs
from .measure import measure
from .shapes import Clip, Path, Picture, Rect, Shape, Text

LONGEST_SIDE = 30_000  # pixels of a PNG; few programs open larger ones
MOST_PIXELS = 60_000_000  # of a PNG; they take 240 MB while it is drawn
LONGEST_PAGE = 14_400  # points, the limit of the PDF format
_BASELINE = 0.36  # of the font size, from the middle of the capitals down to the baseline
_INCH = 96  # CSS pixels


def write(picture: Picture, path: File, *, scale: float = 2.0) -> None:
    """Write a picture as ``.png`` or ``.pdf``.

    Args:
        picture: The picture.
        path: The file, which ends in ``.png`` or ``.pdf``.
        scale: Pixels of a PNG per pixel of the picture.

    Raises:
        MissingExtraError: matplotlib is not installed.

    Warns:
        UserWarning: The picture exceeded the limits of its format and was made smaller.
    """
    require("matplotlib", extra="draw", why=f"to write {path.suffix} files (.svg and .html do not need it)")
    from matplotlib.figure import Figure

    scale = _possible_scale(picture, path, scale)
    inches = (picture.width / _INCH * scale, picture.height / _INCH * scale)
    pdf = path.suffix == ".pdf"
    figure = Figure(figsize=inches, dpi=72 if pdf else _INCH, facecolor=picture.ground)
    figure.add_artist(_artist(picture, scale))
    title = "".join(c if c.isprintable() else "\ufffd" for c in picture.title)
    metadata = {"Title": title, "Creator": "intus"} | ({"CreationDate": None} if pdf else {})
    if not pdf:
        metadata = {"Title": title.encode("latin-1", "replace").decode("latin-1"), "Software": "intus"}
    with _without_font_notes():
        figure.savefig(path, format=path.suffix[1:], dpi=72 if pdf else _INCH, metadata=metadata)


def _possible_scale(picture: Picture, path: File, scale: float) -> float:
    """Return the requested scale (1 for PDF), or with a warning the largest one that the format allows."""
    if path.suffix == ".pdf":
        points = max(picture.width, picture.height) * 72 / _INCH
        possible, requested = min(1.0, LONGEST_PAGE / points), 1.0
    else:
        by_side = LONGEST_SIDE / max(picture.width, picture.height)
        by_area = math.sqrt(MOST_PIXELS / (picture.width * picture.height))
        possible, requested = min(scale, by_side, by_area), scale
    if possible < requested * 0.999:
        warnings.warn(
            f"{path.name}: the picture is {picture.width:,.0f} × {picture.height:,.0f} pixels, so it was "
            f"made smaller, to {100 * possible / requested:.0f} %. To keep it readable, draw fewer levels "
            "(depth=), or rolled=True, or write an .svg or .html.",
            UserWarning,
            stacklevel=5,
        )
    return possible


def _artist(picture: Picture, scale: float) -> Any:
    from matplotlib.artist import Artist

    class Drawing(Artist):
        def draw(self, renderer: Any) -> None:
            pen = _Pen(renderer, picture, scale)
            for group in picture.groups:
                for shape in group.shapes:
                    pen.draw(shape)

    return Drawing()


class _Pen:
    """Draws shapes with a matplotlib renderer, whose y axis points upwards and whose unit is its pixel."""

    def __init__(self, renderer: Any, picture: Picture, scale: float) -> None:
        from matplotlib.transforms import Affine2D

        self.renderer = renderer
        self.unit = renderer.points_to_pixels(72 / _INCH) * scale  # renderer units per pixel of the picture
        self.to_page = Affine2D().scale(self.unit, -self.unit).translate(0, picture.height * self.unit)
        self.points = 72 / _INCH * scale  # points per pixel of the picture, for lines and fonts
        self.height = picture.height * self.unit
        self.clip: Any = None  # the current clip path

    def draw(self, shape: Shape) -> None:
        match shape:
            case Rect() | Path():
                self._outline(shape)
            case Text():
                self._text(shape)
            case Clip():
                from matplotlib.transforms import TransformedPath

                self.clip = TransformedPath(_path_of(shape.by), self.to_page)
                for inside in shape.shapes:
                    self.draw(inside)
                self.clip = None

    def _outline(self, shape: Rect | Path) -> None:
        from matplotlib.colors import to_rgba

        context = self.renderer.new_gc()
        context.set_linewidth(shape.weight * self.points if shape.line else 0.0)
        context.set_foreground(shape.line or shape.fill)
        context.set_antialiased(True)
        context.set_snap(False)
        context.set_joinstyle("round" if shape.round else "miter")
        context.set_capstyle("round" if shape.round else "butt")
        if shape.dash:
            context.set_dashes(0, [length * self.points for length in shape.dash])
        if self.clip:
            context.set_clip_path(self.clip)
        rgba = to_rgba(shape.fill) if shape.fill else None
        self.renderer.draw_path(context, _path_of(shape), self.to_page, rgba)
        context.restore()

    def _text(self, text: Text) -> None:
        share = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.anchor]
        left = text.x - measure(text.words, text.size, text.bold) * share
        x, y = self.to_page.transform((left, text.y + _BASELINE * text.size))
        for words, file in runs(text.words):
            font = _font(text.size * self.points, text.bold, file)
            context = self.renderer.new_gc()
            context.set_foreground(text.ink)
            from_edge = (
                self.height - y if self.renderer.flipy() else y
            )  # unlike paths, text may count from the top
            self.renderer.draw_text(context, x, from_edge, words, font, 0, ismath=False)
            context.restore()
            if words != text.words:  # other runs follow
                x += self.renderer.get_text_width_height_descent(words, font, ismath=False)[0]


_STEP = re.compile(r"([MLCZ])([^MLCZ]*)")
_CODES = {"M": [1], "L": [2], "C": [4, 4, 4]}


def _path_of(shape: Rect | Path) -> Any:
    """Return a shape as a matplotlib path."""
    from matplotlib.path import Path as Outline

    if isinstance(shape, Rect):
        return Outline(*_round(shape))
    points: list[tuple[float, float]] = []
    codes: list[int] = []
    for command, numbers in _STEP.findall(shape.d):
        at = [float(number) for number in numbers.split()]
        points += zip(at[::2], at[1::2], strict=True)
        codes += _CODES.get(command, [])
        if command == "Z":
            points.append(points[-1])
            codes.append(79)
    return Outline(points, codes)


def _round(rect: Rect) -> tuple[list[tuple[float, float]], list[int]]:
    """Return the vertices and codes of a rectangle with round corners."""
    x, y, w, h, r = rect.x, rect.y, rect.width, rect.height, rect.radius
    if r <= 0:
        return [(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)], [1, 2, 2, 2, 79]
    k = r * 0.4477  # the distance from the corner to the control points of a quarter circle
    right, foot = x + w, y + h
    points = [
        *((x + r, y), (right - r, y), (right - k, y), (right, y + k), (right, y + r)),
        *((right, foot - r), (right, foot - k), (right - k, foot), (right - r, foot)),
        *((x + r, foot), (x + k, foot), (x, foot - k), (x, foot - r)),
        *((x, y + r), (x, y + k), (x + k, y), (x + r, y), (x + r, y)),
    ]
    return points, [1, *[2, 4, 4, 4] * 4, 79]


def _font(points: float, bold: bool, file: str) -> Any:
    from matplotlib.font_manager import FontProperties

    weight = "bold" if bold else "normal"
    return FontProperties(family="DejaVu Sans", weight=weight, size=points, fname=file or None)


@contextmanager
def _without_font_notes() -> Iterator[None]:
    """Suppress the log messages about subsetting fonts."""
    log = logging.getLogger("fontTools.subset")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
