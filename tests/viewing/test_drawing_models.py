"""What the drawing says of real models: passes, arguments, decisions, and equal modules shown once."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from intus import Trace, trace
from intus.core.graph import OP
from intus.viewing.drawing.labels import ends_said
from intus.viewing.drawing.marks import ranges
from intus.viewing.drawing.picture import Plan, plan
from intus.viewing.drawing.rolled import rolled


class Cell(nn.Module):
    """Every part of the paper's visual code: a loop, a buffer, a decision, an argument order, noise."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(1, 4)
        for _ in range(3):
            h = torch.tanh(self.mix(x) + h * self.scale)
        h = h - x if h.sum() > -100 else x / h
        return torch.matmul(h, torch.randn(4, 4))


@pytest.fixture(scope="module")
def cell() -> Trace:
    return trace(Cell(), torch.ones(1, 4))


def said(laid_out: Plan) -> dict[tuple[str, str], tuple[str, str]]:
    """By the titles of an edge's ends, what is said there."""
    stage = laid_out.stage
    title = {node.id: stage.captions(node, stage.figures)[0] for node in stage.tree.nodes}
    return {
        (title.get(line.edge.source, ""), title.get(line.edge.target, "")): ends_said(laid_out, line.edge.raw)
        for line in laid_out.frame.lines
    }


def test_a_rolled_loop_has_each_layer_once_and_its_edges_say_which_passes(cell: Trace) -> None:
    edges = said(plan(cell.graph, rolled=True, depth=math.inf))
    assert edges["zeros", "mul (x3)"] == ("", "In 1")
    assert edges["tanh (x3)", "mul (x3)"] == ("Out 1-2", "In 2-3")  # against the flow
    assert edges["tanh (x3)", "sum"] == ("Out 3", "")
    assert edges["tanh (x3)", "sub"] == ("Out 3", "0")
    assert edges["x", "sub"] == ("", "1")
    assert edges["x", "mix (x3)"] == edges["mix (x3)", "add (x3)"] == ("", "")
    assert (edges["sub", "matmul"], edges["randn", "matmul"]) == (("", "0"), ("", "1"))


def test_an_unrolled_loop_names_its_passes(cell: Trace) -> None:
    titles = {box[0] for box in said(plan(cell.graph, depth=math.inf))}
    assert {"mix:1", "mix:2", "mix:3", "tanh:1", "add:3", "scale", "zeros"} <= titles


def test_the_decision_and_the_way_to_it_are_marked(cell: Trace) -> None:
    laid_out = plan(cell.graph, depth=math.inf)
    graph = cell.graph
    marks = laid_out.marks
    [conditional] = cell.conditionals
    assert marks.decisions == {conditional.op.row: "ternary true"}
    assert ("sum", "gt · ternary true") in said(laid_out)
    [start] = marks.starts
    assert graph.edges.dst[start] == conditional.starts[0].row == cell["sum_1"].row
    assert graph.edges.src[start] == cell["tanh_1:3"].row


def test_a_rolled_graph_keeps_every_layer_edge_parameter_and_nanosecond(cell: Trace) -> None:
    graph = cell.graph
    result = rolled(graph)
    layers = set(graph.ops.layer[graph.ops.kind == OP].tolist())
    assert len(result.graph) == len(layers)
    assert sum(result.op_passes) == len(graph.ops)
    assert result.graph.ops.time.sum() == graph.ops.time.sum()
    pairs = {
        (int(result.rows[s]), int(result.rows[d]))
        for s, d in zip(graph.edges.src, graph.edges.dst, strict=True)
    }
    assert pairs == set(zip(result.graph.edges.src.tolist(), result.graph.edges.dst.tolist(), strict=True))
    assert {p for _, p in result.graph.op_params.tolist()} == {p for _, p in graph.op_params.tolist()}
    assert dict(zip(result.graph.labels, result.op_passes, strict=True)) == Counter(
        label.rpartition(":")[0] or label for label in graph.labels
    )
    assert [result.graph.call_address(call) for call in range(len(result.graph.calls))] == ["", "mix"]
    assert result.call_passes == [1, 3]


def test_a_graph_without_recurrence_rolls_to_itself() -> None:
    graph = trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), torch.ones(1, 4)).graph
    result = rolled(graph)
    assert result.notes == {}
    assert set(result.op_passes) == set(result.call_passes) == {1}
    assert result.graph.labels == graph.labels
    for name in ("src", "dst", "arg"):
        assert np.array_equal(np.sort(getattr(result.graph.edges, name)), np.sort(getattr(graph.edges, name)))


