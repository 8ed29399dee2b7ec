"""The drawing's layout and colours are the page's: its TypeScript, under Node, gives the same scenes the same
places, and the same numbers the same places on their scale."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from drafts import branches, chain, digits_cnn, gpt2, hostile, loop, resnet

from intus.core.graph import Graph
from intus.core.results import Results
from intus.viewing.drawing.colouring import Colouring, scaled
from intus.viewing.drawing.figures import figures
from intus.viewing.drawing.stage import Stage, captions_of
from intus.viewing.drawing.tree import build_tree
from intus.viewing.overlay import paint
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
    "branches": (branches(), ALL),
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


def by_the_page(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    node = shutil.which("node")
    if node is None or not (WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("needs Node and the page's packages: make web")
    script = str(Path(__file__).with_name("layout.mjs"))
    said = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([node, script, str(WEB)], input=said, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    asked = [{"scene": scene(graph), "depth": depth} for graph, depth in CASES.values()]
    return dict(zip(CASES, by_the_page(asked), strict=True))


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
        assert other_label in (label, "")  # the page leaves out what finds no room
        assert route == pytest.approx(other_route)


NUMBERS: dict[str, tuple[dict[str, float], list[float]]] = {
    "two decades are told by amount": ({"a": 1, "b": 50, "c": 100}, []),
    "more go by power": ({"a": 1, "b": 10, "c": 1000}, [10, 100]),
    "zero stands with the least": ({"a": 0, "b": 2e-7, "c": 0.5}, [1e-6, 1e-4, 1e-2]),
    "below zero there are no powers": ({"a": -1, "b": 1e-6, "c": 1e6}, []),
    "one number": ({"a": 3}, []),
    "nothing but zero": ({"a": 0, "b": 0}, []),
    "many decades": ({"a": 1e-30, "b": 1.0, "c": 1e12}, [1e-24, 1e-12, 1]),
}


def test_numbers_stand_on_their_scale_where_the_page_has_them() -> None:
    given = {name: paint(numbers) for name, (numbers, _) in NUMBERS.items()}
    told = by_the_page([{"paint": painted} for painted in given.values()])
    for (name, painted), page in zip(given.items(), told, strict=True):
        assert isinstance(painted, dict)
        ours = scaled(Colouring(**painted), painted["values"].values())
        assert ours.log == page["log"], name
        shares = [ours.share(number) for number in painted["values"].values()]
        assert shares == pytest.approx(page["shares"]), name
        assert all(0 <= share <= 1 for share in shares)
        assert ours.ticks() == pytest.approx(NUMBERS[name][1]), name
        assert page["ticks"] == pytest.approx(NUMBERS[name][1]), name


def test_scores_are_told_by_amount_however_small_the_least() -> None:
    rows = [{"address": a, "score": "f1", "value": v} for a, v in (("a", 0.001), ("b", 0.5), ("c", 1.0))]
    painted = paint(Results.from_rows(rows))
    assert isinstance(painted, dict)
    ours = scaled(Colouring(**painted), painted["values"].values())
    assert ours.share(0.5) == pytest.approx(0.4995, abs=1e-3)
