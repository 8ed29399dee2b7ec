"""Trainings under one run name: scores that one has left of another are marked, and no finding mixes both."""

from __future__ import annotations

import contextlib

import pytest
import torch

import intus
from intus.core.findings import findings
from intus.core.results import EARLIER, Results
from intus.monitoring.client import Client
from intus.serving.run import Server

ROWS, LABELS = torch.randn(300, 4), torch.arange(300) % 2


class Planted(torch.nn.Module):
    known = 0.0

    def forward(self, rows):
        return rows + self.known * LABELS[:, None]


def train(server, run, strengths):
    model = torch.nn.Sequential(Planted())
    model[0].known = strengths[0]  # as epoch 0 has it
    with intus.probe(model, server.host, server.port, run=run, probe_set=(ROWS, {"half": LABELS})) as watch:
        for number, model[0].known in enumerate(strengths, 1):
            watch.epoch = number
            watch.run_probe_set()
    assert intus.flush(server.host, server.port)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("trainings") / "runs.db"
    with Server(database=path, port=0) as server:
        server.database_path = path
        train(server, "again", [0, 0, 9, 9, 9, 9])
        train(server, "again", [9, 9])
        train(server, "once", [0, 0, 9, 9, 9, 9])
        yield server


@pytest.mark.parametrize("where", ["database", "server"])
def test_findings_are_of_the_newest_training(server, where):
    runs = intus.runs(f"{server.host}:{server.port}" if where == "server" else server.database_path)
    chosen = {"address": "0", "target": "half", "score": "linear_f1"}
    table = runs["again"].scores(**chosen)
    assert table["epoch"].tolist() == [0, 1, 2, 3, 4, 5, 6]
    marked = [EARLIER in note for note in table["note"]]
    assert marked == [False, False, False, True, True, True, True]
    first, second = table["training"][6], table["training"][0]
    assert table["training"].tolist() == [second, second, second, first, first, first, first]
    assert first < second
    texts = [each.text for each in runs["again"].findings() if each.target == "half"]
    assert texts
    assert not any("learned" in text for text in texts)
    assert all("epoch 3" not in text for text in texts)
    assert any(each.kind == "learned" for each in runs["once"].findings())  # of one training it does
    assert runs["once"].scores(**chosen)["training"].nunique() == 1
    assert not any(EARLIER in note for note in runs["once"].scores()["note"])


def test_findings_of_the_page_are_those_too(server):
    with contextlib.closing(Client(server.host, server.port)) as client:
        notices = client.get("/api/notices?run=again").reply["notices"]
    texts = [each["text"] for each in notices if (each["code"], each["run"]) == ("finding", "again")]
    assert texts
    assert not any("learned" in text for text in texts)


@pytest.mark.long
def test_open_page_is_told_that_what_another_training_left_is_now_marked(tmp_path):
    with (
        Server(database=tmp_path / "x.db", port=0) as own,
        contextlib.closing(Client(own.host, own.port)) as client,
    ):
        train(own, "r", [9, 9, 9])
        query = "/api/points?run=r&model=Sequential&score=linear_f1&after="
        before = client.get(f"{query}0").reply
        train(own, "r", [9])
        after = client.get(f"{query}{before['change']}").reply
    assert not any(EARLIER in note for note in before["note"])
    notes = {epoch: EARLIER in note for epoch, note in zip(after["epoch"], after["note"], strict=True)}
    assert notes == {0: False, 1: False, 2: True, 3: True}


def test_scores_without_a_known_training_are_not_left_out():
    rows = [
        {"address": "a", "target": "y", "score": "linear_f1", "epoch": epoch, "value": value, "baseline": 0.1}
        | {"low": value - 0.05, "high": value + 0.05, "training": training}
        for epoch, value, training in [(0, 0.1, None), (1, 0.9, 5.0), (2, 0.9, 5.0), (3, 0.1, 4.0)]
    ]
    (found,) = findings(Results.from_rows(rows), ["a"])
    assert (found.kind, found.epoch) == ("learned", 1)
