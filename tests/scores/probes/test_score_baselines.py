"""The support vector machine and the baselines, compared with scikit-learn; DeepBase's names of scores."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from score_help import fed, read, same
from sklearn.dummy import DummyClassifier
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from intus.core.errors import InputError
from intus.scores import CorrelationScore, LinRegressionScore, LocalIOU, LogRegressionScore, get, iou
from intus.scores.statistics.split import places


@pytest.mark.long
def test_svm_and_baselines_equal_sklearn_on_the_same_split(digits):
    x, y = digits
    held = places(np.arange(len(x)), 0).held
    svm = make_pipeline(StandardScaler(), LinearSVC(random_state=0, max_iter=5000)).fit(x[~held], y[~held])
    most = DummyClassifier(strategy="most_frequent").fit(x[~held], y[~held])
    scorer = fed(["svm_f1", "majority_f1", "random_f1", "linear_f1"], x, {"y": y})
    for name, model in (("svm_f1", svm), ("majority_f1", most)):
        value = f1_score(y[held], model.predict(x[held]), average="macro")
        assert read(scorer, name, "y").value == pytest.approx(value, abs=0.01), name
    majority = read(scorer, "majority_f1", "y")
    assert majority.value == read(scorer, "linear_f1.majority", "y").value == pytest.approx(majority.baseline)
    random = read(scorer, "random_f1", "y")
    assert abs(random.value - 0.1) < 0.04
    assert random.low < random.baseline < random.high
    assert {read(scorer, name, "y").n for name in ("svm_f1", "random_f1", "linear_f1")} == {held.sum()}


def test_confused_classes_are_those_of_the_predictions(digits):
    x, y = digits
    scorer = fed(["svm_f1", "majority_f1"], x, {"y": y})
    for name in ("svm_f1", "majority_f1"):
        table = scorer.confusion(name, "y")
        assert table.f1.mean() == pytest.approx(read(scorer, name, "y").value)
    assert scorer.confusion("majority_f1", "y").matrix.any(axis=0).sum() == 1
    assert pickle.loads(pickle.dumps(scorer)).confusion("svm_f1", "y").matrix.trace() > 400


def test_random_guesses_have_the_frequencies_of_the_classes(rng):
    y = (rng.random(20_000) < 0.1).astype(int)
    got = read(fed("random_f1", rng.normal(size=(20_000, 2)), {"y": y}), "random_f1", "y")
    assert got.value == pytest.approx((0.9 + 0.1) / 2, abs=0.02)  # F1 of each class is its frequency


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_names_of_the_paper_mean_registered_scores(rng):
    x = rng.normal(size=(2000, 3))
    h = x[:, 1] > 2.2
    by_name, made, own = (fed(one, x, {"h": h}).result() for one in ("LocalIOU", [LocalIOU()], "iou"))
    same(by_name, own)
    same(made, own)
    assert own[1].value > 0.3
    assert get("LocalIOU").name == "iou"
    assert LocalIOU(0.05).name == iou(0.05).name == "iou_0.05"
    assert CorrelationScore("pearson") is get("correlation")
    assert LogRegressionScore(regul="L1", score="F1").name == "logistic_l1"
    assert LinRegressionScore().name == "linear_l2"


def test_names_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="CorrelationScore computes 'pearson' only, got 'spearman'"):
        CorrelationScore("spearman")
    with pytest.raises(InputError, match=r"'LocalIOU' takes 0 arguments.*or call it.*LocalIOU\(\)"):
        fed([LocalIOU], np.ones((3, 1)), {"h": [0, 1, 0]})
