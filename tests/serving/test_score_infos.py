"""Descriptions of scores are sent and stored with their results."""

from __future__ import annotations

import numpy as np
import pytest
from serving_help import point, record, target_of
from starlette.testclient import TestClient

from intus.core.results import Results
from intus.core.score_info import ScoreInfo
from intus.scores import base, infos, register
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.frontend import Frontend, describe
from intus.serving.http.app import build
from intus.serving.http.remote import RemoteFrontend
from intus.serving.roles import Roles
from intus.storage.database import Database


@pytest.fixture
def frontend(tmp_path):
    frontend = Frontend(Database(tmp_path / "x.db"))
    yield frontend
    frontend.close()


@pytest.fixture
def kurtosis():
    """A label-free score that this process registers."""

    @register("kurtosis_s", label="Kurtosis")
    def kurtosis(behaviours):
        """Excess kurtosis of all entries."""
        z = (behaviours - behaviours.mean(0)) / (behaviours.std(0) + 1e-12)
        return float((z**4).mean() - 3)

    yield "kurtosis_s"
    base._SCORES.pop("kurtosis_s", None)


def runs(frontend):
    with TestClient(build(Roles(frontend=frontend))) as client:
        return client.get("/api/runs").json()


def test_description_of_registered_score_is_stored_and_served(frontend, kurtosis):
    evaluator = Evaluator(frontend, ["mean", "linear_f1", kurtosis])
    evaluator.put_target(target_of({"name": "digit", "targets": [0, 1] * 20}))
    array = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    evaluator.points([point(record(40, array=array))])
    evaluator.flush()
    base._SCORES.pop("kurtosis_s")  # as in a process that only shows results
    reply = runs(frontend)
    told = {info["name"]: info for info in reply["scores"]}
    assert list(told) == ["linear_f1", "linear_f1.majority", "mean", "kurtosis_s"]
    assert (told["kurtosis_s"]["label"], told["kurtosis_s"]["about"]) == (
        "Kurtosis",
        "Excess kurtosis of all entries.",
    )
    assert told["linear_f1.majority"]["baseline_of"] == "linear_f1"
    assert {"score": "kurtosis_s", "target": ""} in reply["runs"][0]["layers"]
    assert {"score": "linear_f1", "target": "digit"} in reply["runs"][0]["layers"]


def test_first_score_of_target_of_numbers_is_r2(frontend):
    evaluator, draw = Evaluator(frontend), np.random.default_rng(0)
    array = draw.normal(size=(400, 3)).astype(np.float32)
    for name, labels in (("digit", [0, 1] * 200), ("age", (array[:, 0] + 40.5).tolist())):
        evaluator.put_target(target_of({"name": name, "targets": labels}))
    evaluator.points([point(record(400, array=array))])
    evaluator.flush()
    (run,) = runs(frontend)["runs"]
    assert run["targets"] == ["digit", "age"]
    assert {pair["score"] for pair in run["layers"] if pair["target"] == "age"} >= {"linear_f1", "r2"}
    assert run["first"] == [{"score": "r2", "target": "age"}]


def test_score_descriptions_are_sent_over_http(frontend, kurtosis, monkeypatch):
    client = TestClient(build(Roles(frontend=frontend)))

    class Line(RemoteFrontend):
        def _ask(self, path, body=None):
            answer = client.post(path, content=body)
            assert answer.status_code == 200, answer.text

    results = Results.from_rows(
        [{"run": "r", "model": "m", "address": "fc1", "score": "kurtosis_s", "value": 1.0}]
    )
    Line("http://elsewhere").results(results, [infos()["kurtosis_s"]])
    assert frontend.database.scores() == {"kurtosis_s": infos()["kurtosis_s"]}
    bad = {"columns": {}, "scores": [{"name": "x" * 2000}]}
    answer = client.post("/results", json=bad)
    assert answer.status_code == 400
    assert "must be text of at most 1,000 characters" in answer.json()["error"]


def summary(*pairs, level="layers"):
    told = [{"score": score, "target": target} for score, target in pairs]
    return {"layers": [], "units": []} | {level: told}


KNOWN = {
    "linear_f1": ScoreInfo(name="linear_f1", label="Linear probe", needs_target=True),
    "mean": ScoreInfo(name="mean", label="Mean"),
}


def test_old_database_uses_registered_descriptions():
    found = describe([summary(("mean", ""), ("linear_f1", "digit"))], {}, KNOWN)
    assert found == [KNOWN["linear_f1"], KNOWN["mean"]]


def test_contradicting_results_ignore_registered_description():
    (found,) = describe([summary(("mean", "digit"))], {}, KNOWN)
    assert found == ScoreInfo(name="mean", needs_target=True)
    (found,) = describe([summary(("mean", ""), level="units")], {}, KNOWN)
    assert found == ScoreInfo(name="mean", level="unit")


def test_unknown_score_is_described_from_its_results():
    found = describe([summary(("mine", "")), summary(("theirs", "digit"))], {}, KNOWN)
    assert found == [ScoreInfo(name="mine"), ScoreInfo(name="theirs", needs_target=True)]


def test_stored_description_precedes_registered_one():
    stored = {"mean": ScoreInfo(name="mean", label="Mean of another version")}
    assert describe([summary(("mean", ""))], stored, KNOWN) == [stored["mean"]]


def test_runs_reply_contains_kind_labels(frontend):
    facts = {"run": "r", "model": "m", "address": "fc1", "score": "mean"}
    kinds = ["output", "grad_output", "output@eval", "parameter_grad", "output.1", "inspect"]
    frontend.results(Results.from_rows([facts | {"kind": kind} for kind in kinds]))
    assert runs(frontend)["kinds"] == {
        "output": "output",
        "grad_output": "gradient of the output",
        "output@eval": "output in mode eval",
        "parameter_grad": "gradient of the parameter",
        "output.1": "output no. 2",
        "inspect": "inspect",
    }
