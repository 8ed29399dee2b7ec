"""Measurements of the layout of many models, by the page's own code in node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from zoo import MODELS

from intus.viewing.scene import scene

WEB = Path(__file__).parents[3] / "web"
ESBUILD = WEB / "node_modules" / ".bin" / "esbuild"

pytestmark = [
    pytest.mark.skipif(
        not ESBUILD.exists() or shutil.which("node") is None,
        reason="needs node and the page's tools: run `npm ci` in web/",
    ),
    pytest.mark.long,
]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the reports of check.ts by model and depth."""
    place = tmp_path_factory.mktemp("layout")
    bundle, scenes = place / "check.cjs", place / "scenes.json"
    command = [str(ESBUILD), "src/graph/layout/check.ts", "--bundle", "--platform=node", "--format=cjs"]
    subprocess.run([*command, "--log-level=error", f"--outfile={bundle}"], cwd=WEB, check=True, timeout=60)
    scenes.write_text(json.dumps({name: scene(make()) for name, make in MODELS.items()}), encoding="utf-8")
    run = "const [, check, path] = process.argv; const read = JSON.parse(require('fs').readFileSync(path));"
    run += "console.log(JSON.stringify(require(check).measureAll(read)))"
    done = subprocess.run(
        ["node", "-e", run, str(bundle), str(scenes)], check=True, capture_output=True, text=True, timeout=60
    )
    return {(name, depth): found for name, depth, found in json.loads(done.stdout)}


@pytest.mark.parametrize("name", MODELS)
def test_boxes_do_not_overlap_and_edges_cross_no_box(measured: dict[tuple[str, str], Any], name: str) -> None:
    for found in (found for (model, _), found in measured.items() if model == name):
        assert found["overlaps"] == []
        assert found["crossings"] == []
    whole = measured[name, "Infinity"]
    assert whole["boxes"] >= 3
    assert whole["lines"] >= whole["boxes"] - 2
    assert whole["boxes"] >= measured[name, "0"]["boxes"]


@pytest.mark.parametrize("name", MODELS)
def test_labels_cover_nothing(measured: dict[tuple[str, str], Any], name: str) -> None:
    for found in (found for (model, _), found in measured.items() if model == name):
        assert found["covered"] == []
        assert found["labels"] > 0
        assert found["omitted"] <= max(2, 0.05 * found["labels"])  # shapes without room for a label


@pytest.mark.parametrize("name", MODELS)
def test_labels_are_nearest_to_their_own_edge(measured: dict[tuple[str, str], Any], name: str) -> None:
    for depth, found in ((depth, found) for (model, depth), found in measured.items() if model == name):
        assert found["astray"] == []
        most = 2 if "parameters" in depth else 0
        assert found["unmarked"] <= most or "wild" in name or name == "decoder"


def test_nearly_every_argument_and_pass_has_room_for_a_label(measured: dict[tuple[str, str], Any]) -> None:
    for with_parameters, most in ((False, 60), (True, 160)):
        reports = [f for (_, depth), f in measured.items() if ("parameters" in depth) == with_parameters]
        assert sum(found["unmarked"] for found in reports) < most


def test_nearly_every_shape_has_room_for_a_label(
    measured: dict[tuple[str, str], Any],
) -> None:
    assert {model for model, depth in measured if depth == "rolled"} >= {"recurrent", "decoder", "t5"}
    of = {"right": (2000, 12), "parameters": (4000, 40), "parameters right": (1500, 40), "": (8000, 60)}
    for which, (labels, omitted) in of.items():
        reports = [f for (_, depth), f in measured.items() if (depth if depth in of else "") == which]
        assert sum(found["labels"] for found in reports) > labels
        assert sum(found["omitted"] for found in reports) < omitted
