"""Scores from logistic regressions."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
from score_help import fed, read
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from intus.scores import Scorer
from intus.scores.estimators.logistic import code_length
from intus.scores.statistics.split import places


def test_code_length_of_encoded_labels_is_short(digits):
    x, y = digits
    got = read(fed("mdl_compression", x[:900], {"digit": y[:900]}), "mdl_compression", "digit")
    assert 2 < got.value < 8
    assert 0.8 < got.baseline < 1.1
    assert got.n == 900


def test_code_length_of_given_binary_labels_is_near_zero():
    y = np.arange(1000) % 2
    bits = code_length(np.eye(2)[y] * 5, y)
    assert bits < 60 < 1000 * log2(2)


def test_code_length_of_random_labels_equals_uniform_code():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1200)
    assert code_length(rng.normal(size=(1200, 4)), y) == pytest.approx(1200 * log2(3), rel=0.05)


def test_code_length_with_class_absent_from_first_block():
    y = np.r_[np.zeros(100, int), np.ones(100, int), np.full(100, 2)]
    assert np.isfinite(code_length(np.eye(3)[y], y))


def test_logistic_f1_equals_sklearn(digits):
    x, y = digits
    held = places(np.arange(len(x)), 0).held
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x[~held], y[~held])
    got = read(fed("logistic_f1", x, {"digit": y}), "logistic_f1", "digit")
    assert got.value == pytest.approx(f1_score(y[held], model.predict(x[held]), average="macro"), abs=0.01)
    assert got.low < got.value < got.high


def test_classifiers_of_wide_layers_say_that_they_are_projected():
    """Cover those of scikit-learn, which did not."""
    x = np.random.default_rng(0).normal(size=(60, 1100))
    scorer = Scorer(["logistic_f1", "svm_f1", "linear_f1"])
    scorer.update(x, {"sign": x[:, 0] > 0})
    notes = {result.score: result.note for result in scorer.result() if "majority" not in result.score}
    assert notes == dict.fromkeys(notes, "1100 features projected to 1024")
