"""Thresholds, areas under ROC curves and mutual information, compared with scikit-learn and planted truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from score_help import fed, read
from sklearn.metrics import jaccard_score, mutual_info_score, roc_auc_score

from intus.scores import Scorer
from intus.scores.statistics.ranks import BINS, areas, informations
from intus.scores.statistics.thresholds import best_thresholds, counts_at


def index_at(unit, label, threshold):
    return jaccard_score(label == 1, unit >= threshold)


def draw(rng, rows, shape):
    """Return a unit of some shape and a label of some frequency that it may know."""
    label = rng.random(rows) < rng.choice([0.004, 0.05, 0.5, 0.95])
    unit = rng.normal(size=rows) + rng.choice([0, 1, 5]) * label
    if shape == "rectified":
        unit = np.maximum(unit, 0)
    elif shape == "saturated":
        unit = np.clip(unit, -0.5, 1)
    elif shape == "whole":
        unit = np.round(unit)
    return unit.astype(np.float32), label.astype(float)


@pytest.mark.long
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.sampled_from([3, 63, 64, 65, 700, 3000]),
    shape=st.sampled_from(["normal", "rectified", "saturated", "whole"]),
    holes=st.booleans(),
)
def test_best_threshold_equals_exhaustive_search(seed, rows, shape, holes):
    rng = np.random.default_rng(seed)
    unit, label = draw(rng, rows, shape)
    if holes:
        unit[rng.random(rows) < 0.1], label[rng.random(rows) < 0.2] = np.nan, np.nan
    found = best_thresholds(unit[:, None], label[:, None])[0, 0]
    known = np.isfinite(unit) & np.isfinite(label)
    u, t = unit[known], label[known]
    if not (t == 1).any() or len(np.unique(unit[np.isfinite(unit)])) < 2:
        assert np.isnan(found)
        return
    levels = np.unique(u)
    levels = levels[:: len(levels) // 100 + 1]
    best = max(index_at(u, t, level) for level in levels)
    assert index_at(u, t, found) >= best - 1e-12


def test_counts_at_thresholds_equal_numpy():
    rng = np.random.default_rng(0)
    x, h = rng.normal(size=(400, 3)), (rng.random((400, 4)) < 0.3).astype(float)
    x[rng.random(x.shape) < 0.05], h[rng.random(h.shape) < 0.1] = np.nan, np.nan
    x[:, 2] = np.round(x[:, 2])
    group, threshold = rng.integers(0, 5, 400), rng.normal(size=(3, 4))
    threshold[2], threshold[0, 0] = 0.0, np.nan
    both, on, true, rows = counts_at(x, h, threshold, group, 5)
    for g, u, t in np.ndindex(5, 3, 4):
        here = (group == g) & np.isfinite(x[:, u]) & np.isfinite(h[:, t])
        lit = x[here, u] >= threshold[u, t]
        want = [(lit & (h[here, t] == 1)).sum(), lit.sum(), (h[here, t] == 1).sum(), here.sum()]
        assert [table[g, u, t] for table in (both, on, true, rows)] == want


@pytest.mark.parametrize("kind", ["normal", "ties", "missing"])
def test_auroc_equals_sklearn(kind):
    rng = np.random.default_rng(0)
    h = (rng.random((900, 3)) < [0.02, 0.4, 0.9]).astype(float)
    x = rng.normal(size=(900, 4)).astype(np.float32)
    x[:, :3] += h.astype(np.float32)
    if kind == "ties":
        x = np.maximum(np.round(x, 1), 0)
    if kind == "missing":
        x[rng.random(900) < 0.1, 1], h[rng.random(900) < 0.2, 2], h[:300, 1] = np.nan, np.nan, np.nan
    scorer = Scorer("auroc")
    for part in np.array_split(np.arange(900), 3):
        scorer.update(x[part], h[part], part // 3)
    for u, t in np.ndindex(4, 3):
        rows = np.isfinite(x[:, u]) & np.isfinite(h[:, t])
        got = read(scorer, "auroc", str(t), u)
        assert got.value == pytest.approx(roc_auc_score(h[rows, t], x[rows, u]), abs=1e-12)
        assert got.low <= got.value <= got.high
    assert read(scorer, "auroc", "1", 1).p < 1e-6
    assert 0.5 < read(scorer, "auroc", "1", 1).baseline < 0.63


def test_auroc_without_each_group_equals_sklearn():
    rng = np.random.default_rng(1)
    h, group = (rng.random((300, 1)) < 0.3).astype(float), rng.integers(0, 4, 300)
    x = np.round(rng.normal(size=(300, 1)) + h, 1).astype(np.float32)
    _, *without = areas(x, h, group)
    for number, got in enumerate(without):
        rows = group != number
        assert got[0, 0] == pytest.approx(roc_auc_score(h[rows, 0], x[rows, 0]), abs=1e-12)


def test_auroc_interval_covers_truth_of_clustered_rows():
    """The unit is one standard deviation larger where the label is 1: the area is .7602."""
    rng, hits = np.random.default_rng(0), 0
    for _ in range(100):
        label = np.repeat(rng.random(100) < 0.5, 8)
        unit = label + np.repeat(rng.normal(0, 0.9, 100), 8) + rng.normal(0, np.sqrt(0.19), 800)
        got = read(fed("auroc", unit[:, None], {"h": label}, np.repeat(np.arange(100), 8)), "auroc", "h", 0)
        hits += got.low <= 0.7602 <= got.high
    assert 90 <= hits <= 99


def test_auroc_needs_labels_0_and_1():
    x = np.arange(40.0)[:, None]
    got = read(fed("auroc", x, {"h": x[:, 0]}), "auroc", "h", 0)
    assert (np.isnan(got.value), got.note) == (True, "needs labels 0 and 1")


def test_information_of_bins_equals_sklearn():
    rng = np.random.default_rng(0)
    rows = 1600
    h = np.column_stack([rng.random(rows) < 0.2, rng.integers(0, 5, rows)]).astype(float)
    x = (rng.normal(size=(rows, 3)) + h[:, [0, 1, 1]]).astype(np.float32)
    got = informations(x, h)[0]
    ranks = x.argsort(axis=0).argsort(axis=0) * BINS // rows
    for u, t in np.ndindex(3, 2):
        values = len(np.unique(h[:, t]))
        cells = len(np.unique(ranks[:, u] * 10 + h[:, t]))
        bias = (cells - BINS - values + 1) / (2 * rows)
        want = (mutual_info_score(ranks[:, u], h[:, t]) - bias) / np.log(2)
        assert got[u, t] == pytest.approx(want, abs=2e-3)


@pytest.mark.parametrize("flipped", [0.0, 0.1, 0.5])
def test_information_of_a_noisy_copy(flipped):
    """A channel that flips a fair bit with probability e passes 1 - H(e) bits (Cover and Thomas, 7.1)."""
    rng = np.random.default_rng(0)
    h = rng.random(20_000) < 0.5
    unit = (h ^ (rng.random(20_000) < flipped)).astype(float)
    e = np.array([flipped, 1 - flipped])
    truth = 1 + (e * np.log2(np.where(e > 0, e, 1))).sum()
    got = read(fed("mutual_information", unit[:, None], {"h": h}), "mutual_information", "h", 0)
    assert got.value == pytest.approx(truth, abs=0.01)


def test_information_finds_what_correlation_does_not():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 6))
    scorer = fed(
        ["mutual_information", "correlation"], x, {"far": np.abs(x[:, 2]) > 1.5, "real": x[:, 3] ** 2}
    )
    for target, unit in (("far", 2), ("real", 3)):
        got = read(scorer, "mutual_information", target, unit)
        assert got.value > 0.4
        assert got.low > 20 * got.baseline
        assert abs(read(scorer, "correlation", target, unit).value) < 0.1
    noise = [r.value for r in scorer.result() if r.score == "mutual_information" and r.unit < 2]
    assert np.abs(noise).max() < 0.01


def test_information_of_noise_is_zero_on_average():
    """Without the correction it is .054 bits here."""
    rng = np.random.default_rng(0)
    found = informations(rng.normal(size=(200, 60)), rng.integers(0, 2, (200, 20)).astype(float))[0]
    assert abs(found.mean()) < 0.004


def test_information_without_each_group():
    rng = np.random.default_rng(0)
    x, h, group = rng.normal(size=(400, 2)), rng.integers(0, 3, (400, 2)).astype(float), np.arange(400) // 100
    x = np.round(x)  # so that bins do not depend on the rows
    _, *without = informations(x, h, group)
    for number, got in enumerate(without):
        np.testing.assert_allclose(got, informations(x[group != number], h[group != number])[0], atol=0.01)


@pytest.mark.parametrize("name", ["auroc", "mutual_information"])
def test_scores_of_ranks_without_data(name):
    constant = fed(name, np.ones((50, 1)), {"h": np.arange(50) % 2})
    if name == "mutual_information":
        assert np.isnan(read(constant, name, "h", 0).value)
    else:
        assert read(constant, name, "h", 0).value == 0.5
    got = read(fed(name, np.arange(50.0)[:, None], {"h": [None] * 50}), name, "h", 0)
    assert (np.isnan(got.value), got.note) == (True, "no annotated rows")
    got = read(fed(name, np.arange(4.0)[:, None], {"h": ["a", "b", "a", "b"]}), name, "h", 0)
    assert (np.isnan(got.value), got.note) == (True, "the labels are not numbers")
