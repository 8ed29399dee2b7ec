"""Pictures of a table: what is drawn equals the table, read from matplotlib's artists."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from torch import nn

from intus import Directions, inspect
from intus.core.errors import InputError


def ink(image):
    return image[0] > 0.5


def left(image):
    return np.arange(8) < 4 * np.ones((8, 1))


@pytest.fixture(scope="module")
def table(checkpoints, images):
    return inspect(checkpoints, [ink, left], ["correlation", "iou"], images, ["conv1", "conv2"])


def name(row):
    return f"{row.address}[{row.unit}]"


def labels_of(axis):
    return [text.get_text() for text in axis]


@pytest.mark.long
@pytest.mark.parametrize("score", ["correlation", "iou"])
def test_bars_have_values_intervals_and_baselines(table, score, tmp_path):
    figure = table.draw(score=score, k=6, path=tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 5000
    assert [axis.get_title() for axis in figure.axes] == ["ink", "left"]
    for axis in figure.axes:
        rows = table[(table.score == score) & (table.epoch == 2) & (table.target == axis.get_title())]
        rows = rows.iloc[np.argsort(-rows.value.abs(), kind="stable")[:6]]
        assert labels_of(axis.get_yticklabels()) == [name(row) for row in rows.itertuples()]
        widths = [patch.get_width() for patch in axis.patches if isinstance(patch, Rectangle)]
        assert widths == pytest.approx(rows.value.tolist())
        intervals, ticks = axis.collections
        ends = np.array([segment[:, 0] for segment in intervals.get_segments()])
        assert ends == pytest.approx(rows[["low", "high"]].to_numpy(dtype=float))
        drawn = [segment[0, 0] for segment in ticks.get_segments()]
        assert drawn == pytest.approx((rows.baseline * np.sign(rows.value)).tolist())
        assert axis.get_xlabel() == f"{score} at epoch 2"
        assert axis.yaxis_inverted()  # the strongest at the top
    legend = labels_of(figure.legends[0].get_texts())
    assert sorted(legend) == ["95 % interval", "baseline"]


def test_curves_are_values_over_epochs(table):
    figure = table.draw("curves", score="correlation", k=3)
    for axis in figure.axes:
        rows = table[(table.score == "correlation") & (table.target == axis.get_title())]
        last = rows[rows.epoch == 2]
        best = last.iloc[np.argsort(-last.value.abs(), kind="stable")[:3]]
        lines = [line for line in axis.lines if line.get_linestyle() == "-"]
        assert [line.get_label() for line in lines] == [name(row) for row in best.itertuples()]
        for line, row in zip(lines, best.itertuples(), strict=True):
            curve = rows[(rows.address == row.address) & (rows.unit == row.unit)]
            assert list(line.get_xdata()) == [0, 1, 2]
            assert line.get_ydata().tolist() == pytest.approx(curve.value.tolist())
        shown = rows.merge(best[["address", "unit"]])
        largest = shown.groupby("epoch").baseline.max()
        dashed = [line for line in axis.lines if line.get_linestyle() == "--"]
        assert [line.get_ydata()[0] > 0 for line in dashed] == sorted(set(best.value > 0))
        for line in dashed:
            assert np.abs(line.get_ydata()) == pytest.approx(largest.to_numpy())
        assert len({to_hex(line.get_color()) for line in lines}) == 3
        assert axis.get_xlabel() == "epoch"
        assert axis.get_ylabel() == "correlation"


def test_heat_map_is_the_pivot_of_the_table(table):
    axis = table.draw("heatmap", score="correlation").axes[0]
    rows = table[(table.score == "correlation") & (table.epoch == 2)]
    pivot = rows.pivot_table(index=["address", "unit"], columns="target", values="value")
    assert np.asarray(axis.images[0].get_array()) == pytest.approx(pivot[["ink", "left"]].to_numpy())
    assert labels_of(axis.get_yticklabels()) == [f"{address}[{unit}]" for address, unit in pivot.index]
    assert labels_of(axis.get_xticklabels()) == ["ink", "left"]
    low, high = axis.images[0].get_clim()
    assert low == -high == -rows.value.abs().max()  # 0 has the color in the middle


def test_heat_map_of_many_units_keeps_the_strongest():
    data = np.random.default_rng(0).normal(size=(100, 90)).astype(np.float32)
    found = inspect(
        nn.Sequential(nn.Identity()), {"x": data[:, 70] + data[:, 5]}, "correlation", data, "0[:@1]"
    )
    axis = found.draw("heatmap").axes[0]
    strongest = found.iloc[np.argsort(-found.value.abs(), kind="stable")[:60]].sort_values("unit")
    assert labels_of(axis.get_yticklabels()) == [f"0[{unit}]" for unit in strongest.unit]
    assert axis.get_ylabel() == "unit (the strongest 60 of 90)"


def test_unit_over_an_image(checkpoints, images, table):
    row = table[(table.epoch == 2) & (table.address == "conv1") & (table.unit == 2)].iloc[0]
    figure = table.draw_unit(row, 7)
    left_axis, right_axis, _ = figure.axes
    with torch.no_grad():
        want = checkpoints[2].eval().conv1(torch.from_numpy(images[7:8]))[0, 2].numpy()
    assert np.asarray(right_axis.images[0].get_array()) == pytest.approx(want, abs=1e-6)
    assert np.asarray(left_axis.images[0].get_array()) == pytest.approx(images[7, 0])
    assert right_axis.get_title() == "conv1[2]"
    mask = images[7, 0] > 0.5
    edges = np.abs(np.diff(np.pad(mask, 1).astype(int), axis=0)).sum()
    edges += np.abs(np.diff(np.pad(mask, 1).astype(int), axis=1)).sum()
    assert len(right_axis.collections[-1].get_segments()) == edges


def test_unit_over_a_small_map_lies_at_its_pixels(checkpoints, images, table):
    row = table[(table.epoch == 2) & (table.address == "conv2") & (table.unit == 0)].iloc[0]
    drawn = table.draw_unit(row, 0).axes[1].images[0].get_array()
    assert drawn.shape == (8, 8)
    found = table.examples(row, k=600)  # another way to the same values, at pixels
    one = found[(found.kind == "top") & (found.record == 0)].iloc[0]
    assert drawn[one.position] == pytest.approx(one.behavior, abs=1e-6)


def test_unit_over_a_text(tmp_path):
    texts = ["f(a)\nb$", "(no)"]
    net = nn.Sequential(nn.Embedding(128, 2))

    def encode(texts):
        return torch.tensor([[ord(c) for c in text.ljust(9)] for text in texts])

    found = inspect(net, lambda text: [c == "(" for c in text], "correlation", texts, "0", inputs=encode)
    figure = found.draw_unit(1, 0, path=tmp_path / "text.png")
    axis = figure.axes[0]
    assert "".join(labels_of(axis.texts)) == r"f(a)↵b\$"
    values = net[0].weight[[ord(c) for c in texts[0]], 1].detach().numpy()
    colors = [patch.get_facecolor() for patch in axis.patches]
    end = np.abs(values).max() if values.min() < 0 else values.max()
    start = -end if values.min() < 0 else 0
    cmap = colormaps["PuOr" if values.min() < 0 else "cividis"]
    for color, value in zip(colors, values, strict=True):
        assert color == pytest.approx(cmap(float((value - start) / (end - start))), abs=0.02)
    (line,) = axis.lines  # one symbol is underlined
    assert 1 < line.get_xdata()[0] < line.get_xdata()[1] < 2


def test_best_row_of_each_model(checkpoints, images):
    models = {"untrained": checkpoints[0], "trained": checkpoints[2]}
    found = inspect(models, [ink, left], ["correlation", "linear_f1"], images, "conv2")
    best = found.best()
    units = found[found.unit >= 0].copy()
    units["size"] = units.value.abs()
    want = units.groupby(["model", "target"])["size"].idxmax()
    assert sorted(best.index) == sorted(want)
    assert best.verify(best.iloc[0], tests="perturbation", records=20).model in models
    assert found.best("target").shape[0] == 2
    assert len(found.best([])) == 1
    rows = best[best.target == "ink"].itertuples()
    names = labels_of(found.draw(k=3).axes[0].get_yticklabels())
    assert {f"{row.model}: conv2[{row.unit}]" for row in rows} & set(names)


def test_refusals(table, checkpoints, images):
    with pytest.raises(InputError, match="kind='pie' is not one of"):
        table.draw("pie", score="iou")
    with pytest.raises(InputError, match="several scores of units"):
        table.draw()
    with pytest.raises(InputError, match="no values of units of the score 'r2'"):
        table.draw(score="r2")
    with pytest.raises(InputError, match="two epochs or more"):
        table[table.epoch == 2].draw("curves", score="iou")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        table.draw(score="iou", path="nowhere/bars.png")
    with pytest.raises(InputError, match="record=600 is not a number from 0 to 599"):
        table.draw_unit(0, 600)
    with pytest.raises(InputError, match="by='modell' is no column"):
        table.best("modell")
    head = inspect(checkpoints[-1], {"even": np.arange(600) % 2}, "correlation", images, "head")
    with pytest.raises(InputError, match="cannot be drawn over"):
        head.draw_unit(0, 0)


def test_best_unit_of_an_inverted_detector(images):
    class Inverted(nn.Module):
        def forward(self, x):
            x = x.flatten(1)
            return torch.stack([x[:, 20], -x[:, 36], x[:, 3]], 1)

    dark = images[:, 0, 4, 4] > 0.5
    model = nn.Sequential(Inverted())
    table = inspect(model, {"dark": dark}, ["auroc", "correlation"], images, "0[:@1]")
    for score in ("auroc", "correlation"):
        assert table.best(by="target", score=score).unit.tolist() == [1]
    assert table[(table.score == "auroc") & (table.unit == 1)].value.item() == 0


def test_best_unit_is_no_random_direction(linear, images, seven):
    directions = Directions(np.eye(6)[:2])
    table = inspect(linear, {"seven": seven}, "correlation", images, [("1", directions)])
    assert table.best(by="target").address.tolist() == ["1 (directions)"]
