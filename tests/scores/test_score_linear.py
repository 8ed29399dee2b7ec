"""Linear classifiers, compared with scikit-learn."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from score_help import fed, read
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import accuracy_score, f1_score
from sklearn.preprocessing import StandardScaler

from intus.scores import Scorer
from intus.scores.judging import judge, majority_f1
from intus.scores.linear import discriminate, outcome, penalty_of, solve
from intus.scores.statistics.moments import Gram, Moments, Sums
from intus.scores.statistics.ridge import ALPHAS, factorise
from intus.scores.statistics.split import places


@pytest.fixture(scope="module")
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def in_blocks(x, y):
    """Return the moments of rows given block by block, none held out."""
    moments = Moments(x.shape[1], ("y",))
    for start in range(0, len(x), 301):
        part = slice(start, start + 301)
        none = np.zeros(len(x[part]), dtype=bool)
        moments.update(x[part], none, np.zeros(len(none), dtype=np.int64), {"y": y[part]})
    moments.settle()
    return moments


@pytest.mark.parametrize("alpha", [0.001, 0.1, 1.0])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_solve_equals_sklearn_ridge_classifier(digits, alpha, offset):
    x, y = digits[0].astype(np.float64) + offset, digits[1]
    moments = in_blocks(x, y)
    classifier = solve(factorise(moments.train), moments.classes["y"], alpha)

    scaler = StandardScaler().fit(x)
    ridge = RidgeClassifier(alpha=alpha * len(x)).fit(scaler.transform(x), y)
    ours = (x - moments.shift) @ classifier.coef + classifier.intercept
    np.testing.assert_allclose(ours, ridge.decision_function(scaler.transform(x)), atol=1e-6)
    assert (classifier.predict(x - moments.shift) == ridge.predict(scaler.transform(x))).all()


@pytest.mark.parametrize("alpha", [0.001, 0.1, 5.0])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_discriminate_equals_sklearn_lda(digits, alpha, offset):
    x, y = digits[0].astype(np.float64) + offset, digits[1]
    moments = in_blocks(x, y)
    classifier = discriminate(factorise(moments.train), moments.classes["y"], alpha)

    z = StandardScaler().fit_transform(x)
    within = np.mean([(z[y == c] - z[y == c].mean(axis=0)).var(axis=0) * (y == c).sum() for c in range(10)])
    level = within * 10 / len(z)
    theirs = LinearDiscriminantAnalysis("lsqr", shrinkage=alpha / (alpha + level)).fit(z, y)
    ours, wanted = (x - moments.shift) @ classifier.coef + classifier.intercept, theirs.decision_function(z)
    centred = [table - table.mean(axis=1, keepdims=True) for table in (ours, wanted)]
    np.testing.assert_allclose(*centred, atol=1e-8)
    assert (classifier.predict(x - moments.shift) == theirs.predict(z)).all()


@pytest.mark.parametrize("noise", [0, 250])
def test_penalty_equals_generalised_cross_validation(digits, noise):
    """scikit-learn's RidgeCV leaves out single rows; the rotation-invariant form is computed here."""
    rng = np.random.default_rng(0)
    x = np.hstack([digits[0].astype(float), 3 * rng.normal(size=(len(digits[1]), noise))])
    y, n = digits[1], len(x)
    moments = Moments(x.shape[1], ("y",))
    moments.update(x, np.zeros(n, bool), np.zeros(n, np.int64), {"y": y})
    moments.settle()
    z, codes = StandardScaler().fit_transform(x), 2.0 * np.eye(10)[y] - 1
    losses = {}
    for alpha in ALPHAS:
        hat = z @ np.linalg.solve(z.T @ z + alpha * n * np.eye(z.shape[1]), z.T) + 1 / n
        missed = ((codes - hat @ codes) ** 2).sum()
        losses[alpha] = missed / (1 - np.trace(hat) / n) ** 2
    chosen = penalty_of(factorise(moments.train), moments.classes["y"])
    assert losses[chosen] == pytest.approx(min(losses.values()), rel=1e-6)
    assert chosen == pytest.approx(0.01 if not noise else 1.0, rel=10)


