"""The predictions of classifiers: stored, sent between roles, and read as tables of confused classes."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import replace

import numpy as np
import pytest
import torch
from serving_help import point, record, target_of
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix, f1_score

from intus import flush, probe
from intus.core.doubt import Doubt
from intus.core.errors import InputError
from intus.core.results import Results
from intus.serving.decoding import decode, encode
from intus.serving.evaluation.scoring import evaluate
from intus.serving.messages import ResultsRequest
from intus.serving.predictions import confusion_of, scores_of
from intus.serving.run import Server
from intus.storage.database import Database

DIGITS = load_digits()
IMAGES = DIGITS.data[:800].astype(np.float32) / 16
LABELS = DIGITS.target[:800]


def evaluated(
    array=IMAGES, labels=LABELS, scores=("linear_accuracy", "linear_f1", "lda_f1", "mean"), **facts
):
    """Return the scores of one layer whose behaviours are the images."""
    target = target_of({"name": "digit", "targets": labels.tolist()})
    return evaluate(point(record(array=array, items=np.arange(len(array)), **facts)), [target], scores)


def read(server, path, **query):
    with urllib.request.urlopen(
        f"{server.page_url}api/{path}?{urllib.parse.urlencode(query)}", timeout=20
    ) as answer:
        return json.load(answer)


def test_predictions_are_stored_once_for_scores_of_the_same(tmp_path):
    found = evaluated()
    assert {each.score for each in found.predictions} == {"linear_accuracy", "lda_f1"}
    later = evaluated(IMAGES[:, ::2], epoch=1)
    with Database(tmp_path / "x.db") as database:
        for each in (found, later):
            database.add(each.results, (), each.predictions)
            database.add(each.results, (), each.predictions)  # again: replaced
        first, newest = (
            database.predictions("r", "m", "fc1", "digit", scores_of("linear_f1"), epoch=epoch)
            for epoch in (0, None)
        )
        (kept,) = [each for each in found.predictions if each.score == "linear_accuracy"]
        assert (first.score, first.epoch, newest.epoch) == ("linear_accuracy", 0, 1)
        assert first.classes == tuple(range(10))
        for name in ("items", "truth", "guess"):
            np.testing.assert_array_equal(getattr(first, name), getattr(kept, name))
        assert not np.array_equal(first.guess, newest.guess)
        with database._read() as connection:
            sizes = [
                connection.exec_driver_sql(f"SELECT count(*) FROM {t}").scalar()
                for t in ("held_out", "prediction")
            ]
            wide = connection.exec_driver_sql("SELECT max(length(wrong)) FROM prediction").scalar()
        assert sizes == [1, 4]
        assert wide < len(first.truth)  # bytes
        late = replace(first, step=7, guess=first.truth)
        database.add(
            Results.from_rows(
                [
                    {
                        "run": "r",
                        "model": "m",
                        "address": "fc1",
                        "epoch": 0,
                        "step": 7,
                        "target": "digit",
                        "score": first.score,
                        "value": 1.0,
                    }
                ]
            ),
            (),
            [late],
        )
        steps = [
            database.predictions("r", "m", "fc1", "digit", [first.score], epoch=0, step=step)
            for step in (None, 7, -1)
        ]
        assert [found.step for found in steps] == [7, 7, -1]
        np.testing.assert_array_equal(steps[0].guess, first.truth)
        assert database.predictions("r", "m", "fc2", "digit", ["linear_f1"]) is None
        database.put_doubt("r", "m", Doubt("withdrawn", withdraw=True))
        assert database.predictions("r", "m", "fc1", "digit", scores_of("linear_f1")) is None
        database.remove("m")
        with database._read() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM held_out").scalar() == 0


def test_predictions_pass_between_roles():
    found = evaluated(labels=np.array([f"class {label}" for label in LABELS]))
    sent = decode(encode(ResultsRequest.of(found.results, (), found.predictions)), ResultsRequest)
    for before, after in zip(
        found.predictions, [each.predictions() for each in sent.predictions], strict=True
    ):
        assert (after.epoch, after.address, after.score) == (before.epoch, before.address, before.score)
        assert after.classes == before.classes
        for name in ("items", "truth", "guess"):
            np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    (broken, *_) = sent.predictions
    broken.truth = broken.truth[2:]
    with pytest.raises(InputError, match="of the same rows"):
        broken.predictions()
    (*_, wrong) = sent.predictions
    wrong.classes = wrong.classes[:4]
    with pytest.raises(InputError, match="numbers of the 4 classes"):
        wrong.predictions()
    assert decode(encode({"columns": {}}), ResultsRequest).predictions == []  # of an older evaluator


@pytest.mark.long
def test_confusion_and_comparison_from_a_server(tmp_path):
    """A layer that keeps all pixels and one that keeps four of them, through a real server."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 4))
    inputs = torch.tensor(IMAGES)
    with Server(no_token=True, database=tmp_path / "x.db", port=0) as server:
        at = server.host, server.port
        with probe(model, *at, run="r", probe_set=(inputs, {"digit": LABELS})) as watch:
            for watch.epoch in range(2):
                watch.run_probe_set()
                with torch.no_grad():
                    model[1].weight[1:] = 0
        assert flush(*at)
        where = {"run": "r", "model": "Sequential", "target": "digit", "score": "linear_f1", "kind": "output"}
        scores = read(server, "points", run="r", score="linear_f1", address="0")
        table = read(server, "confusion", **where, address="0", epoch=1)
        assert table["classes"] == [str(digit) for digit in range(10)]
        assert np.sum(table["matrix"]) == scores["n"][-1]
        assert np.mean(table["f1"]) == pytest.approx(scores["value"][-1])
        assert all(
            low <= f1 <= high for low, f1, high in zip(table["low"], table["f1"], table["high"], strict=True)
        )
        assert read(server, "confusion", **where | {"score": "lda_accuracy"}, address="0")["matrix"] != []
        assert read(server, "confusion", **where | {"score": "mean"}, address="0")["classes"] == []

        layers = read(server, "above", **where, address="0", epoch=1, other_address="1")
        assert layers["low"] > 0.2
        assert layers["p"] < 1e-6
        assert layers["n"] == scores["n"][-1]
        epochs = read(server, "above", **where, address="1", epoch=0, other_epoch=1)
        assert epochs["low"] > 0  # three of the four units were zeroed
        same = read(server, "above", **where, address="0", epoch=0, other_epoch=1)
        assert (same["value"], same["p"]) == (0, 1)
        none = read(server, "above", **where, address="0", other_address="nowhere")
        assert (none["value"], none["note"]) == (None, "no predictions of the other point are stored")
        with pytest.raises(urllib.error.HTTPError, match="400"):
            read(server, "above", **where, address="0", epoch="soon")


