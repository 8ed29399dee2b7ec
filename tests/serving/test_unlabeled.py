"""Score a layer in one mode and tell of it: nothing depends on another mode of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from serving_help import point, record, target_of
from test_relations import biased_free_cka as cka

from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.frontend import Frontend
from intus.storage.database import Database

LABELS = np.arange(40) % 2
IDS, UNKNOWN = np.arange(40), np.arange(-40, 0)


@pytest.fixture
def scoring(tmp_path):
    """Return a database, and a function that scores data points that became complete together."""
    with Database(tmp_path / "x.db") as database:
        evaluator = Evaluator(Frontend(database), scores=["default", "lda_f1"])
        evaluator.put_target(target_of({"name": "t", "targets": LABELS.tolist()}))

        def score(*points):
            evaluator.points(points)
            evaluator.flush()

        yield database, score
        evaluator.close()


def one(mode="train", items=IDS, epoch=0, address="fc1", kind="output", array=None, previous=None):
    facts = {"address": address, "mode": mode, "epoch": epoch, "kind": kind, "items": items}
    made = point(record(40, array=array, **facts) if array is not None else record(40, **facts))
    shown = made.key.shown_kind("train")
    return replace(made, kind=shown, previous=None if previous is None else (float(previous), -1))


def told(database):
    return [(each["code"], each["text"]) for each in database.notices() if each["code"].startswith("target")]


def test_evaluation_scored_apart_from_the_training_is_no_misfit(scoring):
    """An epoch may be passed on in parts, as by flush before an evaluation."""
    database, score = scoring
    score(one())
    score(one("eval", UNKNOWN))
    score(one("eval", UNKNOWN, epoch=1))
    [(code, text)] = told(database)
    assert code == "target_partly"
    assert text.startswith("The target 't' has no scores of the output in mode eval. ")
    assert "'fc1' of 'm' (output in mode eval) sent" in text


@pytest.mark.parametrize("evaluation", ["none", "unknown"])
def test_labels_that_a_training_loses_are_a_misfit(scoring, evaluation):
    database, score = scoring
    for epoch, items in enumerate([IDS, UNKNOWN]):
        beside = [one("eval", UNKNOWN, epoch)] if evaluation == "unknown" else []
        score(one(items=items, epoch=epoch), *beside)
    found = dict(told(database))
    assert set(found) == {"target_misfit"} | ({"target_partly"} if evaluation == "unknown" else set())
    assert "(output in mode train) sent" in found["target_misfit"]


def test_no_mode_with_labels_is_one_misfit_that_names_all(scoring):
    database, score = scoring
    for epoch in range(2):
        score(one(items=UNKNOWN, epoch=epoch), one("eval", UNKNOWN, epoch))
    [(code, text)] = told(database)
    assert code == "target_misfit"
    assert "(output in mode train) sent" in text
    assert text.endswith("It has no scores of the output in mode eval either.")


def test_kinds_that_lack_the_same_layers_share_a_sentence(scoring):
    database, score = scoring
    kinds = "output", "grad_output"
    points = [one(address=each, kind=kind) for each in ("fc1", "fc2") for kind in kinds]
    score(*points, *(one(items=UNKNOWN, address="sort", kind=kind) for kind in kinds))
    [(code, text)] = told(database)
    assert code == "target_partly"
    assert text.startswith(
        "The target 't' has no scores of the output in mode train and the gradient of the output in mode "
        "train at 1 of 3 layers: 'sort'. "
    )


def test_equal_arrays_of_two_modes_are_compared_each_with_its_own_mode(scoring):
    """Before, an evaluation with the arrays of the training had the score of the training's change."""
    database, score = scoring
    rng = np.random.default_rng(0)
    training, evaluation, later = rng.normal(size=(3, 40, 6)).astype(np.float32)
    score(one(array=training), one("eval", array=evaluation))
    both = {"epoch": 1, "array": later, "previous": 0}
    score(one(**both), one("eval", **both))
    found = database.points("r", "m").where(score="cka_epoch", epoch=1.0)
    values = dict(zip(found["mode"].tolist(), found["value"].tolist(), strict=True))
    assert values == pytest.approx({"train": cka(training, later), "eval": cka(evaluation, later)}, abs=1e-5)
