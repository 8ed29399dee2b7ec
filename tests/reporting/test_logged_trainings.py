"""Logged values of several trainings under one run name: each value is known to be of its own."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys

import pytest

import intus
from intus.core.results import EARLIER
from intus.monitoring.client import Client
from intus.serving.run import Server
from intus.storage.logged import Logged, _of_trainings, thinned, totals

pytestmark = pytest.mark.long

#: Trains in a process of its own: a loss for each step from the first, which is NaN at one of them.
TRAIN = """
import sys, torch, intus
port, run, first, last, bad, scale = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
model = torch.nn.Linear(2, 2)
with intus.probe(model, "127.0.0.1", int(port), run=run, budget=float("inf")) as watch:
    for step in range(first, last):
        watch.epoch = step // 10
        model(torch.ones(3, 2))
        watch.log(loss=float("nan") if step == bad else scale + step, step=step)
assert intus.flush("127.0.0.1", int(port))
"""
FIRST, SECOND = (0, 50, 20, 1000), (0, 40, -1, 0)


def train(server, run, *training):
    given = [str(each) for each in (server.port, run, *training)]
    subprocess.run([sys.executable, "-c", TRAIN, *given], check=True, timeout=120)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("trainings") / "runs.db"
    with Server(database=path, port=0) as server:
        server.database_path = path
        train(server, "again", *FIRST)
        assert [str(each) for each in intus.runs(path)["again"].findings()] == [
            "loss is NaN at step 20. It was 1019 at step 19."
        ]
        train(server, "again", *SECOND)
        train(server, "resumed", *FIRST)
        train(server, "resumed", 30, 45, -1, 0)
        yield server


@pytest.mark.parametrize("where", ["database", "server"])
def test_values_of_an_earlier_training_are_replaced_or_noted(server, where):
    """Both were in one table."""
    runs = intus.runs(f"{server.host}:{server.port}" if where == "server" else server.database_path)
    table = runs["again"].log("loss")
    assert table["step"].tolist() == list(range(50))
    assert table["value"].tolist() == [*range(40), *range(1040, 1050)]
    assert table["note"].tolist() == [""] * 40 + [EARLIER] * 10
    assert table["training"].nunique() == 2
    assert table["training"][0] > table["training"][49]
    table = runs["resumed"].log("loss").set_index("step")
    assert table.index.is_unique
    assert [step for step, note in table["note"].items() if not note] == list(range(30, 45))
    assert math.isnan(table["value"][20])
    assert (table["value"][29], table["value"][30], table["value"][45]) == (1029, 30, 1045)


@pytest.mark.parametrize("run", ["again", "resumed"])
def test_findings_join_no_values_of_two_trainings(server, run):
    """One was "loss is NaN at step 20. It was 19 at step 19", with the NaN of the earlier training."""
    where = f"{server.host}:{server.port}"
    assert not [each for each in intus.runs(where)[run].findings() if each.kind == "logged"]
    with contextlib.closing(Client(server.host, server.port)) as client:
        notices = client.get(f"/api/notices?run={run}").reply["notices"]
    assert not [each["text"] for each in notices if "NaN" in each["text"]]


def test_nan_of_a_repeated_training_is_found_with_its_own_values(server):
    train(server, "twice", *FIRST)
    train(server, "twice", 0, 40, 30, 0)
    with contextlib.closing(Client(server.host, server.port)) as client:
        notices = client.get("/api/notices?run=twice").reply["notices"]
    (found,) = [each["text"] for each in notices if "NaN" in each["text"]]
    assert found == "loss is NaN at step 30. It was 29 at step 29."


def value(step, time, training, name="loss", epoch=1.0):
    return Logged(name, step, time, epoch, float(step), training)


def test_processes_that_log_at_the_same_time_are_of_one_training():
    ranks = [value(step, 10.0 + step + rank / 10, 1.0 + rank) for step in range(5) for rank in range(4)]
    read = _of_trainings(ranks)
    assert [each._replace(training=None) for each in read] == [each._replace(training=None) for each in ranks]
    assert {each.training for each in read} == {1.0}
    again = [each._replace(time=each.time + 50, training=each.training + 50) for each in ranks]
    assert {each.training for each in _of_trainings([*ranks, *again])} == {51.0}


def test_values_of_unknown_trainings_are_of_one_before_all_others():
    old = [value(step, time, None) for time in (1.0, 100.0) for step in range(3)]
    assert _of_trainings(old) == old
    read = _of_trainings([*old, value(1, 201.0, 200.0)])
    assert [(each.step, each.training, each.note) for each in read] == [
        (0, None, EARLIER), (2, None, EARLIER), (0, None, EARLIER), (2, None, EARLIER), (1, 200.0, ""),
    ]  # fmt: skip


def test_extremes_are_those_of_each_training():
    """The largest of a stretch was that of the earlier training alone."""
    first = [value(step, step, 0.0)._replace(value=1e6) for step in range(1000)]
    second = [value(step, 2000.0 + step, 1500.0, epoch=2.0) for step in range(1000)]
    values = sorted(_of_trainings([*first, *second]), key=lambda each: each.step)
    kept = list(thinned(values, 100))
    assert totals(values) == {"loss": 1000}
    assert kept[-1].value == max(each.value for each in kept if not each.note) == 999
    assert 50 <= len([each for each in kept if not each.note]) <= 102
