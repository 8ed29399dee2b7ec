"""Cluster scores, compared with scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from score_help import fed, read
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score, mutual_info_score, v_measure_score

from intus.scores.cluster import MOST_ROWS, _near, adjusted, mutual_information, normalised
from intus.scores.cluster import _tables as cluster_tables


def test_kmeans_scores_equal_sklearn(digits):
    x, y = digits
    scorer = fed(["kmeans_mi", "kmeans_ami", "kmeans_nmi"], x, {"digit": y})
    _, rows, codes, _ = scorer.statistics.drawn()
    cluster = KMeans(10, n_init=2, max_iter=100, random_state=0).fit_predict(rows - rows.mean(axis=0))
    mi, ami = read(scorer, "kmeans_mi", "digit"), read(scorer, "kmeans_ami", "digit")
    assert mi.value == pytest.approx(mutual_info_score(codes[:, 0], cluster))
    assert ami.value == pytest.approx(adjusted_mutual_info_score(codes[:, 0], cluster))
    v_measure = read(scorer, "kmeans_nmi", "digit")
    assert v_measure.value == pytest.approx(v_measure_score(codes[:, 0], cluster))
    assert v_measure.low < v_measure.value < v_measure.high
    assert ami.low < ami.value < ami.high
    assert 0.6 < ami.value < 0.85
    assert abs(ami.baseline) < 0.02
    assert 0 < mi.baseline < 0.1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 15)), min_size=2, max_size=80))
def test_agreement_measures_equal_sklearn(rows):
    truth, cluster, group = np.array(rows).T
    table = cluster_tables(truth, cluster, group).sum(axis=0)
    assert mutual_information(table) == pytest.approx(mutual_info_score(truth, cluster), abs=1e-9)
    assert normalised(table) == pytest.approx(v_measure_score(truth, cluster), abs=1e-9)
    theirs = adjusted_mutual_info_score(truth, cluster)
    if abs(theirs) < 100:  # where chance leaves nothing to explain both divide rounding by rounding
        assert adjusted(table) == pytest.approx(theirs, abs=1e-6)


def test_expected_mutual_information_scales_with_rows(digits):
    """The jackknife scales the expected mutual information of all rows by 1/n for a part of them."""
    rng = np.random.default_rng(0)
    truth, group = digits[1][:1500], rng.integers(0, 16, 1500)
    cluster = np.where(rng.random(1500) < 0.5, truth, rng.integers(0, 10, 1500))
    tables = cluster_tables(truth, cluster, group)
    near = _near(adjusted, tables.sum(axis=0))
    for one in range(16):
        part = tables.sum(axis=0) - tables[one]
        assert near(part) == pytest.approx(adjusted(part), abs=2e-5)


def test_baseline_of_shuffled_labels_is_chance(digits):
    x, y = digits
    fake = np.random.default_rng(0).permutation(y)
    result = read(fed("kmeans_ami", x, {"y": fake}), "kmeans_ami", "y")
    assert result.low <= 0.01
    assert abs(result.value) < 0.02


def test_kmeans_rows_are_bounded():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 5000)
    result = read(
        fed("kmeans_ami", np.eye(3)[y] + rng.normal(0, 0.05, (5000, 3)), {"y": y}), "kmeans_ami", "y"
    )
    assert result.n == MOST_ROWS
    assert result.value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("x", "y", "note"),
    [
        (np.ones((30, 2)), ["a"] * 30, "a single class"),
        (np.eye(2), [0, 1], "2 rows are too few for 2 clusters"),
        (np.random.default_rng(0).normal(size=(1500, 1)), np.arange(1500.0), "too many different labels"),
        (np.full((9, 2), np.nan), [0, 1, 2] * 3, "no labelled rows"),
    ],
)
def test_cluster_score_without_data_is_nan_with_note(x, y, note):
    result = read(fed("kmeans_ami", x, {"y": y}), "kmeans_ami", "y")
    assert np.isnan(result.value)
    assert note in result.note


def test_mutual_information_bounds_are_nonnegative():
    x = np.random.default_rng(0).normal(size=(60, 3))
    for seed in range(8):
        got = read(fed("kmeans_mi", x, {"y": np.arange(60) % 2}, seed=seed), "kmeans_mi", "y")
        assert 0 <= got.low <= got.value <= got.high


def test_too_many_labels_are_refused_by_functions_and_estimators():
    from sklearn.cluster import KMeans as Means
    from sklearn.neighbors import KNeighborsClassifier

    x = np.random.default_rng(0).normal(size=(3000, 2))
    scores = [lambda behaviours, labels: 1.0, KNeighborsClassifier(1), Means(3)]
    for result in fed(scores, x, {"y": x[:, 0]}).result():
        assert np.isnan(result.value)
        assert result.note == "too many different labels to be classes"


def test_constant_behaviours_give_one_cluster():
    assert read(fed("kmeans_mi", np.ones((30, 2)), {"y": [0, 1] * 15}), "kmeans_mi", "y").value == 0