def test_linear_f1_of_low_rank_layer():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 4000)
    x = 0.3 * rng.normal(size=(5, 200))[y] + rng.normal(size=(4000, 200))
    turn = np.linalg.qr(rng.normal(size=(200, 200)))[0]
    steep = (x / np.arange(1, 201)) @ turn
    for name in ("linear_f1", "lda_f1"):
        flat, found = (read(fed(name, layer, {"y": y}), name, "y").value for layer in (x, steep))
        assert found > flat - 0.02 > 0.8


def test_selectivity_is_accuracy_minus_control(digits):
    x, y = digits
    scorer = fed(["linear_selectivity", "lda_accuracy", "lda_f1"], x, {"digit": y})
    found, got = outcome(scorer.statistics, "digit"), read(scorer, "linear_selectivity", "digit")
    assert got.value == pytest.approx(found.real.accuracy - found.control.accuracy)
    assert got.low < got.value < got.high < 1
    assert 0.9 < read(scorer, "lda_accuracy", "digit").value < 1
    assert read(scorer, "lda_f1", "digit").baseline < 0.2
    fake = np.random.default_rng(5).permutation(y)
    chance = read(fed("linear_selectivity", x, {"y": fake}), "linear_selectivity", "y")
    assert chance.low < 0 < chance.high


def test_linear_scores_equal_sklearn(digits):
    x, y = digits
    held = places(np.arange(len(x)), 0).held
    assert 0.2 < held.mean() < 0.3
    scaler = StandardScaler().fit(x[~held].astype(np.float64))
    scorer = fed(["linear_f1", "linear_accuracy"], x, {"digit": y})
    moments = scorer.statistics.moments
    alpha = penalty_of(factorise(moments.train), moments.classes["digit"])
    ridge = RidgeClassifier(alpha=alpha * (~held).sum()).fit(scaler.transform(x[~held]), y[~held])
    guess = ridge.predict(scaler.transform(x[held]))
    f1, accuracy = read(scorer, "linear_f1", "digit"), read(scorer, "linear_accuracy", "digit")
    assert f1.value == pytest.approx(f1_score(y[held], guess, average="macro"), abs=1e-9)
    assert accuracy.value == pytest.approx(accuracy_score(y[held], guess), abs=1e-9)
    assert f1.n == held.sum()
    assert f1.low < f1.value < f1.high
    assert f1.high - f1.low < 0.1
    majority = read(scorer, "linear_f1.majority", "digit").value
    commonest = np.bincount(y[~held]).argmax()
    assert majority == pytest.approx(f1_score(y[held], np.full(held.sum(), commonest), average="macro"))
    control = read(scorer, "linear_f1.shuffled", "digit").value
    assert 0.04 < control < 0.17
    assert f1.baseline == max(majority, control)


def test_linear_f1_of_shuffled_labels_is_baseline(digits):
    x, y = digits
    fake = np.random.default_rng(3).permutation(y)
    result = read(fed("linear_f1", x, {"y": fake}), "linear_f1", "y")
    assert result.value < 0.16
    assert result.low <= result.baseline <= result.high


def test_control_of_separable_layer_is_chance():
    y = np.arange(4000) % 4
    scorer = fed("linear_accuracy", np.eye(4)[y], {"y": y})
    assert read(scorer, "linear_accuracy", "y").value == 1.0
    assert outcome(scorer.statistics, "y").control.accuracy < 0.32


@pytest.mark.parametrize(
    "labels",
    [
        lambda y: y,
        lambda y: [f"class {c}" for c in y],
        lambda y: y.astype(float) / 2,
        lambda y: np.array([f"class {c}" for c in y], dtype=object),
    ],
)
def test_label_types_give_equal_scores(digits, labels):
    x, y = digits
    want = read(fed("linear_f1", x, {"y": y}), "linear_f1", "y")
    got = read(fed("linear_f1", x, {"y": labels(y)}), "linear_f1", "y")
    assert got.value == pytest.approx(want.value, abs=1e-12)


def test_bool_labels_and_two_classes(digits):
    x, y = digits
    even = read(fed("linear_accuracy", x, {"even": y % 2 == 0}), "linear_accuracy", "even")
    assert even.value > 0.85 > 0.6 > even.baseline


