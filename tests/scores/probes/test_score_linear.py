"""Linear classifiers, compared with scikit-learn."""

from __future__ import annotations

import pickle
import tracemalloc
from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize
from score_help import fed, read
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.preprocessing import StandardScaler

from intus.scores import Scorer
from intus.scores.documentation.calibrate import words as words_of_calibration
from intus.scores.probes import classifiers
from intus.scores.probes.classifiers import balanced, discriminate, logistic, penalty_of
from intus.scores.probes.judging import _Totals, judge
from intus.scores.probes.linear import DRAWS, _labels_of_buckets, control, outcome
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


@pytest.mark.parametrize("alpha", [0.001, 0.1, 5.0])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_discriminate_equals_sklearn_lda(digits, alpha, offset):
    x, y = digits[0].astype(np.float64) + offset, digits[1]
    moments = in_blocks(x, y)
    classifier = discriminate(factorise(moments.train), moments.classes["y"], alpha)
    assert_equals_sklearn_lda(classifier, x, x - moments.shift, y, alpha)


def assert_equals_sklearn_lda(classifier, x, shifted, y, alpha):
    z, classes = StandardScaler().fit_transform(x), int(y.max()) + 1
    means = np.stack([z[y == c].mean(axis=0) for c in range(classes)])
    level = ((z - means[y]) ** 2).mean()
    theirs = LinearDiscriminantAnalysis("lsqr", shrinkage=alpha / (alpha + level)).fit(z, y)
    ours, wanted = shifted @ classifier.coef + classifier.intercept, theirs.decision_function(z)
    if classes == 2:
        ours, wanted = (ours[:, 1] - ours[:, 0])[:, None], wanted[:, None]
    else:
        ours, wanted = (table - table.mean(axis=1, keepdims=True) for table in (ours, wanted))
    np.testing.assert_allclose(ours, wanted, atol=1e-8)
    assert (classifier.predict(shifted) == theirs.predict(z)).all()


@pytest.mark.parametrize(("rows", "features", "rel"), [(400, 20, 1e-6), (40, 54, 1e-5)])
def test_logistic_minimizes_its_objective(digits, monkeypatch, rows, features, rel):
    """The same objective, written again and minimized by scipy."""
    x, y = digits[0][:rows, 10 : 10 + features].astype(np.float64), digits[1][:rows] % 3
    moments = in_blocks(x, y)
    factor, sums = factorise(moments.train), moments.classes["y"]
    kept = balanced(y, 3, most=200)
    monkeypatch.setattr(classifiers, "STEPS", 500)
    ours = logistic(factor, sums, (x - moments.shift)[kept], y[kept])
    start = discriminate(factor, sums)

    z = (x - moments.shift - factor.mean) / factor.scale
    weight = (np.bincount(y) / np.bincount(y[kept]))[y[kept]]
    centre = (start.coef * factor.scale[:, None]).ravel()

    def loss(v):
        coef, bias = v[: centre.size].reshape(-1, 3), v[centre.size :]
        logits = z[kept] @ coef + bias
        logits -= logits.max(axis=1, keepdims=True)
        likely = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        slope = weight[:, None] * (likely - np.eye(3)[y[kept]])
        away = v[: centre.size] - centre
        value = -weight @ np.log(likely[np.arange(len(kept)), y[kept]]) + 1.5 * (away**2).sum()
        return value, np.r_[(z[kept].T @ slope).ravel() + 3 * away, slope.sum(axis=0)]

    best = minimize(loss, np.r_[centre, 0, 0, 0], jac=True, method="L-BFGS-B", options={"maxiter": 5000})
    coef = ours.coef * factor.scale[:, None]
    bias = ours.intercept + factor.mean @ ours.coef
    assert loss(np.r_[coef.ravel(), bias])[0] == pytest.approx(best.fun, rel=rel)


