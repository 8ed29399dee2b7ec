"""The scene: the graph's columns in standard JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
from drafts import Draft, chain, digits_cnn, gpt2, hostile

from intus.core.graph import Graph, ModuleInfo, Ops, Source
from intus.viewing.scene import finite, scene, totals


def strict(graph: Graph) -> dict[str, object]:
    """Return the scene after a round trip through JSON that refuses NaN."""
    return json.loads(json.dumps(scene(graph), allow_nan=False))


def test_scene_columns_equal_the_graphs() -> None:
    graph = gpt2(layers=2)
    data = strict(graph)
    assert data["model"] == "GPT2LMHeadModel"
    assert data["ops"]["label"] == graph.labels
    for name in ("kind", "type", "call", "meta", "site", "event", "time", "flags"):
        assert data["ops"][name] == getattr(graph.ops, name).tolist()
    assert list(zip(data["edges"]["src"], data["edges"]["dst"], strict=True)) == list(
        zip(graph.edges.src.tolist(), graph.edges.dst.tolist(), strict=True)
    )
    assert data["calls"]["address"] == [graph.call_address(call) for call in range(len(graph.calls))]
    assert data["ops"]["setting"] == [-1] * len(graph.ops)
    assert data["opParams"]["op"] == graph.op_params[:, 0].tolist()
    assert data["metas"][0] == [list(graph.metas[0].shape), "float32", "cpu", graph.metas[0].nbytes]


def test_scene_settings_and_modules_equal_the_graphs() -> None:
    module = ModuleInfo("", "Net", "a=1", True, 0, (0,), ())
    sites, rows = (Source("net.py", 3, "Net.forward"),), len(chain(1).ops)
    ops = Ops(rows, **{**chain(1).ops.columns(), "setting": np.zeros(rows, np.int32)})
    graph = replace(chain(1), modules=(module,), settings=("2, dim=1",), sites=sites, ops=ops)
    data = strict(graph)
    assert data["settings"] == ["2, dim=1"]
    assert set(data["ops"]["setting"]) == {0}
    assert data["modules"] == [["", "Net", "a=1", True, 0, [0], []]]


def test_totals() -> None:
    total = totals(digits_cnn())
    by_hand = (16 * 9 + 16) + 32 + (32 * 16 * 9 + 32) + (64 * 512 + 64) + (10 * 64 + 10)
    assert total["parameters"] == total["trainable"] == by_hand
    assert total["bytes"] == 4 * by_hand
    assert total["operations"] == 11
    assert total["modules"] == 10
    assert total["seconds"] == 0.0021  # the time of the pass, not the sum over its operations


def test_total_seconds_fall_back_to_sum_over_operations() -> None:
    graph = chain(3)
    assert totals(graph)["seconds"] == graph.ops.time.sum() / 1e9 > 0


def test_scene_of_a_graph_without_operations() -> None:
    draft = Draft("Nothing")
    draft.input(2)
    data = strict(draft.graph())
    assert data["totals"]["operations"] == data["totals"]["activations"] == 0
    assert data["ops"]["label"] == ["input_1"]


def test_nan_and_infinity_become_null() -> None:
    graph = hostile()
    odd = {"a": float("nan"), "b": [float("inf"), 1.5], 3: (1, None)}
    assert finite(odd) == {"a": None, "b": [None, 1.5], "3": [1, None]}
    assert strict(graph)["facts"] == {"note": "]]>"}
    draft = Draft()
    draft.input(1)
    assert strict(draft.graph(seconds=math.nan, loss=np.inf))["facts"] == {"seconds": None, "loss": None}


def test_scene_keeps_hostile_names() -> None:
    data = strict(hostile())
    assert "n" * 10_000 in data["calls"]["address"]
    assert data["model"] == "</script><img src=x onerror=alert(1)>"
    assert data["error"] == "<b>boom</b> </script>"


def test_scene_size_per_operation() -> None:
    graph = chain(20_000)
    assert len(json.dumps(scene(graph))) < 120 * len(graph)
