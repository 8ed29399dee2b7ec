"""Plain functions given as scores: what they are called with, and what the errors say."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from score_help import fed, read
from sklearn.metrics import silhouette_score

from intus import inspect
from intus.core.errors import InputError
from intus.scores import Scorer, base, register


@pytest.fixture(autouse=True)
def registry():
    before = dict(base._SCORES)
    yield
    base._SCORES.clear()
    base._SCORES.update(before)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    return x, (x[:, 2] + rng.normal(size=300) > 0).astype(int)


def separation(behaviours, labels):
    return silhouette_score(behaviours, labels)


def spearman(unit, hypothesis):
    return spearmanr(unit, hypothesis).statistic


def test_function_of_a_layer_gets_rows_and_units(data):
    x, y = data
    result = read(fed([separation], x, {"y": y}), "separation", "y")
    assert result.value == pytest.approx(silhouette_score(x, y), abs=1e-5)
    assert result.note.startswith("the function was given the whole layer, (rows, units)")
    register("separation_t", separation)
    assert read(fed("separation_t", x, {"y": y}), "separation_t", "y").note == ""


def test_function_of_a_unit_gets_each_pair(data):
    x, y = data
    register("spearman_t", spearman, per="unit")
    scorer = fed("spearman_t", x, {"y": y})
    for unit in range(4):
        assert read(scorer, "spearman_t", "y", unit).value == pytest.approx(
            spearmanr(x[:, unit], y).statistic
        )
    assert read(pickle.loads(pickle.dumps(scorer)), "spearman_t", "y", 2).value > 0.5


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a, b: np.corrcoef(a, b)[0, 1], r"raised ValueError: all the input array dimensions"),
        (lambda a, b: pearsonr(a, b).statistic, r"returned an array of shape|raised ValueError"),
        (lambda a, b: a[b == 1].mean(axis=0), r"returned an array of shape \(4,\), but a score is a number"),
        (lambda a, b: None, r"returned None, but a score is a number"),
        (lambda a, b: "high", r"returned 'high', but a score is a number"),
    ],
)
def test_error_says_that_a_function_was_given_the_layer(data, function, message):
    x, y = data
    with pytest.raises(InputError, match=message) as caught:
        fed([function], x, {"y": y}).result()
    assert "It was given the whole layer: behaviours of shape (300, 4), a column for each unit" in str(
        caught.value
    )
    assert "labels of shape (300,)" in str(caught.value)
    assert "register('<lambda>', function, per='unit')" in str(caught.value)


def test_error_says_that_a_function_was_given_one_unit(data):
    x, y = data
    register("separation_t", separation, per="unit")
    message = r"was given one unit: behaviours of shape \(\d+,\) and a hypothesis.*without per='unit'"
    with pytest.raises(InputError, match=message):
        fed("separation_t", x, {"y": y}).result()


def test_level_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match="per must be 'layer' or 'unit', got 'pair'"):
        register("separation_t", separation, per="pair")


def test_function_without_labels(data):
    x, _ = data
    assert read(fed([lambda behaviours: behaviours.shape[1]], x), "<lambda>").value == 4
    with pytest.raises(
        InputError, match=r"raised IndexError.*behaviours of shape \(300, 4\), a column for each"
    ):
        fed([lambda behaviours: behaviours[:, 7].sum()], x).result()


def test_inspect_says_what_a_function_was_given(data):
    x, y = data
    net = torch.nn.Sequential(torch.nn.Identity())
    records = torch.tensor(x).float()
    with pytest.raises(InputError, match="It was given the whole layer: behaviours of shape"):
        inspect(net, {"y": y}, lambda a, b: np.corrcoef(a, b)[0, 1], records, "0[:@1]")
    table = inspect(net, {"y": y}, separation, records, "0[:@1]")
    assert table.unit.tolist() == [-1]
    assert table.note[0].startswith("the function was given the whole layer")


def test_scorer_of_a_function_pickles(data):
    x, y = data
    scorer = pickle.loads(pickle.dumps(Scorer([separation])))
    scorer.update(x, {"y": y})
    assert np.isfinite(read(scorer, "separation", "y").value)
