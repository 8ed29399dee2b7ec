"""The linear regression, compared with scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from score_help import fed, read
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.metrics import r2_score
from sklearn.preprocessing import StandardScaler

from intus.scores import get
from intus.scores.estimators.regression import predicted
from intus.scores.statistics.split import places


@pytest.fixture(scope="module")
def diabetes() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_diabetes(return_X_y=True)
    return x, y + 0.5


@pytest.mark.parametrize("features", [10, 600])
def test_ridge_prediction_equals_sklearn(diabetes, features):
    x, y = diabetes
    x = np.random.default_rng(0).normal(size=(10, features)).T @ x.T
    x = x.T + 1000
    scaler = StandardScaler().fit(x[:300])
    ridge = Ridge(0.1 * 300).fit(scaler.transform(x[:300]), y[:300])
    theirs = ridge.predict(scaler.transform(x[300:]))
    np.testing.assert_allclose(predicted(x[:300], y[:300], x[300:], 0.1), theirs, atol=1e-6)


def test_r2_equals_sklearn(diabetes):
    x, y = diabetes
    held = places(np.arange(len(x)), 0).held
    got = read(fed("r2", x, {"progression": y}), "r2", "progression")
    guess = predicted(x[~held], y[~held], x[held])
    # sklearn compares with the mean of the held-out rows, which nothing trained could know
    ours = 1 - ((y[held] - guess) ** 2).sum() / ((y[held] - y[~held].mean()) ** 2).sum()
    assert got.value == pytest.approx(ours)
    assert got.value == pytest.approx(r2_score(y[held], guess), abs=0.02)
    assert got.low < got.value < got.high
    assert got.low > 0.2
    assert 0 <= got.baseline < 0.1
    assert got.n == held.sum()


def test_r2_leaves_out_rows_without_number_or_with_nan(diabetes):
    x, y = diabetes
    some = [None if i % 5 == 0 else float(v) for i, v in enumerate(y)]
    kept = np.arange(len(y)) % 5 != 0
    spoilt = x.copy()
    spoilt[~kept] = np.nan
    want = read(fed("r2", x[kept], {"y": y[kept]}, np.flatnonzero(kept)), "r2", "y")
    for given in (fed("r2", x, {"y": some}), fed("r2", spoilt, {"y": y})):
        got = read(given, "r2", "y")
        assert (got.value, got.n) == (pytest.approx(want.value), want.n)


def test_r2_of_whole_numbers_is_computed_if_requested(digits):
    """A depth of 0 to 4 is a number although it may be a class, so only who asks for R² gets it."""
    x, y = digits
    depth = np.minimum(y, 4)
    labels = {"depth": depth, "name": [f"d{c}" for c in y]}
    scorer = fed("r2", x, labels)
    held = places(np.arange(len(x)), 0).held
    ridge = RidgeCV(np.logspace(-3, 4, 30)).fit(x[~held], depth[~held])
    theirs = r2_score(depth[held], ridge.predict(x[held]))
    assert read(scorer, "r2", "depth").value == pytest.approx(theirs, abs=0.02)
    assert read(scorer, "r2", "name").note == "the labels are not numbers"
    by_default = [get("r2").by_default()]
    assert fed(by_default, x, labels).result() == []
    assert len(fed(by_default, x, {"half": depth / 2}).result()) == 1


def test_r2_of_constant_or_single_row_has_note(diabetes):
    x, _ = diabetes
    assert "no spread" in read(fed("r2", x, {"y": np.full(len(x), 0.5)}), "r2", "y").note
    assert "too few" in read(fed("r2", x[:1], {"y": [0.5]}), "r2", "y").note


def test_r2_with_constant_features_and_wide_layers():
    rng = np.random.default_rng(0)
    x = np.hstack([np.ones((400, 3)), rng.normal(size=(400, 2000))])
    got = read(fed("r2", x, {"y": x[:, 5] + 0.01 * rng.normal(size=400)}), "r2", "y")
    assert np.isfinite(got.value)
    assert "projected" in got.note
