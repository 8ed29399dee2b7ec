"""Runs that are removed: nothing of them comes back, and a removal that fails deletes nothing."""

from __future__ import annotations

import json
import sqlite3
import threading
import time

import pytest
from journal_help import Machine
from server_help import Served, epoch_of, pairs, stored
from serving_help import point, record

from intus.core.results import Results
from intus.serving.errors import AwayError, BusyError, UnansweredError
from intus.serving.evaluation import evaluator as module
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.findings_of_runs import FindingsOfRuns
from intus.serving.frontend import Frontend
from intus.serving.http.remote import RemoteEvaluator
from intus.serving.messages import ChangeRunRequest
from intus.serving.roles import Roles
from intus.serving.worker import Worker
from intus.storage.database import Database


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path / "x.db") as database:
        yield database


class Held:
    """A function that waits inside each call until it is let go."""

    def __init__(self, real) -> None:
        self.real, self.begun, self.go, self.lock = real, threading.Event(), threading.Event(), []

    def __call__(self, *arguments, **options):
        self.begun.set()
        assert self.go.wait(30)
        return self.real(*arguments, **options)


@pytest.mark.parametrize("place", ["measure", "related"])
def test_data_point_that_is_scored_while_its_run_is_removed_is_not_stored(database, monkeypatch, place):
    """The removal waited for 30 s, said that it was done, and the run came back."""
    held = Held(getattr(module, place))
    monkeypatch.setattr(module, place, held)
    evaluator, done = Evaluator(Frontend(database), ["mean"]), []
    evaluator.points(
        [point(record()), point(record(address="fc2"))], lambda of, is_scored: done.append(is_scored)
    )
    assert held.begun.wait(30)
    began = time.monotonic()
    evaluator.remove("r")
    assert time.monotonic() - began < 10
    assert done == [False, False]
    held.go.set()
    evaluator.flush()
    assert (database.runs(), database.notices(), done) == ([], [], [False, False])
    evaluator.points([point(record())])  # of another run of that name
    evaluator.flush()
    assert [each["run"] for each in database.runs()] == ["r"]
    evaluator.close()


def test_removal_waits_for_scores_on_their_way_to_the_database(database, monkeypatch):
    frontend = Frontend(database)
    held = Held(frontend.results)
    monkeypatch.setattr(frontend, "results", held)
    evaluator = Evaluator(frontend, ["mean"])
    evaluator.points([point(record())])
    assert held.begun.wait(30)
    threading.Timer(0.3, held.go.set).start()
    assert evaluator.remove("r")  # it was stored first
    evaluator.flush()
    assert database.runs() == []
    evaluator.close()


def test_removal_that_the_frontend_refuses_keeps_what_waits_and_what_is_scored(database, monkeypatch):
    held = Held(module.measure)
    monkeypatch.setattr(module, "measure", held)
    frontend = Frontend(database)
    evaluator, done = Evaluator(frontend, ["mean"]), []
    evaluator.points(
        [point(record()), point(record(address="fc2"))], lambda of, is_scored: done.append(is_scored)
    )
    assert held.begun.wait(30)
    with monkeypatch.context() as patched:
        patched.setattr(frontend.database, "remove", away)
        with pytest.raises(AwayError):
            evaluator.remove("r")
    held.go.set()
    evaluator.flush()
    assert done == [True, True]
    assert sorted(database.points("r", "m", score="mean")["address"]) == ["fc1", "fc2"]
    evaluator.close()


def away(*arguments, **options):
    raise AwayError("The database cannot be written now: database is locked.")


@pytest.mark.parametrize("fails", [True, False])
def test_run_that_is_being_removed_takes_nothing_and_hands_nothing_on(tmp_path, fails):
    machine = Machine(tmp_path)
    machine.send(1, seq=0)
    seen = []

    def remove(run, model):
        with pytest.raises(BusyError, match="'r' is being changed"):
            machine.send(2, seq=1)
        machine.send(3, seq=2, run="other")
        machine.time += 1000.0  # its epoch ends
        machine.service.tick()
        seen.extend(each.key.run for each in machine.evaluator.got)
        return away() if fails else True

    machine.service.evaluator.remove = remove
    if fails:
        with pytest.raises(AwayError, match="'r' is not removed, and what waits of it is kept: The database"):
            machine.service.remove(run="r")
    else:
        assert machine.service.remove(run="r") == [("r", "m")]
    assert "r" not in seen
    machine.service.flush()
    assert ("r" in [each.key.run for each in machine.evaluator.got]) == fails
    machine.evaluator.store()
    (row,) = [row for row in machine.service.counts().runs if row.run == "r"]
    assert (row.kept, row.scored) == ((1, 1) if fails else (0, 0))
    machine.kill()
    assert "r" not in [each.key.run for each in machine.evaluator.got]
    assert machine.send(2, seq=1, epoch=1).accepted == 1
    machine.stop()


