"""CKA and SVCCA of pairs of layers, compared with textbook formulas and with planted truth."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from sklearn.cross_decomposition import CCA
from sklearn.decomposition import PCA

from intus.core.errors import InputError
from intus.scores import Scorer, get, infos
from intus.scores.comparisons.layers import CKA_ROWS, SVCCA_ROWS, canonical_correlation, relations
from intus.serving.evaluation.scoring import chosen

BOTH = ["cka", "svcca"]


def fed_layers(layers, items=None, *, scores=BOTH, seed=0):
    out = {}
    for name, x in layers.items():
        out[name] = Scorer(scores, seed=seed)
        out[name].update(x, items=items)
    return out


def compared(scorers, score, against=None):
    found = relations(scorers, get(score), against=against)
    return {(address, result.target): result for address, result in found}


def textbook_cka(x, y):
    """Unbiased HSIC of Song et al. 2012, equation 5, by matrices."""

    def hsic(k, m):
        n, one = len(k), np.ones(len(k))
        k, m = k - np.diag(np.diag(k)), m - np.diag(np.diag(m))
        sums = np.trace(k @ m) + (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
        return (sums - 2 / (n - 2) * one @ k @ m @ one) / (n * (n - 3))

    k, m = x @ x.T, y @ y.T
    return hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))


def textbook_svcca(x, y):
    """The cosines of the angles between the main subspaces, by scikit-learn's PCA and by scipy."""
    a, b = (PCA(0.99, svd_solver="full").fit_transform(one) for one in (x, y))
    return np.cos(scipy.linalg.subspace_angles(a, b)).mean()


@pytest.fixture
def layers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 12)) * np.linspace(2, 0.1, 12)
    y = np.hstack([x[:, :4] @ rng.normal(size=(4, 4)), rng.normal(size=(400, 3))])
    return {"one": x, "two": y, "noise": rng.normal(size=(400, 6))}


def test_values_equal_textbook_formulas(layers):
    scorers = fed_layers(layers)
    for score, textbook in (("cka", textbook_cka), ("svcca", textbook_svcca)):
        found = compared(scorers, score)
        assert list(found) == [("one", "two"), ("one", "noise"), ("two", "noise")]
        for (a, b), result in found.items():
            assert result.value == pytest.approx(textbook(layers[a], layers[b]), abs=1e-4), (score, a, b)
            assert (result.score, result.unit, result.n, result.note) == (score, -1, 400, "")
        assert found["one", "two"].low > found["one", "two"].baseline
        assert found["one", "noise"].low <= found["one", "noise"].baseline


def test_canonical_correlation_equals_sklearn(layers):
    a, b = layers["one"][:, :3], layers["two"][:, :3]
    left, right = CCA(n_components=3, max_iter=5000, tol=1e-12).fit_transform(a, b)
    theirs = [np.corrcoef(left[:, k], right[:, k])[0, 1] for k in range(3)]
    assert canonical_correlation(a, b) == pytest.approx(np.mean(theirs), abs=1e-4)


def test_linear_maps_of_a_layer_are_equal_to_it(layers):
    rng = np.random.default_rng(1)
    x = layers["noise"]
    turned = x @ np.linalg.qr(rng.normal(size=(6, 6)))[0] * 3 + 5
    bent = x @ rng.normal(size=(6, 6))
    scorers = fed_layers({"x": x, "turned": turned, "bent": bent})
    assert compared(scorers, "cka")["x", "turned"].value == pytest.approx(1, abs=1e-4)
    assert compared(scorers, "cka")["x", "bent"].value < 0.99
    assert compared(scorers, "svcca")["x", "turned"].value == pytest.approx(1, abs=1e-6)


def test_large_layers_are_compared_on_the_same_items_in_any_order():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6000, 5)).astype(np.float32)
    order = rng.permutation(6000)
    scorers = fed_layers({"a": x}, np.arange(6000)) | fed_layers({"b": x[order]}, order)
    for score, rows in (("cka", CKA_ROWS), ("svcca", SVCCA_ROWS)):
        result = compared(scorers, score)["a", "b"]
        assert result.value == pytest.approx(1, abs=1e-4)
        assert result.n == rows


