"""Tables of confused classes, paired comparisons of classifiers, and repeated splits."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy import stats
from score_help import fed
from sklearn.metrics import confusion_matrix, f1_score
from sklearn.neighbors import KNeighborsClassifier

from intus.core.errors import InputError
from intus.scores import Scorer, get, names
from intus.scores.comparisons.paired import Estimates, correlations, units_above
from intus.scores.estimators.penalized import LogRegressionScore
from intus.scores.multiple import merged_splits, over_splits
from intus.scores.probes.judging import judge
from intus.scores.statistics.split import places


@pytest.mark.parametrize(
    "score",
    [
        "linear_f1",
        "linear_accuracy",
        "lda_f1",
        "logistic_f1",
        "svm_f1",
        "logistic_l1",
        LogRegressionScore("L2", "accuracy", C=0.1),
        KNeighborsClassifier(3),
    ],
)
def test_confusion_equals_sklearn(digits, score):
    names = np.array([f"class {digit}" for digit in digits[1]])
    scorer = fed([score], digits[0], {"digit": names})
    (name,) = (each.name for each in scorer.scores)
    counts, table = scorer.predictions(name, "digit"), scorer.confusion(name, "digit")
    truth, guess, _ = counts.rows
    assert table.classes == tuple(sorted(set(names)))
    assert (np.bincount(truth) == np.bincount(digits[1][places(np.arange(len(names)), 0).held])).all()
    np.testing.assert_array_equal(table.matrix, confusion_matrix(truth, guess))
    np.testing.assert_allclose(table.f1, f1_score(truth, guess, average=None))
    assert table.n == len(truth)
    (result,) = [found for found in scorer.result() if found.score == name and found.unit == -1]
    value = table.f1.mean() if "accuracy" not in name else np.trace(table.matrix) / table.n
    assert value == pytest.approx(result.value)
    assert (table.low <= table.f1).all()
    assert (table.f1 <= table.high).all()


def test_every_registered_classifier_has_a_table():
    classifiers = {
        name for name in names() if name.endswith(("_f1", "_accuracy")) or name.startswith("logistic_l")
    }
    assert len(classifiers) >= 10
    assert {name for name in classifiers if get(name).judged is None} == set()
    assert {name for name in classifiers if get(name).measure == "accuracy"} == {
        "linear_accuracy",
        "lda_accuracy",
    }
    copies = pickle.loads(pickle.dumps([get(name) for name in sorted(classifiers)]))
    assert all(copy.judged is not None for copy in copies)


def test_confusion_of_a_class_that_is_never_held_out():
    table = judge(np.array([0, 0, 1]), np.array([0, 1, 1])).confusion(["a", "b", "c", "d"])
    assert table.matrix.tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [0] * 4, [0] * 4]
    assert np.isnan(table.f1).tolist() == np.isnan(table.low).tolist() == [False, False, True, True]


@pytest.mark.parametrize("rows", [1, 5])
def test_intervals_of_classes_cover(rows):
    """A classifier with known errors; items of several rows share what is right."""
    rng = np.random.default_rng(0)
    shares, errors = (
        np.array([0.7, 0.22, 0.08]),
        np.array([[0.9, 0.07, 0.03], [0.2, 0.7, 0.1], [0.3, 0.2, 0.5]]),
    )
    joint = shares[:, None] * errors
    truth_f1 = 2 * np.diag(joint) / (joint.sum(axis=0) + joint.sum(axis=1))
    covered, many = np.zeros(3), 300
    for _ in range(many):
        truth = rng.choice(3, 400, p=shares)
        guess = (rng.random(400)[:, None] > np.cumsum(errors[truth], axis=1)).sum(axis=1)
        items = np.repeat(np.arange(400), rows)  # each item comes several times: only 400 are worth anything
        table = judge(truth[items], guess[items], items).confusion("abc")
        covered += (table.low <= truth_f1) & (truth_f1 <= table.high)
    assert (covered / many >= 0.92).all(), covered / many
    assert (covered / many <= 0.99).all(), covered / many


def test_confusion_of_what_is_no_classifier(digits):
    scorer = fed(["linear_f1", "kmeans_ami"], digits[0], {"digit": digits[1]})
    with pytest.raises(InputError, match="'kmeans_ami' is no classifier of this scorer"):
        scorer.confusion("kmeans_ami", "digit")
    with pytest.raises(InputError, match=r"There is no target 'digits'\. Did you mean 'digit'"):
        scorer.confusion("linear_f1", "digits")
    assert (
        fed(["linear_f1"], digits[0], {"one": np.zeros(len(digits[1]))}).confusion("linear_f1", "one") is None
    )


def test_paired_comparison_equals_paired_t_test():
    """With items of equal size the gap of accuracies is that of scipy's paired t-test."""
    rng = np.random.default_rng(0)
    items, truth = np.repeat(np.arange(300), 4), rng.integers(0, 3, 1200)
    hard = rng.random(300)[items]
    one, two = (np.where(rng.random(1200) < 1 - strength * hard, truth, 0) for strength in (0.5, 0.65))
    gap = judge(truth, one, items).above(judge(truth, two, items), "accuracy")
    right = [(guess == truth).reshape(300, 4).mean(axis=1) for guess in (one, two)]
    theirs = stats.ttest_rel(*right)
    assert gap.value == pytest.approx((right[0] - right[1]).mean())
    assert gap.p == pytest.approx(theirs.pvalue, abs=2e-3)
    assert (gap.low, gap.high) == pytest.approx(tuple(theirs.confidence_interval()), abs=1e-3)
    assert gap.n == 1200