@pytest.mark.parametrize("change", ["", "offset", "collinear", "repeated rows", "constant features"])
def test_classifiers_of_fewer_rows_than_features_are_those_of_the_moments(digits, change):
    """The decomposition of the rows leads to what that of the products of their features leads to."""
    x, y = digits[0][:40, 10:64].astype(np.float64), digits[1][:40] % 3
    x += {"offset": 1e3}.get(change, 0)
    if change == "collinear":
        x[:, 30:] = x[:, :24] + 1e-6 * x[:, 30:]
    if change == "repeated rows":
        x, y = x[np.arange(40) // 3], y[np.arange(40) // 3]
    if change == "constant features":
        x[:, ::2] = 5
    moments = in_blocks(x, y)
    rows, sums = x - moments.shift, moments.classes["y"]
    of_rows, of_products = factorise(moments.train, rows), factorise(moments.train)
    assert of_rows.basis is not None
    assert of_products.basis is None
    new = digits[0][40:, 10:64].astype(np.float64) - moments.shift + {"offset": 1e3}.get(change, 0)
    new[:, ::2] = rows[0, ::2] if change == "constant features" else new[:, ::2]
    for fit in (
        lambda factor: discriminate(factor, sums, 0.1),
        lambda factor: logistic(factor, sums, rows, y),
    ):
        one, other = (new @ found.coef + found.intercept for found in (fit(of_rows), fit(of_products)))
        assert np.abs(one - other).max() < 1e-6 * np.abs(other).max()


def test_classifier_of_some_of_few_rows_is_that_of_the_moments(digits):
    """Rows that not all targets label are in the span of all."""
    x, y = digits[0][:40, 10:64].astype(np.float64), digits[1][:40] % 3
    moments = in_blocks(x, y)
    rows, some = x - moments.shift, slice(5, 33)
    part = in_blocks(x[some], y[some]).classes["y"]
    part.totals += part.counts[:, None] * (x[some].mean(axis=0) - moments.shift)
    one, other = (
        logistic(factor, part, rows[some], y[some])
        for factor in (factorise(moments.train, rows), factorise(moments.train))
    )
    np.testing.assert_allclose(one.coef, other.coef, atol=1e-6 * np.abs(other.coef).max())


@pytest.mark.parametrize("kind", ["gaussian", "rectified", "clusters", "unequal"])
@pytest.mark.parametrize("shares", [(0.98, 0.02), (0.5, 0.5), (0.85, 0.05, 0.04, 0.03, 0.03), (0.1,) * 10])
def test_logistic_is_at_least_as_good_as_sklearn(kind, shares):
    rng = np.random.default_rng(len(shares))
    classes, features, n = len(shares), 64, 4000
    y = rng.choice(classes, 3 * n, p=shares)
    means = rng.normal(size=(classes, 3, 8))
    means *= 4 / np.linalg.norm(means, axis=2, keepdims=True)
    x = rng.normal(size=(3 * n, features))
    x *= (0.5 + y[:, None] / classes) if kind == "unequal" else 1
    x[:, :8] += means[y, rng.integers(0, 3, 3 * n) if kind == "clusters" else 0]
    if kind in ("rectified", "clusters"):
        x = np.maximum(x @ rng.normal(size=(features, features)) / 8, 0)
    moments = in_blocks(x[:n], y[:n])
    factor, sums = factorise(moments.train), moments.classes["y"]
    kept = balanced(y[:n], classes)
    found = logistic(factor, sums, (x[:n] - moments.shift)[kept], y[:n][kept]).predict(x[n:] - moments.shift)
    scaler = StandardScaler().fit(x[:n])
    theirs = LogisticRegression(max_iter=500).fit(scaler.transform(x[:n]), y[:n])
    guess = theirs.predict(scaler.transform(x[n:]))
    ours, wanted = (f1_score(y[n:], one, average="macro") for one in (found, guess))
    assert ours >= wanted - 0.02


@pytest.mark.parametrize("most", [50, 1000])
def test_kept_rows_are_balanced(most):
    codes = np.random.default_rng(0).choice(4, 900, p=[0.9, 0.06, 0.03, 0.01])
    rows = balanced(codes, 5, most)
    counts, all_counts = np.bincount(codes[rows], minlength=5), np.bincount(codes, minlength=5)
    assert counts.sum() == min(most, 900)
    assert (counts == all_counts).all() if most > 900 else counts[:3].min() >= 10
    for c in range(4):  # the first rows of each class, in their order
        assert (rows[codes[rows] == c] == np.flatnonzero(codes == c)[: counts[c]]).all()


@pytest.mark.long
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


def words(rng, count=60, rows=4000, features=80):
    """Return a layer that knows only the word of each row, and the word."""
    word = rng.integers(0, count, rows)
    return rng.normal(size=(count, features))[word] + 0.1 * rng.normal(size=(rows, features)), word


def test_selectivity_of_word_identity_is_zero(rng):
    """Hewitt and Liang (2019): the classifier learns random labels of words as well."""
    x, word = words(rng)
    tag = rng.integers(0, 4, 60)[word]
    scorer = Scorer("linear_selectivity")
    scorer.update(x, {"tag": tag}, types=word)
    got = read(scorer, "linear_selectivity", "tag")
    assert abs(got.value) < 0.03
    assert got.low <= 0 <= got.high
    assert control(scorer.statistics, "tag").accuracy > 0.95


def test_selectivity_of_a_tag_that_depends_on_context(rng):
    x, word = words(rng)
    tag = rng.integers(0, 4, len(word))
    x = np.hstack([rng.normal(size=x.shape), np.eye(4)[tag] + 0.1 * rng.normal(size=(len(word), 4))])
    scorer = Scorer("linear_selectivity")
    scorer.update(x, {"tag": tag}, types=[f"word {one}" for one in word])
    got, found = read(scorer, "linear_selectivity", "tag"), outcome(scorer.statistics, "tag")
    fakes = [control(scorer.statistics, "tag", draw).accuracy for draw in range(DRAWS)]
    assert got.value == pytest.approx(found.counts.accuracy - np.mean(fakes))
    assert got.low > 0.6
    assert got.p < 1e-6


@pytest.mark.long
def test_selectivity_of_randomly_labelled_types_is_rarely_significant():
    """A linear classifier learns some random labellings better than others; a single control hides that."""
    single = several = 0
    for seed in range(40):
        draw = words_of_calibration((0.5, 0.5), 1.0)(np.random.default_rng(seed), 2000)
        scorer = Scorer("linear_selectivity", seed=seed)
        scorer.update(draw.x, draw.labels, draw.items, types=draw.types)
        several += read(scorer, "linear_selectivity", "y").p < 0.05
        one, fake = outcome(scorer.statistics, "y").counts, control(scorer.statistics, "y")
        single += one.above(fake, "accuracy").p < 0.05
    assert single > 8
    assert several <= 5


def test_random_labels_of_types_are_as_frequent_as_classes(rng):
    rows = rng.integers(1, 60, 256)
    draw = _labels_of_buckets(rows, np.array([800, 150, 50]), [0])
    share = np.bincount(draw, weights=rows) / rows.sum()
    np.testing.assert_allclose(share, [0.8, 0.15, 0.05], atol=60 / rows.sum())
    assert (draw != _labels_of_buckets(rows, np.array([800, 150, 50]), [1])).any()


def test_difference_to_random_tasks_includes_their_spread(rng):
    """A task among ten alike ones is significant in 5 % of all cases, however many rows there are."""
    significant = 0
    for _ in range(300):
        truth = rng.integers(0, 2, 1000)
        shares = 0.7 + 0.05 * rng.normal(size=6)
        tasks = [judge(truth, np.where(rng.random(1000) < share, truth, 1 - truth)) for share in shares]
        significant += tasks[0].above_mean(tasks[1:], "accuracy").p < 0.05
    assert 2 <= significant <= 27


@pytest.mark.parametrize("what", ["f1", "accuracy"])
@pytest.mark.parametrize("shares", [(0.9, 0.1), (0.6, 0.3, 0.1)])
def test_variance_of_permuted_predictions(rng, what, shares):
    truth, guess = (rng.choice(len(shares), 150, p=shares) for _ in range(2))
    permuted = [getattr(judge(truth, rng.permutation(guess)), what) for _ in range(2000)]
    assert _Totals.of(judge(truth, guess)).permuted(what) == pytest.approx(np.var(permuted), rel=0.12)


@pytest.mark.parametrize(("share", "shift"), [(0.02, 5), (0.05, 4), (0.1, 3)])
def test_rare_class_is_seen_as_by_logistic_regression(share, shift):
    """A ridge on codes of -1 and 1 takes the majority: 0.50 and 0.74 of the first two."""
    rng = np.random.default_rng(1)
    y = (rng.random(8000) < share).astype(int)
    x = rng.normal(size=(8000, 64))
    x[:, 0] += shift * y
    scorer = fed(["linear_f1", "lda_f1"], x, {"y": y})
    half = slice(0, 6000), slice(6000, None)
    judged = LogisticRegression(max_iter=500).fit(x[half[0]], y[half[0]]).predict(x[half[1]])
    wanted = f1_score(y[half[1]], judged, average="macro")
    for name in ("linear_f1", "lda_f1"):
        assert read(scorer, name, "y").value == pytest.approx(wanted, abs=0.05), name


def test_guesses_of_a_rare_class_are_rarely_significant(rng):
    """Most guesses of a class of 3 % are never right, which says nothing of what they depend on."""
    found = [
        judge(*(rng.choice(2, 375, p=[0.97, 0.03]) for _ in range(2))).judgement("f1") for _ in range(300)
    ]
    assert np.mean([one.p < 0.05 for one in found]) <= 0.08


def test_selectivity_without_types_says_why(digits):
    got = read(fed("linear_selectivity", digits[0], {"y": digits[1]}), "linear_selectivity", "y")
    assert np.isnan(got.value)
    assert got.note == "no types were given, of which the control task has random labels"


def test_selectivity_of_one_type_has_no_value():
    """A control task with one type has one label, which says nothing."""
    rng = np.random.default_rng(0)
    tag = rng.integers(0, 2, 400)
    scorer = Scorer("linear_selectivity")
    scorer.update(rng.normal(size=(400, 4)) + 3 * tag[:, None], {"tag": tag}, types=np.full(400, 7))
    (got,) = scorer.result()
    assert np.isnan(got.value)
    assert got.note == "all rows have one type, so that the control task has one label"


def test_linear_scores_equal_sklearn_metrics(digits):
    x, y = digits
    held = places(np.arange(len(x)), 0).held
    assert 0.2 < held.mean() < 0.3
    scaler = StandardScaler().fit(x[~held].astype(np.float64))
    scorer = fed(["linear_f1", "linear_accuracy"], x, {"digit": y})
    theirs = LogisticRegression(max_iter=1000).fit(scaler.transform(x[~held]), y[~held])
    guess = theirs.predict(scaler.transform(x[held]))
    f1, accuracy = read(scorer, "linear_f1", "digit"), read(scorer, "linear_accuracy", "digit")
    assert f1.value == pytest.approx(f1_score(y[held], guess, average="macro"), abs=0.02)
    assert accuracy.value == pytest.approx(accuracy_score(y[held], guess), abs=0.02)
    assert f1.n == held.sum()
    assert f1.low < f1.value < f1.high
    assert f1.high - f1.low < 0.1
    majority = read(scorer, "linear_f1.majority", "digit").value
    commonest = np.bincount(y[~held]).argmax()
    assert majority == pytest.approx(f1_score(y[held], np.full(held.sum(), commonest), average="macro"))
    assert 0.08 < f1.baseline < 0.12


def test_linear_f1_of_random_labels_is_chance(digits):
    x, y = digits
    above = 0
    for seed in range(20):
        fake = np.random.default_rng(seed).permutation(y)
        result = read(fed("linear_f1", x, {"y": fake}), "linear_f1", "y")
        assert result.value < 0.16
        assert result.baseline <= result.high
        above += result.low > result.baseline
    assert above <= 2


def test_groups_are_held_out_together(rng):
    """20 documents of 30 records, labels random by document: what tells documents apart is no knowledge."""
    document = np.repeat(np.arange(20), 30)
    x = rng.normal(size=(20, 32))[document] + 0.3 * rng.normal(size=(600, 32))
    above = {"records": 0, "documents": 0}
    for seed in range(20):
        label = rng.permutation(np.arange(20) % 2)[document]
        for name, groups in (("records", None), ("documents", document)):
            scorer = Scorer("linear_accuracy", seed=seed)
            scorer.update(x, {"y": label}, groups=groups)
            got = read(scorer, "linear_accuracy", "y")
            above[name] += got.low > got.baseline
    assert above["records"] == 20
    assert above["documents"] <= 2


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


@pytest.mark.parametrize("what", ["f1", "accuracy"])
@pytest.mark.parametrize("sentence", [1, 10])
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1), (0.7, 0.2, 0.1)])
def test_interval_coverage(what, sentence, shares):
    """About 95 % of the intervals of 200 held-out sets must contain the score of all rows."""
    rng = np.random.default_rng(0)
    classes = len(shares)
    truth = rng.choice(classes, 400_000, p=shares)
    hard = np.repeat(rng.random(400_000 // sentence), sentence)  # sentences are right or wrong as a whole
    guess = np.where(0.6 * hard + 0.4 * rng.random(400_000) < 0.7, truth, rng.integers(0, classes, 400_000))
    all_rows = getattr(judge(truth, guess), what)
    hits = 0
    for part in range(200):
        rows = np.arange(500) + 500 * part
        found = judge(truth[rows], guess[rows], rows // sentence).judgement(what)
        assert 0 <= found.low <= found.value <= found.high <= 1
        hits += found.low <= all_rows <= found.high
    assert 182 <= hits <= 200


@pytest.mark.parametrize("what", ["f1", "accuracy"])
def test_chance_is_the_mean_over_permuted_labels(rng, what):
    truth, guess = rng.choice(3, 300, p=[0.6, 0.3, 0.1]), rng.integers(0, 3, 300)
    permuted = [getattr(judge(rng.permutation(truth), guess), what) for _ in range(400)]
    assert judge(truth, guess).judgement(what).chance == pytest.approx(np.mean(permuted), abs=0.004)


def test_interval_of_perfect_predictions():
    truth = np.arange(60) % 3
    found = judge(truth, truth).judgement("accuracy")
    assert found.high == 1
    assert 0.9 < found.low < 0.97
    wrong = judge(truth, (truth + 1) % 3).judgement("accuracy")
    assert (wrong.low, wrong.high) == (0, pytest.approx(1 - found.low))


def test_f1_by_class_equals_sklearn(rng):
    truth, guess = rng.integers(0, 4, 90), rng.integers(0, 4, 90)
    np.testing.assert_allclose(judge(truth, guess).by_class(), f1_score(truth, guess, average=None))


def test_macro_f1_equals_sklearn(rng):
    for classes in (2, 5, 30):
        truth, guess = rng.integers(0, classes, 90), rng.integers(0, classes + 2, 90)
        want = f1_score(truth, guess, average="macro", zero_division=0)
        assert judge(truth, guess).f1 == pytest.approx(want, abs=1e-12)


@pytest.mark.long
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


@pytest.mark.parametrize("parts", [[7], [3, 4], [1, 5, 1], [9, 3], [3, 9], [2, 2, 30]])
@pytest.mark.parametrize("read_between", [False, True])
@pytest.mark.parametrize("merged", [False, True])
def test_moments_of_few_rows_and_many_equal_numpy(parts, read_between, merged):
    """Keep rows as they are while they are fewer than the eight features, whenever products are read."""
    x = np.random.default_rng(0).normal(3, 1, size=(sum(parts), 8))
    gram = Gram(8)
    for part in np.split(x, np.cumsum(parts)[:-1]):
        if merged:
            other, gap = Gram(8), np.arange(8.0)
            other.add(part - gap)
            gram = gram.plus(other, gap)
        else:
            before = gram.copy()
            gram.add(part)
            assert before.n + len(part) == gram.n
        if read_between:
            assert gram.gram.shape == (8, 8)
        gram = pickle.loads(pickle.dumps(gram))
    centred = x - x.mean(axis=0)
    close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
    close(gram.gram, x.T @ x)
    close(gram.squares, (x**2).sum(axis=0))
    close(gram.variations(), (centred**2).sum(axis=0))
    close(gram.scatter(), centred.T @ centred)
    values = np.linalg.svd(centred[:, :5], compute_uv=False) ** 2
    found = np.sort(np.linalg.eigvalsh(gram.reduced(5)))[::-1]
    close(found[: len(values)], values)
    close(found[len(values) :], 0)


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
            classifier = discriminate(factorise(moments.labelled[target]), moments.classes[target], 0.1)
            assert_equals_sklearn_lda(classifier, z, z - moments.shift, codes, 0.1)


@pytest.mark.parametrize("features", [1, 2, 3])
def test_layers_of_few_features(features):
    x = np.random.default_rng(0).normal(size=(200, features))
    y = (x[:, 0] > 0).astype(int)
    moments = in_blocks(x, y)
    factor, sums = factorise(moments.train), moments.classes["y"]
    for classifier in (discriminate(factor, sums), logistic(factor, sums, x - moments.shift, y)):
        assert (classifier.predict(x - moments.shift) == y).mean() > 0.9


@pytest.mark.long
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


def test_note_of_many_classes_that_are_numbers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 8))
    ages = np.round(x[:, 0], 2)
    names = np.array([f"w{row}" for row in np.repeat(np.arange(150), 8)])
    for labels, words in (
        (ages, "the labels are numbers (see r2); more than 100 classes: the discriminant alone"),
        (np.round(100 * ages), "more than 100 classes, which look like numbers (see r2)"),
        (names, "classes:"),
    ):
        note = next(r.note for r in fed(["linear_f1"], x, {"y": labels}).result() if r.score == "linear_f1")
        assert words in note


def test_classes_without_a_held_out_row_are_counted(rng):
    x, items = rng.normal(size=(400, 5)), np.arange(400)
    held = places(items, 0).held
    y = (x[:, 0] > 0).astype(int)
    notes = {}
    for rare in (0, 1, 2):
        labels = y.copy()
        labels[np.flatnonzero(~held)[:rare]] = 10 + np.arange(rare)
        scorer = fed(["linear_f1", "linear_accuracy"], x, {"y": labels}, items)
        notes[rare] = {read(scorer, name, "y").note for name in ("linear_f1", "linear_accuracy")}
    assert notes == {
        0: {""},
        1: {"1 of 3 classes has no held-out row: this says nothing of it"},
        2: {"2 of 4 classes have no held-out row: this says nothing of them"},
    }
