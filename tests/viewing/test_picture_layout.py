"""The layout of any graph: boxes do not overlap, edges end at borders, text covers nothing."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from typing import Any

import pytest
from drafts import Draft, branches, chain, digits_cnn, gpt2, loop, recurrent, resnet
from hypothesis import given, settings
from hypothesis import strategies as st
from still import boxes_by_address, diagram_of, picture_of, points_along

from intus.core.graph import Graph
from intus.viewing.pictures.measure import measure
from intus.viewing.pictures.shapes import Path, Text

DIRECTIONS = ("down", "right")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw graphs whose operations read any earlier values, in modules that begin and end anywhere."""
    d = Draft("Random")
    values = [d.input(2, 3) for _ in range(draw(st.integers(1, 3)))]
    with ExitStack() as whole:
        whole.enter_context(d.module("", "Random"))
        opened: list[ExitStack] = []
        for number in range(draw(st.integers(1, 16))):
            if len(opened) < 3 and draw(st.integers(0, 3)) == 0:
                opened.append(ExitStack())
                opened[-1].enter_context(d.module(f"block{number}", "Block"))
            parents = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4, unique=True))
            shape = draw(st.sampled_from([(3,), (2, 3), (1, 64, 112, 112)]))
            values.append(
                d.op(
                    draw(st.sampled_from(["sub", "cat", "a_function_of_a_long_name"])), *parents, shape=shape
                )
            )
            if opened and draw(st.integers(0, 3)) == 0:
                opened.pop().close()
        while opened:
            opened.pop().close()
    for value in values[-2:]:
        d.output(value)
    return d.graph()


def check_boxes(found: dict[str, Any]) -> None:
    """Check that the boxes of a container do not overlap and are inside it, below its header."""
    boxes = {box["id"]: box for box in found["boxes"]}
    inside: dict[int, list[dict[str, Any]]] = {}
    for box in boxes.values():
        inside.setdefault(box["parent"], []).append(box)
        around = boxes.get(box["parent"])
        if around:
            assert around["open"]
            assert around["x"] <= box["x"]
            assert around["y"] + 30 <= box["y"]
            assert box["x"] + box["width"] <= around["x"] + around["width"] + 1e-6
            assert box["y"] + box["height"] <= around["y"] + around["height"] + 1e-6
    for siblings in inside.values():
        for a, b in itertools.combinations(siblings, 2):
            across = max(b["x"] - a["x"] - a["width"], a["x"] - b["x"] - b["width"])
            down = max(b["y"] - a["y"] - a["height"], a["y"] - b["y"] - b["height"])
            assert max(across, down) >= 15.9, (a["address"], b["address"])


def check_ends(found: dict[str, Any], direction: str) -> None:
    """Edges leave a box at the side to which the data flows, and arrive at the other."""
    boxes = boxes_by_address(found)
    (along, length), (across, breadth) = (("y", "height"), ("x", "width"))
    if direction == "right":
        (along, length), (across, breadth) = (("x", "width"), ("y", "height"))
    for route in found["routes"]:
        ends = {"x": route["points"][::2], "y": route["points"][1::2]}
        for name, place, side in (("from", 0, 1), ("to", -1, 0)):
            box = boxes.get(route[name])
            if not route[name] or not box:
                continue  # a port on the border of the container, or a fold
            assert ends[along][place] == pytest.approx(box[along] + side * box[length])
            assert box[across] - 1e-6 <= ends[across][place] <= box[across] + box[breadth] + 1e-6


@pytest.mark.long
@pytest.mark.parametrize("direction", DIRECTIONS)
@settings(max_examples=60, deadline=None)
@given(graph=graphs())
def test_layout_of_random_graphs(direction: str, graph: Graph) -> None:
    found = diagram_of(graph, depth="all", direction=direction)
    check_boxes(found)
    check_ends(found, direction)


