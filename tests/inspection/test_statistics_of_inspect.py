"""Groups, types, p-values, false discovery rates and rows without a value in inspect, on planted truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import false_discovery_control
from torch import nn

from intus.core.errors import InputError
from intus.inspection import inspect
from intus.scores import Scorer


def documents(rng, count=20, each=30, units=32):
    """Return records that only know their document, and the document of each."""
    document = np.repeat(np.arange(count), each)
    records = rng.normal(size=(count, units))[document] + 0.3 * rng.normal(size=(len(document), units))
    return torch.tensor(records, dtype=torch.float32), document


def share_below(frame, column, level=0.05):
    return float((frame[column] < level).mean())


def test_groups_rule_intervals_p_and_held_out_rows():
    rng = np.random.default_rng(0)
    records, document = documents(rng)
    label = {"random": rng.permutation(np.arange(20) % 2)[document]}
    model = nn.Sequential(nn.Identity(), nn.Linear(32, 32))
    scores = ["correlation", "linear_accuracy"]
    by_record = inspect(model, label, scores, records, "0[:@1]")
    by_group = inspect(model, label, scores, records, "0[:@1]", groups=document)
    found = {name: frame[frame.score == "correlation"] for name, frame in (("r", by_record), ("g", by_group))}
    assert share_below(found["r"], "p") > 0.5
    assert share_below(found["g"], "p") < 0.2
    np.testing.assert_allclose(found["r"].value, found["g"].value, atol=1e-9)
    layer = {name: frame[frame.unit == -1].iloc[0] for name, frame in (("r", by_record), ("g", by_group))}
    assert layer["r"].low > 0.9
    assert layer["g"].low <= layer["g"].baseline
    by_function = inspect(model, label, scores, records, "0[:@1]", groups=lambda one: int(one[0] * 1e6) % 20)
    assert (by_function[by_function.unit >= 0].low != found["g"].low.to_numpy()).all()


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([1, 2, 3], r"groups has shape \(3,\), but there are 600 records"),
        (["a"] * 600, "groups has a single group, 'a', so no group can be held out"),
    ],
)
def test_groups_that_do_not_fit(groups, message):
    records, document = documents(np.random.default_rng(0))
    with pytest.raises(InputError, match=message):
        inspect(nn.Linear(32, 2), {"h": document % 2}, "correlation", records, groups=groups)


def test_false_discovery_rate_of_null_and_true_pairs():
    """980 pairs without relation and 20 with one, in records of several correlated symbols."""
    shares, powers = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        units = rng.normal(size=(200, 50)).astype(np.float32)
        hypotheses = rng.normal(size=(200, 20))
        for number in range(20):  # unit n responds to hypothesis n
            hypotheses[:, number] = 0.5 * units[:, number] + 0.87 * rng.normal(size=200)
        named = {str(number): hypotheses[:, number] for number in range(20)}
        layer = nn.Identity()
        frame = inspect(nn.Sequential(layer), named, "correlation", torch.tensor(units), "0[:@1]")
        assert len(frame) == 1000
        true = frame.unit.astype(str) == frame.target
        found = frame.q < 0.05
        shares.append((found & ~true).sum() / max(found.sum(), 1))
        powers.append((found & true).sum() / 20)
        np.testing.assert_allclose(frame.q, false_discovery_control(frame.p))
    assert np.mean(shares) <= 0.07
    assert np.mean(powers) >= 0.9


@pytest.mark.parametrize(
    "score", ["correlation", "mean_difference", "auroc", "iou", "iou_max", "linear_f1", "r2"]
)
def test_p_of_noise_is_uniform(score):
    """The share of p-values below .05 must be about .05 where nothing depends on anything."""
    below, tests = 0, 0
    for seed in range(12 if score in ("linear_f1", "r2") else 4):
        rng = np.random.default_rng(seed)
        units = torch.tensor(rng.normal(size=(600, 12)), dtype=torch.float32)
        numbers = score in ("correlation", "r2")
        hypotheses = {
            str(n): rng.normal(size=600) if numbers else rng.integers(0, 2, 600) * 1.0 for n in range(6)
        }
        frame = inspect(nn.Sequential(nn.Identity()), hypotheses, score, units, "0[:@1]", seed=seed)
        tested = frame[frame.p.notna()]
        below, tests = below + int((tested.p < 0.05).sum()), tests + len(tested)
    assert tests > 60
    assert below / tests < 0.11


def test_types_give_the_control_task():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 60, (300, 12))
    table = nn.Embedding(60, 64)
    tag = rng.integers(0, 4, 60)
    labels, data = {"tag": tag[words]}, torch.tensor(words)
    frame = inspect(
        nn.Sequential(table),
        labels,
        ["linear_selectivity", "linear_accuracy"],
        data,
        "0",
        types=words,
    )
    by_score = frame.set_index("score")
    assert by_score.value["linear_accuracy"] > 0.95
    assert abs(by_score.value["linear_selectivity"]) < 0.03
    without = inspect(nn.Sequential(table), labels, "linear_selectivity", data, "0")
    assert without.value.isna().all()
    assert without.note[0].startswith("no types were given")


def test_every_column_always_exists():
    frame = inspect(nn.Linear(2, 2), {"h": [0.0, 1.0, 2.0, 3.0]}, "correlation", torch.randn(4, 2))
    columns = "run model epoch address unit target score value low high baseline p q n note"
    assert list(frame.columns) == columns.split()


def residual_correlation(u, h, confounders):
    """Return the correlation of the residuals of two regressions, by numpy's least squares."""
    design = np.column_stack([np.ones(len(u)), *confounders])
    left = [one - design @ np.linalg.lstsq(design, one, rcond=None)[0] for one in (u, h)]
    return np.corrcoef(*left)[0, 1]


