"""Overlays, which color the boxes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from still import boxes_by_address, diagram_of
from torch import nn

from intus import Trace, inspect, trace, view
from intus.core.errors import InputError
from intus.core.results import Results
from intus.viewing.overlay import paint


def test_paint_from_mapping() -> None:
    assert paint({"a": 1, "b": float("nan"), "c": None, "d": float("inf"), "e": -2.5}) == {
        "title": "value",
        "values": {"a": 1.0, "b": None, "c": None, "d": None, "e": -2.5},
        "low": -2.5,
        "high": 1.0,
    }


def test_paint_without_values_has_a_scale() -> None:
    assert paint({"a": None}) == {"title": "value", "values": {"a": None}, "low": 0.0, "high": 1.0}
    assert paint(None) is None


def test_paint_from_results_takes_latest_epoch_of_layers() -> None:
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


def test_paint_refuses_results_with_two_scores() -> None:
    results = Results.from_rows([{"address": "fc1", "score": s, "value": 1.0} for s in ("mean", "std")])
    with pytest.raises(InputError, match=r"contain 2: 'mean', 'std'\. Pick one with results\.where"):
        paint(results)


@pytest.mark.parametrize(
    ("overlay", "message"),
    [
        ("tme", "overlay='tme' is not a built-in overlay. Did you mean 'time'"),
        ({"fc": "high"}, r"overlay\['fc'\] is 'high', expected a number"),
        (7, "overlay must be a dict or Series .* got int"),
        (pandas.Series([0.1, 0.2]), r"a Series over 0, not over addresses. Take frame.set_index"),
        (pandas.DataFrame({"layer": ["0"], "value": [1.0]}), "a DataFrame without the column 'address'"),
    ],
)
def test_paint_refuses_wrong_overlays(overlay: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        paint(overlay)


@pytest.mark.parametrize("column", ["kind", "run", "model"])
def test_paint_refuses_results_of_several_kinds_runs_or_models(column: str) -> None:
    rows = [{"address": "fc", "score": "mean", "value": 1.0, column: name} for name in ("input", "output")]
    with pytest.raises(
        InputError, match=f"shows one {column}, and these Results contain 2: 'input', 'output'"
    ):
        paint(Results.from_rows(rows))


NET = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 2)))


def test_paint_from_series() -> None:
    frame = pandas.DataFrame({"address": ["0", "2.0"], "accuracy": [0.25, 0.75], "chance": [0.5, 0.5]})
    painted = paint(frame.set_index("address")["accuracy"])
    assert painted == {"title": "accuracy", "values": {"0": 0.25, "2.0": 0.75}, "low": 0.25, "high": 0.75}


def test_paint_from_inspect_result() -> None:
    data = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)).numpy()
    table = inspect(
        NET, {"first": lambda row: float(row[0] > 0)}, "correlation", data, [("0", "*"), ("2.0", "*")]
    )
    with pytest.raises(InputError, match=r"score units. Aggregate them per layer first: frame.groupby"):
        view(NET, torch.ones(1, 4), overlay=table)
    best = table.groupby("address")["value"].max()
    painted = paint(view(NET, torch.ones(1, 4), overlay=best).overlay)
    assert painted["values"] == {"0": best["0"], "2.0": best["2.0"]}
    layers = table.assign(unit=-1).drop_duplicates("address")
    assert paint(layers)["title"] == "correlation · first"


def test_view_refuses_overlay_without_known_address() -> None:
    with pytest.raises(InputError, match=r"nothing in this graph is called '2\.1'\. Did you mean '2"):
        view(NET, torch.ones(1, 4), overlay={"2.1": 1.0})
    for known in ("2.0", "2", "linear_2", "linear_2_3", "linear_2_3:1", "0:1"):  # one known address is enough
        view(NET, torch.ones(1, 4), overlay={known: 1.0, "elsewhere": 2.0})


OPS = ("sub_1_1", "log_1_2", "relu_1_3")


def test_overlays_of_saved_values(tmp_path) -> None:
    class Undefined(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.log(x - 2).relu()

    x = torch.tensor([1.0, 2.0, 3.0])  # one NaN and one infinity
    assert paint(view(Undefined(), x, overlay="nan").overlay) == "nan"
    t = trace(Undefined(), x)

    def values_in_picture(overlay: str) -> list[str]:
        svg = t.draw(tmp_path / "a.svg", overlay=overlay).read_text(encoding="utf-8")
        return [svg.partition(f"{name} · ")[2].partition("<")[0].rpartition(" · ")[2] for name in OPS]

    assert values_in_picture("nan") == ["NaN and infinite 0", "NaN and infinite 2", "NaN and infinite 1"]
    assert values_in_picture("mean")[0] == "Mean of values 0"
    assert values_in_picture("std")[0] == "Standard deviation 0.816"  # of -1, 0 and 1
    assert values_in_picture("zero")[0] == "Fraction of zeros 0.333"
    with pytest.raises(InputError, match="colors by saved values, and none were saved"):
        trace(Undefined(), x, save="none").show(overlay="nan")


class Broken(nn.Module):
    """Three equal blocks; one weight of the second is NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))
        self.head = nn.Linear(4, 2)
        with torch.no_grad():
            self.blocks[1][0].weight[0, 0] = float("nan")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x) * 2
        return self.head(x)


