"""Intervals and p-values of noise where few items or groups carry all the variance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from score_help import fed, read

from intus.scores import Scorer
from intus.scores.comparisons.paired import correlations, units_above

TESTED = ["correlation", "auroc", "mean_difference", "iou", "iou_max"]
ROWS = 1200


def rare(rng: np.random.Generator, count: int, columns: int, groups: np.ndarray | None = None) -> np.ndarray:
    """Return columns that are 1 in ``count`` random rows, or in all rows of ``count`` random groups."""
    of = np.arange(ROWS) if groups is None else groups
    number = int(of.max()) + 1
    return np.stack([np.isin(of, rng.choice(number, count, replace=False)) for _ in range(columns)], 1) * 1.0


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 20])
def test_noise_has_no_small_p_with_few_positive_items(count):
    rng = np.random.default_rng(count)
    results = fed(TESTED, rng.normal(size=(ROWS, 30)), rare(rng, count, 60)).columns()
    for name in TESTED:
        p = results.p[results.score == name]
        assert (p < 0.05).mean() < 0.075
        assert count > 5 or np.isnan(p).all()
        assert count < 20 or np.isfinite(p).mean() > 0.9


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_noise_has_no_small_p_with_few_positive_groups(count):
    rng, groups = np.random.default_rng(count), np.repeat(np.arange(40), ROWS // 40)
    x = rng.normal(size=(ROWS, 30)) + rng.normal(size=(40, 30))[groups]
    scorer = Scorer(TESTED)
    scorer.update(x, rare(rng, count, 60, groups), groups=groups)
    results = scorer.columns()
    for name in TESTED:
        p = results.p[results.score == name]
        assert (p < 0.05).mean() < 0.075
        assert count > 3 or np.isnan(p).all()
        assert count < 10 or np.isfinite(p).any()


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_unit_that_is_active_in_few_items(count):
    rng = np.random.default_rng(count)
    x = rare(rng, count, 200) * (1 + rng.random((ROWS, 200)))
    results = fed(TESTED, x, {"y": (rng.random(ROWS) < 0.5).astype(float)}).columns()
    for name in TESTED:
        p = results.p[results.score == name]
        assert (p < 0.05).mean() < 0.1  # 200 units
        assert count > 3 or np.isnan(p).all()
    if count <= 3:
        known = results.note[np.isfinite(results.value)]
        assert all("the unit varies in too few items" in note for note in known)


@pytest.mark.parametrize("name", [*TESTED, "mutual_information"])
def test_value_of_one_positive_item_remains_and_note_says_why_there_is_no_interval(name):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS, 1)), np.zeros(ROWS)
    y[17] = 1
    got = read(fed(name, x, {"y": y}), name, "y", 0)
    if name == "correlation":
        assert got.value == pytest.approx(stats.pearsonr(x[:, 0], y).statistic)
    if name == "auroc":
        assert got.value == pytest.approx((x[17, 0] > x[:, 0]).sum() / (ROWS - 1))
    if name != "iou_max":  # the item may be on the other side of the split
        assert np.isfinite(got.value)
        assert "the hypothesis varies in too few items, in effect in 1 of 16 groups (6 are" in got.note
    assert np.isnan([got.low, got.high, got.p]).all()


@pytest.mark.parametrize("name", TESTED)
def test_45_positive_items_of_1500_have_intervals(name):
    rng = np.random.default_rng(0)
    y = np.isin(np.arange(1500), rng.choice(1500, 45, replace=False)).astype(float)
    got = read(fed(name, rng.normal(size=(1500, 1)) + 3 * y[:, None], {"y": y}), name, "y", 0)
    assert got.low < got.value < got.high
    assert got.p < 0.001


def test_outlier_matters_to_correlation_and_not_to_ranks():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS, 1)), (rng.random(ROWS) < 0.5).astype(float)
    x[5] = 1e6
    scorer = fed(["correlation", "auroc"], x, {"y": y})
    assert np.isnan(read(scorer, "correlation", "y", 0).p)
    assert 0 < read(scorer, "auroc", "y", 0).p < 1


def test_merged_scorers_have_the_same_intervals():
    rng = np.random.default_rng(0)
    x, y = 1e3 + rng.normal(size=(ROWS, 5)), np.concatenate([rare(rng, n, 1) for n in (3, 9, 10, 40)], axis=1)
    whole, parts = fed(TESTED, x, y), []
    for rows in np.array_split(np.arange(ROWS), 3):
        parts.append(Scorer(TESTED))
        parts[-1].update(x[rows], y[rows], rows)
    merged = parts[0].merge(parts[1]).merge(parts[2])
    one, other = whole.columns(), merged.columns()
    np.testing.assert_allclose(one.low, other.low, rtol=1e-6)
    assert one.note.tolist() == other.note.tolist()
    assert 0 < np.isnan(one.low).mean() < 1


def test_permutations_give_p_of_one_positive_item():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 1)), np.zeros(300)
    y[int(x[:, 0].argmax())] = 1
    scorer = Scorer("correlation", null=199)
    scorer.update(x, {"y": y})
    got = read(scorer, "correlation", "y", 0)
    assert got.p < 0.05
    assert np.isnan(got.low)
    assert "no interval: the hypothesis" in got.note


def test_difference_of_units_with_one_positive_item_has_no_p():
    rng = np.random.default_rng(0)
    y = np.concatenate([rare(rng, 1, 1), rare(rng, 300, 1)], axis=1)
    gap = units_above(
        *(correlations(fed("correlation", rng.normal(size=(ROWS, 4)), y).statistics) for _ in "ab")
    )
    assert np.isnan(gap.p[:, 0]).all()
    assert np.isfinite(gap.p[:, 1]).all()


@pytest.mark.parametrize("count", [1, 3, 5])
def test_coefficients_of_few_positive_items_have_no_p(count):
    rng = np.random.default_rng(0)
    y = rare(rng, count, 1)[:, 0].astype(int)
    results = fed("logistic_l2", rng.normal(size=(ROWS, 5)), {"y": y}).columns()
    coefficients = results.score == "logistic_l2.coef"
    assert coefficients.sum() == 5
    assert np.isnan(results.p[coefficients]).all()


@pytest.mark.parametrize("seed", range(3))
def test_noise_of_rare_units_and_rare_hypotheses_has_no_small_p(seed):
    """A unit and a hypothesis that should meet in two items often meet in none."""
    rng = np.random.default_rng(seed)
    x = rare(rng, 20, 400) * (1 + rng.random((ROWS, 400)))
    results = fed(
        ["correlation", "mean_difference"], x, {"y": (rng.random(ROWS) < 0.1).astype(float)}
    ).columns()
    for name in ("correlation", "mean_difference"):
        p = results.p[results.score == name]
        assert np.isfinite(p).mean() > 0.9
        assert (p < 0.05).mean() < 0.075


def test_p_of_a_rare_unit_that_follows_its_rare_hypothesis_is_small():
    rng = np.random.default_rng(0)
    label = rare(rng, 40, 1)
    follows = label * (rng.random((ROWS, 50)) < 0.7) + 0.1 * rng.normal(size=(ROWS, 50))
    assert (fed(["correlation"], follows, {"y": label[:, 0]}).columns().p < 1e-4).all()
