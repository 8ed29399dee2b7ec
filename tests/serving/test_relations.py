"""Scores of two data points: consecutive layers, consecutive epochs, updates and weights."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from serving_help import point, record
from sklearn.datasets import load_digits

from intus.core.notes import remarks
from intus.core.projection import project
from intus.core.record import KINDS, PassFacts
from intus.scores.statistics.split import places
from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.evaluation.relations import Relations, _Latest
from intus.serving.evaluation.scoring import evaluate
from intus.serving.evaluation.targets import Target
from intus.serving.messages import EpochReport, TargetRequest

DIGITS = load_digits().data.astype(np.float32)


def layer(array, address="fc1", epoch=0.0, items=True, kind="output", previous=None):
    facts = {"address": address, "epoch": epoch, "kind": kind}
    if kind != "output":
        return point(record(array=array, batch_axis=None, **facts))
    ids = np.arange(len(array)) if items else None
    return replace(
        point(record(array=array, items=ids, **facts)), previous=None if previous is None else (previous, -1)
    )


def related(relations, data_point):
    """Return the related scores of a data point by name."""
    found = evaluate(data_point, [], relations=relations)
    return {row["score"]: row for row in found.results if row["score"].startswith(("cka", "update"))}


def biased_free_cka(x, y):
    """Compute unbiased CKA with matrices of ones (Song et al. 2012, equation 5)."""

    def hsic(k, other):
        n, one = len(k), np.ones(len(k))
        middle = one @ k @ one * (one @ other @ one) / ((n - 1) * (n - 2)) - 2 / (n - 2) * (
            one @ k @ other @ one
        )
        return np.trace(k @ other) + middle

    k, other = (a @ a.T * (1 - np.eye(len(a))) for a in (x.astype(float), y.astype(float)))
    return hsic(k, other) / np.sqrt(hsic(k, k) * hsic(other, other))


def test_layers_with_other_rows_are_not_compared():
    """A layer without ids beside layers with ids has other rows, such as positions."""
    relations = Relations()
    assert related(relations, layer(DIGITS[:100])) == {}
    assert related(relations, layer(DIGITS[:20], "by time", items=False)) == {}
    assert related(relations, layer(DIGITS[:30], "longer", items=False)) == {}
    assert set(related(relations, layer(DIGITS[:30], "as long", items=False))) == {"cka_layer"}


def test_cka_with_previous_layer_and_previous_epoch():
    rng, relations = np.random.default_rng(0), Relations()
    turn = np.linalg.qr(rng.normal(size=(64, 64)))[0]
    noisy = DIGITS[:250] + rng.normal(0, 6, (250, 64)).astype(np.float32)
    assert related(relations, layer(DIGITS[:250])) == {}
    second = related(relations, layer(noisy, "fc2"))
    assert set(second) == {"cka_layer"}
    assert second["cka_layer"]["value"] == pytest.approx(biased_free_cka(DIGITS[:250], noisy), abs=1e-4)
    assert second["cka_layer"]["low"] < second["cka_layer"]["value"] < second["cka_layer"]["high"]
    assert abs(second["cka_layer"]["baseline"]) < 0.1
    assert "with fc1" in second["cka_layer"]["note"]
    again = related(relations, layer((DIGITS[:250] @ turn).astype(np.float32), epoch=1.0, previous=0.0))
    assert set(again) == {"cka_epoch"}  # the layer before it was of another epoch
    assert again["cka_epoch"]["value"] == pytest.approx(1, abs=1e-4)
    assert "with epoch 0" in again["cka_epoch"]["note"]


def test_no_cka_across_epochs_without_item_ids():
    relations = Relations()
    related(relations, layer(DIGITS[:100], items=False))
    assert "cka_layer" in related(relations, layer(DIGITS[:100] * 2, "fc2", items=False))
    assert related(relations, layer(DIGITS[:100], epoch=1.0, items=False, previous=0.0)) == {}


def test_cka_matches_reordered_rows_by_item_id():
    relations, order = Relations(), np.random.default_rng(0).permutation(200)
    related(relations, layer(DIGITS[:200]))
    shuffled = point(record(array=DIGITS[order], items=order, address="fc1", epoch=1.0))
    shuffled = replace(shuffled, previous=(0.0, -1))
    assert related(relations, shuffled)["cka_epoch"]["value"] == pytest.approx(1, abs=1e-4)


def test_late_epoch_is_not_compared_with_newer_epoch():
    relations, aggregator, found = Relations(), Aggregator(), []
    for epoch in (0.0, 2.0, 1.0, 3.0):
        sent = record(array=DIGITS[:99], items=np.arange(99), epoch=epoch)
        aggregator.accept([sent], "c", int(epoch), reports=[EpochReport("r", "m", epoch, sent=1, whole=1)])
        for ready in aggregator.flush():
            found.append({name: row["note"] for name, row in related(relations, ready).items()})
    assert found == [{}, {"cka_epoch": "with epoch 0"}, {}, {"cka_epoch": "with epoch 2"}]


def test_epochs_are_compared_whichever_is_scored_first():
    ordered, backwards = Relations(), Relations()
    one, two = layer(DIGITS[:99]), layer(DIGITS[50:149], epoch=1.0, previous=0.0)
    related(ordered, one)
    expected = related(ordered, two)["cka_epoch"]
    assert related(backwards, two) == {}
    later = evaluate(one, [], relations=backwards).later
    assert list(later) == [expected]


@pytest.mark.parametrize("order", [("update", "parameter"), ("parameter", "update")])
def test_update_ratio_in_either_order_of_arrival(order):
    relations, arrays = Relations(), {"update": np.full(4, 0.01), "parameter": np.full(4, 4.0)}
    rows = []
    for kind in order:
        found = evaluate(layer(arrays[kind], "fc1.weight", kind=kind), [], ["norm"], relations=relations)
        rows += [*found.results, *found.later]
    (ratio,) = [row for row in rows if row["score"] == "update_ratio"]
    assert (ratio["kind"], ratio["n"], ratio["note"]) == ("update", 1, None)
    assert ratio["value"] == pytest.approx(0.0025)
    later = layer(arrays["parameter"], "fc1.weight", 1.0, kind="parameter")
    found = evaluate(later, [], ["norm"], relations=relations)
    assert "update_ratio" not in {row["score"] for row in [*found.results, *found.later]}


def test_update_ratio_of_incomplete_updates_says_so_also_when_the_parameter_is_scored_later():
    relations = Relations()
    updates = layer(np.full(4, 0.01), "fc1.weight", kind="update")
    cut = replace(updates, lacks="the queue was full")
    evaluate(cut, [], ["norm"], relations=relations)
    parameter = layer(np.full(4, 4.0), "fc1.weight", kind="parameter")
    (ratio,) = evaluate(parameter, [], ["norm"], relations=relations).later
    assert ratio["note"] == "incomplete: the queue was full"


@pytest.mark.parametrize("kind", KINDS)
def test_no_note_of_any_score_ends_unfinished(kind):
    """The data, the layer's neighbors and the other epochs are in part without a name, and in part absent."""
    relations, notes = Relations(), set()
    labels = Target.parse(TargetRequest(name="", targets=[0, 1] * 50))
    for epoch, of_pass in enumerate(
        [PassFacts(), PassFacts(is_unsure=True), PassFacts(is_part=True), PassFacts(data=1)]
    ):
        for other in {"parameter": ["parameter", "update"], "update": ["update", "parameter"]}.get(
            kind, [kind]
        ):
            alone = layer(DIGITS[:100], "fc1", float(epoch), kind=other)
            records = tuple(replace(one, of_pass=of_pass) for one in alone.records)
            found = evaluate(replace(alone, records=records), [labels], relations=relations)
            assert len(found.results)
            notes |= {row["note"] for row in [*found.results, *found.later]}
    assert len(notes) > 1
    unfinished = re.compile(r"\b(of|with|than|and|or|by|to|in|from|as|which|that)$|[,:(]$|^$")
    assert not [note for note in notes if any(unfinished.search(one.strip()) for one in remarks(note))]


