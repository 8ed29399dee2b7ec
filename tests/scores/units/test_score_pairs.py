"""Sums of products of units and hypotheses: precision, missing values and moved hypotheses."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from score_help import fed, read

from intus.scores import Scorer
from intus.scores.statistics import pairs
from intus.scores.statistics.moved import sources
from intus.scores.statistics.split import places


def scipy_correlations(x, h):
    """Return r of each pair by scipy, in float64 on complete rows."""
    out = np.empty((x.shape[1], h.shape[1]))
    for u, t in np.ndindex(out.shape):
        rows = np.isfinite(x[:, u]) & np.isfinite(h[:, t])
        out[u, t] = stats.pearsonr(x[rows, u].astype(np.float64), h[rows, t].astype(np.float64)).statistic
    return out


@pytest.fixture
def narrow(monkeypatch):
    """Multiply every block in float32, as large blocks are."""
    monkeypatch.setattr(pairs, "LARGE", 0)


@pytest.mark.long
@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_error_of_800_000_rows(narrow, mean):
    """A single float32 product is wrong by more than 1e-4 here."""
    rng = np.random.default_rng(0)
    rows, block = 800_000, 8_000
    h = np.column_stack([rng.random(rows) < 0.02, rng.normal(50, 1, rows)])
    x = rng.normal(mean, 1, (rows, 4)).astype(np.float32)
    x[:, 0] += h[:, 0]
    x[:, 1] += 0.2 * h[:, 1] + np.linspace(0, 3, rows)
    scorer, items = Scorer("correlation"), np.arange(rows) // 40
    for start in range(0, rows, block):
        part = slice(start, start + block)
        scorer.update(x[part], h[part], items[part])
    got = scorer.columns().value.reshape(2, 4).T
    assert np.abs(got - scipy_correlations(x, h)).max() < 1e-6


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_units_whose_squares_float32_does_not_hold(narrow, scale):
    rng = np.random.default_rng(0)
    x, h = (rng.normal(size=(500, 3)) * scale).astype(np.float32), rng.normal(size=(500, 2))
    got = fed("correlation", x, h).columns().value.reshape(2, 3).T
    np.testing.assert_allclose(got, scipy_correlations(x / np.float32(scale), h), atol=1e-6)
    h /= scale
    got = fed("correlation", x / np.float32(scale), h).columns().value.reshape(2, 3).T
    np.testing.assert_allclose(got, scipy_correlations(x, h * scale), atol=1e-6)


@pytest.mark.parametrize("holes", ["units", "hypotheses", "both", "rows"])
def test_missing_values_in_float32(narrow, holes):
    rng = np.random.default_rng(1)
    x, h = rng.normal(3, 1, (900, 3)).astype(np.float32), rng.normal(7, 1, (900, 3))
    x[:, 0] += h[:, 0].astype(np.float32)
    if holes in ("units", "both"):
        x[rng.random(x.shape) < 0.1] = np.nan
    if holes in ("hypotheses", "both"):
        h[rng.random(h.shape) < 0.2] = np.nan
    if holes == "rows":
        h[::3] = np.nan
    scorer = Scorer(["correlation", "mean_difference"])
    for part in np.array_split(np.arange(900), 4):
        scorer.update(x[part], h[part], part // 5)
    found = scorer.columns()
    np.testing.assert_allclose(found.value[:9].reshape(3, 3).T, scipy_correlations(x, h), atol=1e-6)
    counts = np.isfinite(x).T.astype(int) @ np.isfinite(h).astype(int)
    np.testing.assert_array_equal(found.n[:9].reshape(3, 3).T, counts)
    assert np.isfinite(found.baseline[:9]).all()


def test_constant_unit_of_any_value(narrow):
    """The mean of a constant in float32 is not always the constant."""
    x = np.full((7001, 3), [0.1, 1e4 / 3, -7.7e-3], dtype=np.float32)
    scorer = Scorer("correlation")
    for part in np.array_split(np.arange(7001), 3):
        scorer.update(x[part], {"h": part % 2})
    assert np.isnan(scorer.columns().value).all()


def test_baseline_is_the_correlation_with_rolled_hypotheses():
    """Four blocks; each item gets the hypotheses of another item of its block, in the same position."""
    rng = np.random.default_rng(0)
    items, group = np.repeat(np.arange(80), 6), np.repeat(np.arange(80) // 4, 6)
    x, h = rng.normal(size=(480, 5)), (rng.random((480, 2)) < 0.3).astype(float)
    scorer, moved = Scorer(["correlation", "mean_difference"]), []
    for part in np.array_split(np.arange(480), 4):
        scorer.update(x[part], h[part], items[part], groups=group[part])
        rows = sources(places(items[part], 0, groups=group[part]))
        assert (group[part][rows] != group[part]).all()
        assert (items[part][rows] % 80 != items[part]).all()
        assert sorted(rows) == list(range(len(part)))
        assert (rows % 6 == part % 6).all()
        moved.append(h[part][rows])
    moved = np.concatenate(moved)
    want = np.abs(scipy_correlations(x, moved)).max(axis=0)
    assert read(scorer, "correlation", "1", 2).baseline == pytest.approx(want[1], abs=1e-9)
    spread = x[:, 2].std() / h[:, 1].std()
    assert read(scorer, "mean_difference", "1", 2).baseline == pytest.approx(want[1] * spread, abs=1e-9)


def test_baseline_of_blocks_of_one_item():
    """A stream of one item at a time moves hypotheses from the item before."""
    rng = np.random.default_rng(0)
    scorer, x, h = Scorer("correlation"), rng.normal(size=(300, 20, 2)), rng.random((300, 20)) < 0.3
    for item in range(300):
        scorer.update(x[item], {"h": h[item]}, np.full(20, item))
    want = [abs(np.corrcoef(x[1:, :, u].ravel(), h[:-1].ravel())[0, 1]) for u in range(2)]
    assert scorer.columns().baseline[0] == pytest.approx(max(want), abs=1e-9)


def test_items_without_a_partner():
    where = places(np.array([0, 0, 0, 1, 1, 2]), 0)
    got = sources(where)
    position = [0, 1, 2, 0, 1, 0]
    item = [0, 0, 0, 1, 1, 2]
    for row, source in enumerate(got.tolist()):
        assert source == -1 or (position[source] == position[row] and item[source] != item[row])
    assert (got[[0, 3, 5]] >= 0).all()
    assert sources(places(np.zeros(4, int), 0)).tolist() == [-1] * 4
    one_document = sources(places(np.arange(4), 0, groups=np.array([0, 0, 0, 1])))
    assert (one_document >= 0).sum() == 2
    assert len(sources(places(np.empty(0, int), 0))) == 0