def test_run_is_not_renamed_while_records_of_it_come(tmp_path, database):
    machine, frontend = Machine(tmp_path / "journal"), Frontend(database)
    database.add(Results.from_rows([{"run": "r", "model": "m", "epoch": 0, "address": "a", "score": "mean"}]))
    rename = database.rename

    def renaming(run, name):
        with pytest.raises(BusyError, match="'r' is being changed"):
            machine.send(1, seq=0)
        rename(run, name)

    database.rename = renaming
    Roles(machine.service, None, frontend).change_run(ChangeRunRequest("r", name="q"))
    assert [each["run"] for each in database.runs()] == ["q"]
    assert machine.send(1, seq=0).accepted == 1
    machine.stop()


def test_finding_of_a_run_is_not_stored_after_its_removal(database, monkeypatch):
    database.add(Results.from_rows([{"run": "r", "model": "m", "epoch": 0, "address": "a", "score": "mean"}]))
    frontend = Frontend(database)
    frontend._findings.scored([("r", "m")])
    held = Held(database.put_findings)
    monkeypatch.setattr(database, "put_findings", held)
    monkeypatch.setattr("intus.core.findings.findings", lambda *of_run: [])
    looking = threading.Thread(target=frontend._findings.flush)
    looking.start()
    assert held.begun.wait(30)
    removing = threading.Thread(target=frontend.remove, args=("r",))
    removing.start()
    removing.join(0.3)
    held.go.set()
    looking.join()
    removing.join()
    assert frontend._findings._found == frontend._findings._made == {}
    assert isinstance(frontend._findings, FindingsOfRuns)


def test_queue_of_a_run_whose_removal_was_not_answered_is_kept(monkeypatch):
    """The error says that what is stored may be deleted once the next server answers."""
    sent, going = [], threading.Event()

    def ask(self, path, body=None, extra=None):
        if path == "/run/remove":
            raise UnansweredError("The evaluator http://x cannot be reached: timed out")
        if not going.is_set():
            raise AwayError("It is away.")
        sent.append(path)
        return {"accepted": 1}

    monkeypatch.setattr(RemoteEvaluator, "_ask_once", ask)
    monkeypatch.setattr("intus.serving.http.remote._RETRIES", ())
    evaluator, done = RemoteEvaluator("http://x"), []
    evaluator.put_graph("r", "m", b"")
    evaluator.points([point(record()), point(record(epoch=1))], lambda of, is_scored: done.append(is_scored))
    with pytest.raises(UnansweredError, match="It may still delete what is stored of run 'r' when it can"):
        evaluator.remove("r")
    going.set()
    evaluator.flush()
    assert done == [True, True]
    assert sorted(sent) == ["/datapoint", "/datapoint", "/flush", "/graph?run=r&model=m"]
    evaluator.close()


def test_message_that_was_on_its_way_is_removed_too(monkeypatch):
    paths, came, go = [], threading.Event(), threading.Event()

    def ask(self, path, body=None, extra=None):
        if path.startswith("/graph"):
            came.set()
            assert go.wait(30)
        elif path == "/run/remove" and not go.is_set():
            threading.Timer(0.3, go.set).start()
        paths.append(path)
        return {"removed": []}

    monkeypatch.setattr(RemoteEvaluator, "_ask_once", ask)
    evaluator = RemoteEvaluator("http://x")
    evaluator.put_graph("r", "m", b"")
    assert came.wait(30)
    evaluator.remove("r")
    assert paths == ["/run/remove", "/graph?run=r&model=m", "/run/remove"]
    evaluator.close()


def test_items_that_are_taken_come_in_the_order_of_their_kind():
    def handle(item):
        raise AwayError("It is away.")

    worker: Worker[tuple[str, int]] = Worker("test", handle, lambda item: 1, about=lambda item: item[0])
    items = [(kind, number) for number in range(4) for kind in "ab"]
    for item in items:
        worker.submit(item)
    while not worker.trouble:
        time.sleep(0.001)
    taken = worker.take(lambda item: True)
    current = [item for item in items if item not in taken]  # at most the one that is tried now
    assert len(current) <= 1
    for kind in "ab":
        numbers = [number for each, number in taken if each == kind]
        assert numbers == sorted(numbers)
    worker.close(0.1)


@pytest.mark.long
def test_removal_while_another_program_writes_the_database_deletes_nothing(tmp_path):
    """It answered 502, and the arrays that waited were gone, while the old scores stayed."""
    with Served(tmp_path, engine="local") as server:
        assert server.send(0) == 200
        assert server.flush() == (200, "")
        other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert server.send(1) == 200
        status, answer = server.ask("/api/run", json.dumps({"run": "r", "remove": True}).encode())
        assert status == 502
        assert answer["error"] == (
            "The run 'r' is not removed, and what waits of it is kept: The database cannot be written now: "
            "database is locked. Remove it again later."
        )
        assert server.ask("/records", epoch_of(2))[0] == 200
        other.execute("ROLLBACK")
        other.close()
        assert server.flush() == (200, "")
        assert (server.ledger["scored"], server.ledger["under_way"], server.ledger["lost"]) == (6, 0, 0)
        assert server.ask("/api/notices")[1]["notices"] == []
        assert server.ask("/api/run", json.dumps({"run": "r", "remove": True}).encode())[0] == 200
        assert server.ask("/api/runs")[1]["runs"] == []
        assert server.send(3) == 200
        assert server.flush() == (200, "")
    assert stored(tmp_path / "x.db") == pairs(range(3, 4))
