"""Pictures of real models: passes, arguments, decisions, folds, buffers and failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from still import boxes_by_address, diagram_of, picture_of
from torch import nn

from intus import Trace, trace
from intus.viewing.pictures.shapes import Text


class Cell(nn.Module):
    """A model with a loop, a buffer, a decision, a noncommutative operation and a factory op."""

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


def edge_labels(found: dict[str, Any]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the labels at the start and the arrow of each edge, by the titles of its ends."""
    title = {box["id"]: box["title"] for box in found["boxes"]}
    return {(title[e["from"]], title[e["to"]]): (e["out"], e["into"]) for e in found["edges"]}


def titles(found: dict[str, Any]) -> list[str]:
    return [box["title"] for box in found["boxes"]]


def captions(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(box["title"], box["subtitle"]) for box in found["boxes"]]


def test_rolled_loop_labels_edges_with_passes(cell: Trace) -> None:
    edges = edge_labels(diagram_of(cell.graph, rolled=True, depth="all"))
    assert edges["zeros", "mul (x3)"] == ("", "In 1")
    assert edges["tanh (x3)", "mul (x3)"] == ("Out 1-2", "In 2-3")  # against the flow
    assert edges["tanh (x3)", "sum"] == ("Out 3", "")
    assert edges["tanh (x3)", "sub"] == ("Out 3", "input")
    assert edges["x", "sub"] == ("", "other")
    assert edges["x", "mix (x3)"] == edges["mix (x3)", "add (x3)"] == ("", "")
    assert (edges["sub", "matmul"], edges["randn", "matmul"]) == (("", "input"), ("", "other"))


def test_rolled_layer_that_feeds_itself_has_an_edge_to_itself() -> None:
    def grow(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.sin(x)
        return x

    edges = edge_labels(diagram_of(trace(grow, torch.ones(2)).graph, rolled=True))
    assert edges["sin (x4)", "sin (x4)"] == ("Out 1-3", "In 2-4")
    assert edges["x", "sin (x4)"] == ("", "In 1")
    assert edges["sin (x4)", "output_1"] == ("Out 4", "")


def test_unrolled_loop_shows_each_pass(cell: Trace) -> None:
    found = diagram_of(cell.graph, rolled=False, depth="all")
    assert {"mix:1", "mix:2", "mix:3", "scale", "zeros"} <= set(titles(found))
    assert titles(found).count("tanh") == 3
    assert {op.label for op in cell.ops if op.type == "tanh"} <= set(boxes_by_address(found))


def test_long_loop_is_rolled_by_default(tmp_path: Path) -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(50):
                x = torch.tanh(self.mix(x))
            return x

    t = trace(Steps(), torch.ones(1, 4))
    assert titles(diagram_of(t.graph)) == ["x", "mix (x50)", "tanh (x50)", "output_1"]
    assert len(titles(diagram_of(t.graph, rolled=False))) == 102
    assert "mix (x50)" in t.draw(tmp_path / "a.svg").read_text()
    assert "mix (x50)" not in t.draw(tmp_path / "b.svg", rolled=False).read_text()


def test_decision_and_start_of_its_condition_are_marked(cell: Trace) -> None:
    found = diagram_of(cell.graph, depth="all", rolled=False)
    assert [title for title in titles(found) if "✓" in title] == ["gt  ternary ✓"]
    address = {box["id"]: box["address"] for box in found["boxes"]}
    starts = [(address[edge["from"]], address[edge["to"]]) for edge in found["edges"] if edge["branch"]]
    [conditional] = cell.conditionals
    assert starts == [(cell["tanh_1:3"].label, conditional.starts[0].label)]


def test_depth_opens_one_member_of_a_fold_and_all_opens_every_member() -> None:
    net = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(5)), nn.Linear(4, 2))
    graph = trace(net, torch.ones(1, 4)).graph
    closed = [("input", ""), ("0 … 4", "5 × Sequential · 100"), ("5", "Linear · 10"), ("output_1", "")]
    assert captions(diagram_of(graph, depth=0)) == closed
    member = [("0", "Sequential · 20"), ("0.0", "Linear · 20"), ("0.1", "ReLU")]
    found = diagram_of(graph, depth=1)
    assert captions(found) == [*closed, *member]
    assert edge_labels(found).keys() == {("input", "0.0"), ("0.0", "0.1"), ("0.1", "5"), ("5", "output_1")}
    words = [s.words for g in picture_of(graph, depth=1).groups for s in g.shapes if isinstance(s, Text)]
    assert "1 / 5" in words  # and no buttons
    assert not {"all", "‹", "›"} & set(words)
    everything = diagram_of(graph, depth="all")
    assert len(everything["boxes"]) == 4 + 5 * 3
    assert ("0.1", "1.0") in edge_labels(everything)


def test_each_depth_of_nested_folds_shows_more() -> None:
    def block() -> nn.Module:
        steps = (nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3))
        return nn.Sequential(*steps, nn.Tanh())

    net = nn.Sequential(*(block() for _ in range(4)), nn.Linear(4, 2))
    graph = trace(net, torch.ones(1, 4)).graph
    counts = [len(diagram_of(graph, depth=depth)["boxes"]) for depth in (0, 1, 2, "all")]
    assert counts == [4, 4 + 1 + 2, 4 + 1 + 2 + 1 + 2, 4 + 4 * (1 + 2 + 3 * 3)]


