"""Logistic regressions of many binary targets in one optimization, compared with scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from score_help import fed
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.preprocessing import StandardScaler

from intus.scores import Scorer
from intus.scores.probes import linear
from intus.scores.statistics.merged import MergedLogistic
from intus.scores.statistics.moments import Gram
from intus.scores.statistics.ridge import factorise
from intus.scores.statistics.split import places


def layer(rows, targets, features=64, seed=0):
    """Return rows of correlated features and binary targets of 1 to 50 %, in items of ten rows."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(rows, 16))
    x = np.tanh(hidden @ rng.normal(size=(16, features)) / 3 + 0.3 * rng.normal(size=(rows, features)))
    score = hidden @ rng.normal(size=(16, targets)) / 4 + 0.4 * rng.normal(size=(rows, targets))
    share = np.geomspace(0.01, 0.5, targets)
    y = score > np.quantile(score, 1 - share, axis=0).diagonal()
    return x.astype(np.float32), y, np.arange(rows) // 10


def macro_f1(scorer, targets):
    found = {r.target: r.value for r in scorer.result() if r.score == "linear_f1"}
    return np.array([found[str(number)] for number in range(targets)])


def test_f1_of_many_targets_equals_sklearn():
    x, y, items = layer(12_000, 24)
    found = macro_f1(fed("linear_f1", x, {str(n): column for n, column in enumerate(y.T)}, items), 24)
    held = places(items, 0).held
    z = StandardScaler().fit(x[~held]).transform(x)
    theirs = []
    for column in y.T:
        guess = LogisticRegression(C=1.0).fit(z[~held], column[~held]).predict(z[held])
        theirs.append(f1_score(column[held], guess, average="macro"))
    assert np.mean(found - theirs) >= -0.005
    assert np.min(found - theirs) >= -0.04
    assert np.mean(theirs) > 0.75


def test_targets_one_by_one_have_the_same_f1(monkeypatch):
    x, y, items = layer(4000, 10)
    labels = {str(n): column for n, column in enumerate(y.T)}
    together = macro_f1(fed("linear_f1", x, labels, items), 10)
    monkeypatch.setattr(linear, "_FEW", 11)
    alone = macro_f1(fed("linear_f1", x, labels, items), 10)
    assert (together != alone).any()
    np.testing.assert_allclose(together, alone, atol=0.02)


def test_targets_that_do_not_fit_together_are_fitted_alone():
    """One has holes, one has three classes, one is constant, one has a single row of its class."""
    x, y, items = layer(2000, 9)
    labels = {str(n): column.astype(object) for n, column in enumerate(y.T)}
    labels["holes"] = np.where(np.arange(2000) % 7 == 0, None, y[:, 8])
    labels["three"] = y[:, 8] + 1 * y[:, 7]
    labels["constant"] = np.zeros(2000)
    labels["rare"] = np.arange(2000) == 5
    found = {r.target: r for r in fed("linear_f1", x, labels, items).result() if r.score == "linear_f1"}
    assert found["holes"].value > 0.7
    assert found["holes"].n < found["0"].n
    assert found["three"].low > found["three"].baseline
    assert np.isnan(found["constant"].value)
    assert found["8"].low < found["8"].value < found["8"].high


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_minimum_equals_scipy(scale):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(500, 6)).astype(np.float32)
    truth = (z @ (scale * rng.normal(size=(6, 4))) + rng.logistic(size=(500, 4))) > 0.5
    gram = Gram(6)
    gram.add(z.astype(np.float64))
    weights, start = rng.uniform(0.5, 2, (2, 4)), rng.normal(size=(7, 4))
    problem = MergedLogistic(factorise(gram), z, truth, weights, penalty=1.5)
    found = problem.minimize(start, 60)

    def loss(v, target):
        sign = np.where(truth[:, target], 1, -1)
        weight = np.where(truth[:, target], weights[1, target], weights[0, target])
        margin = sign * (z @ v[:-1] + v[-1])
        away = v[:-1] - start[:-1, target]
        return (weight * np.logaddexp(0, -margin)).sum() + 0.75 * (away**2).sum()

    for target in range(4):
        best = minimize(loss, start[:, target], args=(target,)).fun
        assert loss(found[:, target], target) == pytest.approx(best, rel=1e-4)


def test_class_sums_of_many_binary_targets():
    """Class sums of eight or more targets are one product; merged and missing labels included."""
    x, y, items = layer(900, 9, features=5)
    y[:300, 4] = False  # the second class comes later
    labels = {str(n): column for n, column in enumerate(y.T)}
    parts = [Scorer("linear_f1") for _ in range(2)]
    for scorer, rows in zip(parts, (slice(0, 300), slice(300, 900)), strict=True):
        scorer.update(x[rows], {name: column[rows] for name, column in labels.items()}, items[rows])
    scorer = parts[0].merge(parts[1])
    held, moments = places(items, 0).held, scorer.statistics.moments
    for name, column in labels.items():
        sums, order = moments.classes[name], scorer.statistics.classes[name].order()
        for value, code in zip((False, True), order, strict=True):
            rows = ~held & (column == value)
            assert sums.counts[code] == rows.sum()
            got = sums.totals[code] + rows.sum() * moments.shift
            np.testing.assert_allclose(got, x[rows].sum(axis=0, dtype=float), atol=1e-6)
