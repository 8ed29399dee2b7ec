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


def test_unknown_details_are_refused() -> None:
    with pytest.raises(InputError, match=r"details must be 'full' or None, got 'all'\."):
        view(nn.Linear(2, 1), torch.ones(1, 2), details="all")