def test_rows_without_label_are_left_out(digits):
    x, y = digits
    some = [None if i % 3 == 0 else int(c) for i, c in enumerate(y)]
    kept = np.arange(len(y)) % 3 != 0
    want = read(fed("linear_f1", x[kept], {"y": y[kept]}, np.flatnonzero(kept)), "linear_f1", "y")
    scorer = fed("linear_f1", x, {"y": some, "all": y})
    got = read(scorer, "linear_f1", "y")
    assert (got.value, got.low, got.high, got.n) == pytest.approx(
        (want.value, want.low, want.high, want.n), abs=1e-9
    )
    assert read(scorer, "linear_f1", "all").n > got.n


def test_hundred_classes(rng):
    y = np.arange(6000) % 100
    x = rng.normal(size=(100, 64))[y] + rng.normal(size=(6000, 64))
    result = read(fed("linear_f1", x, {"y": y}), "linear_f1", "y")
    assert result.value > 0.9
    assert result.baseline < 0.03


@pytest.mark.parametrize(
    ("x", "y", "note"),
    [
        (np.ones((50, 3)), np.zeros(50, int), "a single class"),
        (np.ones((50, 3)), [None] * 50, "no labelled"),
        (np.ones((1, 3)), [1], "a single class|no labelled"),
        (np.random.default_rng(0).normal(size=(3000, 2)), np.arange(3000.0), "too many different labels"),
        (np.full((50, 3), np.nan), np.arange(50) % 2, "no labelled"),
        (np.empty((0, 3)), np.empty(0, int), "no labelled"),
    ],
)
def test_linear_score_without_classes_is_nan_with_note(x, y, note):
    import re

    result = read(fed("linear_f1", x, {"y": y}), "linear_f1", "y")
    assert np.isnan(result.value)
    assert re.search(note, result.note)


def test_constant_features_do_not_change_scores(digits):
    x, y = digits
    wider = np.hstack([x, np.full((len(x), 3), 7.0, np.float32)])
    want, got = (read(fed("linear_f1", v, {"y": y}), "linear_f1", "y") for v in (x, wider))
    assert got.value == pytest.approx(want.value, abs=1e-9)


def test_rows_of_one_item_are_on_one_side_of_split(digits):
    """With every row given twice, item ids keep a row out of the training set of its copy."""
    x = np.random.default_rng(0).normal(size=(600, 400))
    y = np.random.default_rng(1).integers(0, 2, 600)
    twice, ids = np.r_[x, x], np.r_[np.arange(600), np.arange(600)]
    honest = read(fed("linear_accuracy", twice, {"y": np.r_[y, y]}, ids), "linear_accuracy", "y")
    leaking = read(fed("linear_accuracy", twice, {"y": np.r_[y, y]}), "linear_accuracy", "y")
    assert honest.value < 0.6
    assert leaking.value > 0.7  # a quarter of the twins are held out too
    assert honest.high - honest.low > 1.3 * (leaking.high - leaking.low)


def test_bootstrap_interval_coverage():
    """About 95 % of the intervals of 200 held-out sets must contain the accuracy of all rows."""
    rng = np.random.default_rng(0)
    hits = 0
    for seed in range(200):
        truth = rng.integers(0, 2, 150)
        guess = np.where(rng.random(150) < 0.8, truth, 1 - truth)
        low, high = judge(truth, guess).interval("accuracy", seed)
        hits += low <= 0.8 <= high
    assert 180 <= hits <= 200


def test_interval_of_perfect_predictions():
    truth = np.arange(60) % 3
    low, high = judge(truth, truth).interval("accuracy", 0)
    assert high == 1
    assert low == pytest.approx(0.025 ** (1 / 60))  # scipy.stats.binomtest(60, 60).proportion_ci().low
    assert judge(truth, (truth + 1) % 3).interval("accuracy", 0) == (0, pytest.approx(1 - low))


def test_macro_f1_equals_sklearn(rng):
    for classes in (2, 5, 30):
        truth, guess = rng.integers(0, classes, 90), rng.integers(0, classes + 2, 90)
        want = f1_score(truth, guess, average="macro", zero_division=0)
        assert judge(truth, guess).f1 == pytest.approx(want, abs=1e-12)
    assert majority_f1(np.array([1, 1, 0]), np.array([0, 1])) == pytest.approx(1 / 3)


