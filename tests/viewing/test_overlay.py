"""Overlays: what colours the boxes."""

from __future__ import annotations

import pandas
import pytest
import torch
from torch import nn

from intus import inspect, trace, view
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
        (7, "overlay must be a dict or Series .* got int"),
        (pandas.Series([0.1, 0.2]), r"a Series over 0, not over addresses. Take frame.set_index"),
        (pandas.DataFrame({"layer": ["0"], "value": [1.0]}), "a DataFrame without the column 'address'"),
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


NET = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 2)))


def test_a_column_of_a_table_paints() -> None:
    frame = pandas.DataFrame({"address": ["0", "2.0"], "accuracy": [0.25, 0.75], "chance": [0.5, 0.5]})
    painted = paint(frame.set_index("address")["accuracy"])
    assert painted == {"title": "accuracy", "values": {"0": 0.25, "2.0": 0.75}, "low": 0.25, "high": 0.75}


def test_what_inspect_gives_paints() -> None:
    data = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)).numpy()
    table = inspect(
        NET, {"first": lambda row: float(row[0] > 0)}, "correlation", data, [("0", "*"), ("2.0", "*")]
    )
    with pytest.raises(InputError, match=r"score units. Make one number of each layer's: frame.groupby"):
        view(NET, torch.ones(1, 4), overlay=table)
    best = table.groupby("address")["value"].max()
    painted = paint(view(NET, torch.ones(1, 4), overlay=best).overlay)
    assert painted["values"] == {"0": best["0"], "2.0": best["2.0"]}
    layers = table.assign(unit=-1).drop_duplicates("address")
    assert paint(layers)["title"] == "correlation · first"


def test_addresses_that_the_graph_does_not_know_are_told() -> None:
    with pytest.raises(InputError, match=r"nothing in this graph is called '2\.1'\. Did you mean '2"):
        view(NET, torch.ones(1, 4), overlay={"2.1": 1.0})
    for known in ("2.0", "2", "linear_2", "linear_2_3", "linear_2_3:1", "0:1"):  # one is enough
        view(NET, torch.ones(1, 4), overlay={known: 1.0, "elsewhere": 2.0})


OPS = ("sub_1_1", "log_1_2", "relu_1_3")


def test_figures_of_saved_values_paint_by_name(tmp_path) -> None:
    class Undefined(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.log(x - 2).relu()

    x = torch.tensor([1.0, 2.0, 3.0])  # one NaN and one infinity
    assert paint(view(Undefined(), x, overlay="nan").overlay) == "nan"
    t = trace(Undefined(), x)

    def told(overlay: str) -> list[str]:
        svg = t.draw(tmp_path / "a.svg", overlay=overlay).read_text(encoding="utf-8")
        return [svg.partition(f"{name} · ")[2].partition("<")[0].rpartition(" · ")[2] for name in OPS]

    assert told("nan") == ["NaN and infinite 0", "NaN and infinite 2", "NaN and infinite 1"]
    assert told("mean")[0] == "Mean of values 0"
    assert told("std")[0] == "Spread of values 0.816"  # of -1, 0 and 1
    assert told("zero")[0] == "Share of zeros 0.333"
    with pytest.raises(InputError, match="colours by saved values, and this holds none"):
        trace(Undefined(), x, save="none").show(overlay="nan")