def boxes_of(t: Trace, **view: Any) -> dict[str, Any]:
    shown = t.show(**view)
    found = diagram_of(t.graph, overlay=view["overlay"], values=shown.values, depth=view.get("depth", "all"))
    return boxes_by_address(found)


def test_nan_is_hot_and_zero_is_neutral() -> None:
    t = trace(Broken(), torch.ones(1, 4))
    boxes = boxes_of(t, overlay="nan")
    assert boxes["blocks.0.0"]["colour"] is None  # not painted: its own style
    assert boxes["x" if "x" in boxes else "input_1"]["colour"] is None
    hot = {boxes[name]["colour"] for name in ("blocks.1.0", "blocks.1.1", "head", "blocks.1")}
    for colour in hot:
        red, green, blue = (int(part) for part in re.findall(r"\d+", colour))
        assert red > 1.4 * green
        assert red > 1.4 * blue


def test_nan_of_a_parameter_is_counted_where_it_is_read(tmp_path: Path) -> None:
    t = trace(Broken(), torch.ones(1, 4))
    values = t.show().values
    assert values is not None
    weights = dict(zip(values["params"]["param"], values["params"]["nan"], strict=True))
    by_name = {t.params[number].address: count for number, count in weights.items()}
    assert by_name == {p.address: int(p.address == "blocks.1.0.weight") for p in t.params}
    reader = t["blocks.1.0"]
    assert boxes_of(t, overlay="nan")["blocks.1.0"]["subtitle"] == str(1 + int(reader.value.isnan().sum()))
    svg = t.draw(tmp_path / "a.svg", overlay="nan", depth="all").read_text(encoding="utf-8")
    assert "blocks.1.0.weight: 1 NaN" in svg


def test_figures_of_parameters_equal_torch() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3)).to(torch.float64)
    figures = trace(net, torch.ones(1, 7, dtype=torch.float64)).show().values["params"]
    assert figures["param"] == [0, 1, 2, 3]
    for row, p in enumerate(net.parameters()):
        found = [figures[name][row] for name in ("mean", "std", "low", "high", "nan", "inf")]
        judged = [*(float(n.detach()) for n in (p.mean(), p.std(correction=0), p.min(), p.max())), 0, 0]
        assert found == pytest.approx(judged, rel=1e-5)


def test_changed_parameters_have_no_figures() -> None:
    net = nn.Linear(4, 4)
    t = trace(net, torch.ones(1, 4))
    with torch.no_grad():
        net.weight.add_(1)
    assert t.show().values["params"]["param"] == [1]


def test_module_has_the_color_of_its_costliest_operation() -> None:
    def colours(depth: int) -> dict[str, str]:
        boxes = boxes_of(t, overlay="flops", depth=depth)
        return {name: box["colour"] for name, box in boxes.items()}

    net = nn.Sequential(
        nn.Sequential(nn.Linear(4, 64), nn.ReLU()), nn.Sequential(nn.Linear(64, 2), nn.ReLU())
    )
    t = trace(net, torch.ones(1, 4))
    shut, opened = colours(0), colours(1)
    for block in "01":
        assert shut[block] == opened[block] == opened[f"{block}.0"]
    assert shut["0"] != shut["1"]


def test_fold_is_painted_with_its_sum() -> None:
    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))
            self.head = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    t = trace(Blocks(), torch.ones(1, 4))
    fold = next(
        box for box in diagram_of(t.graph, overlay="parameters", depth=0)["boxes"] if box["kind"] == "group"
    )
    assert fold["fill"] != "#ffffff"
    assert fold["subtitle"] == "60"
