"""Faults of storage, memory and libraries cost no acknowledged record, and are told."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from server_help import Served, pairs, stored
from serving_help import point, record
from sqlalchemy.exc import DatabaseError
from starlette.testclient import TestClient

from intus import runs
from intus.core.errors import ServeError
from intus.core.results import Results
from intus.engines.processes import ProcessEngine
from intus.scores import base
from intus.serving import worker
from intus.serving.aggregation.service import AggregatorService
from intus.serving.decoding import builtins
from intus.serving.errors import AwayError, fault
from intus.serving.evaluation import evaluator as module
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.frontend import Frontend
from intus.serving.http.app import build
from intus.serving.roles import Roles
from intus.storage.codec import encode_records
from intus.storage.database import Database


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path / "intus.db") as database:
        yield database


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Let a flush in this process give up at once."""
    monkeypatch.setattr(worker, "AWAY_S", 2.0)  # longer than the pause, as usual
    monkeypatch.setattr(worker, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(worker, "FLUSH_PAUSE_S", 0.05)


class Failing:
    """A function that raises, as often as told, and then does its work."""

    def __init__(self, work, error, times=10**9, when=lambda *arguments: True) -> None:
        self.work, self.error, self.left, self.when, self.calls = work, error, times, when, 0

    def __call__(self, *arguments, **options):
        if self.when(*arguments):
            self.calls += 1
            self.left -= 1
            if self.left >= 0:
                raise self.error
        return self.work(*arguments, **options)


def of_layer(address):
    return lambda point, *rest: point.key.address == address


FAULTS = [
    MemoryError("Unable to allocate 3.00 GiB"),
    np._core._exceptions._ArrayMemoryError((3, 10**9), np.dtype(float)),
    ImportError("libscipy.so: failed to map segment"),
    OSError(24, "Too many open files"),
    RuntimeError("can't start new thread"),
]


@pytest.mark.long
@pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
def test_fault_of_one_data_point_keeps_it_and_scores_the_others(database, monkeypatch, error):
    failing = Failing(module.measure, error, when=of_layer("fc1"))
    monkeypatch.setattr(module, "measure", failing)
    evaluator = Evaluator(Frontend(database), ["mean"])
    service = AggregatorService(evaluator)
    records = [record(address=f"fc{n}", array=np.full((2, 2), n, np.float32)) for n in range(3)]
    service.records(records, {"client": "c", "seq": 1})
    with pytest.raises(AwayError, match=r"1 data point waits to be scored and is kept") as caught:
        service.flush()
    assert str(caught.value).startswith(fault(error))
    assert sorted(database.points("r", "m")["address"]) == ["fc0", "fc2"]
    assert evaluator.status() == {"scored": 2, "failed": 0, "pending": 1}
    (row,) = service.counts().runs
    assert (row.waiting, row.scored, row.failed) == (1, 2, 0)
    assert row.trouble == f"1 data point waits. {fault(error)}"
    (notice,) = database.notices()
    assert (notice["code"], notice["level"], notice["run"]) == ("kept", "error", "r")
    assert notice["text"].startswith(f"{fault(error)} First at 'fc1' (output in mode train).")
    failing.left = 0
    service.flush()
    assert sorted(database.points("r", "m")["address"]) == ["fc0", "fc1", "fc2"]
    (row,) = service.counts().runs
    assert (row.waiting, row.scored, row.failed, row.trouble) == (0, 3, 0, "")
    service.close()


def test_pauses_between_tries_grow(database, monkeypatch):
    monkeypatch.setattr(worker, "FIRST_PAUSE_S", 0.001)
    failing = Failing(module.measure, MemoryError(), times=8)
    monkeypatch.setattr(module, "measure", failing)
    evaluator, done = Evaluator(Frontend(database), ["mean"]), threading.Event()
    evaluator.points([point(record())], lambda point, scored: done.set())
    assert done.wait(30)
    assert failing.calls == 9
    evaluator.close()


def test_data_point_fails_by_its_data_at_the_second_try(database, monkeypatch):
    failing = Failing(module.measure, ZeroDivisionError("division by zero"), times=1)
    monkeypatch.setattr(module, "measure", failing)
    evaluator, outcomes = Evaluator(Frontend(database), ["mean"]), []
    evaluator.points([point(record())], lambda point, scored: outcomes.append(scored))
    evaluator.flush()
    failing.left = 2
    evaluator.points([point(record(epoch=1))], lambda point, scored: outcomes.append(scored))
    evaluator.flush()
    assert (outcomes, failing.calls) == ([True, False], 4)
    assert [notice["code"] for notice in database.notices()] == ["score_failed"]
    evaluator.close()


@pytest.mark.long
def test_score_without_its_library_is_computed_later_and_the_others_now(database, monkeypatch):
    def needs(statistics):
        if missing:
            raise ImportError("No module named 'umap'")
        return [base.ScoreResult("needy", 1.0)]

    missing = True
    monkeypatch.setitem(base._SCORES, "needy", base.Score("needy", needs, frozenset({"tally"})))
    evaluator, settled = Evaluator(Frontend(database), ["needy", "mean"]), []
    evaluator.points([point(record())], lambda point, scored: settled.append(scored))
    with pytest.raises(AwayError, match="Score 'needy': A library is missing: No module named 'umap'"):
        evaluator.flush()
    assert database.points("r", "m")["score"].tolist() == ["mean"]
    assert settled == []
    missing = False
    evaluator.flush()
    assert sorted(database.points("r", "m")["score"]) == ["mean", "needy"]
    assert database.columns("r", "m", ["revision"])["revision"] == [0, 0]
    assert settled == [True]
    evaluator.close()


@pytest.mark.long
@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("where", ["add", "targets"])
def test_fault_of_the_database_blocks_until_it_is_gone(database, monkeypatch, error, where):
    evaluator, settled = Evaluator(Frontend(database), ["mean"]), []
    failing = Failing(getattr(database, where), error)
    monkeypatch.setattr(database, where, failing)
    evaluator.points([point(record())], lambda point, scored: settled.append(scored))
    with pytest.raises(
        AwayError,
        match=r"The database cannot be written now: .*\. 1 data point waits to be scored and is kept",
    ):
        evaluator.flush()
    assert settled == []
    failing.left = 0
    evaluator.flush()
    assert settled == [True]
    evaluator.close()


@pytest.mark.long
def test_malformed_database_is_no_fault_of_the_data(database, monkeypatch):
    malformed = DatabaseError("INSERT", {}, sqlite3.DatabaseError("database disk image is malformed"))
    failing = Failing(database.add, malformed)
    monkeypatch.setattr(database, "add", failing)
    evaluator, settled = Evaluator(Frontend(database), ["mean"]), []
    evaluator.points([point(record())], lambda point, scored: settled.append(scored))
    with pytest.raises(AwayError, match="cannot be written now: database disk image is malformed"):
        evaluator.flush()
    assert settled == []
    failing.left = 0
    evaluator.flush()
    assert settled == [True]
    evaluator.close()


@pytest.mark.long
def test_run_that_is_removed_is_not_tried_again(database, monkeypatch):
    monkeypatch.setattr(module, "measure", Failing(module.measure, MemoryError()))
    evaluator = Evaluator(Frontend(database), ["mean"])
    evaluator.points([point(record())])
    with pytest.raises(AwayError):
        evaluator.flush()
    evaluator.remove("r")
    evaluator.flush()
    assert evaluator.status()["pending"] == 0
    evaluator.close()


@pytest.mark.parametrize("error", [MemoryError("Unable to allocate"), AwayError("The disk is full.")])
def test_evaluator_apart_hands_back_what_it_cannot_score_or_store(database, monkeypatch, error):
    failing = Failing(module.measure, error)
    monkeypatch.setattr(module, "measure", failing)
    evaluator = Evaluator(Frontend(database), ["mean"])
    one = point(record())
    body = encode_records(one.records, builtins(one.envelope(last=True)))
    with TestClient(build(Roles(evaluator=evaluator)), raise_server_exceptions=False) as client:
        answer = client.post("/datapoint", content=body)
        assert answer.status_code == (507 if isinstance(error, MemoryError) else 502)
        assert answer.json()["error"] == fault(error)
        assert evaluator.status() == {"scored": 0, "failed": 0, "pending": 0}
        failing.left = 0
        assert client.post("/datapoint", content=body).json() == {"accepted": 1}


@pytest.mark.long
def test_what_memory_alone_keeps_is_tried_again_and_told_at_the_end(database, monkeypatch, caplog):
    failing = Failing(module.measure, MemoryError())
    monkeypatch.setattr(module, "measure", failing)
    service = AggregatorService(Evaluator(Frontend(database), ["mean"]))
    service.records([record(epoch=0), record(epoch=1)], {"client": "c", "seq": 1})
    with pytest.raises(AwayError, match="2 data points wait"):
        service.flush()
    failing.left = 0
    service.flush()
    failing.left = 10**9
    service.records([record(epoch=2)], {"client": "c", "seq": 2})
    service.close()
    assert "1 data points were not scored, and are lost (--journal memory)" in caplog.text


class Needy:
    """A score that works only once a file is gone; before, it does what the file says."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __call__(self, statistics):
        if self.flag.exists():
            if self.flag.read_text() == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise MemoryError("Unable to allocate 3.00 GiB")
        return [base.ScoreResult("needy", 1.0)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "said"), [("raise", "The memory does not suffice"), ("kill", "The workers died 3 times")]
)
def test_want_of_memory_in_a_worker_process_is_no_fault_of_the_data(
    tmp_path, database, monkeypatch, fault, said
):
    flag = tmp_path / "flag"
    flag.write_text(fault)
    monkeypatch.setitem(base._SCORES, "needy", base.Score("needy", Needy(flag), frozenset({"tally"})))
    engine, settled = ProcessEngine(1), []
    evaluator = Evaluator(Frontend(database), ["needy"], engine=engine)
    evaluator.points([point(record())], lambda point, scored: settled.append(scored))
    with pytest.raises(AwayError, match=f"{said}.* 1 data point waits to be scored and is kept"):
        evaluator.flush(timeout=300)
    assert settled == []
    assert evaluator.status() == {"scored": 0, "failed": 0, "pending": 1}
    flag.unlink()
    evaluator.flush(timeout=300)
    assert settled == [True]
    evaluator.close()


# -- real processes ----------------------------------------------------------------------------------


def checkpoint(path: Path) -> None:
    """Let the database's file have all that was written."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def flip(path: Path, seed: int) -> None:
    """Damage a third of the database's pages after the first."""
    random, size = np.random.default_rng(seed), path.stat().st_size
    with path.open("r+b") as file:
        for page in range(1, size // 4096):
            if random.random() < 0.6:
                file.seek(page * 4096)
                file.write(random.bytes(64))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_pages_of_the_database_damaged_under_way_cost_nothing_acknowledged(tmp_path, seed):
    path, epochs = tmp_path / "x.db", range(6)
    with Served(tmp_path) as server:
        assert [server.send(epoch) for epoch in epochs[:3]] == [200] * 3
        assert server.flush() == (200, "")
        checkpoint(path)
        shutil.copy(path, tmp_path / "whole.db")
        flip(path, seed)
        assert [server.send(epoch) for epoch in epochs[3:]] == [200] * 3
        status, error = server.flush()
        assert status == 502
        assert "The database cannot be" in error
        assert "malformed" in error
        assert server.ledger["failed"] == 0
        assert "malformed" in server.ledger["trouble"]
        assert any("malformed" in line for line in server.log)
        server.kill()
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"x.db{end}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "whole.db", path)
    with Served(tmp_path) as server:
        assert server.flush() == (200, "")
    assert stored(path) == pairs(epochs)


def overwrite(path: Path) -> None:
    """Damage all pages but the first, of which the server has some in its cache and in its log."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(np.random.default_rng(0).bytes(size - 4096))


@pytest.mark.long
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_damage_of_pages_that_nobody_reads_costs_nothing_acknowledged(tmp_path, end):
    """SQLite went on to write, flush said 200, and the log was written into the damaged file."""
    path, log = tmp_path / "x.db", tmp_path / "x.db-wal"
    with Served(tmp_path) as server:
        assert [server.send(epoch) for epoch in range(3)] == [200] * 3
        assert server.flush() == (200, "")
        with sqlite3.connect(path) as source, sqlite3.connect(tmp_path / "whole.db") as copy:
            source.backup(copy)
        source.close()
        copy.close()
        overwrite(path)
        damaged = path.read_bytes()
        assert [server.send(epoch) for epoch in range(3, 6)] == [200] * 3
        status, error = server.flush()
        assert status == 502
        assert "The database cannot be written now: " in error
        assert "malformed" in error
        assert ". ." not in error
        row = server.ledger
        assert (row["scored"], row["waiting"], row["failed"]) == (6, 6, 0)
        assert "malformed" in row["trouble"]
        getattr(server, end)()
    if end == "stop":
        assert any("The log is kept as it is" in line for line in server.log)
    assert (path.read_bytes(), log.exists()) == (damaged, True)
    with pytest.raises(ServeError, match=r"Restore a copy of it, without .*x\.db-wal"):
        Served(tmp_path)
    assert (path.read_bytes(), log.exists()) == (damaged, True)
    log.unlink()
    shutil.copy(tmp_path / "whole.db", path)
    with Served(tmp_path) as server:
        assert server.flush() == (200, "")
    assert stored(path) == pairs(range(6))


SHORT_OF_MEMORY = """
import os
from intus.serving.evaluation import evaluator as module
measure = module.measure
def short(point, *rest):
    if point.epoch == 1 and os.path.exists({flag!r}):
        raise MemoryError("Unable to allocate 3.00 GiB")
    return measure(point, *rest)
module.measure = short
"""


@pytest.mark.long
def test_want_of_memory_costs_nothing_acknowledged(tmp_path, monkeypatch):
    """The server is a process of its own, whose scoring of an epoch finds no memory while a file exists."""
    flag = tmp_path / "short"
    flag.touch()
    (tmp_path / "sitecustomize.py").write_text(SHORT_OF_MEMORY.format(flag=str(flag)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with Served(tmp_path) as server:
        assert [server.send(epoch) for epoch in range(3)] == [200] * 3
        status, error = server.flush()
        assert status == 502
        assert "The memory does not suffice: Unable to allocate 3.00 GiB. 2 data points wait" in error
        row = server.ledger
        assert (row["scored"], row["failed"], row["waiting"]) == (4, 0, 2)
        assert (
            row["trouble"] == "2 data points wait. The memory does not suffice: Unable to allocate 3.00 GiB."
        )
        (told,) = [each for each in server.ask("/api/notices")[1]["notices"] if each["code"] == "kept"]
        assert "The memory does not suffice" in told["text"]
        server.kill()
    flag.unlink()
    with Served(tmp_path) as server:
        assert server.flush() == (200, "")
        assert server.ledger["scored"] == 6
    assert stored(tmp_path / "x.db") == pairs(range(3))


def replace_by_another(path: Path) -> None:
    with Database(path.with_name("other.db")) as other:
        row = {"run": "other", "model": "m", "epoch": 0, "address": "fc1", "score": "mean", "value": 0.5}
        other.add(Results.from_rows([row]))
    path.with_name("other.db").replace(path)


REMOVALS = {
    "deleted": lambda path: path.unlink(),
    "moved": lambda path: path.rename(path.with_name("moved.db")),
    "replaced": replace_by_another,
    "without its log": lambda path: path.with_name("x.db-wal").unlink(),
    "with its folder": lambda path: shutil.rmtree(path.parent),
}


@pytest.mark.long
@pytest.mark.parametrize("how", REMOVALS)
def test_database_that_is_gone_under_way_costs_nothing_acknowledged(tmp_path, how):
    path = tmp_path / "database" / "x.db"
    path.parent.mkdir()
    options = {"database": path, "journal": tmp_path / "journal"}
    with Served(tmp_path, **options) as server:
        assert server.send(0) == 200
        assert server.flush() == (200, "")
        assert server.send(1, ended=False) == 200
        REMOVALS[how](path)
        assert server.send(2) == 503
        status, error = server.flush()
        assert status == 502
        assert "x.db" in error
        assert "replaced by another" in error if how == "replaced" else "deleted or moved" in error
        assert "Put the file back, or end this program" in error
        assert "2 data points wait to be scored and are kept" in error
        assert server.ask("/api/runs")[0] == 503
        row = server.ledger
        assert (row["failed"], row["waiting"]) == (0, 2)
        assert "x.db" in row["trouble"]
        assert any("while it was in use" in line for line in server.log)
    path.parent.mkdir(exist_ok=True)
    with Served(tmp_path, **options) as server:
        assert server.send(2) == 200
        assert server.flush() == (200, "")
    if how == "replaced":
        with Database(path) as database:
            assert len(database.points("other", "m")) == 1
    kept = [epoch for epoch in (0, 1, 2) if epoch or how == "without its log"]
    assert stored(path) == [pair for epoch in kept for pair in pairs(range(epoch, epoch + 1))]


@pytest.mark.long
def test_killed_server_whose_database_was_replaced_refuses_to_damage_the_other(tmp_path):
    """The next server wrote the log into the other database, whose runs were gone."""
    path = tmp_path / "x.db"
    server = Served(tmp_path)
    assert server.send(0) == 200
    assert server.flush() == (200, "")
    assert server.send(1, ended=False) == 200
    replace_by_another(path)
    assert server.send(2) == 503
    server.kill()
    with pytest.raises(ServeError, match=r"did not start: The log .*x\.db-wal' was not written for"):
        Served(tmp_path)
    (tmp_path / "x.db-wal").rename(tmp_path / "aside")
    with Served(tmp_path) as server:
        assert server.send(2) == 200
        assert server.flush() == (200, "")
    with Database(path) as database:
        assert len(database.points("other", "m")) == 1
    assert stored(path) == pairs(range(1, 3))


@pytest.mark.long
def test_database_that_is_put_back_is_used_again(tmp_path):
    with Served(tmp_path) as server:
        assert server.send(0) == 200
        (tmp_path / "x.db").rename(tmp_path / "y.db")
        assert server.flush()[0] == 502
        (tmp_path / "y.db").rename(tmp_path / "x.db")
        assert server.flush() == (200, "")
        assert server.send(1) == 200
        assert server.flush() == (200, "")
        assert server.ledger["trouble"] == ""
    assert stored(tmp_path / "x.db") == pairs(range(2))


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("intus.serving.http.routes.decode_records", MemoryError()),
        ("intus.storage.codec._load", MemoryError("Unable to allocate 3.00 GiB")),
        ("intus.serving.http.guard.Guard.__call__", MemoryError()),
        ("intus.serving.http.turns.run_in_threadpool", RuntimeError("can't start new thread")),
    ],
)
def test_request_that_memory_does_not_suffice_for_is_sent_again(database, monkeypatch, where, error):
    """It was status 500 or 400, after which a probe gives a request up."""
    service = AggregatorService(Evaluator(Frontend(database), ["mean"]))
    app = build(Roles(service))
    with TestClient(app, raise_server_exceptions=False) as client, monkeypatch.context() as patch:
        patch.setattr(where, Failing(None, error))
        answer = client.post("/records", content=encode_records([record()]))
        assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
        assert answer.json()["error"].startswith("The memory does not suffice")
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert app.state.requests["http_503"] == 1
        patch.undo()
        assert client.post("/records", content=encode_records([record()])).status_code == 200
    service.close()


@pytest.mark.long
def test_scores_that_are_in_no_database_are_told_at_the_start(tmp_path):
    """The ledger said that the run is scored, and its page had no score of it."""
    with Served(tmp_path) as server:
        assert server.send(0) == 200
        assert server.flush() == (200, "")
    for path in tmp_path.glob("x.db*"):
        if path.is_file():
            path.unlink()
    with Served(tmp_path) as server:
        assert server.flush() == (200, "")
        deadline = time.monotonic() + 30
        while not (told := server.ask("/api/notices")[1]["notices"]) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert server.ledger["scored"] == 2
        assert "no scores in this database: 'r' of 'm' (2 scored)" in told[0]["text"]


@pytest.mark.long
def test_database_that_belongs_to_the_journal_is_not_called_another(tmp_path):
    for epoch in range(2):
        with Served(tmp_path) as server:
            assert server.send(epoch) == 200
            assert server.flush() == (200, "")
            time.sleep(1.5)  # a report
            assert server.ask("/api/notices")[1]["notices"] == []


def _told_at_the_start(folder) -> list[str]:
    """Return the notices of a server that is started in a folder, once it has compared its files."""
    with Served(folder) as server:
        assert server.flush() == (200, "")
        time.sleep(1.5)  # a report
        return [each["text"] for each in server.ask("/api/notices")[1]["notices"]]


@pytest.mark.long
def test_older_copy_of_the_database_beside_a_newer_journal_is_told_at_the_start(tmp_path):
    with Served(tmp_path) as server:
        assert server.send(0) == 200
        assert server.flush() == (200, "")
    copy = (tmp_path / "x.db").read_bytes()
    with Served(tmp_path) as server:
        assert server.send(1) == 200
        assert server.flush() == (200, "")
    (tmp_path / "x.db").write_bytes(copy)
    (text,) = _told_at_the_start(tmp_path)
    assert "the newest epoch of runs was scored, and this database has no scores of it" in text
    assert "'r' of 'm' (epoch 1)" in text


@pytest.mark.long
@pytest.mark.parametrize(
    ("statement", "texts"),
    [
        (
            "DELETE FROM point",
            [
                "this database has no scores of it: 'r' of 'm' (epoch 1)",
                "lost scores of runs, by its own count",
            ],
        ),
        ("DELETE FROM point WHERE epoch = 0", ["lost scores of runs, by its own count: 'r' of 'm' ("]),
        ("UPDATE run SET tags = '[]'", []),
    ],
)
def test_rows_that_another_program_deleted_are_told_at_the_start(tmp_path, statement, texts):
    with Served(tmp_path) as server:
        for epoch in range(2):
            assert server.send(epoch) == 200
        assert server.flush() == (200, "")
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as connection:
        connection.execute(statement)
    told = _told_at_the_start(tmp_path)
    assert len(told) == len(texts)
    assert all(any(text in each for each in told) for text in texts)


@pytest.mark.long
def test_run_that_was_renamed_or_removed_is_not_missed_at_the_start(tmp_path):
    """The notice said that the database had been deleted or replaced."""
    with Served(tmp_path) as server:
        assert server.send(0) == 200
        assert server.flush() == (200, "")
        assert server.ask("/api/run", b'{"run": "r", "name": "other"}')[0] == 200
    assert _told_at_the_start(tmp_path) == []
    runs(tmp_path / "x.db")["other"].remove()
    assert _told_at_the_start(tmp_path) == []
