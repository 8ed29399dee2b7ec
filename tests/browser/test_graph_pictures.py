"""The graph page as it looks, beside pictures kept in tests/browser/pictures.

Renew them with ``INTUS_RENEW_PICTURES=1 pytest tests/browser/test_graph_pictures.py``, and look at them. The
font is the one that matplotlib brings, so pictures are the same everywhere but for how glyphs are hinted.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import matplotlib
import pytest
import torch
from PIL import Image, ImageChops
from playwright.sync_api import Page
from torch import Tensor, nn
from waiting import until
from zoo import Decoder, graph_of

from intus.core.graph import Graph
from intus.tracing.run import trace
from intus.viewing.html import View

pytestmark = pytest.mark.browser
VIEW = "document.querySelector('#intus-graph').intusView"
PICTURES = Path(__file__).with_name("pictures")
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
WINDOW = {"width": 900, "height": 700}
SETTING = {"viewport": WINDOW, "offline": True, "reduced_motion": "reduce"}
LEVELS = 40  # of 255
MOST = 8  # patches of the picture's 39,375
ADD_FONT = """(([data, weight]) => {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    document.fonts.add(new FontFace("Kept", bytes.buffer, { weight }));
})(%s)"""
Open = Callable[..., Page]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.conv2(torch.relu(self.conv1(x))))


class Net(nn.Module):
    def __init__(self, features: int = 8) -> None:
        super().__init__()
        self.stem, self.block, self.last = nn.Conv2d(3, 8, 3, padding=1), Residual(), Residual()
        self.head = nn.Linear(features, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.last(self.block(torch.relu(self.stem(x)))).mean((2, 3)))


def fixed(graph: Graph) -> Graph:
    """Without what differs from run to run, and from machine to machine."""
    ops = replace(graph.ops, time=graph.ops.time * 0, site=graph.ops.site * 0 - 1)
    return replace(graph, ops=ops, sites=[], facts=graph.facts | {"seconds": 0})


VALUES = {"stem": 0.31, "block.conv1": 0.55, "block.conv2": 0.62, "last": 0.8, "head": 0.94}


def residual(overlay: dict[str, float] = VALUES) -> View:
    return View(fixed(graph_of(Net(), torch.zeros(1, 3, 16, 16))), overlay=overlay, depth=0)


def lstm() -> View:
    return View(fixed(graph_of(Decoder(), torch.zeros(1, 6, dtype=torch.long))), rolled=True, depth=1)


def failing() -> View:
    passed = trace(Net(features=9), torch.zeros(1, 3, 16, 16), save="none", on_error="keep")
    return View(fixed(passed.graph), depth=0)


# What is shown, and what is done to it before the picture is taken.
PAGES: dict[str, tuple[Callable[[], View], str]] = {
    "residual": (residual, f"{VIEW}.open('block'); {VIEW}.fit()"),
    "lstm": (lstm, f"{VIEW}.fit()"),
    "failing": (failing, ""),
}


def shot(page: Page, act: str = "") -> Image.Image:
    """The page as it stands after ``act``, half as large."""
    page.evaluate(f"() => {{ {act} }}")
    until(page, f"{VIEW}.still")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return Image.open(BytesIO(page.screenshot())).convert("RGB").reduce(2)


def away(one: Image.Image, other: Image.Image) -> int:
    """How many patches, of 4 by 4 pixels of the page, differ by more than the edges of a glyph do."""
    assert one.size == other.size == (WINDOW["width"] // 2, WINDOW["height"] // 2)
    channels = ImageChops.difference(one.reduce(2), other.reduce(2)).split()
    most = ImageChops.lighter(ImageChops.lighter(*channels[:2]), channels[2])
    return sum(most.histogram()[LEVELS + 1 :])


@pytest.fixture
def open_fixed(new_page: Open, tmp_path: Path) -> Open:
    """Save a View, and open it in the kept font; nothing moves."""
    return lambda view, scheme: open_in(new_page(**SETTING, color_scheme=scheme), view, tmp_path)


def open_in(page: Page, view: View, folder: Path) -> Page:
    path = view.save(folder / "graph.html")
    html = path.read_text(encoding="utf-8")
    path.write_text(html.replace("<html ", "<html style='--font: Kept' ", 1), encoding="utf-8")
    for file, weight in (("DejaVuSans.ttf", "100 500"), ("DejaVuSans-Bold.ttf", "501 900")):
        font = base64.b64encode((FONTS / file).read_bytes()).decode()
        page.add_init_script(ADD_FONT % json.dumps([font, weight]))
    page.goto(path.as_uri())
    until(page, f"Boolean({VIEW}) && document.fonts.check('14px Kept')")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_pages_look_as_they_did(name: str, scheme: str, open_fixed: Open) -> None:
    view, act = PAGES[name]
    drawn = shot(open_fixed(view(), scheme), act)
    path = PICTURES / f"{name}-{scheme}.png"
    if os.environ.get("INTUS_RENEW_PICTURES"):
        drawn.save(path, optimize=True)
        pytest.skip(f"renewed {path.name}: look at it")
    with Image.open(path) as kept:
        assert away(drawn, kept.convert("RGB")) <= MOST


@pytest.mark.parametrize(
    ("view", "act"),
    [
        (lambda: residual(VALUES | {"last": 0.2}), PAGES["residual"][1]),
        (lambda: residual(VALUES), f"{VIEW}.fit()"),
        (lambda: residual(VALUES), f"{PAGES['residual'][1]}; {VIEW}.select('head')"),
    ],
    ids=["another colour", "a module less open", "something selected"],
)
def test_a_page_that_looks_otherwise_is_told(view: Callable[[], View], act: str, open_fixed: Open) -> None:
    drawn = shot(open_fixed(view(), "light"), act)
    with Image.open(PICTURES / "residual-light.png") as kept:
        assert away(drawn, kept.convert("RGB")) > MOST
