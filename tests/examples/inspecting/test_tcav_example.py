"""TCAV of the classifier of scenes: shapes decide the class by construction, colors do not."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="module")
def tcav(run_example):
    return run_example("tcav")


@pytest.mark.slow
def test_classes_depend_on_shapes_and_not_on_colors(tcav):
    table = tcav.table("tcav")
    scored = table[(table.score == "tcav") & (table.address == "relu3")]
    kinds = dict(list(scored.groupby("planted")))
    assert {kind: len(rows) for kind, rows in kinds.items()} == {
        "shape of the scene": 12,
        "other shape": 12,
        "color": 18,
    }
    # How a network ends up differs between processors. What the p-values call sure must be as planted.
    own, other = (kinds[kind][kinds[kind].p < 0.05] for kind in ("shape of the scene", "other shape"))
    assert (own.value > 0.9).all()
    assert (other.value < 0.1).all()
    assert (kinds["shape of the scene"].value > 0.9).mean() > 0.75
    assert (kinds["other shape"].value < 0.1).mean() > 0.75
    shapes = np.concatenate([kinds["shape of the scene"].p, kinds["other shape"].p])
    assert (shapes < 0.05).mean() > 0.35
    assert (kinds["color"].p < 0.05).sum() <= 2  # 18 true nulls
    assert (kinds["color"].value - 0.5).abs().max() > 0.4  # the value alone would say otherwise


@pytest.mark.slow
def test_layers_encode_colors(tcav):
    table = tcav.table("tcav")
    probes = table[(table.score == "linear_f1") & (table.planted == "color")]
    assert (probes.low > probes.baseline).all()
    assert tcav.pictures()["tcav"] > 5000
