"""The drawing's layout is the page's: its TypeScript, under Node, gives the same scenes the same places."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from drafts import chain, digits_cnn, gpt2, hostile, loop, resnet

from intus.core.graph import Graph
from intus.viewing.drawing.figures import figures
from intus.viewing.drawing.stage import Stage, captions_of
from intus.viewing.drawing.tree import build_tree
from intus.viewing.scene import scene

WEB = Path(__file__).parents[2] / "web"
ALL = -1
CASES: dict[str, tuple[Graph, int | None]] = {
    "digits": (digits_cnn(), ALL),
    "resnet, readable": (resnet(), None),
    "resnet, all": (resnet(), ALL),
    "resnet, deep": (resnet((3, 8, 4, 3)), 1),
    "gpt2, closed": (gpt2(), 0),
    "gpt2, two levels": (gpt2(layers=3), 2),
    "gpt2, all": (gpt2(layers=12), ALL),
    "chain": (chain(300), ALL),
    "loop": (loop(), ALL),
    "hostile": (hostile(), ALL),
}


def ours(graph: Graph, depth: int | None) -> dict[str, Any]:
    tree = build_tree(scene(graph))
    sums = figures(tree)
    stage = Stage(tree, sums, lambda text, size, bold: _units(text) * size * (0.6 if bold else 0.55))
    if depth is None:
        stage.open_readable(26)
    elif depth < 0:
        stage.open_all()
    else:
        stage.open_to_depth(depth)
    frame = stage.frame()
    return {
        "width": frame.width,
        "height": frame.height,
        "boxes": [
            [box.node.address, *captions_of(box.node, sums), box.x, box.y, box.width, box.height, box.open]
            for box in frame.boxes
        ],
        "lines": [[line.route, line.label] for line in frame.lines],
    }


def _units(text: str) -> int:
    """What JavaScript calls a text's length."""
    return len(text.encode("utf-16-le")) // 2


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    node = shutil.which("node")
    if node is None or not (WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("needs Node and the page's packages: make web")
    lines = "".join(
        json.dumps({"scene": scene(graph), "depth": depth}) + "\n" for graph, depth in CASES.values()
    )
    script = str(Path(__file__).with_name("layout.mjs"))
    done = subprocess.run([node, script, str(WEB)], input=lines, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_boxes_stand_and_edges_run_where_the_page_has_them(case: str, theirs: dict[str, Any]) -> None:
    drawn, page = ours(*CASES[case]), theirs[case]
    assert [drawn["width"], drawn["height"]] == pytest.approx([page["width"], page["height"]])
    assert len(drawn["boxes"]) == len(page["boxes"])
    for box, other in zip(drawn["boxes"], page["boxes"], strict=True):
        assert box[:3] == other[:3]
        assert box[3:] == pytest.approx(other[3:]), box[0]
    assert len(drawn["lines"]) == len(page["lines"])
    for (route, label), (other_route, other_label) in zip(drawn["lines"], page["lines"], strict=True):
        assert label == other_label
        assert route == pytest.approx(other_route)