def test_stored_table_equals_sklearn(tmp_path):
    found = evaluated(scores=["lda_f1"])
    (only,) = found.predictions
    with Database(tmp_path / "x.db") as database:
        database.add(found.results, (), found.predictions)
        stored = database.predictions("r", "m", "fc1", "digit", ["lda_f1"])
    table = confusion_of(stored)
    np.testing.assert_array_equal(table.matrix, confusion_matrix(LABELS[only.items], only.guess))
    np.testing.assert_allclose(table.f1, f1_score(LABELS[only.items], only.guess, average=None))


@pytest.mark.long
def test_server_scores_on_several_splits(tmp_path):
    """Values are means, and the table of classes is that of the first split."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 24))
    found = {}
    for splits in (1, 3):
        with Server(no_token=True, database=tmp_path / f"{splits}.db", port=0, splits=splits) as server:
            at = server.host, server.port
            inputs = torch.from_numpy(IMAGES)
            with probe(model, *at, run="r", name="Net", probe_set=(inputs, {"digit": LABELS})) as watch:
                watch.epoch = 0
                watch.run_probe_set()
            assert flush(*at)
            what = {"run": "r", "model": "Net", "address": "0", "target": "digit", "score": "linear_f1"}
            points = read(server, "points", **what)
            infos = {info["name"]: info for info in read(server, "runs")["scores"]}
            found[splits] = points, read(server, "confusion", **what), infos["linear_f1"]["interval"]
    (one, table, interval), (several, same, of_splits) = found[1], found[3]
    assert several["note"] == ["mean of 3 splits"]
    assert one["note"] == [""]
    assert several["value"] != one["value"]
    assert abs(several["value"][0] - one["value"][0]) < 0.05
    assert same == table
    assert "over 3 splits" in of_splits
    assert "splits" not in interval
