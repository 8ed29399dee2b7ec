"""The layout, whatever the graph: no box on another, every edge from border to border."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator

import numpy as np
import pytest
from drafts import branches, chain, gpt2, loop, resnet
from hypothesis import given, settings
from hypothesis import strategies as st

from intus.core.graph import Graph
from intus.viewing.drawing.labels import labels_of
from intus.viewing.drawing.layout import LayoutEdge, LayoutInput, LayoutNode, layout_level
from intus.viewing.drawing.lines import shapes_of
from intus.viewing.drawing.measure import measure
from intus.viewing.drawing.picture import picture, plan
from intus.viewing.drawing.shapes import Curve
from intus.viewing.drawing.style import theme


@st.composite
def levels(draw: st.DrawFn) -> LayoutInput:
    count = draw(st.integers(1, 14))
    sizes = [
        (draw(st.sampled_from((52, 108, 240))), draw(st.sampled_from((28, 46, 300)))) for _ in range(count)
    ]
    nodes = [LayoutNode(i, width, height) for i, (width, height) in enumerate(sizes)]
    ends = st.tuples(
        st.integers(0, count - 1), st.integers(0, count - 1)
    )  # backwards too: rolled graphs have it
    edges = draw(st.lists(ends, max_size=24, unique=True))
    ins, outs = ([100, 101][: draw(st.integers(0, 2))], [200][: draw(st.integers(0, 1))])
    ports = [(port, draw(st.integers(0, count - 1))) for port in ins]
    ports += [(draw(st.integers(0, count - 1)), port) for port in outs]
    return LayoutInput(nodes, ins, outs, [LayoutEdge(a, b) for a, b in edges + ports])


@settings(max_examples=150, deadline=None)
@given(levels())
def test_no_box_meets_another_and_edges_run_from_border_to_border(level: LayoutInput) -> None:
    layout = layout_level(level)
    size = {node.id: (node.width, node.height) for node in level.nodes}
    for a, b in itertools.combinations(size, 2):
        apart_x = max(layout.x[b] - layout.x[a] - size[a][0], layout.x[a] - layout.x[b] - size[b][0])
        apart_y = max(layout.y[b] - layout.y[a] - size[a][1], layout.y[a] - layout.y[b] - size[b][1])
        assert max(apart_x, apart_y) >= 15.9
    for id, (width, height) in size.items():
        assert 0 <= layout.x[id] <= layout.width - width + 1e-6
        assert 0 <= layout.y[id] <= layout.height - height + 1e-6
    for edge, route in zip(level.edges, layout.routes, strict=True):
        assert route[1] == pytest.approx(
            layout.y[edge.source] + size[edge.source][1] if edge.source < 100 else 0
        )
        assert route[-1] == pytest.approx(layout.y[edge.target] if edge.target < 100 else layout.height)
        for end, x in ((edge.source, route[0]), (edge.target, route[-2])):
            if end < 100:
                assert layout.x[end] - 1e-6 <= x <= layout.x[end] + size[end][0] + 1e-6
            else:
                assert x == pytest.approx(layout.port_x[end])


@pytest.mark.parametrize("direction", ["down", "right"])
@pytest.mark.parametrize("graph", [resnet(), gpt2(layers=3)])
def test_whole_pictures_nest_and_do_not_overlap(graph: Graph, direction: str) -> None:
    laid_out = plan(graph, depth=math.inf, direction=direction)
    by_parent: dict[int, list[int]] = {}
    boxes = {box.node.id: box for box in laid_out.frame.boxes}
    for id, box in boxes.items():
        by_parent.setdefault(box.node.parent, []).append(id)
        around = boxes.get(box.node.parent)
        if around:
            assert around.x <= box.x
            assert around.y + 30 <= box.y
            assert box.x + box.width <= around.x + around.width + 1e-6
            assert box.y + box.height <= around.y + around.height + 1e-6
    for siblings in by_parent.values():
        for a, b in itertools.combinations([boxes[id] for id in siblings], 2):
            over = (
                a.x < b.x + b.width and b.x < a.x + a.width and a.y < b.y + b.height and b.y < a.y + a.height
            )
            assert not over


@pytest.mark.parametrize(
    ("graph", "spine", "widest"), [(branches(60), "add", 420), (loop(20), "tanh", 620)], ids=["sum", "loop"]
)
def test_steps_stand_below_one_another_each_beside_its_part(graph: Graph, spine: str, widest: float) -> None:
    frame = plan(graph, depth=math.inf).frame
    middles = [box.x + box.width / 2 for box in frame.boxes if box.node.address.startswith(spine)]
    assert len(middles) >= 20
    assert middles == pytest.approx([middles[0]] * len(middles))
    assert frame.width < widest


def test_flow_to_the_right_runs_to_the_right() -> None:
    laid_out = plan(resnet(), direction="right", depth=1)
    at = {box.node.address: box for box in laid_out.frame.boxes}
    names = ["input_1", "conv1", "bn1", "layer1", "layer2", "layer3", "layer4", "fc", "output_1"]
    assert all(at[a].x + at[a].width < at[b].x for a, b in itertools.pairwise(names))
    drawn = picture(laid_out)
    assert drawn.width > 3 * drawn.height


def test_words_beside_edges_cover_neither_boxes_nor_one_another() -> None:
    for options in ({}, {"rolled": True}, {"direction": "right"}):
        laid_out = plan(gpt2(layers=3), depth=math.inf, **options)
        texts = labels_of(laid_out, theme())
        areas = []
        for text in texts:
            wide = measure(text.words, text.size)
            left = text.x - (wide if text.anchor == "end" else 0)
            areas.append((left, text.y - 4.5, left + wide, text.y + 4.5))
        words = len(areas)
        for line in laid_out.frame.lines:
            for shape in shapes_of(line, laid_out.stage, theme()):
                if isinstance(shape, Curve):
                    assert not any(within(point, area) for point in points(shape) for area in areas[:words])
        areas += [
            (box.x, box.y, box.x + box.width, box.y + box.height)
            for box in laid_out.frame.boxes
            if not box.open
        ]
        areas.sort(key=lambda area: area[1])
        met = 0
        for i, a in enumerate(areas):
            for b in itertools.takewhile(lambda b, a=a: b[1] < a[3], areas[i + 1 :]):
                met += a[0] < b[2] and b[0] < a[2] and a[1] < b[3]
        assert met <= len(texts) * 0.02, options


def points(curve: Curve) -> Iterator[tuple[float, float]]:
    """Places along a curve, by halving it (de Casteljau)."""
    at = curve.points[0]
    for part in curve.points[1:]:
        ends = [at, *(part[i : i + 2] for i in range(0, len(part), 2))]
        for share in np.linspace(0, 1, 33):
            level = [np.asarray(end, float) for end in ends]
            while len(level) > 1:
                level = [a + (b - a) * share for a, b in itertools.pairwise(level)]
            yield float(level[0][0]), float(level[0][1])
        at = part[-2:]


def within(point: tuple[float, float], area: tuple[float, float, float, float]) -> bool:
    (x, y), (left, top, right, bottom) = point, area
    return left < x < right and top < y < bottom


def test_ten_thousand_operations_take_seconds_at_most() -> None:
    graph = chain(10_000)
    began = time.process_time()
    assert len(plan(graph, depth=math.inf).frame.boxes) == 10_002
    assert time.process_time() - began < 6  # 1.3 s here; the rest is for a machine that is busy
