"""Still pictures equal the page in Chromium: boxes, positions, labels, colors and lines.

Both measure text with the same artificial font, so that positions must be equal too.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Page
from torch import Tensor, nn
from waiting import until
from zoo import MODELS, Recurrent, graph_of

from intus import trace
from intus.core.graph import Graph
from intus.viewing.html import View, content
from intus.viewing.pictures import engine
from intus.viewing.pictures.draw import diagram

pytestmark = pytest.mark.browser
VIEW = "document.querySelector('#intus-graph').intusView"
SVG = "{http://www.w3.org/2000/svg}"
FONT = """
OffscreenCanvasRenderingContext2D.prototype.measureText = function (text) {
  const [, bold, size] = /^(600 )?([\\d.]+)px/.exec(this.font);
  return { width: [...text].length * Number(size) * (bold ? 0.63 : 0.57) };
};
"""
PAGE_CONTENT = f"""() => {{
  const view = {VIEW}, {{ camera }} = view.viewport;
  const boxes = view.boxes().map((box) => ({{
    ...box, x: box.x / camera.scale + camera.x, y: box.y / camera.scale + camera.y,
    width: box.width / camera.scale, height: box.height / camera.scale,
  }}));
  const routes = view.routes().map((route) => ({{
    ...route, points: route.points.map((at, i) => at / camera.scale + (i % 2 ? camera.y : camera.x)),
  }}));
  const legend = [...document.querySelectorAll('.ig-legend .ig-scale-ends')].map((ends) => ends.innerText);
  return {{ boxes, routes, legend, rolled: view.place.rolled }};
}}"""
NUMBERS = ("x", "y", "width", "height")


def measure(text: str, size: float, bold: bool = False) -> float:
    return len(text) * size * (0.63 if bold else 0.57)


class Block(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm(self.conv2(torch.relu(self.conv1(x)))))


def resnet() -> Graph:
    stem, head = nn.Conv2d(3, 4, 3), nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    net = nn.Sequential(stem, nn.Sequential(*(Block() for _ in range(6))), *(Block() for _ in range(4)), head)
    return graph_of(net, torch.zeros(1, 3, 16, 16))


def cnn() -> Graph:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 10))
    return graph_of(net, torch.zeros(1, 1, 8, 8))


class Sources(nn.Module):
    """Buffers with one and with several consumers, a constant, a factory op, and an input consumed late."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("mask", torch.ones(4))
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: Tensor, late: Tensor) -> Tensor:
        x = self.first(x) * self.mask
        x = torch.relu(x * self.scale + CONSTANT) - torch.rand(4)
        return torch.sub(self.last(x) * self.scale, late)


CONSTANT = torch.ones(4)


def sources() -> Graph:
    return graph_of(Sources(), torch.zeros(1, 4), torch.zeros(1, 4))


def failed() -> Graph:
    inner = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(3, 4)))
    return trace(nn.Sequential(nn.Linear(4, 4), inner), torch.ones(1, 4), on_error="keep").graph


def many_inputs() -> Graph:
    return trace(lambda *xs: torch.stack(xs), tuple(torch.zeros(2) for _ in range(12))).graph


CASES: dict[str, tuple[Callable[[], Graph], dict[str, Any]]] = {
    "cnn": (cnn, {}),
    "resnet, folds closed": (resnet, {}),
    "resnet, folds open": (resnet, {"depth": 2}),
    "resnet, all": (resnet, {"depth": "all"}),
    **{f"gpt2, depth {depth}": (MODELS["gpt2"], {"depth": depth}) for depth in (None, 0, 1, 2, 3, 9, "all")},
    "loop of 50 steps": (lambda: graph_of(Recurrent(50), torch.zeros(1, 50, 8)), {}),
    "loop of 50 steps, unrolled": (lambda: graph_of(Recurrent(50), torch.zeros(1, 50, 8)), {"rolled": False}),
    "loop of 4 steps": (lambda: graph_of(Recurrent(4), torch.zeros(1, 4, 8)), {}),
    "loop of 4 steps, rolled": (
        lambda: graph_of(Recurrent(4), torch.zeros(1, 4, 8)),
        {"rolled": True, "depth": "all"},
    ),
    "decoder, rolled": (MODELS["decoder"], {"rolled": True}),
    "sources": (sources, {}),
    "failed": (failed, {}),
    "failed, closed": (failed, {"depth": 0}),
    "many inputs": (many_inputs, {}),
    "u-net, all": (MODELS["unet"], {"depth": "all"}),
    "t5, two levels": (MODELS["t5"], {"depth": 2}),
    "wild, all": (MODELS["wild 3"], {"depth": "all"}),
    "resnet by time": (resnet, {"overlay": "time", "depth": 1}),
    "resnet by parameters": (resnet, {"overlay": "parameters"}),
    "resnet by memory": (resnet, {"overlay": "memory", "depth": "all"}),
    "loop by flops, rolled": (
        lambda: graph_of(Recurrent(9), torch.zeros(1, 9, 8)),
        {"overlay": "flops", "rolled": True},
    ),
    "cnn by numbers": (cnn, {"overlay": {"0": 0.25, "1": 0.5, "4": 1.0, "3": float("nan")}}),
}


