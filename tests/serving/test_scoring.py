"""Scores of data points, compared with numpy and scikit-learn."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from serving_help import point, record, target_of
from sklearn.datasets import load_digits

from intus.scores import base, register
from intus.serving.evaluation.relations import Relations
from intus.serving.evaluation.scoring import default_scores, evaluate, infos_of

DIGITS = load_digits()


def digits(**facts):
    """Return the 1,797 digits as batches of 256."""
    data = DIGITS.data.astype(np.float32)
    return [record(array=data[start : start + 256], **facts) for start in range(0, 1797, 256)]


def target(name, labels, **facts):
    return target_of({"name": name, "targets": labels} | facts)


def values(results):
    return {(row["target"] or "", row["score"]): row["value"] for row in results}


def test_digits_are_scored_for_each_fitting_target():
    targets = [
        target("digit", DIGITS.target.tolist()),
        target("parity", ["even" if d % 2 == 0 else "odd" for d in DIGITS.target]),
        target("short", [0, 1, 0]),
        target("elsewhere", [0, 1], layer_pattern="conv"),
    ]
    found = evaluate(point(*digits()), targets)
    got = values(found.results)
    assert got["", "mean"] == pytest.approx(DIGITS.data.mean())
    assert got["", "max"] == 16
    assert got["", "nonfinite"] == 0
    assert 0.9 < got["digit", "linear_f1"] < 0.97
    assert got["digit", "linear_f1.majority"] < 0.1
    assert 0.85 < got["parity", "linear_accuracy"] < 0.95
    assert 1.4 < got["digit", "kmeans_mi"] < 2.0
    assert found.fitted == {"digit", "parity"}
    assert list(found.misfits) == ["short"]
    row = next(row for row in found.results if row["score"] == "linear_f1" and row["target"] == "digit")
    assert (row["run"], row["model"], row["epoch"], row["address"]) == ("r", "m", 0, "fc1")
    assert (row["kind"], row["step"], row["unit"]) == ("output", None, None)
    assert row["low"] < row["value"] < row["high"]
    assert row["baseline"] < 0.2


def test_splits_average_classifiers_over_seeded_splits():
    """Values are the means of three evaluations with other seeds; scores that hold nothing out stay."""
    rows = point(record(array=DIGITS.data[:600].astype(np.float32), items=np.arange(600)))
    labels = [target("digit", DIGITS.target[:600].tolist())]
    scores = ["linear_accuracy", "lda_f1", "mean"]
    seeds = [5 + 7919 * number for number in range(3)]
    single = [evaluate(rows, labels, scores, seed=seed) for seed in seeds]
    found = evaluate(rows, labels, scores, seed=5, splits=3)
    checked = set()
    for row in found.results:
        same = [
            next(
                one for one in each.results if (one["score"], one["target"]) == (row["score"], row["target"])
            )
            for each in single
        ]
        of_splits = [one["value"] for one in same]
        assert row["value"] == pytest.approx(np.mean(of_splits), rel=1e-6)
        if row["score"] == "mean":
            assert row["note"] in (None, "")
            continue
        spread = np.var(of_splits, ddof=1)
        if row["score"].endswith("majority") and not spread:
            continue
        assert spread > 0
        assert "mean of 3 splits" in row["note"]
        half = stats.t.ppf(0.975, 2) * np.sqrt((1 / 3 + 0.25 / 0.75) * spread)  # a quarter is held out
        assert row["low"] == pytest.approx(max(0, np.mean(of_splits) - half), rel=1e-6)
        checked.add(row["score"])
    assert {"linear_accuracy", "lda_f1"} <= checked
    assert len(found.predictions) == len(single[0].predictions)
    assert (found.predictions[0].guess == single[0].predictions[0].guess).all()  # of the first split
    described = {info.name: info.interval for info in infos_of(found.results, 3)}
    assert described["linear_accuracy"].startswith("95 %, corrected resampled t over 3 splits")
    assert described["mean"] == {info.name: info.interval for info in infos_of(found.results)}["mean"]


def test_row_order_with_item_ids_does_not_change_scores():
    order = np.random.default_rng(0).permutation(1797)
    data = DIGITS.data.astype(np.float32)
    scores = ["linear_f1", "mean"]
    labels = [target("digit", DIGITS.target.tolist())]
    straight = evaluate(point(record(array=data, items=np.arange(1797))), labels, scores)
    halves = [record(array=data[part], items=part) for part in np.array_split(order, 5)]
    shuffled = evaluate(point(*halves), labels, scores)
    for key, value in values(straight.results).items():
        assert values(shuffled.results)[key] == pytest.approx(value, nan_ok=True)


def test_note_names_uncertain_label_match():
    rng = np.random.default_rng(0)
    array = rng.normal(size=(30, 3)).astype(np.float32)
    labels = [target("t", rng.integers(0, 2, 40).tolist()), target("u", [0, 1] * 15)]

    def note(**facts):
        found = evaluate(point(record(array=array, **facts)), labels, ["linear_accuracy", "mean"])
        return {row["target"] or "": row["note"] for row in found.results}

    assert note() == {"": None, "u": "labels matched by order of arrival, not verified"}
    assert note(items=np.arange(30)) == {"": None, "t": "matched 30 of 40 labels", "u": None}
    assert note(items=np.arange(30) % 20)["u"] == "matched 20 of 30 labels"


def test_nonfinite_rows_are_counted_and_left_out():
    data = DIGITS.data.astype(np.float32)
    data[3, 5], data[10, 0] = np.nan, np.inf
    found = evaluate(point(record(array=data)), [target("digit", DIGITS.target.tolist())])
    got = values(found.results)
    assert got["", "nonfinite"] == found.nonfinite == 2
    clean = np.delete(data, [3, 10], axis=0)
    assert got["", "mean"] == pytest.approx(clean.mean())
    assert got["digit", "linear_f1"] > 0.9


@pytest.mark.parametrize(
    ("steps", "note"),
    [
        ((7, 8, 9, 10), None),
        ((5, 7, 9, 10), "step 7, the last one recorded before, had none"),
        ((9, 10), "no earlier pass of the epoch in this mode was recorded"),
        ((10, 9, 7, 8), None),  # they arrived in another order
        ((9, 10, None), "unknown"),
    ],
)
@pytest.mark.parametrize("summed_up", [False, True])
def test_first_step_with_nan_is_told_with_the_pass_before(steps, note, summed_up):
    records = []
    for step in steps:
        array = np.ones((4, 3), np.float32)
        summary = np.zeros((4, 8), np.float32) if summed_up else None
        if step in (9, 10):  # as they are of wide rows, which were projected
            (array if summary is None else summary)[1, -1] = np.nan if summary is None else 1
        facts = {"summary": summary, "projected_from": 9 if summed_up else None}
        records.append(record(array=array, step=step, **facts))
    rows = [row for row in evaluate(point(*records), []).results if row["score"] == "nonfinite_step"]
    if note == "unknown":
        assert rows == []
    else:
        assert [(row["value"], row["note"], row["n"]) for row in rows] == [(9, note, len(steps))]
        assert infos_of(evaluate(point(*records), []).results)


def test_passes_of_a_probe_set_and_of_single_steps_have_no_first_step_with_nan():
    bad = np.full((4, 3), np.nan, np.float32)
    finite = point(record(array=np.ones((4, 3), np.float32), step=3))
    looks = point(record(array=bad, step=3, mode="probe"))
    single = replace(point(record(array=bad, step=3)), step=3)
    for each in (finite, looks, single):
        assert "nonfinite_step" not in evaluate(each, []).results["score"]


def test_all_nan_data_point_has_notes_and_no_values():
    found = evaluate(point(record(array=np.full((30, 4), np.nan))), [target("t", [0, 1] * 15)])
    for row in found.results:
        if row["score"] != "nonfinite":
            assert row["value"] is None
            assert row["note"]


def test_positions_with_labels_are_rows():
    rng = np.random.default_rng(0)
    words = [["noun" if rng.random() < 0.5 else "verb" for _ in range(rng.integers(3, 8))] for _ in range(60)]
    blocks = []
    for batch in (words[:30], words[30:]):
        array = rng.normal(size=(30, max(map(len, batch)), 4)).astype(np.float32)
        for item, row in enumerate(batch):
            array[item, : len(row), 0] += np.array([3.0 if word == "noun" else -3.0 for word in row])
        blocks.append(record(array=array))
    found = evaluate(point(*blocks), [target("word", words)], ["linear_accuracy", "mean"])
    assert found.fitted == {"word"}
    assert values(found.results)["word", "linear_accuracy"] > 0.97


def test_positions_of_unequal_sequences_are_rows():
    rng = np.random.default_rng(0)
    short, long = np.maximum(rng.normal(size=(4, 3, 2)), 0), np.maximum(rng.normal(size=(10, 4, 2)), 0)
    rows = np.concatenate([short.reshape(-1, 2), long.reshape(-1, 2)])
    found = evaluate(point(record(array=short), record(array=long, batch_axis=1)), [])
    got = values(found.results)
    assert got["", "mean"] == pytest.approx(rows.mean())
    assert got["", "std"] == pytest.approx(rows.std())
    assert got["", "sparsity"] == pytest.approx((rows == 0).mean())
    spectrum = np.linalg.eigvalsh(np.cov(rows.T))
    assert got["", "participation_ratio"] == pytest.approx(spectrum.sum() ** 2 / (spectrum**2).sum())
    assert set(found.results["n"]) == {4 * 3 + 4 * 10}
    assert set(found.results["note"]) == {"each position is a row"}
    assert found.failures == {}


def test_unequal_feature_maps_are_not_padded_for_label_free_scores():
    ones = [record(array=np.ones((2, 3, side, side), np.float32)) for side in (2, 5)]
    got = values(evaluate(point(*ones), []).results)
    assert (got["", "mean"], got["", "sparsity"], got["", "min"]) == (1, 0, 1)


def test_labels_of_unequal_sequences_stay_with_items():
    rng, labels = np.random.default_rng(0), [0, 1] * 40
    blocks = [record(array=rng.normal(size=(40, width, 3)).astype(np.float32)) for width in (2, 6)]
    for block in blocks:
        block.array[1::2, 0, 0] += 8
    found = evaluate(point(*blocks), [target("t", labels)], ["linear_accuracy", "mean"])
    row = next(row for row in found.results if row["score"] == "linear_accuracy")
    assert row["value"] > 0.97
    assert 8 < row["n"] < 30  # held-out items, not positions
    assert "padded with zeros" in row["note"]


def test_parameter_has_scores_of_entries_only():
    weights = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)
    found = evaluate(point(record(array=weights, kind="parameter", batch_axis=None)), [target("t", [1, 2])])
    got = values(found.results)
    assert got["", "mean"] == pytest.approx(weights.mean(), abs=1e-6)
    assert got["", "std"] == pytest.approx(weights.std(), rel=1e-5)
    assert ("", "effective_rank") not in got
    assert found.misfits == {}


def test_incomplete_data_point_has_note():
    found = evaluate(point(record(), lacks="a disk was full"), [], ["mean"])
    assert found.results["note"].tolist() == ["incomplete: a disk was full"]


def test_default_scores_exclude_unit_scores():
    assert {"linear_f1", "kmeans_mi", "mean", "effective_rank"} <= set(default_scores())
    assert "iou" not in default_scores()


def test_raising_score_does_not_affect_others():
    @register("raises_for_a_test")
    def raises(behaviours):
        raise ZeroDivisionError("no")

    try:
        found = evaluate(point(record()), [], ["mean", "raises_for_a_test", "std"])
    finally:
        del base._SCORES["raises_for_a_test"]  # other tests ask for all scores there are
    assert found.results["score"].tolist() == ["mean", "std"]
    assert "raised ZeroDivisionError: no. It was given" in found.failures["raises_for_a_test"]


SHAPES = [(0, 3), (4, 0), (4,), (), (4, 2, 0), (4, 2, 3)]
VALUES = [0, 1, np.nan, np.inf, 3e38]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("value", VALUES)
def test_any_array_can_be_scored(shape, value):
    targets = [target("t", [0, 1, 0, 1]), target("one", [1] * 4), target("p", [[1, 2], [1], [1], [2]])]
    targets += [target("real", [0.1, 0.2, 0.3, 0.4]), target("mixed", ["a", 1, None, True])]
    found = evaluate(point(record(array=np.full(shape, value, np.float32))), targets)
    assert "mean" in found.results["score"]
    if shape == (4, 2, 3):
        assert found.fitted == {"t", "one", "p", "real", "mixed"}


@pytest.mark.long
def test_libraries_are_imported_when_a_training_begins():
    """The first data point imports nothing more, and a server that nobody uses imports none of it."""
    script = """
