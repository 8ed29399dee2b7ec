"""Findings: sentences about planted truth, and few false ones about noise, of the real scorer's scores."""

from __future__ import annotations

import numpy as np
import pytest

from intus.core.findings import findings
from intus.core.notes import Facts
from intus.core.results import Results
from intus.scores import Scorer, get

LAYERS = [f"h.{number}" for number in range(6)]
EPOCHS = 6
ROWS = 400


NUMBERS = ("value", "low", "high", "baseline", "n")


def scored(signal, seed, labels=None, layers=LAYERS, rows=ROWS):
    """Return the scores of layers of random activations.

    ``signal[layer, epoch]`` is the distance between the classes in one of eight features, in standard
    deviations. The noise of a layer changes slowly, as that of a training does.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, rows) if labels is None else labels
    table = []
    for layer, address in enumerate(layers):
        noise = rng.normal(size=(rows, 8))
        for epoch in range(signal.shape[1]):
            noise = 0.8 * noise + 0.6 * rng.normal(size=(rows, 8))
            behaviors = noise.copy()
            behaviors[:, 0] += signal[layer, epoch] * labels
            scorer = Scorer(["linear_f1", "nonfinite"])
            scorer.update(behaviors, {"entity": labels}, items=np.arange(rows))
            for result in scorer.result():
                row = {
                    "address": address,
                    "epoch": epoch,
                    "score": result.score,
                    "target": result.target or "",
                }
                row |= {name: getattr(result, name) for name in NUMBERS}
                table.append(row)
    return Results.from_rows(table)


def told(results, kind, layers=LAYERS):
    return [(each.address, each.epoch) for each in findings(results, layers) if each.kind == kind]


@pytest.mark.slow
def test_noise_gives_a_finding_in_at_most_five_percent_of_runs():
    """Each run has 6 layers, 6 epochs and labels that say nothing."""
    runs = 60
    false = [findings(scored(np.zeros((6, EPOCHS)), seed, rows=150), LAYERS) for seed in range(runs)]
    alarms = [each for each in false if each]
    assert len(alarms) <= 0.05 * runs, alarms


@pytest.mark.parametrize("seed", range(5))
def test_target_that_is_learned_is_found_in_its_layer_and_epoch(seed):
    signal = np.zeros((6, EPOCHS))
    signal[3:, 2:] = 3.0
    results = scored(signal, seed)
    assert told(results, "learned") == [("h.3", 2.0)]
    assert told(results, "decodable") == told(results, "fell") == []
    (text,) = (each.text for each in findings(results, LAYERS) if each.kind == "learned")
    row = results.where(address="h.3", epoch=2.0, score="linear_f1")
    value, low, high, baseline = (float(row[name][0]) for name in ("value", "low", "high", "baseline"))
    numbers = f"linear_f1 {value:.2f} [{low:.2f}, {high:.2f}], baseline {baseline:.2f}"
    assert text.startswith(f"entity is learned in h.3 and 2 more layers from epoch 2: {numbers};")


@pytest.mark.parametrize("seed", range(5))
def test_what_an_untrained_layer_has_is_not_learned(seed):
    results = scored(np.full((6, EPOCHS), 3.0), seed)
    assert told(results, "learned") == []
    assert told(results, "decodable") == [("h.0", 0.0)]


@pytest.mark.parametrize("seed", range(5))
def test_target_that_is_lost_fell_to_its_baseline(seed):
    signal = np.zeros((6, 8))
    signal[4:, 1:5] = 4.0
    results = scored(signal, seed)
    assert told(results, "fell") == [("h.4", 5.0)]
    assert told(results, "learned") == told(results, "idle") == []
    (text,) = (each.text for each in findings(results, LAYERS))
    assert text.startswith("entity fell ")
    assert "its baseline in h.4 and 1 more layer at epoch 5: linear_f1 0." in text
    row = results.where(address="h.4", epoch=5.0, score="linear_f1")
    assert text.startswith("entity fell below") == (row["high"][0] < row["baseline"][0])


def growing(gain):
    """Return signals that grow up to h.3 from epoch 2, and by ``gain`` in each later layer."""
    steps = np.cumsum([0.0, 0.7, 0.7, 0.7, gain, gain])
    return np.outer(steps, [0, 0, 1, 1, 1, 1])


@pytest.mark.long
def test_later_layers_without_gain_add_nothing_and_with_gain_are_never_said_to():
    """F1 is .86 in h.3; then it falls to .64, or rises to .92 and .96."""
    for seed in range(5):
        ((address, epoch),) = told(scored(growing(-1.4), seed, rows=1500), "idle")
        assert address == "h.3"
        assert epoch >= 2
        assert told(scored(growing(0.7), seed, rows=1500), "idle") == []


def test_perfect_scores_of_few_rows_do_not_show_that_later_layers_add_nothing():
    """The layers' F1 is .93 and 1, but of 12 held-out rows it is often 1 in both: 1.00 [0.67, 1.00]."""
    signal = np.full((2, 4), 3.0)
    signal[1] = 8.0
    for seed in range(12):
        assert told(scored(signal, seed, layers=LAYERS[:2], rows=48), "idle", LAYERS[:2]) == []
    same = scored(np.full((2, 4), 8.0), 0, layers=LAYERS[:2], rows=1500)
    assert told(same, "idle", LAYERS[:2]) == [("h.0", 0.0)]  # of many rows it does