@pytest.mark.long
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("graph", "view"),
    [
        (digits_cnn(), {"depth": "all"}),
        (resnet((3, 4, 6, 3)), {"depth": "all"}),
        (resnet((3, 4, 6, 3)), {"depth": 2}),
        (gpt2(layers=3), {"depth": "all"}),
        (gpt2(), {"depth": 3}),
        (recurrent(), {}),
        (recurrent(9), {"rolled": False}),
    ],
    ids=["digits", "resnet", "resnet-folded", "gpt2", "gpt2-folded", "rolled", "unrolled"],
)
def test_layout_of_boxes_edges_and_text_of_models(direction: str, graph: Graph, view: dict[str, Any]) -> None:
    found = diagram_of(graph, direction=direction, **view)
    check_boxes(found)
    check_ends(found, direction)
    picture = picture_of(graph, direction=direction, **view)
    *_, lines = (
        g.shapes
        for g in picture.groups
        if any(isinstance(s, Path) and not s.fill for s in g.shapes) and not g.title
    )
    words = next(g.shapes for g in reversed(picture.groups[:-1]) if not g.title)
    first = next(g.shapes[0] for g in picture.groups if g.title)
    box = next(box for box in found["boxes"] if not box["open"])
    dx, dy = first.x - box["x"], first.y - box["y"]  # type: ignore[union-attr]
    closed = [
        (b["x"] + dx, b["y"] + dy, b["x"] + dx + b["width"], b["y"] + dy + b["height"])
        for b in found["boxes"]
        if not b["open"]
    ]
    areas = []
    for text in words:
        assert isinstance(text, Text)
        left = text.x - (measure(text.words, text.size) if text.anchor == "end" else 0)
        areas.append((left, text.y - 4.5, left + measure(text.words, text.size), text.y + 4.5))
    assert len(areas) >= 5
    for a, b in itertools.combinations(areas, 2):
        assert not (a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3])
    for area in areas:
        for left, top, right, bottom in closed:
            assert not (area[0] < right and left < area[2] and area[1] < bottom and top < area[3])
    for x, y in (
        point for line in lines if isinstance(line, Path) and line.line for point in points_along(line)
    ):
        assert not any(
            left + 1 < x < right - 1 and top + 1 < y < bottom - 1 for left, top, right, bottom in closed
        )
        assert not any(left < x < right and top < y < bottom for left, top, right, bottom in areas)


@pytest.mark.parametrize(
    ("graph", "spine", "widest"), [(branches(60), "add", 420), (loop(20), "tanh", 620)], ids=["sum", "loop"]
)
def test_steps_of_sum_and_loop_are_in_one_column(graph: Graph, spine: str, widest: float) -> None:
    boxes = diagram_of(graph, depth="all")["boxes"]
    middles = [box["x"] + box["width"] / 2 for box in boxes if box["address"].startswith(spine)]
    assert len(middles) >= 20
    assert middles == pytest.approx([middles[0]] * len(middles))
    assert max(box["x"] + box["width"] for box in boxes) < widest


def test_direction_right_places_boxes_from_left_to_right() -> None:
    at = boxes_by_address(diagram_of(resnet(), direction="right", depth=1))
    names = ["input_1", "conv1", "bn1", "layer1", "layer2", "layer3", "layer4", "fc", "output_1"]
    assert all(at[a]["x"] + at[a]["width"] < at[b]["x"] for a, b in itertools.pairwise(names))
    drawn = picture_of(resnet(), direction="right", depth=1)
    assert drawn.width > 3 * drawn.height


@pytest.mark.long
def test_layout_of_thousand_nested_modules() -> None:
    d = Draft("Deep")
    x = d.input(2)
    with ExitStack() as stack:
        stack.enter_context(d.module("", "Deep"))
        for depth in range(1000):
            stack.enter_context(d.module(f"m{depth}", "Module"))
            x = d.op("relu", x, shape=(2,))
    d.output(x)
    assert len(diagram_of(d.graph(), depth="all")["boxes"]) == 2001


@pytest.mark.long
def test_layout_time_of_ten_thousand_operations() -> None:
    graph = chain(10_000)
    began = time.process_time()
    assert len(diagram_of(graph, depth="all")["boxes"]) == 10_002
    assert time.process_time() - began < 15  # 3 s when measured; the margin is for a busy machine


@pytest.mark.long
def test_drawing_time_of_shared_lanes_is_linear() -> None:
    """In a loop each step reads the sequence, so a thousand edges share a lane at each height."""
    took = []
    for steps in (500, 2000):
        began = time.process_time()
        picture_of(loop(steps), depth="all")
        took.append(time.process_time() - began)
    assert took[1] < 8 * took[0]  # 4 when measured; 16 if each height checked every edge