def test_vectors_of_another_origin(layers):
    """A hypothesis that is a vector for each record, such as a brain recording."""
    brain = layers["one"][:, :5] @ np.random.default_rng(1).normal(size=(5, 30))
    against = fed_layers({"brain": brain + np.random.default_rng(2).normal(size=brain.shape)})
    scorers = fed_layers({"one": layers["one"], "noise": layers["noise"]})
    found = compared(scorers, "cka", against)
    assert list(found) == [("one", "noise"), ("one", "brain"), ("noise", "brain")]
    assert found["one", "brain"].low > 0.3 > found["noise", "brain"].high
    assert found["one", "brain"].value == pytest.approx(
        textbook_cka(
            layers["one"],
            against["brain"].statistics.drawn()[1][np.argsort(against["brain"].statistics.drawn()[0].item)],
        ),
        abs=1e-4,
    )


@pytest.mark.parametrize("scores", [BOTH, [*BOTH, "correlation"]])
def test_cka_of_wide_layers_equals_the_textbook_formula(scores):
    """Cover rows that were projected to 1,024 features, and a note of it where they were not."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 40)).astype(np.float32)
    y = np.maximum(x @ rng.normal(size=(40, 2000)), 0).astype(np.float32)
    whole, parts = (
        fed_layers({"x": x[rows], "y": y[rows]}, np.arange(400)[rows], scores=scores)
        for rows in (slice(None), slice(0, 100))
    )
    for name, rows in (("x", x), ("y", y)):
        rest = Scorer(scores)
        rest.update(rows[100:], items=np.arange(100, 400))
        parts[name].merge(rest)
    for scorers in (whole, parts):
        found = compared(scorers, "cka")["x", "y"]
        assert found.value == pytest.approx(textbook_cka(x - x.mean(0), y - y.mean(0)), abs=1e-4)
        assert (found.n, found.note) == (400, "")
        note = compared(scorers, "svcca")["x", "y"].note
        assert ("2000 features projected to 1024" in note) == (scores == BOTH)


@pytest.mark.long
def test_interval_covers_the_value_of_many_rows():
    """The truth is that of 20,000 rows, by numpy; each run has 300 rows in items of three."""
    rng = np.random.default_rng(0)
    mix, turn = rng.normal(size=(8, 8)) / 2, np.linspace(1.5, 0.3, 8)

    def draw(rng, items):
        shared = np.repeat(rng.normal(size=(items, 8)), 3, axis=0)
        x = (shared + rng.normal(size=(3 * items, 8))) * turn
        return x, 0.7 * x @ mix + 0.5 * rng.normal(size=(3 * items, 8))

    x, y = (one - one.mean(axis=0) for one in draw(rng, 7000))
    norm = np.linalg.norm
    truth = {
        "cka": norm(x.T @ y) ** 2 / norm(x.T @ x) / norm(y.T @ y),
        "svcca": textbook_svcca(x, y),
    }
    hits = dict.fromkeys(truth, 0)
    for run in range(60):
        x, y = draw(np.random.default_rng(run), 100)
        scorers = fed_layers({"x": x, "y": y}, np.repeat(np.arange(100), 3), seed=run)
        for score in truth:
            result = compared(scorers, score)["x", "y"]
            hits[score] += result.low <= truth[score] <= result.high
    assert hits["cka"] >= 54
    assert hits["svcca"] >= 54


def test_layers_without_common_rows_have_a_note(layers):
    x = layers["one"]
    scorers = fed_layers({"a": x[:50]}, np.arange(50)) | fed_layers({"b": x[:50]}, np.arange(90, 140))
    scorers["flat"] = fed_layers({"flat": np.ones((50, 3))}, np.arange(50))["flat"]
    scorers["empty"] = Scorer(BOTH)
    for score in BOTH:
        found = compared(scorers, score)
        assert found["a", "b"].note == "the two share no items"
        assert found["a", "flat"].note == "50 shared rows are too few, or a layer is constant"
        assert found["a", "empty"].note == "a layer has no rows"
        assert all(np.isnan(result.value) for result in found.values())


def test_too_few_rows_for_the_directions_have_a_note():
    x = np.random.default_rng(0).normal(size=(100, 60))
    result = compared(fed_layers({"a": x, "b": x[:, ::-1]}), "svcca")["a", "b"]
    assert result.note.startswith("10 of 5")
    assert result.note.endswith("directions, for 100 rows")


def test_scores_of_pairs_have_no_rows_of_a_single_layer(layers):
    scorer = Scorer(["cka", "mean"])
    scorer.update(layers["one"])
    assert [result.score for result in scorer.result()] == ["mean"]
    assert infos()["cka"].level == "layer"
    with pytest.raises(InputError, match=r"'svcca' compares layers of one model, which inspect does"):
        chosen(["svcca"])
