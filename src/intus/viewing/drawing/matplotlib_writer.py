"""A picture as PNG or PDF, by matplotlib's two renderers: no browser, no Graphviz, its own font embedded."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...core.errors import require
from .fonts import runs
from .measure import measure
from .shapes import Curve, Picture, Polygon, Rect, Shape, Text

LONGEST_SIDE = 30_000  # pixels of a PNG: more than this few programs open
MOST_PIXELS = 60_000_000  # 240 MB while it is drawn
LONGEST_PAGE = 14_400  # points of a PDF, its format's own bound
_BASELINE = 0.36
_INCH = 96  # pixels, as in CSS


def write(picture: Picture, path: Path, *, scale: float = 2.0) -> None:
    """Write a ``.png`` or ``.pdf``; ``scale`` is pixels of a PNG per pixel of the picture.

    A picture too large for its format is made smaller, with a warning that says by how much. Raises
    MissingExtraError where matplotlib is not installed.
    """
    require("matplotlib", extra="draw", why=f"to write {path.suffix} files (.svg and .html need nothing)")
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


def _fitting(picture: Picture, path: Path, scale: float) -> float:
    """The scale at which the picture fits its format."""
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
                    pen.draw(shape, group.x, group.y)

    return Drawing()


class _Pen:
    """Shapes through a renderer of matplotlib, whose y points upwards and whose unit is its own pixel."""

    def __init__(self, renderer: Any, picture: Picture, scale: float) -> None:
        from matplotlib.transforms import Affine2D

        self.renderer = renderer
        self.unit = renderer.points_to_pixels(72 / _INCH) * scale  # of one pixel of the picture
        self.to_page = Affine2D().scale(self.unit, -self.unit).translate(0, picture.height * self.unit)
        self.points = 72 / _INCH * scale  # the same in points, in which lines and type are measured
        self.height = picture.height * self.unit

    def draw(self, shape: Shape, dx: float, dy: float) -> None:
        match shape:
            case Rect():
                self._path(*_round(shape, dx, dy), shape.fill, shape.line, shape.weight, shape.dashed)
            case Curve():
                codes, points = [1], [shape.points[0]]
                for point in shape.points[1:]:
                    pairs = list(zip(point[::2], point[1::2], strict=True))
                    codes += [2] if len(pairs) == 1 else [4] * 3
                    points += pairs
                self._path([(x + dx, y + dy) for x, y in points], codes, "", shape.line, shape.weight)
            case Polygon():
                points = [(x + dx, y + dy) for x, y in (*shape.points, shape.points[0])]
                self._path(points, [1, *[2] * (len(points) - 2), 79], shape.fill, "")
            case Text():
                self._text(shape, dx, dy)

    def _path(
        self,
        points: list[tuple[float, ...]],
        codes: list[int],
        fill: str,
        line: str,
        weight: float = 1.0,
        dashed: bool = False,
    ) -> None:
        from matplotlib.colors import to_rgba
        from matplotlib.path import Path as Outline

        context = self._context(line or fill, weight if line else 0.0)
        if dashed:
            context.set_dashes(0, [4 * self.points, 3 * self.points])
        rgba = to_rgba(fill) if fill else None
        self.renderer.draw_path(context, Outline(points, codes), self.to_page, rgba)
        context.restore()

    def _context(self, colour: str, weight: float) -> Any:
        context = self.renderer.new_gc()
        context.set_linewidth(weight * self.points)
        context.set_foreground(colour)
        context.set_antialiased(True)
        context.set_snap(False)
        return context

    def _text(self, text: Text, dx: float, dy: float) -> None:
        share = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.anchor]
        left = text.x + dx - measure(text.words, text.size, text.bold) * share
        x, y = self.to_page.transform((left, text.y + dy + _BASELINE * text.size))
        for words, file in runs(text.words):
            font = _font(text.size * self.points, text.bold, file)
            if text.ground:
                self._halo(words, font, x, y, text)
            context = self.renderer.new_gc()
            context.set_foreground(text.ink)
            upright = self.height - y if self.renderer.flipy() else y  # not as a path is
            self.renderer.draw_text(context, x, upright, words, font, 0, ismath=False)
            context.restore()
            if words != text.words:  # more comes after it
                x += self.renderer.get_text_width_height_descent(words, font, ismath=False)[0]

    def _halo(self, words: str, font: Any, x: float, y: float, text: Text) -> None:
        """The words' outlines, thick and in the ground's colour, so that lines below do not hurt them."""
        from matplotlib.path import Path as Outline
        from matplotlib.textpath import text_to_path
        from matplotlib.transforms import Affine2D

        points, codes = text_to_path.get_text_path(font, words, ismath=False)
        if not len(points):
            return
        size = text.size * self.unit / text_to_path.FONT_SCALE
        context = self._context(text.ground, 4.0)
        context.set_joinstyle("round")
        self.renderer.draw_path(context, Outline(points, codes), Affine2D().scale(size).translate(x, y), None)
        context.restore()


def _round(rect: Rect, dx: float, dy: float) -> tuple[list[tuple[float, ...]], list[int]]:
    """A rectangle's outline; its corners are quadratic."""
    x, y, w, h = rect.x + dx, rect.y + dy, rect.width, rect.height
    r = min(rect.radius, w / 2, h / 2)
    if r <= 0:
        return [(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)], [1, 2, 2, 2, 79]
    k = r * 0.4477  # a cubic's control point this far from the corner makes a quarter of a circle
    right, foot = x + w, y + h
    points: list[tuple[float, ...]] = [
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
