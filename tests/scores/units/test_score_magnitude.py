"""Units whose squares are not float64 numbers have the scores of scaled units, or a reason, against scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from intus import inspect
from intus.scores import Scorer
from intus.scores.statistics.magnitude import LARGEST, SMALLEST

SCORES = [
    "correlation",
    "auroc",
    "iou_max",
    "mutual_information",
    "logistic_l2",
    "linear_f1",
    "lda_f1",
    "svm_f1",
]
NUMBERS = ["value", "low", "high", "baseline", "p"]


def planted():
    random = np.random.default_rng(0)
    label = (random.random(400) < 0.4).astype(int)
    units = np.column_stack([label + random.normal(size=400), random.normal(size=400), 3.0 - label])
    return units, label


def asked(units, label, scores=SCORES):
    return inspect(torch.nn.Sequential(torch.nn.Identity()), {"h": label}, scores, units, "0[:@1]")


@pytest.mark.parametrize(
    "scale", [1e-300, 1e-200, 1e-160, 1e-152, 1e-140, 1e-90, 1e90, 1e140, 1e152, 1e200, 1e300]
)
def test_scaled_units_have_the_same_scores_or_a_reason(scale):
    units, label = planted()
    table, plain = asked(units * scale, label), asked(units, label)
    r = [pearsonr(unit, label).statistic for unit in (units * scale * (1e200 if scale < 1 else 1e-200)).T]
    if SMALLEST < scale < LARGEST / 10:
        assert np.allclose(table[NUMBERS], plain[NUMBERS], rtol=1e-5, atol=1e-9, equal_nan=True)
        assert np.allclose(table[table.score == "correlation"].value, r)
    else:
        which = "small" if scale < 1 else "large"
        assert table.note.str.fullmatch(f"not computed: behaviours .* too {which} to be squared").all()
        assert table[NUMBERS].isna().all(axis=None)
    assert set(table.score) >= set(SCORES)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_one_odd_unit_among_others(scale):
    units, label = planted()
    odd = units * [1, scale, 1]
    table, plain = asked(odd, label), asked(units, label)
    keys = [
        (score, unit)
        for score in ("correlation", "auroc", "iou_max", "mutual_information")
        for unit in (0, 2)
    ]
    found, rest = (one.set_index(["score", "unit"]).loc[keys, NUMBERS] for one in (table, plain))
    assert np.allclose(found.drop(columns="baseline"), rest.drop(columns="baseline"), equal_nan=True)
    assert (
        table[(table.unit == 1) & (table.score != "logistic_l2.coef")]
        .note.str.startswith("not computed")
        .all()
    )
    whole = table[table.score.isin(["linear_f1", "lda_f1", "svm_f1"])]
    if scale < 1:
        assert whole.note.str.contains("1 units vary too little").all()
        alone = asked(units[:, [0, 2]], label, ["linear_f1"]).value[0]
        assert whole.value.iloc[0] == pytest.approx(alone, abs=0.03)
    else:
        assert whole.value.isna().all()


def test_constant_units_are_not_small():
    units, label = planted()
    units[:, 1] = 1e-200
    table = asked(units, label, "correlation")
    assert table.note[1] == "the unit or the hypothesis is constant"


def test_blocks_and_workers_count_together():
    units, label = planted()
    first, second = Scorer("correlation"), Scorer("correlation")
    first.update(units[:200] * 1e-200, {"h": label[:200]}, np.arange(200))
    second.update(units[200:], {"h": label[200:]}, np.arange(200, 400))
    assert {one.note.partition(":")[0] for one in first.result()} == {"not computed"}
    assert all(one.value == one.value for one in first.merge(second).result())


@pytest.mark.parametrize("scale", [1e-140, 1e-90, 1e90, 1e140])
def test_participation_ratio_does_not_depend_on_the_scale(scale):
    units, _ = planted()
    values = np.linalg.eigvalsh(np.cov(units.T))
    scorer = Scorer("participation_ratio")
    scorer.update(units * scale)
    assert scorer.result()[0].value == pytest.approx(values.sum() ** 2 / (values**2).sum())


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_mean_is_known_and_its_interval_not(scale):
    units, _ = planted()
    scorer = Scorer("mean")
    scorer.update(units * scale)
    (found,) = scorer.result()
    assert found.value == pytest.approx(units.mean() * scale)
    assert np.isnan(found.low)
    assert found.note.startswith("no interval: behaviours")
