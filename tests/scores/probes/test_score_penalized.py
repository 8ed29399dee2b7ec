"""Regressions with a coefficient per unit, compared with scikit-learn and with planted truth."""

from __future__ import annotations

import numpy as np
import pytest
from score_help import fed, read
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score
from sklearn.preprocessing import StandardScaler

from intus.core.errors import InputError
from intus.scores import LinRegressionScore, LogRegressionScore, infos
from intus.scores.estimators.penalized import fit_linear, fit_logistic, moved
from intus.scores.statistics.split import places


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def planted(rng):
    """Return units of which two decide a binary label, and the coefficients that do."""
    x = rng.normal(size=(3000, 20)) @ (np.eye(20) + 0.2 * rng.normal(size=(20, 20)))
    weights = np.zeros(20)
    weights[[3, 7]] = [2.0, -1.0]
    y = x @ weights + rng.logistic(size=3000) > 0
    return 5 + 3 * x, y.astype(int), weights


def coefficients(scorer, score, target):
    return {r.unit: r for r in scorer.result() if (r.score, r.target) == (f"{score}.coef", target)}


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
def test_l1_logistic_coefficients_equal_sklearn(load):
    x, codes = load(return_X_y=True)
    z = StandardScaler().fit_transform(x)
    got = fit_logistic(z, codes, "L1", 0.1)
    model = LogisticRegression(l1_ratio=1.0, C=0.1, solver="saga", tol=1e-6, max_iter=20_000, random_state=0)
    model.fit(z, codes)
    np.testing.assert_allclose(got.coef, model.coef_.T, atol=2e-3)
    gap = got.intercept - model.intercept_
    np.testing.assert_allclose(gap - gap.mean() * (len(gap) > 1), 0, atol=2e-3)
    assert 0 < (got.coef != 0).sum() < got.coef.size / 2


def test_layer_row_and_coefficients_equal_sklearn(planted):
    x, y, _ = planted
    held = places(np.arange(len(x)), 0).held
    scaler = StandardScaler().fit(x[~held])
    model = LogisticRegression(C=0.3).fit(scaler.transform(x[~held]), y[~held])
    guess = model.predict(scaler.transform(x[held]))
    scores = [LogRegressionScore("L2", C=0.3), LogRegressionScore("L2", "accuracy", C=0.3)]
    scorer = fed(scores, x, {"y": y})
    assert read(scorer, "logistic_l2_0.3", "y").value == pytest.approx(
        f1_score(y[held], guess, average="macro")
    )
    assert read(scorer, "logistic_l2_accuracy_0.3", "y").value == accuracy_score(y[held], guess)
    found = coefficients(scorer, "logistic_l2_0.3", "y")
    np.testing.assert_allclose(
        [found[unit].value for unit in range(20)], model.coef_[0], rtol=1e-3, atol=1e-4
    )


def test_l1_selects_the_planted_units(planted):
    x, y, weights = planted
    for score, labels in (("logistic_l1", y), ("linear_l1", x @ weights)):
        scorer = fed(score, x, {"y": labels})
        found = coefficients(scorer, score, "y")
        ranked = sorted(found, key=lambda unit: -abs(found[unit].value))
        assert ranked[:2] == [3, 7], score
        assert found[3].value > 0 > found[7].value
        assert sum(found[unit].value == 0 for unit in found) >= 14, score
        assert read(scorer, score, "y").low > read(scorer, score, "y").baseline


def test_linear_coefficients_equal_sklearn(planted):
    x, y, weights = planted
    labels = x @ weights + y
    held = places(np.arange(len(x)), 0).held
    z = StandardScaler().fit_transform(x[~held])
    goal = (labels[~held] - labels[~held].mean()) / labels[~held].std()
    wanted = {"L1": Lasso(0.1).fit(z, goal).coef_, "L2": Ridge(0.1 * len(z)).fit(z, goal).coef_}
    for regul, coef in wanted.items():
        name = f"linear_{regul.lower()}_0.1"
        found = coefficients(fed(LinRegressionScore(regul, 0.1), x, {"y": labels}), name, "y")
        np.testing.assert_allclose([found[unit].value for unit in range(20)], coef, atol=1e-6)
        guess = fit_linear(z, labels[~held], regul, 0.1)
        assert guess.coef[:, 0] == pytest.approx(coef * labels[~held].std())


