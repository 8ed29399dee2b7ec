"""Label-free scores, compared with numpy."""

from __future__ import annotations

import numpy as np
import pytest
from score_help import fed, read

from intus.core.projection import project
from intus.scores import Scorer

NAMES = ["mean", "mean_abs", "variance", "std", "min", "max", "norm", "sparsity", "dead", "nonfinite"]


def test_intrinsic_scores_equal_numpy(digits):
    x = digits[0] - 3
    scorer = fed(NAMES, x)
    want = {
        "mean": x.mean(dtype=np.float64),
        "mean_abs": np.abs(x).mean(dtype=np.float64),
        "variance": x.var(dtype=np.float64),
        "std": x.std(dtype=np.float64),
        "min": x.min(),
        "max": x.max(),
        "norm": np.linalg.norm(x.astype(np.float64), axis=1).mean(),
        "sparsity": (x == 0).mean(),
        "dead": 0.0,
        "nonfinite": 0.0,
    }
    for name, value in want.items():
        assert read(scorer, name).value == pytest.approx(value, abs=1e-9), name
        assert read(scorer, name).n == 1797


def test_std_with_large_mean():
    x = np.random.default_rng(0).normal(1e6, 1, size=(4000, 8))
    assert read(fed("std", x), "std").value == pytest.approx(x.std(), rel=1e-9)


def test_mean_interval_coverage():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        r = read(fed("mean", rng.normal(2, 1, size=(80, 1)) + rng.normal(0, 0.1, size=(80, 5))), "mean")
        hits += r.low <= 2 <= r.high
    assert 180 <= hits <= 200


def test_mean_interval_coverage_with_clustered_rows():
    """40 images of constant brightness with a row per pixel: 64 times as many rows, equal information."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        level = np.repeat(rng.normal(2, 1, size=(40, 1)), 64, axis=0)
        r = read(fed("mean", level, items=np.repeat(np.arange(40), 64)), "mean")
        hits += r.low <= 2 <= r.high
    assert 180 <= hits <= 200


def test_dead_counts_features_that_are_always_zero(digits):
    x = digits[0]
    assert read(fed("dead", x), "dead").value == pytest.approx((x == 0).all(axis=0).mean())
    assert (x == 0).all(axis=0).any()


def test_covariance_scores_equal_definitions(digits):
    x = digits[0].astype(np.float64)
    centred = x - x.mean(axis=0)
    eigenvalues = np.linalg.eigvalsh(centred.T @ centred)
    scorer = fed(["participation_ratio", "effective_rank"], x)
    want = eigenvalues.sum() ** 2 / (eigenvalues**2).sum()
    assert read(scorer, "participation_ratio").value == pytest.approx(want, rel=1e-9)
    share = np.linalg.svd(centred, compute_uv=False)
    share = share[share > 1e-9] / share.sum()
    want = np.exp(-(share * np.log(share)).sum())
    assert read(scorer, "effective_rank").value == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize(
    ("rows", "features", "directions"), [(100, 1024, 1024), (400, 700, 700), (60, 300, 5)]
)
def test_effective_rank_of_fewer_rows_than_features_equals_numpy(rows, features, directions):
    """Before, rounding errors of the dimensions that no row reaches added up to 1e-5 of it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, directions)) / np.arange(1, directions + 1)
    x = x @ rng.normal(size=(directions, features)) / np.sqrt(features) + 3
    share = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)
    share = share[share > 1e-9 * share[0]] / share.sum()
    want = np.exp(-(share * np.log(share)).sum())
    assert read(fed("effective_rank", x), "effective_rank").value == pytest.approx(want, rel=1e-9)


def test_dimension_of_isotropic_noise():
    basis = np.linalg.qr(np.random.default_rng(1).normal(size=(50, 20)))[0]
    x = np.random.default_rng(0).normal(size=(20000, 20)) @ basis.T
    scorer = fed(["participation_ratio", "effective_rank"], x)
    assert read(scorer, "participation_ratio").value == pytest.approx(20, abs=0.1)
    assert read(scorer, "effective_rank").value == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize("directions", [5, 300, 1500])
def test_dimension_of_projected_layer(directions):
    """1,500 features are projected to 1,024."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, directions))
    if directions < 1500:
        x = x @ np.linalg.qr(rng.normal(size=(1500, directions)))[0].T
    scatter = np.cov(x.T)
    want = np.trace(scatter) ** 2 / (scatter**2).sum()
    scorer = fed(["participation_ratio", "effective_rank"], x)
    assert read(scorer, "participation_ratio").value == pytest.approx(want, rel=0.03)
    assert read(scorer, "participation_ratio").note == "1500 features projected to 1024"
    assert np.isnan(read(scorer, "effective_rank").value)
    assert read(scorer, "effective_rank").note == "not for more than 1024 features"


@pytest.mark.parametrize(("features", "directions"), [(1500, 300), (1500, 1500), (5000, 300), (5000, 1000)])
def test_dimension_of_layer_that_the_probe_projected(features, directions):
    """Compare with numpy; before, 1/m was subtracted from 1/PR, and PR was up to 50 % too large."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, directions))
    if directions < features:
        x = x @ np.linalg.qr(rng.normal(size=(features, directions)))[0].T
    centred = x - x.mean(0)
    gram = centred @ centred.T
    want = np.trace(gram) ** 2 / (gram**2).sum()
    scorer = Scorer("participation_ratio")
    scorer.update(project(x), projected_from=features)
    assert read(scorer, "participation_ratio").value == pytest.approx(want, rel=0.03)


def test_nonfinite_entries_are_counted_and_rows_left_out(digits):
    x = digits[0].copy()
    x[3, 5], x[3, 6], x[10, 0] = np.nan, np.inf, -np.inf
    good = np.delete(x, [3, 10], axis=0)
    scorer = fed([*NAMES, "participation_ratio"], x)
    assert read(scorer, "nonfinite").value == 3
    assert read(scorer, "nonfinite").n == 1797
    for name in NAMES[:-1]:
        assert read(scorer, name).value == pytest.approx(read(fed(name, good), name).value, abs=1e-9)
        assert read(scorer, name).note == "2 of 1797 rows left out: NaN or infinite"
    assert read(scorer, "participation_ratio").n == 1795


@pytest.mark.parametrize("x", [np.full((5, 3), np.nan), np.empty((0, 3)), np.full((4, 2), 1e200)])
def test_extreme_input_gives_nan_or_inf(x):
    result = fed([*NAMES, "participation_ratio", "effective_rank"], x).result()
    assert len(result) == 12
    for one in result:
        assert np.isfinite(one.value) or one.note or x.max(initial=0) == 1e200
    if not np.isfinite(x).any():
        assert all(np.isnan(r.value) and r.note for r in result if r.score != "nonfinite")


def test_intrinsic_scores_of_constant_layer():
    scorer = fed([*NAMES, "participation_ratio", "effective_rank"], np.full((10, 3), 0.1))
    assert read(scorer, "std").value == pytest.approx(0, abs=1e-12)
    assert np.isnan(read(scorer, "participation_ratio").value)
    assert read(scorer, "effective_rank").note == "the behaviours do not vary"