@pytest.fixture(params=CASES)
def both(
    request: pytest.FixtureRequest,
    new_page: Callable[..., Page],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[View, dict[str, Any], dict[str, Any]]:
    """Return a View, what the page shows of it, and the contents of its picture."""
    make, options = CASES[request.param]
    view = View(make(), **options)
    page = new_page(offline=True, reduced_motion="reduce")
    page.add_init_script(FONT)
    page.goto(view.save(tmp_path / "graph.html").as_uri())
    until(page, f"{VIEW} && {VIEW}.still")
    monkeypatch.setattr(engine, "measure", measure)
    data = content(view.graph, overlay=view.overlay, depth=view.depth, rolled=view.rolled)
    return view, page.evaluate(PAGE_CONTENT), diagram(data, title="")


def hexes(colour: str | None) -> str | None:
    if colour is None or not colour.startswith("rgb"):
        return colour
    return "#" + "".join(f"{int(part):02x}" for part in colour[4:-1].split(","))


@pytest.mark.long
def test_picture_equals_page(both: tuple[View, dict[str, Any], dict[str, Any]], tmp_path: Path) -> None:
    view, page, found = both
    assert len(page["boxes"]) == len(found["boxes"]) > 2
    for here, there in zip(page["boxes"], found["boxes"], strict=True):
        for name in here.keys() - {*NUMBERS, "colour"}:
            assert here[name] == there[name], here["address"]
        assert hexes(here["colour"]) == hexes(there["colour"])
        assert [here[name] for name in NUMBERS] == pytest.approx([there[name] for name in NUMBERS], abs=1e-6)
    assert len(page["routes"]) == len(found["routes"]) > 1
    for here, there in zip(page["routes"], found["routes"], strict=True):
        assert here["points"] == pytest.approx(there["points"], abs=1e-6)
        assert {**here, "points": None} == {**there, "points": None}

    root = ElementTree.fromstring(view.save(tmp_path / "a.svg").read_text(encoding="utf-8"))
    check_svg(root, found, view)
    for ends in page["legend"]:  # the numbers at the ends of a scale and on it
        words = [text.text for text in root.iter(f"{SVG}text")]
        assert {line for line in ends.split("\n") if line} <= set(words)


def check_svg(root: ElementTree.Element, found: dict[str, Any], view: View) -> None:
    """Check that the file has each box at its position with its text, each line, and the labels of lines."""
    groups = [group for group in root.findall(f"{SVG}g") if group.find(f"{SVG}title") is not None]
    closed = [box for box in found["boxes"] if not box["open"]]
    opened = [box for box in found["boxes"] if box["open"]]
    assert len(groups) == len(closed) + len(opened)
    rects = [
        [float(rect.get(name, 0)) for name in NUMBERS] for rect in root.iter(f"{SVG}rect") if rect.get("x")
    ]
    body = groups[0].findall(f"{SVG}rect")[2 if closed[0]["kind"] == "group" else 0]
    origin = [float(body.get(name, 0)) - closed[0][name] for name in ("x", "y")]
    for box, group in zip([*closed, *opened], groups, strict=True):
        place = [box["x"] + origin[0], box["y"] + origin[1], box["width"], box["height"]]
        assert any(rect == pytest.approx(place, abs=0.02) for rect in rects), box["address"]
        words = [text.text for text in group.iter(f"{SVG}text")]
        assert box["title"] in words
        shows_strip = box["kind"] == "group" and view.overlay is not None  # of its members' colors
        assert not box["subtitle"] or box["subtitle"] in words or shows_strip
    texts = [text.text for text in root.iter(f"{SVG}text")]
    for route in found["routes"]:
        assert not route["label"] or route["label"] in texts
    arrows = sum(
        path.get("d", "").endswith("Z") and path.get("fill") != "none" for path in root.iter(f"{SVG}path")
    )
    assert arrows >= sum(1 for route in found["routes"] if route["to"])


@pytest.mark.long
def test_picture_to_the_right_has_the_same_boxes_and_edges() -> None:
    for make, options in CASES.values():
        graph = make()
        data = content(graph, **options)
        down, right = (diagram(data, title="", direction=direction) for direction in ("down", "right"))
        boxes = [
            [{k: v for k, v in b.items() if k not in NUMBERS} for b in f["boxes"]] for f in (down, right)
        ]
        by_id = [sorted(each, key=lambda box: box["id"]) for each in boxes]
        assert by_id[0] == by_id[1]
        assert down["edges"] == right["edges"]
        ends = [sorted((route["from"], route["to"]) for route in f["routes"]) for f in (down, right)]
        assert ends[0] == ends[1]