def test_rolled_option_of_view_and_save(cell: Trace, tmp_path: Path) -> None:
    drawn = cell.show(rolled=True).save(tmp_path / "a.svg").read_text()
    assert "mix (x3)" in drawn
    assert "mix (x3)" not in cell.show(rolled=True).save(tmp_path / "b.svg", rolled=False).read_text()
    assert cell.draw(tmp_path / "c.svg", rolled=True).read_text() == drawn
    data = json.loads(cell.draw(tmp_path / "d.json").read_text())
    assert len(data["values"]["mean"]) == len(cell.values)


def test_tensor_from_outside_is_a_constant_box() -> None:
    held = torch.ones(4)
    net = nn.Sequential(nn.Linear(4, 4))
    net.forward = lambda x: nn.Sequential.forward(net, x) + held
    found = diagram_of(trace(net, torch.ones(1, 4)).graph)
    assert boxes_by_address(found)["constant_1"]["kind"] == "constant"
    assert ("constant_1", "add") in edge_labels(found)


def test_buffer_read_by_one_operation_is_a_box() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * self.mask).relu()

    found = diagram_of(trace(Masked(), torch.ones(1, 4)).graph)
    assert ("mask", "mul") in edge_labels(found)


def test_flops_of_rolled_layer_are_summed_over_passes(cell: Trace) -> None:
    rolled = boxes_by_address(diagram_of(cell.graph, rolled=True, depth="all", overlay="flops"))
    whole = boxes_by_address(diagram_of(cell.graph, rolled=False, depth="all", overlay="flops"))
    each = [int(whole[f"mix:{number}"]["subtitle"]) for number in (1, 2, 3)]
    assert int(rolled["mix"]["subtitle"]) == sum(each) > 0


def test_arguments_are_labeled_only_if_their_order_matters() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        z = (x + y) * (x - y)
        return nn.functional.scaled_dot_product_attention(z, x, y, attn_mask=mask)

    x = torch.ones(1, 3, 4)
    edges = edge_labels(diagram_of(trace(forward, (x, x * 2, torch.ones(3, 3))).graph))
    assert [edges[name, "sub"][1] for name in "xy"] == ["input", "other"]
    assert [edges[name, "add"][1] for name in "xy"] == ["", ""]
    ends = {
        source: what
        for (source, target), (_, what) in edges.items()
        if target == "scaled_dot_product_attention"
    }
    assert ends == {"mul": "query", "x": "key", "y": "value", "mask": "attn_mask"}


def test_failed_pass_is_drawn_up_to_the_failure(tmp_path: Path) -> None:
    inner = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(3, 4)))
    failed = trace(nn.Sequential(nn.Linear(4, 4), inner), torch.ones(1, 4), on_error="keep")
    box = boxes_by_address(diagram_of(failed.graph, depth=0))["1.1.1"]  # the modules around it are open
    assert box["line"] == "#b3261e"
    assert "Raised RuntimeError: " in failed.draw(tmp_path / "a.svg", depth=0).read_text()


def test_overlay_colors_members_of_a_closed_fold() -> None:
    net = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)), nn.Linear(4, 2))
    graph = trace(net, torch.ones(1, 4)).graph
    picture = picture_of(graph, overlay={"0": 0.0, "1": 0.5, "2": 1.0}, depth=0)
    [fold] = [group for group in picture.groups if group.title.startswith("0 … 2")]
    strip = [shape.fill for shape in fold.shapes if getattr(shape, "height", 0) == 9]
    assert strip == ["#440154", "#21908d", "#fde725"]


def test_overlay_of_saved_values_colors_a_picture() -> None:
    t = trace(nn.Sequential(nn.Tanh(), nn.ReLU()), torch.tensor([[-1.0, 0.5, -2.0]]))
    values = t.show(overlay="mean").values
    boxes = boxes_by_address(diagram_of(t.graph, overlay="mean", values=values))
    assert (boxes["0"]["fill"], boxes["1"]["fill"]) == (
        "#440154",
        "#fde725",
    )  # a negative and a positive mean


class Decoder(nn.Module):
    """Returns logits and a cache, as a dict or as nested tuples."""

    def __init__(self, layers: int, *, as_dict: bool) -> None:
        super().__init__()
        self.layers, self.as_dict = nn.ModuleList(nn.Linear(4, 4) for _ in range(layers)), as_dict

    def forward(self, x: torch.Tensor) -> Any:
        cache = []
        for layer in self.layers:
            x = layer(x)
            cache.append((x + 1, x + 2))
        return {"logits": x * 2, "cache": cache} if self.as_dict else (x * 2, cache)


@pytest.mark.parametrize(("as_dict", "names"), [(True, ("logits", "cache")), (False, ("output_1", "1"))])
def test_many_outputs_are_grouped_by_sequence(as_dict: bool, names: tuple[str, str]) -> None:
    graph = trace(Decoder(6, as_dict=as_dict), torch.ones(1, 4)).graph
    found = diagram_of(graph, depth=0)
    ends = {box["title"]: box for box in found["boxes"] if box["kind"] in ("output", "group")}
    assert ends.keys() == set(names)
    assert ends[names[1]]["subtitle"] == "12 × output"
    few = diagram_of(trace(Decoder(2, as_dict=as_dict), torch.ones(1, 4)).graph, depth=0)
    assert sum(box["kind"] == "output" for box in few["boxes"]) == 5