def test_constant_layers_have_no_cka_and_no_warning():
    relations = Relations()
    related(relations, layer(np.ones((30, 4), np.float32)))
    assert related(relations, layer(DIGITS[:30], "fc2"))["cka_layer"]["value"] is None


@pytest.mark.parametrize("factor", [1e-30, 1e-10, 1e10, 1e30])
def test_cka_does_not_depend_on_the_scale_of_a_layer(factor):
    """Before, products of large entries overflowed in float32, and those of small ones vanished."""
    found = []
    for scale in (1.0, factor):
        relations = Relations()
        related(relations, layer(DIGITS[:50], "a"))
        scaled = (DIGITS[:50, :7].astype(np.float64) * scale).astype(np.float32)
        found.append(related(relations, layer(scaled, "b"))["cka_layer"]["value"])
    assert found[0] == pytest.approx(found[1], abs=1e-5)


def turned(x, features, seed=1):
    """Return rows with more features, turned: their CKA with ``x`` is 1."""
    q = np.linalg.qr(np.random.default_rng(seed).normal(size=(features, x.shape[1])))[0]
    return (x @ q.T).astype(np.float32)


def hidden(x, features, seed=1):
    """Return what a layer of ReLU makes of rows."""
    weights = np.random.default_rng(seed).normal(size=(x.shape[1], features))
    return np.maximum(x @ weights, 0).astype(np.float32)


def noise(rows, features, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, features)).astype(np.float32)


