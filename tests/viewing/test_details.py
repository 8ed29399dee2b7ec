"""Pictures with details: every label and address on them is a name of the graph that `save=` takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from still import diagram_of, picture_of
from torch import nn

from intus import Trace, trace, view
from intus.core.errors import InputError
from intus.viewing.pictures.shapes import Text


class Net(nn.Module):
    """Modules of one operation and of several, a buffer, several results of one call, a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        for _ in range(2):
            x = self.block(x)
        a, b = x.chunk(2, -1)
        return a - b + self.shift


@pytest.fixture(scope="module")
def net() -> Trace:
    return trace(Net().eval(), torch.ones(2, 8))


def details_of(t: Trace, **options: Any) -> dict[str, list[str]]:
    found = diagram_of(t.graph, details="full", **options)
    return {box["address"]: box["details"] for box in found["boxes"] if not box["open"]}


def test_boxes_have_labels_shapes_sizes_parameters_and_addresses(net: Trace) -> None:
    found = details_of(net, depth="all", rolled=False)
    assert found["norm"] == [
        "batch_norm_1_1",
        "2×8 float32 · 64 B",
        "weight 8, bias 8",
        "running_mean 8, running_var 8",
        "@norm",
    ]
    assert found["block.0:2"] == ["linear_1_2:2", "2×8 float32 · 64 B", "weight 8×8, bias 8", "@block.0:2"]
    chunks = [op.label for op in net.ops if op.type == "chunk"]
    assert found[chunks[0]] == [*chunks, *["2×4 float32 · 32 B"] * 2]
    assert found["input_1"] == ["input_1", "2×8 float32 · 64 B"]
    assert [line for lines in found.values() for line in lines if line.startswith("4 float32")]  # the buffer
    assert details_of(net, depth=0, rolled=False)["block:1"] == ["@block:1"]


@pytest.mark.parametrize("rolled", [True, False])
def test_what_is_read_is_what_save_takes(net: Trace, rolled: bool) -> None:
    read = {
        line.removeprefix("@")
        for lines in details_of(net, depth="all", rolled=rolled).values()
        for line in lines
        if re.fullmatch(r"@\S+|[a-z]\w*(:\d+)?", line)
    }
    assert len(read) >= 12
    for name in read:
        assert net.graph.rows(name) is not None, name
    saved = trace(Net().eval(), torch.ones(2, 8), save=sorted(read - {"output_1", "input_1"}))
    assert saved["norm"].value is not None
    assert saved["block.1:2"].value is not None


@pytest.mark.parametrize("direction", ["down", "right"])
def test_details_are_inside_their_boxes(net: Trace, direction: str) -> None:
    found = diagram_of(net.graph, details="full", depth="all", direction=direction)
    picture = picture_of(net.graph, details="full", depth="all", direction=direction)
    texts = [s for group in picture.groups for s in group.shapes if isinstance(s, Text)]
    for box in (box for box in found["boxes"] if not box["open"]):
        for line in box["details"]:
            assert any(text.words == line for text in texts), line
        plain = 46 if box["boxed"] else 28
        height = plain + 13 * len(box["details"])
        assert box["height"] >= height
        assert {g.title for g in picture.groups if g.title}  # the descriptions are kept


def test_header_has_tensors_and_their_bytes(net: Trace, tmp_path: Path) -> None:
    svg = net.draw(tmp_path / "a.svg").read_text(encoding="utf-8")
    assert f"{net.num_tensors} tensors ({net.tensor_bytes} B) · 88 parameters (352 B)" in svg


def test_dot_and_command_have_details(net: Trace, tmp_path: Path) -> None:
    text = net.draw(tmp_path / "a.dot", details="full").read_text(encoding="utf-8")
    assert r"weight 8, bias 8\nrunning_mean 8, running_var 8\n@norm" in text
    assert "weight 8" not in net.draw(tmp_path / "b.dot").read_text(encoding="utf-8")


# -- parameters as boxes ----------------------------------------------------------------------------------


