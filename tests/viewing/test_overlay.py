"""Overlays: what colours the boxes."""

from __future__ import annotations

import pytest

from intus.core.errors import InputError
from intus.core.results import Results
from intus.viewing.overlay import paint


def test_a_mapping() -> None:
    assert paint({"a": 1, "b": float("nan"), "c": None, "d": float("inf"), "e": -2.5}) == {
        "title": "value",
        "values": {"a": 1.0, "b": None, "c": None, "d": None, "e": -2.5},
        "low": -2.5,
        "high": 1.0,
    }


def test_nothing_known_keeps_a_scale() -> None:
    assert paint({"a": None}) == {"title": "value", "values": {"a": None}, "low": 0.0, "high": 1.0}
    assert paint(None) is None


def test_results_give_the_latest_epoch_of_whole_layers() -> None:
    results = Results.from_rows(
        [
            {"address": "fc1", "score": "linear_f1", "target": "digit", "epoch": 2, "value": 0.9},
            {"address": "fc1", "score": "linear_f1", "target": "digit", "epoch": 1, "value": 0.4},
            {"address": "fc1", "score": "linear_f1", "target": "digit", "epoch": 3, "value": 0.1, "unit": 4},
            {"address": "fc2", "score": "linear_f1", "target": "digit", "value": 0.3},
        ]
    )
    painted = paint(results)
    assert painted["values"] == {"fc1": 0.9, "fc2": 0.3}
    assert painted["title"] == "linear_f1 · digit"


def test_two_scores_are_refused_with_their_names() -> None:
    results = Results.from_rows([{"address": "fc1", "score": s, "value": 1.0} for s in ("mean", "std")])
    with pytest.raises(InputError, match=r"hold 2: 'mean', 'std'\. Pick one with results\.where"):
        paint(results)


@pytest.mark.parametrize(
    ("overlay", "says"),
    [
        ("tme", "overlay='tme' is not a built-in overlay. Did you mean 'time'"),
        ({"fc": "high"}, r"overlay\['fc'\] is 'high', expected a number"),
        (7, "overlay must be a dict .* got int"),
    ],
)
def test_wrong_overlays_are_told(overlay: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        paint(overlay)


@pytest.mark.parametrize("column", ["kind", "run", "model"])
def test_results_of_several_kinds_runs_or_models_are_not_mixed(column: str) -> None:
    rows = [{"address": "fc", "score": "mean", "value": 1.0, column: name} for name in ("input", "output")]
    with pytest.raises(InputError, match=f"shows one {column}, and these Results hold 2: 'input', 'output'"):
        paint(Results.from_rows(rows))