def test_wide_layers_are_projected_with_note(digits):
    x, y = digits
    wide = np.maximum(x @ np.random.default_rng(0).normal(size=(64, 3000)).astype(np.float32), 0)
    scorer = fed(["linear_f1", "participation_ratio"], wide, {"y": y})
    result = read(scorer, "linear_f1", "y")
    assert result.value > 0.95
    assert result.note == "3000 features projected to 1024"
    centred = wide - wide.mean(axis=0, dtype=np.float64)
    kernel = centred @ centred.T
    exact = np.trace(kernel) ** 2 / (kernel**2).sum()
    assert read(scorer, "participation_ratio").value == pytest.approx(exact, rel=0.1)


def test_moments_with_large_mean():
    x = np.random.default_rng(0).normal(1e4, 1, size=(5000, 4))
    moments = Moments(4, ())
    for part in np.array_split(x, 9):
        moments.update(part, np.zeros(len(part), bool), np.zeros(len(part), np.int64), {})
    moments.settle()
    np.testing.assert_allclose(moments.train.scatter() / 4999, np.cov(x.T), rtol=1e-9, atol=1e-9)
    assert isinstance(moments.held, Gram)
    assert Sums(2, 3).totals.shape == (2, 3)


def test_too_few_rows_to_hold_out():
    scorer = Scorer("linear_f1")
    scorer.update(np.eye(3), {"y": [0, 1, 2]})
    result = read(scorer, "linear_f1", "y")
    assert np.isnan(result.value)
    assert result.note


def test_partly_labelled_targets_use_own_moments(digits):
    x, y = digits[0].astype(np.float64), digits[1]
    rng = np.random.default_rng(0)
    padding, other = rng.random(len(y)) < 0.7, rng.random(len(y)) < 0.2
    labels = {
        "all": y,
        "digit": np.where(padding, -1, y),
        "parity": np.where(padding, -1, y % 2),
        "late": np.where(other & (np.arange(len(y)) > 900), -1, y),  # -1 is no label here
    }

    def moments_of(rows):
        moments = Moments(x.shape[1], tuple(labels))
        for part in np.array_split(rows, 5):
            none = np.zeros(len(part), dtype=bool)
            moments.update(x[part], none, np.zeros(len(part), int), {k: v[part] for k, v in labels.items()})
            moments.settle()
        return moments

    whole = moments_of(np.arange(len(y)))
    merged = moments_of(np.arange(700))
    merged.merge(moments_of(np.arange(700, len(y))), {name: np.arange(11) for name in labels})
    for moments in (whole, merged):
        assert moments.labelled["all"] is moments.train
        assert moments.labelled["digit"] is moments.labelled["parity"] is not moments.train
        for target, column in labels.items():
            z, codes = x[column >= 0], column[column >= 0]
            classifier = solve(factorise(moments.labelled[target]), moments.classes[target], 0.1)
            scaler = StandardScaler().fit(z)
            theirs = RidgeClassifier(alpha=0.1 * len(z)).fit(scaler.transform(z), codes)
            wanted = theirs.decision_function(scaler.transform(z))
            ours = (z - moments.shift) @ classifier.coef + classifier.intercept
            ours = ours[:, 1] if target == "parity" else ours
            np.testing.assert_allclose(ours, wanted, atol=1e-6)


@pytest.mark.parametrize("features", [1, 2, 3])
@pytest.mark.parametrize("method", [solve, discriminate])
def test_layers_of_few_features(method, features):
    x = np.random.default_rng(0).normal(size=(200, features))
    y = (x[:, 0] > 0).astype(int)
    moments = in_blocks(x, y)
    classifier = method(factorise(moments.train), moments.classes["y"])
    assert (classifier.predict(x - moments.shift) == y).mean() > 0.9


def test_memory_of_very_wide_layers_is_bounded(digits):
    x, y = digits
    wide = np.repeat(x[:448], 1568, axis=1)  # as many as a convolution's flattened map
    scorer = Scorer(["linear_f1", "participation_ratio", "effective_rank"])
    tracemalloc.start()
    for start in range(0, 448, 16):
        rows = slice(start, start + 16)
        scorer.update(wide[rows], {"digit": y[rows]})
    results = {r.score: r for r in scorer.result()}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 250e6  # its covariance would take 80 GB
    assert results["linear_f1"].note == "100352 features projected to 1024"
    assert "not for more than 1024 features" in results["effective_rank"].note
    plain = fed("linear_f1", x[:448], {"digit": y[:448]})
    assert results["linear_f1"].value == pytest.approx(read(plain, "linear_f1", "digit").value, abs=0.06)