def test_nonfinite_values_began_in_the_first_layer_of_the_network():
    rng = np.random.default_rng(0)
    table = []
    for epoch in range(4):
        for layer, address in reversed(list(enumerate(LAYERS))):
            behaviors = rng.normal(size=(40, 3))
            if epoch >= 2 and layer >= 3:
                behaviors[:layer, 0] = np.nan
            scorer = Scorer(["nonfinite"])
            scorer.update(behaviors)
            (result,) = scorer.result()
            row = {"address": address, "epoch": epoch, "step": 100 * epoch + 7, "score": "nonfinite"}
            table.append(row | {"value": result.value})
    (found,) = findings(Results.from_rows(table), LAYERS)
    assert (found.kind, found.address, found.epoch, found.step) == ("nonfinite", "h.3", 2.0, 207)
    assert str(found) == (
        "NaN or infinite values were first recorded in h.3 at step 207: 3 values. Step 107, the last one "
        "recorded before, had none."
    )


def test_logged_value_that_is_not_finite():
    log = [("accuracy", 1, 0.0, 0.5)]
    log += [
        ("loss", step, 0.0, value) for step, value in [(4208, 0.3), (4209, 0.5), (4210, np.nan), (4211, 9.0)]
    ]
    (found,) = findings(Results(), [], log)
    assert str(found) == "loss is NaN at step 4,210. It was 0.5 at step 4,209."


def test_missing_points_and_a_single_epoch_give_no_finding():
    signal = np.full((6, 1), 4.0)
    assert findings(scored(signal, 0), LAYERS) == []
    assert findings(Results(), LAYERS) == []
    lacking = scored(growing(-1.4), 0)
    table = [row | {"low": None, "high": None, "baseline": None} for row in lacking]
    assert findings(Results.from_rows(table), LAYERS) == []


@pytest.mark.parametrize(
    "kinds",
    [
        {"output": "eval", "output@train": "train"},  # Lightning's sanity check came first: before, nothing
        {"output": "train", "output@eval": "eval"},
        {"output": "probe", "output@train": "train"},
        {"output@eval": "eval"},  # of another model than the one that began the run
    ],
)
def test_targets_are_looked_for_in_the_mode_of_the_training(kinds):
    """It is learned in one mode alone: in any other, the scores are those of noise."""
    shown = next((kind for kind, mode in kinds.items() if mode in ("train", "probe")), "output@eval")
    signal = np.repeat([[0.0, 0.0, 3.0, 3.0, 3.0, 3.0]], 2, axis=0)
    rows = []
    for kind, mode in kinds.items():
        table = scored(signal if kind == shown else 0 * signal, 0, layers=LAYERS[:2])
        rows += [row | {"kind": kind, "mode": mode} for row in table]
    kind = "risen" if "train" in kinds.values() and "probe" not in kinds.values() else "learned"
    assert [epoch for _, epoch in told(Results.from_rows(rows), kind)] == [2]


def regression(labels, encoded, seed=0, scores=("linear_f1", "r2"), epochs=4):
    """Return the default scores of two layers, as a server computes them.

    ``encoded(layer, epoch)`` are the columns in which a layer has the target, among six of noise.
    """
    rng, table = np.random.default_rng(seed), []
    for layer in range(2):
        for epoch in range(epochs):
            shown = encoded(layer, epoch)
            behaviors = np.hstack([shown, rng.normal(size=(len(labels), 6))])
            scorer = Scorer([get(name).by_default() for name in scores])
            scorer.update(behaviors, {"ink": labels}, items=np.arange(len(labels)))
            for result in scorer.result():
                row = {"address": LAYERS[layer], "epoch": epoch, "score": result.score, "target": "ink"}
                table.append(row | {name: getattr(result, name) for name in (*NUMBERS, "note")})
    return Results.from_rows(table)