class Tied(nn.Module):
    """An embedding whose weight is also that of the last layer, and a parameter that an operation reads."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.body = nn.Embedding(10, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embed(tokens)) * self.scale)


class Prompted(nn.Module):
    """A module that returns its parameter, which the model also reads directly."""

    class Prompt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Parameter(torch.ones(1, 4))

        def forward(self) -> torch.Tensor:
            return self.tokens

    def __init__(self) -> None:
        super().__init__()
        self.prompt = self.Prompt()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.prompt(), x]).sum() + self.prompt.tokens.mean()


class Stack(nn.Module):
    """Equal blocks in a row, each with a buffer of its own."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.register_buffer("mask", torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x) * self.mask)

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(self.Block() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def readers_of(t: Trace, **options: Any) -> dict[str, set[str]]:
    """Return the addresses of the boxes that each drawn parameter has an edge into."""
    found = diagram_of(t.graph, details="parameters", **options)
    address = {box["id"]: box["address"] for box in found["boxes"]}
    params = {param.address for param in t.graph.params}
    readers: dict[str, set[str]] = {name: set() for name in address.values() if name in params}
    for edge in found["edges"]:
        if (name := address[edge["from"]]) in params:
            assert not edge["into"]  # the graph does not know which argument a parameter is
            readers[name].add(address[edge["to"]])
    return readers


@pytest.mark.parametrize("rolled", [True, False])
def test_each_parameter_is_one_box_with_an_edge_into_each_reader(rolled: bool) -> None:
    for model, given in ((Tied(), torch.zeros(1, 3, dtype=torch.long)), (Net().eval(), torch.ones(2, 8))):
        t = trace(model, given)
        boxes = diagram_of(t.graph, details="parameters", depth="all", rolled=rolled)["boxes"]
        box_of = {name: box["address"] for box in boxes for name in (box["address"], *box["details"])}
        expected: dict[str, set[str]] = {param.address: set() for param in t.graph.params}
        for row, param in t.graph.op_params.tolist():
            label = t.graph.labels[row].partition(":")[0] if rolled else t.graph.labels[row]
            expected[t.graph.params[param].address].add(box_of[label])
        found = readers_of(t, depth="all", rolled=rolled)
        assert found == expected
    assert found["block.0.weight"] == ({"block.0"} if rolled else {"block.0:1", "block.0:2"})


def test_tied_parameter_is_above_the_first_reader() -> None:
    t = trace(Tied(), torch.zeros(1, 3, dtype=torch.long))
    assert readers_of(t)["embed.weight"] == {"embed", "head"}
    found = {box["address"]: box for box in diagram_of(t.graph, details="parameters", depth="all")["boxes"]}
    weight = found["embed.weight"]
    assert weight["details"] == ["10×8 float32 · 320 B"]
    assert found["body.0.weight"]["details"] == ["8×8 float32 · 256 B"]
    assert weight["y"] < found["embed"]["y"]
    scale, product = found["scale"], found["mul_1_4"]
    assert 0 < product["y"] - scale["y"] - scale["height"] < 60
    for end, box in found.items():
        assert box["title"].endswith("weight") == end.endswith("weight"), end


def test_returned_parameter_is_drawn_once() -> None:
    t = trace(Prompted(), torch.ones(2, 4))
    found = diagram_of(t.graph, details="parameters", depth="all")
    tokens = [box for box in found["boxes"] if box["title"].endswith("tokens")]
    assert len(tokens) == 1
    types = {box["id"]: box["address"].partition("_")[0] for box in found["boxes"]}
    assert sorted(types[edge["to"]] for edge in found["edges"] if edge["from"] == tokens[0]["id"]) == [
        "cat",
        "mean",
    ]


def test_equal_modules_with_parameters_and_buffers_are_one_row() -> None:
    t = trace(Stack(), torch.ones(1, 4))
    for details in (None, "parameters"):
        found = diagram_of(t.graph, details=details, depth=0)["boxes"]
        assert [box["subtitle"] for box in found if box["title"] == "blocks.0 … blocks.3"] == [
            "4 × Block · 160"
        ]


def test_parameters_are_drawn_on_request_only(net: Trace) -> None:
    for details in (None, "full"):
        found = diagram_of(net.graph, details=details, depth="all", rolled=False)
        assert not {param.address for param in net.graph.params} & {box["address"] for box in found["boxes"]}
    right = diagram_of(net.graph, details="parameters", depth="all", direction="right")
    assert {param.address for param in net.graph.params} <= {box["address"] for box in right["boxes"]}


def test_unknown_details_are_refused() -> None:
    with pytest.raises(InputError, match=r"details must be 'full', 'parameters' or None, got 'all'\."):
        view(nn.Linear(2, 1), torch.ones(1, 2), details="all")