@pytest.mark.parametrize("what", ["accuracy", "f1"])
def test_paired_comparison_of_equals(what):
    """Two classifiers that are right equally often differ significantly in about 5 % of cases."""
    rng, found = np.random.default_rng(0), 0
    for _ in range(600):
        truth, items = rng.integers(0, 3, 300), np.repeat(np.arange(100), 3)
        easy = rng.random(100)[items]
        one, two = (np.where(rng.random(300) < easy, truth, (truth + 1) % 3) for _ in range(2))
        found += judge(truth, one, items).above(judge(truth, two, items), what).p < 0.05
    assert 0.02 < found / 600 < 0.075


def two_layers(seed, strength, other_rows=None):
    """Return scorers of two layers of the same 1,200 items, of which the first knows a label better."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 1200)
    scorers = []
    for noise, rows in ((1.0, None), (strength, other_rows)):
        rows = np.arange(1200) if rows is None else rows
        x = np.column_stack([y + noise * rng.normal(size=1200), rng.normal(size=(1200, 3))])[rows]
        scorer = Scorer(["linear_f1", "linear_accuracy"], seed=seed)
        scorer.update(x, {"y": y[rows]}, rows)
        scorers.append(scorer)
    return scorers


def test_layer_above_another():
    one, two = two_layers(0, 3.0)
    for score in ("linear_f1", "linear_accuracy"):
        gap, back = one.above(two, score, "y"), two.above(one, score, "y")
        values = [next(r.value for r in scorer.result() if r.score == score) for scorer in (one, two)]
        assert gap.value == pytest.approx(values[0] - values[1])
        assert gap.value == pytest.approx(-back.value)
        assert gap.low > 0
        assert gap.p < 0.01
        assert gap.note == ""
    assert one.above(one, "linear_f1", "y")[:4] == (0, 0, 0, 1)
    fewer = two_layers(0, 3.0, np.arange(0, 1200, 2))
    part = fewer[0].above(fewer[1], "linear_f1", "y")
    assert "held-out items, which both have" in part.note
    assert part.n == places(np.arange(0, 1200, 2), 0).held.sum()
    with pytest.raises(InputError, match="seeds 0 and 1"):
        one.above(two_layers(1, 3.0)[1], "linear_f1", "y")


def test_classifiers_that_differ_alike_in_every_item_have_no_interval():
    right, wrong = judge(np.zeros(9, int), np.zeros(9, int)), judge(np.zeros(9, int), np.ones(9, int))
    gap = right.above(wrong, "accuracy")
    assert gap.value == 1
    assert math.isnan(gap.p)
    assert "not known" in gap.note


def test_over_splits_equals_corrected_t_test():
    values = np.array([0.1, 0.3, 0.2, 0.25, 0.05])
    found = over_splits(values, held_out=0.25)
    t = values.mean() / np.sqrt((1 / 5 + 1 / 3) * values.var(ddof=1))
    assert found.p == pytest.approx(2 * stats.t.sf(t, 4))
    assert found.low == pytest.approx(values.mean() * (1 - stats.t.ppf(0.975, 4) / t))
    assert np.isnan(over_splits([0.5, np.nan]).p)


@pytest.mark.long
def test_false_positives_of_repeated_splits():
    """On labels that are noise, few results of five splits are above chance."""
    rng, found, many = np.random.default_rng(0), 0, 120
    for _ in range(many):
        x, y = rng.normal(size=(160, 4)), rng.integers(0, 2, 160)
        splits = []
        for seed in range(5):
            scorer = Scorer("lda_accuracy", seed=seed)
            scorer.update(x, {"y": y})
            splits.append(scorer.result())
        (merged,) = merged_splits(splits)
        assert merged.value == pytest.approx(np.mean([split[0].value for split in splits]))
        assert merged.note == "mean of 5 splits"
        found += merged.p < 0.05 and merged.value > merged.baseline
    assert found / many <= 0.05


def test_repeated_splits_leave_what_does_not_depend_on_them(digits):
    splits = [
        fed(["mean", "lda_f1"], digits[0], {"digit": digits[1]}, seed=seed).result() for seed in range(3)
    ]
    mean, f1 = merged_splits(splits)
    assert mean == splits[0][0]
    assert f1.low < f1.value < f1.high
    with pytest.raises(InputError, match="different scores"):
        merged_splits([splits[0], splits[1][::-1]])


def correlated(noises, seed=0, rows=600, items=None):
    """Return the correlations of layers with one hypothesis; each has a unit with this much noise."""
    rng = np.random.default_rng(seed)
    h, shared = rng.normal(size=rows), rng.normal(size=rows)
    found = []
    for noise in noises:
        x = np.column_stack([h + noise * (shared + rng.normal(size=rows)), rng.normal(size=rows)])
        scorer = Scorer("correlation")
        scorer.update(x, {"h": h, "other": rng.normal(size=rows)}, items)
        found.append(correlations(scorer.statistics))
    return found, h


def test_units_of_two_layers():
    (good, bad), _ = correlated((0.5, 1.5))
    gap = units_above(good, bad)
    np.testing.assert_allclose(gap.value, good.value - bad.value)
    assert gap.low[0, 0] > 0.2
    assert gap.p[0, 0] < 1e-6
    back = units_above(bad, good, [(0, 0), (1, 0)])
    assert back.value[0, 0] == pytest.approx(-gap.value[0, 0])
    assert back.value[1, 0] == pytest.approx(bad.value[1, 0] - good.value[0, 0])
    with pytest.raises(InputError, match=r"units below 2 and 2, got \[\(0, 2\)\]"):
        units_above(good, bad, [(0, 2)])
    with pytest.raises(InputError, match=r"2 and 1 units\. Name the units"):
        units_above(good, Estimates(bad.value[:1], bad.without[:, :1]))
    with pytest.raises(InputError, match="2 and 1 hypotheses"):
        units_above(good, Estimates(bad.value[:, :1], bad.without[..., :1]))


@pytest.mark.long
def test_paired_comparison_of_units_that_are_alike():
    """Units with correlated noise, equally good: about 5 % differ. A bootstrap has the same interval."""
    found, widths = 0, []
    for seed in range(300):
        (one, other), _ = correlated((1.0, 1.0), seed, rows=400)
        gap = units_above(one, other)
        found += gap.p[0, 0] < 0.05
        widths.append(gap.high[0, 0] - gap.low[0, 0])
    assert 0.02 < found / 300 < 0.085
    rng = np.random.default_rng(1)
    h, shared = rng.normal(size=(2, 400))
    x = np.column_stack([h + shared + rng.normal(size=400) for _ in range(2)])
    resampled = []
    for _ in range(2000):
        rows = rng.integers(0, 400, 400)
        table = np.corrcoef(np.column_stack([x[rows], h[rows]]).T)
        resampled.append(table[0, 2] - table[1, 2])
    assert np.median(widths) == pytest.approx(np.subtract(*np.quantile(resampled, [0.975, 0.025])), rel=0.2)
