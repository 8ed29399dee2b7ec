"""Graphviz itself reads what we write for it: every box, every edge, every name."""

from __future__ import annotations

import json
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from drafts import Draft, chain, digits_cnn, gpt2, hostile, loop, recurrent, resnet
from still import diagram_of
from torch import nn

from intus import trace
from intus.core.graph import Graph
from intus.viewing.pictures.dot import dot

pytestmark = pytest.mark.skipif(
    shutil.which("dot") is None, reason="Graphviz's dot is not installed (apt-get install graphviz)"
)
NAMES = (
    *("\\N", "\\G\\L", "ends in \\", '"', '\\"', "a\nb", "&lt;", "&amp;#92;", "&eacute; &", "<b>x</b>", "<>"),
    *(
        "{a|b}",
        "n1 -> n2;",
        "]",
        "/* no */",
        "// no",
        "# no",
        "%s",
        "\u202eright",
        "\x00\x07",
        "层.注意力",
        "🦔",
        " ",
    ),
)
SVG = "{http://www.w3.org/2000/svg}"


class Twice(nn.Module):
    """A module called twice, a decision, something made from nothing, and an output of two."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.mix(x) + torch.randn(1, 4)
        h = self.mix(h) if h.sum() > -100 else x
        return h.relu_(), h - x


class Unrolled(nn.Module):
    """A recurrent cell, whose rolled picture has edges back to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return state[0]


def named() -> Graph:
    """A module for each of the names that a careless writer would fall over."""
    d = Draft("\\G & \\N")
    x = d.input(2, 3)
    with d.module("", "Model"):
        for name in NAMES:
            x = d.layer(name, name, "linear", x, shape=(2, 3), args=name)
    d.output(x)
    return d.graph(note="\\N")


def traced(model: nn.Module, *inputs: torch.Tensor) -> Graph:
    return trace(model.eval(), inputs, save="none").graph


GRAPHS: dict[str, Callable[[], Graph]] = {
    "digits": digits_cnn,
    "resnet": resnet,
    "gpt2": lambda: gpt2(layers=3),
    "loop": loop,
    "recurrent": recurrent,
    "chain": lambda: chain(60),
    "hostile": hostile,
    "names": named,
    "twice": lambda: traced(Twice(), torch.ones(1, 4)),
    "unrolled": lambda: traced(Unrolled(), torch.ones(1, 5, 4)),
    "encoder": lambda: traced(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False),
        torch.ones(3, 1, 8),
    ),
    "empty": lambda: traced(nn.Identity(), torch.ones(1)),
}
LOOKS = {
    "as it opens": {},
    "all": {"depth": "all"},
    "folds": {"depth": 3},
    "rolled": {"rolled": True},
    "unrolled": {"rolled": False},
    "right": {"depth": 0, "direction": "right"},
}


def graphviz(text: str, kind: str) -> str:
    """What Graphviz makes of it, without a word of complaint."""
    done = subprocess.run(
        ["dot", f"-T{kind}"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def edges_by_address(graph: Graph, found: dict[str, Any]) -> set[tuple[str, str]]:
    """Work out from the graph's own addresses which closed boxes its edges join.

    What stands in a closed fold, or in a member that a fold does not show, has no address among the boxes: it
    is left out.
    """
    closed = {box["address"] for box in found["boxes"] if not box["open"]} - {""}
    first_of_event: dict[int, int] = {}

    def shown_by(row: int) -> str:
        event = int(graph.ops.event[row])
        row = first_of_event.setdefault(event, row) if event >= 0 else row
        names = [*(graph.call_address(call) for call in graph.enclosing_calls(row)), graph.label(row)]
        bare = (name.rpartition(":")[0] or name for name in names)  # as a rolled layer is called
        return next((name for pair in zip(names, bare, strict=True) for name in pair if name in closed), "")

    shown = [shown_by(row) for row in range(len(graph.ops.kind))]
    pairs = zip(graph.edges.src.tolist(), graph.edges.dst.tolist(), strict=True)
    return {(shown[a], shown[b]) for a, b in pairs if shown[a] and shown[b] and shown[a] != shown[b]}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", GRAPHS)
def test_edges_join_the_boxes_that_show_their_ends(name: str, look: str) -> None:
    graph = GRAPHS[name]()
    found = diagram_of(graph, **LOOKS[look])
    address = {box["id"]: box["address"] for box in found["boxes"]}
    edges = {(address[edge["from"]], address[edge["to"]]) for edge in found["edges"]}
    expected = edges_by_address(graph, found)
    assert expected <= edges
    if look != "folds":  # there the member that is shown stands for all
        assert {(a, b) for a, b in edges if a and b and a != b} == expected


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", GRAPHS)
def test_graphviz_finds_every_box_and_edge(name: str, look: str) -> None:
    found = diagram_of(GRAPHS[name](), **LOOKS[look])
    read = json.loads(graphviz(dot(found), "json"))
    objects = {one["_gvid"]: one for one in read.get("objects", [])}
    clusters = {one["name"] for one in objects.values() if "nodes" in one or "subgraphs" in one}
    assert {one["name"] for one in objects.values()} - clusters == {
        f"n{b['id']}" for b in found["boxes"] if not b["open"]
    }
    assert clusters == {f"cluster_{box['id']}" for box in found["boxes"] if box["open"]}
    ends = [(objects[one["tail"]]["name"], objects[one["head"]]["name"]) for one in read.get("edges", [])]
    assert sorted(ends) == sorted((f"n{edge['from']}", f"n{edge['to']}") for edge in found["edges"])
    assert max(Counter(ends).values(), default=1) == 1


@pytest.mark.parametrize("name", ["names", "hostile", "gpt2", "twice"])
def test_graphviz_draws_the_words_that_we_draw(name: str) -> None:
    found = diagram_of(GRAPHS[name](), depth="all")
    root = ElementTree.fromstring(graphviz(dot(found), "svg"))
    words = Counter(" ".join((text.text or "").split()) for text in root.iter(f"{SVG}text"))
    expected: Counter[str] = Counter()
    for box in found["boxes"]:
        if not box["open"]:
            expected.update(" ".join(line.split()) for line in (box["title"], box["subtitle"]))
    del expected[""]
    assert not {line: n for line, n in expected.items() if words[line] < n}


def test_names_stay_names_in_titles_and_tooltips() -> None:
    root = ElementTree.fromstring(graphviz(dot(diagram_of(named(), depth="all")), "svg"))
    assert any((text.text or "").startswith("\\G & \\N: ") for text in root.iter(f"{SVG}text"))
    tips = [link.get("{http://www.w3.org/1999/xlink}title", "") for link in root.iter(f"{SVG}a")]
    assert any(tip.startswith("\N{SET MINUS}N ·") for tip in tips), tips[:3]
    assert any(tip.startswith("&lt; ·") for tip in tips)
