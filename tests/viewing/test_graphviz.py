"""Graphviz itself reads what we write for it: every box, every edge, every name."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from drafts import Draft, chain, digits_cnn, gpt2, hostile, loop, resnet
from torch import nn

from intus import trace
from intus.core.graph import Graph
from intus.viewing.drawing.dot import dot
from intus.viewing.drawing.picture import Plan, plan

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
    "all": {"depth": math.inf},
    "rolled": {"rolled": True},
    "right": {"depth": 0, "direction": "right"},
}


def graphviz(text: str, kind: str) -> str:
    """What Graphviz makes of it, without a word of complaint."""
    done = subprocess.run(
        ["dot", f"-T{kind}"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def boxes_and_edges(plan: Plan) -> tuple[set[str], set[tuple[str, str]]]:
    """What is to be seen: what stands closed, and the scene's edges between what each end is inside of."""
    tree, open_ = plan.stage.tree, plan.stage.open
    nodes, ends = tree.nodes, tree.scene["edges"]
    boxes, inside = set(), [*nodes[0].children]
    while inside:
        id = inside.pop()
        if id in open_:
            inside += nodes[id].children
        else:
            boxes.add(f"n{id}")

    def seen(id: int) -> str:
        way = [id]
        while nodes[way[-1]].parent > 0:
            way.append(nodes[way[-1]].parent)
        return f"n{next((one for one in reversed(way) if one not in open_), id)}"

    pairs = [(tree.box_of[a], tree.box_of[b]) for a, b in zip(ends["src"], ends["dst"], strict=True)]
    edges = {(seen(a), seen(b)) for i, (a, b) in enumerate(pairs) if min(a, b) >= 0 and i not in tree.hidden}
    return boxes, {(a, b) for a, b in edges if a != b}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", GRAPHS)
def test_graphviz_finds_the_boxes_and_edges_of_the_scene(name: str, look: str) -> None:
    drawn = plan(GRAPHS[name](), **LOOKS[look])  # type: ignore[arg-type]
    read = json.loads(graphviz(dot(drawn), "json"))
    objects = {one["_gvid"]: one for one in read.get("objects", [])}
    clusters = {one["name"] for one in objects.values() if "nodes" in one or "subgraphs" in one}
    boxes, edges = boxes_and_edges(drawn)
    assert {one["name"] for one in objects.values()} - clusters == boxes
    assert clusters == {f"cluster_{id}" for id in drawn.stage.open if id > 0}
    ends = [(objects[one["tail"]]["name"], objects[one["head"]]["name"]) for one in read.get("edges", [])]
    assert {pair for pair in ends if pair[0] != pair[1]} == edges
    assert max(Counter(ends).values(), default=1) == 1


@pytest.mark.parametrize("name", ["names", "hostile", "gpt2", "twice"])
def test_graphviz_draws_the_words_that_we_draw(name: str) -> None:
    drawn = plan(GRAPHS[name](), depth=math.inf)
    root = ElementTree.fromstring(graphviz(dot(drawn), "svg"))
    words = Counter(" ".join((text.text or "").split()) for text in root.iter(f"{SVG}text"))
    expected: Counter[str] = Counter()
    for node in drawn.stage.tree.nodes[1:]:
        if node.id not in drawn.stage.open:
            for line in drawn.stage.captions(node, drawn.stage.figures):
                expected.update(" ".join(one.split()) for one in visibly(line).split("\n"))
    del expected[""]
    assert not {line: n for line, n in expected.items() if words[line] < n}


def visibly(line: str) -> str:
    return "".join("\ufffd" if c in "\x00\x07\u202e" else c for c in line)


def test_names_stay_names_in_titles_and_tooltips() -> None:
    drawn = plan(named(), depth=math.inf)
    root = ElementTree.fromstring(graphviz(dot(drawn, title="\\G & \\N"), "svg"))
    assert any((text.text or "").startswith("\\G & \\N: ") for text in root.iter(f"{SVG}text"))
    tips = [link.get("{http://www.w3.org/1999/xlink}title", "") for link in root.iter(f"{SVG}a")]
    assert any(tip.startswith("\N{SET MINUS}N ·") for tip in tips), tips[:3]
    assert any(tip.startswith("&lt; ·") for tip in tips)