@pytest.mark.parametrize("distinct", [3, 30, 170, 1500], ids="{}-values".format)
@pytest.mark.parametrize("seed", range(2))
def test_number_that_every_layer_has_is_judged_by_regression(distinct, seed):
    """A classifier of so many classes knows little, late; of more than 1,000 it has no value."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, distinct, 2000) / 6.4 if distinct < 1000 else rng.normal(size=2000)
    results = regression(labels, lambda layer, epoch: labels[:, None], seed)
    (first, *others) = findings(results, LAYERS[:2])
    assert (first.kind, first.address, first.epoch) == ("decodable", "h.0", 0.0)
    assert "epoch 0, the first scored: r2 1.00 [1.00, 1.00], baseline 0.0" in first.text
    assert [each.kind for each in others] == ["idle"]
    assert all("linear_f1" not in each.text for each in others)


def test_whole_numbers_are_judged_by_the_score_that_is_certain_of_more():
    """Judge 60 numbered classes by a classifier, and counts by R²; both scores are computed of both."""
    rng = np.random.default_rng(1)
    classes = rng.integers(0, 60, 3000)
    centers = 4.0 * rng.normal(size=(60, 3))
    of_classes = findings(
        regression(classes, lambda layer, epoch: centers[classes] * (layer and epoch > 1)), LAYERS[:2]
    )
    assert [(each.kind, each.address, each.epoch) for each in of_classes] == [("learned", "h.1", 2.0)]
    assert "linear_f1" in of_classes[0].text
    counts = rng.poisson(200, 3000)
    of_counts = findings(
        regression(counts, lambda layer, epoch: counts[:, None] / 14 * (layer and epoch > 1)), LAYERS[:2]
    )
    assert [(each.kind, each.address, each.epoch) for each in of_counts] == [("learned", "h.1", 2.0)]
    assert "r2 1.00" in of_counts[0].text


def test_number_without_a_regression_is_judged_by_the_classifier_that_was_asked_for():
    labels = np.random.default_rng(0).integers(0, 3, 600) / 2
    results = regression(labels, lambda layer, epoch: 9 * labels[:, None], scores=["linear_f1"])
    assert "linear_f1 1.00" in findings(results, LAYERS[:2])[0].text


def test_score_without_values_is_not_chosen():
    rows = [
        {"address": "h.0", "epoch": epoch, "score": name, "target": "y", "value": value, "low": value}
        | {"high": value, "baseline": 0.0}
        for epoch in range(3)
        for name, value in (("linear_f1", np.nan), ("lda_f1", 0.2), ("r2", np.nan))
    ]
    assert "lda_f1 0.20" in findings(Results.from_rows(rows), ["h.0"])[0].text


def of_unchanged_model(seed, sizes, features=400, classes=10, distance=4.0, score="linear_f1", skew=0):
    """Return the scores of a layer that does not change, of other numbers of rows in each epoch."""
    rng, rows = np.random.default_rng(seed), max(sizes)
    shares = np.arange(1.0, classes + 1) ** -skew
    labels = rng.choice(classes, rows, p=shares / shares.sum())
    centers = distance * rng.normal(size=(classes, features)) / np.sqrt(features)
    behaviors = centers[labels] + rng.normal(size=(rows, features))
    if score == "r2":
        labels = behaviors @ rng.normal(size=features) / np.sqrt(features) + rng.normal(size=rows) / distance
    table = []
    for epoch, size in enumerate(sizes):
        scorer = Scorer([score])
        scorer.update(behaviors[:size], {"digit": labels[:size]}, items=np.arange(size))
        for result in scorer.result():
            row = {"address": "h.0", "epoch": epoch, "score": result.score, "target": result.target}
            table.append(row | {name: getattr(result, name) for name in NUMBERS})
    return Results.from_rows(table)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((400, 800, 1600, 3200), {}),
        ((200, 800, 3200, 3200), {"classes": 4, "distance": 2.0}),
        ((3200, 3200, 1600, 400, 400), {"distance": 1.0}),
        ((80, 320, 1280, 3200), {"score": "r2", "distance": 2.0}),
        ((2025, 1350, 900, 600, 400), {"score": "r2", "distance": 1.0}),
    ],
)
def test_more_or_fewer_rows_alone_are_neither_learned_nor_lost(seed, sizes, options):
    found = findings(of_unchanged_model(seed, sizes, **options), LAYERS[:1])
    assert {each.kind for each in found} <= {"decodable"}, found


@pytest.mark.slow
def test_no_layer_that_does_not_change_has_learned_or_lost_a_target():
    """Draw what decides how much more a classifier knows from more rows: before, 9 of these layers had."""
    rng = np.random.default_rng(0)
    told_of = []
    for seed in range(200):
        first, growth = rng.choice([40, 80, 200, 400]), rng.choice([1.05, 1.2, 1.5, 2, 4])
        sizes = [min(int(first * growth**epoch), 6000) for epoch in range(5)][:: rng.choice([1, 1, -1])]
        options = {
            "features": rng.choice([4, 20, 100, 400]),
            "classes": rng.choice([2, 4, 10]),
            "distance": rng.choice([0.5, 1, 2, 4, 8]),
            "score": rng.choice(["linear_f1", "linear_f1", "linear_f1", "r2"]),
            "skew": rng.choice([0, 1, 2]),
        }
        results = of_unchanged_model(seed, sizes, **options)
        told_of += [each for each in findings(results, LAYERS[:1]) if each.kind != "decodable"]
    assert told_of == []


def rows_by_epoch(results, sizes):
    """Return results that say these numbers of rows of each epoch."""
    return Results.from_rows([row | {"n": sizes[int(row["epoch"])]} for row in results])


LEARNED = np.array([[0.0, 0.0, 3.0, 3.0, 3.0, 3.0]])


@pytest.mark.parametrize(
    ("sizes", "told_of_rows"),
    [
        ((99,) * EPOCHS, ""),
        ((99, 105, 130, 150, 170, 200), " Epoch 0 has 99 held-out rows, epoch 2 130."),  # data that grow
        ((99, 80, 40, 60, 30, 50), " Epoch 0 has 99 held-out rows, epoch 2 40."),  # passes that are skipped
        ((99, 99, 99, 99, 99, 40), ""),  # an epoch that is broken off
        ((1000, 99, 99, 99, 99, 99), " Epoch 0 has 1,000 held-out rows, epoch 2 99."),
    ],
    ids=["same", "growing", "skipped", "broken-off", "after-a-large-first"],
)
def test_target_that_is_learned_is_found_with_other_numbers_of_rows(sizes, told_of_rows):
    results = rows_by_epoch(scored(LEARNED, 0, layers=LAYERS[:1]), sizes)
    (found,) = findings(results, LAYERS[:1])
    assert (found.kind, found.epoch) == ("learned", 2)
    assert found.text.partition("the first scored.")[2] == told_of_rows


def test_target_that_is_decoded_since_there_are_more_rows_is_told_with_them():
    signal = np.array([[0.5, 0.5, 1.0, 1.0, 1.0]])
    results = rows_by_epoch(scored(signal, 4, layers=LAYERS[:1]), (20, 20, 200, 200, 200))
    (found,) = findings(results, LAYERS[:1])
    assert (found.kind, found.epoch) == ("decodable", 2)
    assert "Epoch 1 has 20 held-out rows, epoch 2 200, which alone may show it. No interval" in found.text


def test_layer_of_other_rows_is_not_said_to_add_nothing():
    results = scored(np.full((2, 4), 8.0), 0, layers=LAYERS[:2], rows=1500)
    assert told(results, "idle", LAYERS[:2]) == [("h.0", 0.0)]
    fewer = [row | {"n": row["n"] // (1 + (row["address"] == "h.1"))} for row in results]
    assert told(Results.from_rows(fewer), "idle", LAYERS[:2]) == []


def relabelled(results, number, where):
    """Return results of which some are of other labels."""
    rows = [row | {"note": Facts(number=number).note} if where(row) else row for row in results]
    return Results.from_rows(rows)


def test_nothing_is_found_from_labels_to_others_of_the_name():
    results = relabelled(scored(LEARNED, 0, layers=LAYERS[:1]), 2, lambda row: row["epoch"] >= 2)
    (found,) = findings(results, LAYERS[:1])
    assert (found.kind, found.epoch) == ("decodable", 2)
    assert "since epoch 2, the first scored on these labels:" in found.text
    later = relabelled(scored(LEARNED, 0, layers=LAYERS[:1]), 12, lambda row: row["epoch"] >= 1)
    assert told(later, "learned", LAYERS[:1]) == [("h.0", 2)]  # as of one set of labels it is
    newest = relabelled(scored(LEARNED, 0, layers=LAYERS[:1]), 2, lambda row: row["epoch"] >= 5)
    assert findings(newest, LAYERS[:1]) == []


def test_layers_with_labels_of_their_own_are_not_compared():
    results = scored(np.full((2, 4), 8.0), 0, layers=LAYERS[:2], rows=1500)
    found = findings(relabelled(results, 2, lambda row: row["address"] == "h.1"), LAYERS[:2])
    assert [(each.kind, each.address) for each in found] == [("decodable", "h.0"), ("decodable", "h.1")]
