"""Numbers of labels of one name: scores of others than before say so, and nothing is found across them."""

from __future__ import annotations

import numpy as np
import pytest
from serving_help import record, target_of

from intus.core.findings import findings
from intus.core.record import OF_PROBE_SET
from intus.serving.aggregation.service import AggregatorService
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.evaluation.targets import KnownTargets
from intus.serving.frontend import Frontend
from intus.storage.database import Database


def numbers(tmp_path, *registered):
    """Return the numbers that targets get, of a server that is started again before each."""
    found = []
    for facts in registered:
        with Database(tmp_path / "intus.db") as database:
            known = KnownTargets(Frontend(database))
            facts = {"name": "y", "client": "c"} | facts
            known.put(target_of(facts))
            found.append(max(known._known(), key=lambda one: one.registered).number)
    return found


def test_labels_that_only_grow_keep_their_number(tmp_path):
    labels = [{"targets": each} for each in ([1, None], [1, None], [1, 0], [1, 0, None], [1, 0, 5])]
    assert numbers(tmp_path, *labels) == [1] * 5


def test_lists_of_labels_that_only_grow_keep_their_number(tmp_path):
    labels = [{"targets": each, "exact": True} for each in ([[1, 2], [3]], [[1, 2], [3], [4, 5, 6]])]
    other = {"targets": [[1, 2], [3, 4], [4, 5, 6]], "exact": True}  # at other positions
    assert numbers(tmp_path, *labels, other) == [1, 1, 2]


@pytest.mark.parametrize(
    "other",
    [
        {"targets": [1, 1, 0]},
        {"targets": [1, 0]},  # of other items
        {"targets": [None, 0, 0]},
        {"targets": ["1", "0", "0"]},
        {"targets": [[1], [0], [0]]},
        {"targets": [1, 0, 0], "groups": [0, 0, 1]},
        {"targets": [1, 0, 0], "types": ["a", "b", "b"]},
        {"targets": [1, 0, 1], "run_pattern": "^r$"},  # for one of the runs of the first
        {"targets": [1, 0, 1], "client": "another"},
    ],
)
def test_other_labels_have_a_number_of_their_own(tmp_path, other):
    first = {"targets": [1, 0, 0]}
    assert numbers(tmp_path, first, other, other) == [1, 2, 2]


@pytest.mark.parametrize(
    "pattern", ["^r|s$", "^rs?", "^(s|r)", "r", "^ra*", "^s*r", "^\\w", "^r.$", "", "^r0$"]
)
def test_labels_for_runs_of_other_labels_have_a_number_of_their_own(tmp_path, pattern):
    first = {"targets": [1, 0, 0], "run_pattern": "^r"}
    assert numbers(tmp_path, first, {"targets": [1, 0, 1], "run_pattern": pattern}) == [1, 2]


@pytest.mark.parametrize(
    "other",
    [
        {"name": "z"},
        {"run_pattern": "^s$"},
        {"run_pattern": "^rs$"},
        {"run_pattern": "^s"},
        {"run_pattern": "^R"},
        {"model_pattern": "^other"},
        {"layer_pattern": r"^fc\.10"},
        {"client": f"c{OF_PROBE_SET}"},
    ],
)
def test_labels_of_which_no_layer_has_both_are_not_numbered_together(tmp_path, other):
    first = {"targets": [1, 0, 0], "run_pattern": "^r$", "model_pattern": "^net", "layer_pattern": r"^fc\.2"}
    assert numbers(tmp_path, first, {"targets": [0, 1, 1]} | other) == [1, 1]


def test_labels_of_another_process_that_trains_by_itself_are_not_numbered_with_it(tmp_path):
    """Each of many experiments on one server has a target of that name, and a process of its own."""
    with Database(tmp_path / "intus.db") as database:
        frontend = Frontend(database)
        known = KnownTargets(frontend)
        known.put(target_of({"name": "y", "client": "c", "targets": [1, 0]}))
        frontend.claim_target("y", "c")
        known = KnownTargets(frontend)
        known.put(target_of({"name": "y", "client": "d", "targets": [0, 1]}))
        assert [one.number for one in known._known()] == [1, 1]


