"""Screenshots of the graph page, compared with the pictures in tests/browser/graph/pictures.

Renew them with ``INTUS_RENEW_PICTURES=1 pytest tests/browser/graph/test_graph_pictures.py``, then check the
images. The fonts are those of matplotlib with fixed fontconfig settings, so that a page has the same layout
everywhere. The comparison tolerates the remaining differences, in the smoothing of glyphs.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter
from playwright.sync_api import Browser, Page
from torch import Tensor, nn
from waiting import until
from zoo import Decoder, graph_of

from intus.core.graph import Graph, Ops
from intus.tracing.run import trace
from intus.viewing.html import View

pytestmark = pytest.mark.browser
VIEW = "document.querySelector('#intus-graph').intusView"
PICTURES = Path(__file__).with_name("pictures")
WINDOW = {"width": 1120, "height": 760}
SETTING = {"viewport": WINDOW, "offline": True, "reduced_motion": "reduce"}
LEVELS = 24  # of 255, by which a pixel may exceed the range of the neighborhood in the other picture
NEAR = 5  # the size of that neighborhood in pixels
WINDOWS = 12  # the size of windows in pixels; missing objects differ in one window, smoothed glyphs in many
MOST = 7  # differing pixels of a window's 144; other smoothing gives at most 6, a missing edge at least 8
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{fonts}</dir><cachedir>{cache}</cachedir><match target="font">
<edit name="antialias" mode="assign"><bool>true</bool></edit>
<edit name="hinting" mode="assign"><bool>{hinting}</bool></edit>
<edit name="hintstyle" mode="assign"><const>{style}</const></edit>
<edit name="rgba" mode="assign"><const>{rgba}</const></edit>
</match></fontconfig>"""
Open = Callable[..., Page]


class Residual(nn.Module):
    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(given, made, 3, padding=1), nn.Conv2d(made, made, 3, padding=1)
        self.skip = nn.Conv2d(given, made, 1) if given != made else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.skip(x) + self.conv2(torch.relu(self.conv1(x))))