def test_a_layer_that_feeds_itself_bends_back_to_itself() -> None:
    def grow(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.sin(x)
        return x

    laid_out = plan(trace(grow, torch.ones(2)).graph, rolled=True)
    edges = said(laid_out)
    assert edges["sin (x4)", "sin (x4)"] == ("Out 1-3", "In 2-4")
    assert edges["x", "sin (x4)"] == ("", "In 1")
    assert edges["sin (x4)", "output_1"] == ("Out 4", "")


def test_equal_modules_in_a_row_are_shown_once_with_their_count() -> None:
    net = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(5)), nn.Linear(4, 2))
    laid_out = plan(trace(net, torch.ones(1, 4)).graph, rolled=True, depth=math.inf)
    stage = laid_out.stage
    captions = [stage.captions(box.node, stage.figures) for box in laid_out.frame.boxes]
    assert captions == [
        ("input", ""),
        ("0 … 4", "5 × Sequential · 100"),
        ("5", "Linear · 10"),
        ("output_1", ""),
        ("0.0", "Linear · 20"),
        ("0.1", "ReLU"),
    ]
    assert stage.figures.parameters[0] == sum(p.numel() for p in net.parameters())


def test_equal_modules_within_equal_modules_are_shown_once() -> None:
    def block() -> nn.Module:
        steps = (nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3))
        return nn.Sequential(*steps, nn.Tanh())

    net = nn.Sequential(*(block() for _ in range(4)), nn.Linear(4, 2))
    laid_out = plan(trace(net, torch.ones(1, 4)).graph, rolled=True, depth=math.inf)
    stage = laid_out.stage
    captions = {stage.captions(box.node, stage.figures) for box in laid_out.frame.boxes}
    assert captions == {
        *(("input", ""), ("output_1", ""), ("4", "Linear · 10")),
        *(("0 … 3", "4 × Sequential · 240"), ("0.0 … 0.2", "3 × Sequential · 60"), ("0.3", "Tanh")),
        *(("0.0", "Linear · 20"), ("0.1", "ReLU")),  # of 0.0: a number takes its parent along
    }
    rows = [row for box in laid_out.frame.boxes for row in box.node.rows]
    assert set(stage.tree.box_of) <= {box.node.id for box in laid_out.frame.boxes}
    assert len(rows) == len(set(rows)) == 6


def test_a_view_says_whether_its_pictures_are_rolled(cell: Trace, tmp_path: Path) -> None:
    drawn = cell.show(rolled=True).save(tmp_path / "a.svg").read_text()
    assert "mix (x3)" in drawn
    assert "mix (x3)" not in cell.show(rolled=True).save(tmp_path / "b.svg", rolled=False).read_text()
    assert cell.draw(tmp_path / "c.svg", rolled=True).read_text() == drawn
    held = json.loads(cell.draw(tmp_path / "d.json").read_text())
    assert len(held["values"]["mean"]) == len(cell.values)


def test_a_tensor_from_outside_is_a_box_of_its_own() -> None:
    held = torch.ones(4)
    net = nn.Sequential(nn.Linear(4, 4))
    net.forward = lambda x: nn.Sequential.forward(net, x) + held
    laid_out = plan(trace(net, torch.ones(1, 4)).graph)
    kinds = {box.node.address: box.node.kind for box in laid_out.frame.boxes}
    assert kinds["constant_1"] == "constant"
    assert ("constant_1", "add") in said(laid_out)


def test_flops_of_a_rolled_graph_are_the_passes_sum(cell: Trace) -> None:
    whole, once = plan(cell.graph), plan(cell.graph, rolled=True)
    assert once.stage.figures.flops[0] == whole.stage.figures.flops[0] > 0


def test_arguments_are_named_only_where_their_order_matters() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        z = (x + y) * (x - y)
        return nn.functional.scaled_dot_product_attention(z, x, y, attn_mask=mask)

    x = torch.ones(1, 3, 4)
    edges = said(plan(trace(forward, (x, x * 2, torch.ones(3, 3))).graph))
    assert [edges[name, "sub"][1] for name in "xy"] == ["0", "1"]
    assert [edges[name, "add"][1] for name in "xy"] == ["", ""]
    ends = {
        source: what
        for (source, target), (_, what) in edges.items()
        if target == "scaled_dot_product_attention"
    }
    assert ends == {"mul": "0", "x": "1", "y": "2", "mask": "attn_mask"}


def test_a_failed_pass_is_drawn_as_far_as_it_came() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 2))
    failed = trace(net, torch.ones(1, 4), on_error="keep")
    laid_out = plan(failed.graph)
    assert "1" in [box.node.address for box in laid_out.frame.boxes]


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([1, 2, 2, 3], "1-3"), ([9, 1, 2, 5], "1-2,5,9")]
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text
