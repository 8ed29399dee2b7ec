"""Runs that are renamed or removed while arrays of them wait to be scored."""

from __future__ import annotations

import json
import threading
import time
from unittest import mock

import pytest
from journal_help import Machine
from server_help import Served, epoch_of
from serving_help import record
from test_server import Apart

from intus import runs
from intus.core.errors import InputError
from intus.core.results import Results
from intus.serving import roles
from intus.serving.aggregation import aggregator
from intus.serving.errors import AwayError
from intus.serving.frontend import Frontend
from intus.serving.messages import COUNTED_RUNS, AggregatorCounts, ChangeRunRequest, RunLedger, StatusReport
from intus.serving.roles import Roles
from intus.storage.codec import encode_records
from intus.storage.database import Database


@pytest.fixture
def server(tmp_path):
    with Served(tmp_path, engine="local") as server:
        yield server


def backlog(server) -> None:
    """Send four epochs of a run, and return when some of their layers have scores, and others wait."""
    for epoch in range(4):
        assert server.ask("/records", epoch_of(epoch, layers=100, rows=40))[0] == 200
    while not server.ledger["scored"]:
        time.sleep(0.05)
    assert server.ledger["waiting"] > 50


def test_run_that_is_removed_while_it_is_scored_does_not_come_back(server):
    """It was back seconds later, with a part of its scores and no graph."""
    backlog(server)
    runs(f"{server.host}:{server.port}")["r"].remove()
    assert server.flush() == (200, "")
    time.sleep(1)
    assert "r" not in runs(f"{server.host}:{server.port}")
    assert server.ledger["waiting"] == server.ledger["queued"] == 0


def test_run_is_not_renamed_while_arrays_of_it_wait(server):
    """It became two runs, each with a part of the scores."""
    backlog(server)
    run = runs(f"{server.host}:{server.port}")["r"]
    with pytest.raises(InputError, match=r"'r' cannot be renamed while \d+ arrays of it wait to be scored"):
        run.rename("other")
    assert run.name == "r"
    run.tags = ["good"]
    assert server.flush() == (200, "")
    run.rename("other")
    assert set(runs(f"{server.host}:{server.port}")) == {"other"}
    assert len(runs(f"{server.host}:{server.port}")["other"].scores(score="mean")) == 400


def test_run_of_the_name_that_a_renamed_one_had_has_counts_of_its_own(server):
    """Before, its ledger had the arrays of the renamed run too."""
    for epoch in range(3):
        assert server.send(epoch) == 200
    assert server.flush() == (200, "")
    sent = server.ledger["sent"]
    runs(f"{server.host}:{server.port}")["r"].rename("other")
    assert server.send(3) == 200
    assert server.flush() == (200, "")
    assert 3 * server.ledger["sent"] == 3 * server.ledger["scored"] == sent > 0
    assert set(runs(f"{server.host}:{server.port}")) == {"r", "other"}


def test_run_that_does_not_exist_is_named(server):
    assert server.send(0) == 200
    assert server.flush() == (200, "")
    for change in ({"remove": True}, {"name": "x"}, {"tags": ["x"]}):
        status, answer = server.ask("/api/run", json.dumps({"run": "q"} | change).encode())
        assert (status, answer["error"]) == (400, "There is no run 'q'.")


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """The role of the page, in a process of its own, with a run that is stored."""
    monkeypatch.setattr(roles, "ANEW_S", 1.0)
    with Database(tmp_path / "x.db") as database:
        database.add(
            Results.from_rows([{"run": "r", "model": "m", "epoch": 0, "address": "a", "score": "mean"}])
        )
        yield Roles(frontend=Frontend(database))


def report_of(*runs, waiting=0):
    ledgers = [RunLedger(run, "m", kept=waiting, sent=waiting, waiting=waiting) for run in runs]
    return StatusReport(AggregatorCounts(), runs=ledgers)


def test_page_apart_asks_anew_what_waits(alone):
    """It trusted counts of five seconds ago."""
    alone.frontend.report(report_of("r"))  # since then, three arrays have come
    later = threading.Timer(0.3, alone.frontend.report, [report_of("r", waiting=3)])
    later.start()
    with pytest.raises(InputError, match="'r' cannot be renamed while 3 arrays of it wait to be scored"):
        alone.change_run(ChangeRunRequest("r", name="q"))
    later.join()
    later = threading.Timer(0.3, alone.frontend.report, [report_of("r")])
    later.start()
    alone.change_run(ChangeRunRequest("r", name="q"))
    assert [each["run"] for each in alone.frontend.database.runs()] == ["q"]


@pytest.mark.parametrize(("change", "what"), [({"remove": True}, "removed"), ({"name": "q"}, "renamed")])
def test_page_apart_refuses_what_it_cannot_know(alone, change, what):
    """Before the first report it took the run for one of which nothing waits."""
    text = f"The run 'r' cannot be {what} now: the aggregator has reported nothing for 1 s"
    with pytest.raises(AwayError, match=text):
        alone.change_run(ChangeRunRequest("r", **change))
    many = report_of(*(f"run {n}" for n in range(COUNTED_RUNS)))
    later = threading.Timer(0.3, alone.frontend.report, [many])
    later.start()
    with pytest.raises(AwayError, match="the aggregator reports the newest 1,000 runs"):
        alone.change_run(ChangeRunRequest("r", **change))
    alone.change_run(ChangeRunRequest("r", tags=["good"]))
    assert [each["run"] for each in alone.frontend.database.runs()] == ["r"]


def test_runs_beyond_those_of_the_ledger_are_counted(tmp_path):
    machine = Machine(tmp_path)
    machine.send(1, seq=0, run="first")
    with mock.patch.object(aggregator, "COUNTED_RUNS", 1):
        machine.send(1, seq=1, run="second")
        assert [machine.service.waiting(run) for run in ("first", "second", "none")] == [1, 1, 0]
    machine.stop()


@pytest.mark.long
def test_page_apart_refuses_to_change_a_run_of_which_arrays_wait(tmp_path):
    apart = Apart(tmp_path)
    try:
        apart.start("frontend", "evaluator", "aggregator")
        report = {"run": "r", "model": "m", "epoch": 0, "sent": 1, "ended": True}
        assert apart.ask("aggregator", "/records", epoch_of(0))[0] == 200
        assert apart.ask("aggregator", "/flush", {})[0] == 200
        open_epoch = encode_records(
            [record(epoch=1)], {"client": "c", "seq": 9, "epochs": [report | {"epoch": 1, "ended": False}]}
        )
        assert apart.ask("aggregator", "/records", open_epoch)[0] == 200
        while not [row for row in apart.ask("frontend", "/api/status")[1]["runs"] if row["waiting"] == 1]:
            time.sleep(0.1)
        for change, what in (({"remove": True}, "removed"), ({"name": "x"}, "renamed")):
            status, answer = apart.ask("frontend", "/api/run", {"run": "r"} | change)
            assert status == 400
            assert answer["error"].startswith(
                f"The run 'r' cannot be {what} while 1 array of it waits to be scored"
            )
    finally:
        apart.kill(*apart.running)
