"""Write a picture as PNG or PDF with matplotlib's two renderers, in its own font."""

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

LONGEST_SIDE = 30_000  # pixels of a PNG: more than this few programs open
MOST_PIXELS = 60_000_000  # 240 MB while it is drawn
LONGEST_PAGE = 14_400  # points of a PDF, its format's own bound
_BASELINE = 0.36
_INCH = 96  # pixels, as in CSS


def write(picture: Picture, path: File, *, scale: float = 2.0) -> None:
    """Write a ``.png`` or ``.pdf``; ``scale`` is pixels of a PNG per pixel of the picture.

    A picture too large for its format is made smaller, with a warning that says by how much.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require("matplotlib", extra="draw", why=f"to write {path.suffix} files (.svg and .html do without)")
    from matplotlib.figure import Figure

    fitting = _fitting(picture, path, scale)
    inches = (picture.width / _INCH * fitting, picture.height / _INCH * fitting)
    pdf = path.suffix == ".pdf"
    figure = Figure(figsize=inches, dpi=72 if pdf else _INCH, facecolor=picture.ground)
    figure.add_artist(_artist(picture, fitting))
    title = "".join(c if c.isprintable() else "\ufffd" for c in picture.title)
    metadata = {"Title": title, "Creator": "intus"} | ({"CreationDate": None} if pdf else {})
    if not pdf:
        metadata = {"Title": title.encode("latin-1", "replace").decode("latin-1"), "Software": "intus"}
    with _quiet():
        figure.savefig(path, format=path.suffix[1:], dpi=72 if pdf else _INCH, metadata=metadata)


def _fitting(picture: Picture, path: File, scale: float) -> float:
    """Return the scale at which the picture fits its format."""
    if path.suffix == ".pdf":
        points = max(picture.width, picture.height) * 72 / _INCH
        fits, asked = min(1.0, LONGEST_PAGE / points), 1.0
    else:
        by_side = LONGEST_SIDE / max(picture.width, picture.height)
        by_area = math.sqrt(MOST_PIXELS / (picture.width * picture.height))
        fits, asked = min(scale, by_side, by_area), scale
    if fits < asked * 0.999:
        warnings.warn(
            f"{path.name}: the picture is {picture.width:,.0f} × {picture.height:,.0f} pixels, so it was "
            f"made smaller, to {100 * fits / asked:.0f} %. To read it all, draw fewer levels (depth=), "
            "rolled=True, or an .svg, or walk in an .html.",
            UserWarning,
            stacklevel=5,
        )
    return fits


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
    """Draws shapes with a renderer of matplotlib, whose y points upwards and whose unit is its own pixel."""

    def __init__(self, renderer: Any, picture: Picture, scale: float) -> None:
        from matplotlib.transforms import Affine2D

        self.renderer = renderer
        self.unit = renderer.points_to_pixels(72 / _INCH) * scale  # of one pixel of the picture
        self.to_page = Affine2D().scale(self.unit, -self.unit).translate(0, picture.height * self.unit)
        self.points = 72 / _INCH * scale  # the same in points, in which lines and type are measured
        self.height = picture.height * self.unit
        self.clip: Any = None  # what alone is seen of what is drawn now

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
            upright = self.height - y if self.renderer.flipy() else y  # not as a path is
            self.renderer.draw_text(context, x, upright, words, font, 0, ismath=False)
            context.restore()
            if words != text.words:  # more comes after it
                x += self.renderer.get_text_width_height_descent(words, font, ismath=False)[0]


_STEP = re.compile(r"([MLCZ])([^MLCZ]*)")
_CODES = {"M": [1], "L": [2], "C": [4, 4, 4]}


def _path_of(shape: Rect | Path) -> Any:
    """Return matplotlib's path of a shape."""
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
    """Return a rectangle's outline, its corners as curves."""
    x, y, w, h, r = rect.x, rect.y, rect.width, rect.height, rect.radius
    if r <= 0:
        return [(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)], [1, 2, 2, 2, 79]
    k = r * 0.4477  # a cubic's control point this far from the corner makes a quarter of a circle
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
def _quiet() -> Iterator[None]:
    """Without matplotlib's notes on subsetting fonts."""
    log = logging.getLogger("fontTools.subset")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