@pytest.mark.parametrize("score", ["logistic_l2", "linear_l2"])
def test_coefficient_intervals_equal_refits_without_each_group(planted, score):
    """One Newton step comes close to refitting, also with correlated rows of one item."""
    x, y, _ = planted
    items = np.repeat(np.arange(300), 10)
    x = x + np.repeat(np.random.default_rng(1).normal(size=(300, 20)), 10, axis=0)
    kept = ~places(items, 0).held
    group = places(items, 0).group[kept]
    z = StandardScaler().fit_transform(x[kept])

    def fit(rows):
        if score == "logistic_l2":
            return LogisticRegression().fit(z[rows], y[kept][rows]).coef_[0]
        return LinearRegression().fit(z[rows], y[kept][rows] / y[kept].std()).coef_

    refits = np.array([fit(group != one) for one in range(16)])
    error = np.sqrt(15 / 16 * ((refits - refits.mean(axis=0)) ** 2).sum(axis=0))
    asked = score if score == "logistic_l2" else LinRegressionScore("L2", 1e-6)
    found = coefficients(fed(asked, x, {"y": y}, items), score + "_1e-06" * (score == "linear_l2"), "y")
    widths = np.array([found[unit].high - found[unit].low for unit in range(20)])
    np.testing.assert_allclose(widths / (2 * 2.131), error, rtol=0.1)


def test_noise_is_rarely_above_baseline():
    """The units are noise of their own in each run, the rows of an item share it."""
    above = tests = significant = 0
    for run in range(25):
        rng = np.random.default_rng(run)
        x = rng.normal(size=(600, 10)) + np.repeat(rng.normal(size=(200, 10)), 3, axis=0)
        y = np.repeat(rng.integers(0, 2, 200), 3)
        scorer = fed(["logistic_l2", "linear_l2"], x, {"y": y}, np.repeat(np.arange(200), 3))
        units = [r for r in scorer.result() if r.unit >= 0]
        above += sum(r.low > r.baseline or r.high < -r.baseline for r in units)
        significant += sum(r.p < 0.05 for r in units)
        tests += len(units)
    assert tests == 500
    assert above / tests <= 0.02
    assert significant / tests <= 0.08


def test_moved_labels_are_those_of_another_item_in_the_same_position():
    where = places(np.array([5, 5, 8, 8, 8, 9, 9]), 0)
    other = moved(where, 0)
    kept = other >= 0
    assert (where.item[other[kept]] != where.item[kept]).all()
    assert (where.position[other[kept]] == where.position[kept]).all()
    assert sum(other < 0) == 1  # only one item has a third row
    assert (moved(places(np.zeros(4, int), 0), 0) == -1).all()


def test_text_labels_several_classes_and_constant_units(rng):
    x = rng.normal(size=(900, 4))
    y = np.array(["a", "b", "c"])[np.digitize(x[:, 2], [-0.5, 0.5])]
    x[:, 1] = 7
    scorer = fed(["logistic_l1", "logistic_l2"], x, {"letter": y})
    for score in ("logistic_l1", "logistic_l2"):
        found = coefficients(scorer, score, "letter")
        assert max(found, key=lambda unit: np.nan_to_num(found[unit].value)) == 2
        assert found[2].note == "the norm over the classes"
        assert np.isnan(found[1].value)
        assert found[1].note == "the unit is constant"
        assert read(scorer, score, "letter").value > 0.6


@pytest.mark.parametrize(
    ("score", "labels", "note"),
    [
        ("logistic_l1", np.zeros(60), "a single class"),
        ("logistic_l2", np.arange(60), "classes are too many"),
        ("linear_l2", np.zeros(60), "no spread"),
        ("linear_l1", np.array(["a", "b"] * 30), "not numbers"),
    ],
)
def test_unsuited_labels_give_a_note(rng, score, labels, note):
    found = fed(score, rng.normal(size=(60, 3)), {"y": labels}).result()
    assert [r.unit for r in found] == [-1]
    assert np.isnan(found[0].value)
    assert note in found[0].note


def test_arguments_that_do_not_fit_are_refused():
    for make, message in (
        (lambda: LogRegressionScore("L3"), "regul must be 'L1' or 'L2', got 'L3'"),
        (lambda: LogRegressionScore(score="R2"), "score must be 'F1' or 'accuracy', got 'R2'"),
        (lambda: LogRegressionScore(C=0), "C must be a positive number, got 0"),
        (lambda: LinRegressionScore("l1"), "regul must be 'L1' or 'L2', got 'l1'"),
        (lambda: LinRegressionScore(alpha=-1), "alpha must be a positive number, got -1"),
    ):
        with pytest.raises(InputError, match=message):
            make()


def test_coefficients_are_described_as_scores_of_units():
    known = infos()
    assert (known["logistic_l1"].level, known["logistic_l1.coef"].level) == ("layer", "unit")
    assert known["logistic_l1.coef"].interval == ""
    assert known["linear_l2.coef"].interval