def scored(tmp_path, *labels):
    """Return the scores of a layer that does not change, two epochs on each of these labels."""
    rows = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    with Database(tmp_path / "intus.db") as database:
        service = AggregatorService(Evaluator(Frontend(database), ["linear_f1"]))
        for epoch in range(2 * len(labels)):
            if epoch % 2 == 0:
                given = labels[epoch // 2](rows)
                service.put_target(target_of({"name": "y", "targets": given, "client": "c"}))
            block = record(array=rows, epoch=epoch, items=np.arange(300))
            service.records([block], {"client": "c", "seq": epoch})
        service.flush()
        scores = database.points("r", "m", score="linear_f1")
        service.close()
    return scores


def random_labels(rows):
    return np.random.default_rng(1).integers(0, 2, 300).tolist()


def known_labels(rows):
    return (rows[:, 0] > 0).tolist()


def some_labels(rows):
    return [label if item < 60 else None for item, label in enumerate(known_labels(rows))]


def test_nothing_is_learned_by_other_labels(tmp_path):
    scores = scored(tmp_path, random_labels, known_labels)
    assert scores["note"].tolist() == ["", "", "labels no. 2 of this name", "labels no. 2 of this name"]
    (found,) = findings(scores, ["fc1"])
    assert found.kind == "decodable"
    assert "since epoch 2, the first scored on these labels: linear_f1 " in found.text


def test_nothing_is_learned_by_more_labels(tmp_path):
    scores = scored(tmp_path, some_labels, known_labels)
    assert set(scores["note"].tolist()) == {""}
    assert scores["n"][0] < scores["n"][-1] / 4
    assert {each.kind for each in findings(scores, ["fc1"])} == {"decodable"}


def scored_on(tmp_path, *parts):
    """Return the scores of ten classes of which each epoch has these items; no layer changes."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 300)
    rows = (np.eye(10)[labels] + draw.normal(size=(3000, 10))).astype(np.float32)
    with Database(tmp_path / "intus.db") as database:
        service = AggregatorService(Evaluator(Frontend(database), ["linear_f1"]))
        service.put_target(target_of({"name": "y", "targets": labels.tolist(), "client": "c"}))
        for epoch, items in enumerate(parts):
            block = record(array=rows[items], epoch=epoch, items=np.asarray(items))
            service.records([block], {"client": "c", "seq": epoch})
        service.flush()
        scores = database.points("r", "m", score="linear_f1")
        service.close()
    return scores


@pytest.mark.parametrize("first", [range(3000), range(2400, 3000)], ids=["all-classes", "two-others"])
def test_nothing_is_learned_by_other_classes(tmp_path, first):
    """Before, two of ten classes were "learned" by a layer that stays as it is, being easier to tell."""
    two = range(600)
    scores = scored_on(tmp_path, first, first, two, two)
    assert scores["note"][-1] == "matched 600 of 3000 labels; rows of 2 of 10 classes (0, 1)"
    assert (scores["note"][0] == "") == (len(first) == 3000)
    assert scores["low"][-1] > scores["high"][0] or len(first) < 3000
    (found,) = findings(scores, ["fc1"])
    assert (found.kind, found.epoch) == ("decodable", 2)
    assert "since epoch 2, the first scored on these labels: linear_f1 " in found.text


def test_classes_that_rows_at_random_may_lack_are_not_told(tmp_path):
    draw = np.random.default_rng(0)
    parts = [draw.choice(3000, size, replace=False) for size in (1500, 90, 20)]
    notes = scored_on(tmp_path, *parts, range(2700))["note"].tolist()
    assert [("rows of" in note) for note in notes] == [False, False, False, True]
    assert "rows of 9 of 10 classes (0, 1, 2, 3, 4, 5, 6, 7, …)" in notes[-1]