import sys, time
import intus.serving.run
from serving_help import point, record, target_of
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.evaluation.relations import Relations
from intus.serving.evaluation.scoring import evaluate
import numpy as np

class Frontend:
    def put_graph(self, run, model, blob): pass

evaluator = Evaluator(Frontend())
print("sklearn" in sys.modules)
evaluator.put_graph("r", "m", b"")
ends = time.monotonic() + 300
while any(thread.name == "intus-warm-up" for thread in __import__("threading").enumerate()):
    assert time.monotonic() < ends
    time.sleep(0.01)
before = set(sys.modules)
rows = np.random.default_rng(0).normal(size=(60, 5))
labels = target_of({"name": "t", "targets": [0, 1, 2] * 20})
table = evaluate(point(record(array=rows, items=np.arange(60))), [labels], relations=Relations()).results
print(sorted({"kmeans_ami", "linear_f1", "lda_f1"} & set(table["score"])), set(sys.modules) - before)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines() == ["False", "['kmeans_ami', 'lda_f1', 'linear_f1'] set()"], done.stderr


def test_equal_arrays_of_two_kinds_do_not_share_scores():
    output, same, grad = (point(record(kind=kind)) for kind in ("output", "output", "grad_output"))
    assert output.digest() == same.digest() != grad.digest()


def test_epochs_whose_rows_are_of_different_kinds_are_not_compared():
    """The same sequences, once in batches of one length, once in batches of two."""
    rng, relations = np.random.default_rng(0), Relations()
    long = rng.normal(size=(40, 6, 3)).astype(np.float32)
    items = np.arange(40)
    even = [record(array=long[:20], items=items[:20]), record(array=long[20:], items=items[20:])]
    uneven = [record(array=long[:20, :5], items=items[:20]), even[1]]
    notes = []
    for epoch, records in enumerate((even, even, uneven, uneven, even)):
        previous = None if epoch == 0 else (float(epoch - 1), -1)
        made = replace(point(*records), epoch=float(epoch), previous=previous)
        table = evaluate(made, [], relations=relations).results.where(score="cka_epoch")
        notes += [(row["value"] is None, row["note"]) for row in table]
    apart = "the rows of one are items, of the other positions"
    assert [missing for missing, _ in notes] == [False, True, False, True]
    assert [apart in note for _, note in notes] == [False, True, False, True]
    assert "each position is a row" in notes[2][1]