class Net(nn.Module):
    def __init__(self, features: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(*(Residual(8, 8) for _ in range(3)))
        self.wide = Residual(8, 16)
        self.head = nn.Linear(features, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.wide(self.blocks(torch.relu(self.stem(x)))).mean((2, 3)))


def fixed(graph: Graph) -> Graph:
    """Remove everything that differs between runs and machines or changes with the lines of this file."""
    columns = graph.ops.columns()
    fixed_columns = {"time": columns["time"] * 0, "site": columns["site"] * 0 - 1}
    ops = Ops(len(graph.ops), **columns | fixed_columns)
    raised = graph.facts.get("raised")
    facts = {"seconds": 0, "raised": raised and raised | {"file": "model.py", "line": 1}}
    return replace(graph, ops=ops, sites=[], facts=graph.facts | facts)


VALUES = {"stem": 0.31, "blocks": 0.55, "wide.conv1": 0.62, "wide.conv2": 0.8, "head": 0.94}


def residual(overlay: dict[str, float] = VALUES) -> View:
    return View(fixed(graph_of(Net(), torch.zeros(1, 3, 16, 16))), overlay=overlay, depth=0)


def lstm() -> View:
    return View(fixed(graph_of(Decoder(), torch.zeros(1, 6, dtype=torch.long))), rolled=True, depth=1)


def failing() -> View:
    line = "        return self.head(self.wide(self.blocks(x)))\n"
    linecache.cache["model.py"] = (len(line), None, [line], "model.py")
    passed = trace(Net(features=9), torch.zeros(1, 3, 16, 16), save="none", on_error="keep")
    return View(fixed(passed.graph), depth=0)


# Each page: a View, and JavaScript to run before the screenshot.
PAGES: dict[str, tuple[Callable[[], View], str]] = {
    "residual": (residual, f"{VIEW}.open('wide')"),
    "lstm": (lstm, f"{VIEW}.fit()"),
    "failing": (failing, ""),
}


def shot(page: Page, act: str = "") -> Image.Image:
    """Return a screenshot of the page after running ``act``."""
    page.evaluate(f"() => {{ {act} }}")
    until(page, f"{VIEW}.still")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return Image.open(BytesIO(page.screenshot())).convert("RGB")


def kept(name: str, scheme: str = "light") -> Image.Image:
    with Image.open(PICTURES / f"{name}-{scheme}.png") as picture:
        return picture.convert("RGB")


def difference(drawn: Image.Image, other: Image.Image) -> int:
    """Return the number of differing pixels in the worst window, at half size."""
    one = drawn.reduce(2)
    assert one.size == other.size == (WINDOW["width"] // 2, WINDOW["height"] // 2)
    differs = np.pad(_outside(one, other) | _outside(other, one), WINDOWS).astype(int)
    sums = np.pad(differs.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    w = WINDOWS
    return int((sums[w:, w:] - sums[:-w, w:] - sums[w:, :-w] + sums[:-w, :-w]).max())


def _outside(one: Image.Image, other: Image.Image) -> NDArray[np.bool_]:
    """Mark pixels that are darker or lighter than all pixels nearby in the other picture."""
    low, high = (
        np.asarray(other.filter(of(NEAR)), int) for of in (ImageFilter.MinFilter, ImageFilter.MaxFilter)
    )
    pixels = np.asarray(one, int)
    return np.asarray(((pixels < low - LEVELS) | (pixels > high + LEVELS)).any(-1))


@pytest.fixture(scope="module")
def drawn_with(
    launch: Callable[..., Browser], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Browser]:
    """Launch Chromium with only matplotlib's fonts, one for each way of drawing glyphs."""

    @cache
    def launched(style: str, rgba: str = "none", *flags: str) -> Browser:
        folder = tmp_path_factory.mktemp("fonts")
        fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
        how = {"style": style, "rgba": rgba, "hinting": str(style != "hintnone").lower()}
        (folder / "fonts.conf").write_text(FONTS.format(fonts=fonts, cache=folder / "cache", **how))
        return launch(*flags, FONTCONFIG_FILE=str(folder / "fonts.conf"))

    return launched


@pytest.fixture(scope="module")
def chromium(drawn_with: Callable[..., Browser]) -> Browser:
    return drawn_with("hintslight")


@pytest.fixture
def open_fixed(new_page: Open, tmp_path: Path) -> Open:
    """Save a View and open it without animations."""
    return lambda view, scheme="light": open_in(new_page(**SETTING, color_scheme=scheme), view, tmp_path)


def open_in(page: Page, view: View, folder: Path) -> Page:
    page.goto(view.save(folder / "graph.html").as_uri())
    until(page, f"Boolean({VIEW})")
    return page


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_page_resembles_kept_picture(name: str, scheme: str, open_fixed: Open) -> None:
    view, act = PAGES[name]
    drawn = shot(open_fixed(view(), scheme), act)
    path = PICTURES / f"{name}-{scheme}.png"
    if os.environ.get("INTUS_RENEW_PICTURES"):
        drawn.reduce(2).save(path, optimize=True)
        pytest.skip(f"renewed {path.name}: check it by eye")
    assert difference(drawn, kept(name, scheme)) <= MOST


RENDERINGS: dict[str, tuple[str, ...]] = {
    "no hinting": ("hintnone",),
    "LCD subpixels": ("hintslight", "rgb"),
    "whole pixels": ("hintslight", "none", "--disable-font-subpixel-positioning"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("rendering", RENDERINGS)
def test_other_glyph_rendering_is_tolerated(
    rendering: str, name: str, drawn_with: Callable[..., Browser], tmp_path: Path
) -> None:
    view, act = PAGES[name]
    page = drawn_with(*RENDERINGS[rendering]).new_page(**SETTING, color_scheme="light")
    drawn = shot(open_in(page, view(), tmp_path), act)
    page.close()
    assert np.any(np.asarray(drawn.reduce(2)) != np.asarray(kept(name)))  # else this would test nothing
    assert difference(drawn, kept(name)) <= MOST


@pytest.mark.long
@pytest.mark.parametrize("name", PAGES)
def test_missing_box_or_edge_is_detected(name: str, open_fixed: Open) -> None:
    view, act = PAGES[name]
    page = open_fixed(view())
    drawn = shot(page, act)
    left, top = page.locator(".ig-canvas").evaluate(CORNER)
    missing = {}
    for box in page.evaluate(f"{VIEW}.boxes()"):
        x, y = box["x"] + left, box["y"] + top
        area = (x - 2, y - 2, x + box["width"] + 2, y + box["height"] + 2)
        missing[box["address"]] = (
            lambda on, ground, area=area: on.rectangle(area, fill=ground),
            (x - 6, y - 6),
        )
    for edge in page.evaluate(f"{VIEW}.routes()"):
        points = [(x + left, y + top) for x, y in zip(edge["points"][::2], edge["points"][1::2], strict=True)]
        (x, y), (_, end) = points[0], points[-1]
        if end - y > 32:  # shorter ones are hardly more than an arrowhead
            erase = lambda on, ground, points=points: on.line(bent(points), fill=ground, width=6)  # noqa: E731
            missing[f"{edge['from']} → {edge['to']}"] = erase, (x - 7, (y + end) / 2)
    assert len(missing) > 10
    differences = {}
    for what, (erase, (x, y)) in missing.items():
        if not (8 < x < WINDOW["width"] - 8 and top + 8 < y < WINDOW["height"] - 8):
            continue
        without = drawn.copy()
        erase(ImageDraw.Draw(without), drawn.getpixel((int(x), int(y))))
        differences[what] = difference(without, kept(name))
    assert len(differences) > 8
    assert min(differences.values()) > MOST, differences


def bent(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return points along a route as drawn: curves with vertical tangents at the points of the route."""
    drawn = []
    for (ax, ay), (bx, by) in pairwise(points):
        for t in np.linspace(0, 1, 25):
            a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
            drawn.append(((a + b) * ax + (c + d) * bx, a * ay + (b + c) * (ay + by) / 2 + d * by))
    return drawn


CORNER = "(canvas) => { const { left, top } = canvas.getBoundingClientRect(); return [left, top]; }"


@pytest.mark.long
@pytest.mark.parametrize(
    ("view", "act"),
    [
        (lambda: residual(VALUES | {"wide.conv2": 0.2}), PAGES["residual"][1]),
        (lambda: residual(VALUES), ""),
        (lambda: residual(VALUES), f"{PAGES['residual'][1]}; {VIEW}.select('head')"),
    ],
    ids=["another color", "a module less open", "something else selected"],
)
def test_changed_page_is_detected(view: Callable[[], View], act: str, open_fixed: Open) -> None:
    assert difference(shot(open_fixed(view()), act), kept("residual")) > MOST