@pytest.mark.parametrize("features", [200, 1100, 2000, 4096, 20_000])
def test_cka_of_wide_layers_equals_numpy(features):
    """Cover a layer that only turns, of which CKA was 0.90, as its rows were projected to 1,024 features."""
    x, relations = noise(250, 200), Relations()
    y, z = turned(x, features), hidden(x, features)
    related(relations, layer(x, "a"))
    aligned = related(relations, layer(y, "b"))["cka_layer"]
    assert aligned["value"] == pytest.approx(1, abs=1e-5)
    assert aligned["note"] == "with a"
    after = related(relations, layer(z, "c"))["cka_layer"]
    assert after["value"] == pytest.approx(biased_free_cka(y - y.mean(0), z - z.mean(0)), abs=1e-4)
    assert after["note"] == "with b"
    later = z + 0.3 * noise(*z.shape)
    epoch = related(relations, layer(later, "c", epoch=1.0, previous=0.0))["cka_epoch"]
    assert epoch["value"] == pytest.approx(biased_free_cka(z - z.mean(0), later - later.mean(0)), abs=1e-4)
    assert epoch["note"] == "with epoch 0"


def test_cka_of_sequences_equals_numpy():
    """Flatten twelve positions of 96 features to 1,152."""
    x = noise(200, 12 * 32).reshape(200, 12, 32)
    y = (x @ noise(32, 96, 1)).astype(np.float32)
    relations = Relations()
    related(relations, layer(x, "a"))
    flat = [each.reshape(200, -1) - each.reshape(200, -1).mean(0) for each in (x, y)]
    found = related(relations, layer(y, "b"))["cka_layer"]
    assert found["value"] == pytest.approx(biased_free_cka(*flat), abs=1e-4)


def test_cka_of_wide_layers_is_of_the_same_rows_as_of_narrow_ones():
    """Compare the 256 rows with the smallest keys, of 3,000 that come in several passes."""
    x = noise(3000, 30)
    y, relations = hidden(x, 1500), Relations()
    related(relations, layer(x, "a"))
    parts = np.split(np.arange(3000), [900, 901, 2000])
    passes = (record(array=y[part], items=part, address="b", epoch=0.0) for part in parts)
    found = related(relations, point(*passes))["cka_layer"]
    rows = np.argsort(places(np.arange(3000), 0).key)[:256]
    x, y = (each[rows] - each[rows].mean(0) for each in (x, y))
    assert found["value"] == pytest.approx(biased_free_cka(x, y), abs=1e-4)
    assert found["n"] == 256


def projected(array, address="a", **facts):
    """Return a layer that the probe has projected, as it is wider than ``width``."""
    made = layer(project(array), address, **facts)
    records = tuple(replace(each, projected_from=array.shape[1]) for each in made.records)
    return replace(made, records=records)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("before", [layer, projected])
@pytest.mark.parametrize("directions", [10, 200])
def test_interval_of_cka_of_layers_that_the_probe_projected_covers_that_of_all_features(
    directions, before, seed
):
    """Cover a layer that only turns another, of which it was [0.88, 0.92]."""
    x = noise(256, directions, seed)
    a = turned(x, 5000, seed + 10)
    # a layer of ReLU behind ``a`` is one behind ``x`` with other random weights
    for b in (turned(x, 5000, seed + 20), hidden(x, 5000, seed + 30), a + hidden(x, 5000, seed) / 100):
        relations = Relations()
        related(relations, before(a, "a"))
        found = related(relations, projected(b, "b"))["cka_layer"]
        truth = biased_free_cka(a - a.mean(0), b - b.mean(0))
        assert found["low"] - 1e-6 <= truth <= found["high"] + 1e-6
        assert found["low"] <= found["value"] <= found["high"]
        assert found["high"] - found["low"] < (0.3 if directions == 200 else 0.1)
        assert found["note"] == "with a; 5000 features projected to 1024"


def test_old_sketches_are_dropped():
    latest = _Latest[int, int](2)
    for number in range(3):
        latest.set(number, number)
    assert [latest.get(number) for number in range(3)] == [None, 1, 2]


@pytest.mark.parametrize(
    ("rows", "of", "why"),
    [
        (DIGITS[:50], np.arange(-50, 0), "with a: no rows are known to be in both"),
        (
            DIGITS[:50],
            np.arange(47, 97),
            "with a: finite rows that are known to be in both: 3, and 4 are needed",
        ),
        (np.ones((50, 3), np.float32), np.arange(50), "with a: the rows of one of them do not vary"),
        (np.float32([[0.1, 0.7, 3e5]] * 50), np.arange(50), "with a: the rows of one of them do not vary"),
        (np.full((50, 3), np.inf, np.float32), np.arange(50), "with a: one of them has no finite rows"),
    ],
)
def test_alignment_without_a_value_says_why(rows, of, why):
    """The note was "with a" alone."""
    relations = Relations()
    related(relations, layer(DIGITS[:50], "a"))
    other = point(record(array=rows, items=of, address="b", epoch=0.0))
    row = related(relations, other)["cka_layer"]
    assert row["value"] is None
    assert row["note"].startswith(why)