@pytest.mark.parametrize("holes", [False, True])
def test_partial_correlation_equals_correlation_of_residuals(holes):
    rng = np.random.default_rng(0)
    c, d = rng.normal(5, 2, 900), rng.normal(size=900)
    units = np.column_stack([c + d, d * c, rng.normal(size=900)]) + rng.normal(size=(900, 3))
    h = c - d + rng.normal(size=900)
    if holes:
        c[::7], d[3::11], h[5::13] = np.nan, np.nan, np.nan
    ideas = {"h": h, "c": c, "d": d}
    data = torch.tensor(units, dtype=torch.float32)
    frame = inspect(
        nn.Sequential(nn.Identity()), ideas, "correlation", data, "0[:@1]", given=["c", "d"], batch=100
    )
    assert frame.target.unique().tolist() == ["h"]
    assert set(frame.note) == {"given c, d"}
    rows = np.isfinite(c) & np.isfinite(d) & np.isfinite(h)
    for unit in range(3):
        want = residual_correlation(units[rows, unit], h[rows], [c[rows], d[rows]])
        assert frame.value[unit] == pytest.approx(want, abs=1e-6)
        assert frame.n[unit] == rows.sum()


def test_unit_that_follows_only_the_confounder():
    rng = np.random.default_rng(1)
    confounder = rng.integers(0, 2, 4000)
    h = np.where(rng.random(4000) < 0.85, confounder, 1 - confounder)
    units = np.column_stack([confounder, h]) + 0.15 * rng.normal(size=(4000, 2))
    ideas, data = {"h": h, "c": confounder}, torch.tensor(units, dtype=torch.float32)
    model = nn.Sequential(nn.Identity())
    plain = inspect(model, {"h": h}, "correlation", data, "0[:@1]")
    table = inspect(model, ideas, "correlation", data, "0[:@1]", given="c")
    assert plain.value[0] > 0.6
    assert abs(table.value[0]) < 0.04
    assert table.value[1] == pytest.approx(0.92, abs=0.02)
    assert (table.p[0] > 0.01, table.p[1] < 1e-6) == (True, True)


@pytest.mark.parametrize(
    ("given", "scores", "message"),
    [
        ("d", "correlation", "given='d' names no hypothesis"),
        (["h", "c"], "correlation", "names all hypotheses, so that none is left"),
        ("c", ["correlation", "iou"], "holds confounders fixed for the score 'correlation' only, got 'iou'"),
    ],
)
def test_confounders_that_do_not_fit(given, scores, message):
    ideas = {"h": [0.0, 1.0] * 20, "c": [1.0, 0.0, 2.0, 3.0] * 10}
    with pytest.raises(InputError, match=message):
        inspect(nn.Linear(2, 2), ideas, scores, torch.randn(40, 2), given=given)


def test_merged_scorers_with_confounders():
    rng = np.random.default_rng(0)
    x, c = rng.normal(size=(600, 4)) + 30, rng.normal(50, 1, size=(600, 2))
    h = {"h": x[:, 0] + c[:, 0] + rng.normal(size=600)}
    named = {"c": c[:, 0], "d": c[:, 1]}
    whole, one, other = (Scorer("correlation") for _ in range(3))
    items = np.arange(600)
    whole.update(x, h, items, given=named)
    for scorer, part in ((one, slice(0, 200)), (other, slice(200, 600))):
        scorer.update(
            x[part], {"h": h["h"][part]}, items[part], given={name: v[part] for name, v in named.items()}
        )
    for a, b in zip(whole.result(), one.merge(other).result(), strict=True):
        assert (a.value, a.low, a.high, a.p) == pytest.approx((b.value, b.low, b.high, b.p), abs=1e-8)


@pytest.mark.parametrize("constant", [0.0, 1.0])
def test_mean_difference_of_a_constant_hypothesis(linear, constant, images, seven):
    table = inspect(linear, {"all": np.full(len(seven), constant)}, "mean_difference", images, "1")
    assert table.value.isna().all()
    assert table.note.eq("the unit or the hypothesis is constant").all()


def test_rows_where_a_unit_is_not_finite(images, seven):
    class Holes(nn.Module):
        def forward(self, x):
            x = x.flatten(1)[:, 10:13].clone()
            x[::3, 1] = float("nan")
            return x

    table = inspect(
        nn.Sequential(Holes()), {"seven": seven}, ["auroc", "iou", "correlation"], images, "0[:@1]"
    )
    missing = sum(len(range(0, min(256, len(seven) - at), 3)) for at in range(0, len(seven), 256))
    for _, rows in table.groupby("score"):
        assert rows.n.tolist() == [len(seven), len(seven) - missing, len(seven)]
        assert [f"{missing} rows left out: NaN or infinite" in note for note in rows.note] == [
            False,
            True,
            False,
        ]


def test_perfect_unit_says_why_it_has_no_interval(images, seven):
    data = torch.from_numpy(np.column_stack([seven, images[:, 0, 0, 3]]).astype(np.float32))
    table = inspect(nn.Sequential(nn.Identity()), {"seven": seven}, ["correlation", "auroc"], data, "0[:@1]")
    perfect = table[table.unit == 0]
    assert np.allclose(perfect.value, 1)
    assert perfect.low.isna().all()
    assert perfect.note.str.contains("no interval: fewer than 4 groups of items, or no spread").all()
