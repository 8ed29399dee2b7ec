"""Stopping with a backlog and starting with a large journal: nothing is lost, doubled or left hanging."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import numpy as np
import pytest
from journal_help import FakeEvaluator, Machine, numbered
from server_help import epoch_of
from serving_help import record

from intus.core.errors import IntusError, ServeError
from intus.engines import LocalEngine
from intus.monitoring.client import BINARY, JSON, Client
from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.aggregation.journal import Journal
from intus.serving.aggregation.service import AggregatorService
from intus.serving.errors import ReadingError
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.frontend import Frontend
from intus.serving.http.endpoints import HANDLERS
from intus.serving.roles import Roles
from intus.serving.run import Server
from intus.storage.codec import encode_records
from intus.storage.database import Database


class BlockedEngine(LocalEngine):
    """Scores the first few data points, and no others until it is released."""

    def __init__(self, first: int) -> None:
        self.left, self.released = first, threading.Event()

    def submit(self, task):
        answer = super().submit(task)

        def wait():
            self.left -= 1
            if self.left < 0:
                self.released.wait(60)
            return answer()

        return wait


def server(folder, engine=None) -> Roles:
    frontend = Frontend(Database(folder / "x.db"))
    evaluator = Evaluator(frontend, engine=engine)
    service = AggregatorService(evaluator, Aggregator(), Journal(folder / "journal"))
    return Roles(service, evaluator, frontend)


def test_what_is_not_scored_in_time_is_scored_by_the_next_start(tmp_path):
    engine = BlockedEngine(first=3)
    first = server(tmp_path, engine)
    for epoch in range(6):
        records = [record(address=f"layer {number}", epoch=epoch) for number in range(2)]
        first.aggregator.records(records, {"client": "c", "seq": epoch})
    first.close(patience=0.2)
    engine.released.set()
    second = server(tmp_path)
    repeated = second.aggregator.records([record(address="layer 0")], {"client": "c", "seq": 0})
    assert repeated.duplicate
    second.aggregator.flush()
    second.close()
    with Database(tmp_path / "x.db") as database:
        points, changed = database.points("r", "m").where(score="mean"), replaced(database)
    found = sorted(zip(points["address"], points["epoch"], points["n"], points["note"], strict=True))
    assert found == [(f"layer {number}", epoch, 4, found[0][3]) for number in range(2) for epoch in range(6)]
    assert changed == 0


def replaced(database: Database) -> int:
    """Return how many scores were stored again with another value."""
    return sum(database.columns("r", "m", ["revision"])["revision"])


def test_evicted_epochs_that_wait_for_their_scores_are_scored_after_a_kill(tmp_path):
    machine = Machine(tmp_path / "journal", max_bytes=100)  # of four records
    for number, run in enumerate("abcd"):
        for epoch in range(2):
            machine.send(number * 10 + epoch, seq=epoch, run=run, client=run, epoch=epoch)
        machine.service.flush(run)
    sent = {("fc1", epoch, run) for epoch in range(2) for run in "abcd"}
    assert {(p.key.address, p.epoch, p.key.run) for p in machine.evaluator.got} == sent
    machine.kill()
    machine.service.flush()
    assert {(p.key.address, p.epoch, p.key.run) for p in machine.evaluator.got} == sent
    assert all(point.complete for point in machine.evaluator.got)
    machine.evaluator.store()
    assert not machine.on_disk()
    machine.stop()


# -- requests while the journal is read ----------------------------------------------------------------


class SlowJournal(Journal):
    """A journal whose reading goes on when the test says so."""

    def replay(self):
        self.go_on = threading.Event()
        self.waits = threading.Event()
        for item in super().replay():
            self.waits.set()
            self.go_on.wait(60)
            yield item


@pytest.fixture
def reading(tmp_path):
    """An aggregator that reads the journal of another, and its journal."""
    machine = Machine(tmp_path / "journal")
    machine.send(1, seq=1)
    machine.journal.close()
    journal = SlowJournal(tmp_path / "journal")
    service = AggregatorService(FakeEvaluator(), Aggregator(), journal, read_later=True)
    service.start(patience=0.0)
    journal.waits.wait(60)
    yield service, journal
    journal.go_on.set()
    service.close()


def test_records_are_refused_and_status_says_why_while_journal_is_read(reading):
    service, journal = reading
    left = journal.unread
    assert left > 0
    assert service.status() == {"reading": left}
    assert service.counts().aggregator.reading == left
    with pytest.raises(ReadingError, match=f"reads its journal, of which {left:,} bytes are left"):
        service.records([numbered(2)], {"client": "c", "seq": 2})
    journal.go_on.set()
    service.flush(timeout=60)  # waits until the journal is read
    assert service.records([numbered(1)], {"client": "c", "seq": 1}).duplicate
    assert service.records([numbered(2)], {"client": "c", "seq": 2, "epoch": 1}).accepted == 1
    assert "reading" not in service.status()
    assert [int(point.records[0].array.flat[0]) for point in service.evaluator.got] == [1]


def test_server_that_stops_while_it_reads_leaves_the_journal_as_it_is(reading, tmp_path):
    service, journal = reading
    before = {path: path.read_bytes() for path in (tmp_path / "journal").rglob("*.log")}
    threading.Timer(0.1, journal.go_on.set).start()
    service.close()
    assert {path: path.read_bytes() for path in (tmp_path / "journal").rglob("*.log")} == before
    machine = Machine(tmp_path / "journal")
    machine.service.flush()
    assert machine.evaluator.last() == {("fc1", 0): [1]}
    machine.stop()


@pytest.mark.long
def test_unreadable_journal_is_refused_at_the_start(tmp_path):
    machine = Machine(tmp_path / "journal")
    machine.send(1, seq=1)
    machine.stop()
    (path,) = machine.folder.rglob("*.log")
    path.unlink()
    path.mkdir()
    with pytest.raises(ServeError, match=r"cannot be read: .*Is a directory"):
        Server(database=tmp_path / "x.db", journal=machine.folder, port=0)


def test_refusal_while_reading_asks_for_a_retry():
    answer = asyncio.run(HANDLERS[IntusError](None, ReadingError("The server reads its journal.")))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


class EndingEngine(LocalEngine):
    """Works until it is closed, and then needs a moment to say that it was."""

    def __init__(self) -> None:
        self.ended, self.begun = threading.Event(), threading.Event()

    def submit(self, task):
        def wait():
            self.begun.set()
            self.ended.wait(60)
            time.sleep(0.2)
            raise RuntimeError("cannot schedule new futures after shutdown")

        return wait

    def close(self) -> None:
        self.ended.set()


@pytest.mark.parametrize("at_once", [False, True])
def test_what_is_under_way_at_a_stop_is_kept_and_refers_to_no_worker(tmp_path, at_once):
    """It counted as failed by its data at a second Ctrl+C; loky told of leaked semaphores, which it held."""
    engine = EndingEngine()
    first = server(tmp_path, engine)
    first.aggregator.records([record()], {"client": "c", "seq": 0})
    with pytest.raises(ServeError, match="The time ran out"):
        first.aggregator.flush(timeout=0.1)
    assert engine.begun.wait(30)
    if at_once:
        first.end()
    else:
        first.close(patience=0.1)
    assert not first.evaluator._worker._thread.is_alive()
    assert first.evaluator.counts().evaluator.failed == 0
    if at_once:  # a kill of what is left
        first.aggregator.journal.close()
        first.frontend.close()
    second = server(tmp_path)
    second.aggregator.flush()
    (row,) = second.aggregator.counts().runs
    assert (row.scored, row.failed) == (1, 0)
    second.close()


# -- processes -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_second_interrupt_ends_a_server_at_once_and_costs_nothing(tmp_path):
    """Data points were told as failed, with a traceback each, since the workers had ended."""
    command = [sys.executable, "-m", "intus.serving", f"--database={tmp_path}/x.db", "--port=0", "--no-token"]
    command += ["--engine=2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        port = int(process.stdout.readline().rpartition(":")[2])
        with closing(Client("127.0.0.1", port)) as client:
            for epoch in range(20):
                assert client.post("/records", epoch_of(epoch, 100, 100, 20), BINARY).ok
            deadline = time.monotonic() + 60
            while client.get("/api/status").reply["runs"][0]["scored"] < 50:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=30)
    assert not [word for word in ("Traceback", "failed", "leaked", "ERROR") if word in log], log
    with (
        Server(database=tmp_path / "x.db", port=0) as server,
        closing(Client(server.host, server.port)) as client,
    ):
        (row,) = client.get("/api/status").reply["runs"]
        assert (row["kept"], row["failed"], row["lost"]) == (2000, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_process_with_backlog_stops_and_the_next_one_scores_the_rest(tmp_path, how):
    options = {"database": tmp_path / "x.db", "port": 0}
    array = np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32)
    count, labels = 2_500, [0, 1] * 32
    with Server(**options) as server, closing(Client(server.host, server.port)) as client:
        target = f'{{"name": "parity", "targets": {labels}}}'.encode()
        assert client.post("/targets", target, JSON).ok
        for epoch in range(5):
            facts = {"epoch": epoch, "items": np.arange(64)}
            records = [record(array=array + n, address=f"layer {n}", **facts) for n in range(count // 5)]
            report = {"run": "r", "model": "m", "epoch": epoch, "sent": count // 5, "ended": True}
            envelope = {"client": "c", "seq": epoch, "dropped": 0, "epochs": [report]}
            assert client.post("/records", encode_records(records, envelope), BINARY).ok
        server.process.send_signal(how)
        server.process.wait(20)  # before, this took as long as the scoring
    with Database(tmp_path / "x.db") as database:
        assert 0 < len(database.points("r", "m").where(score="mean")) < count
    with Server(**options) as server, closing(Client(server.host, server.port, timeout=300)) as client:
        assert client.post("/flush", b"{}", JSON).ok
    with Database(tmp_path / "x.db") as database:
        points, changed = database.points("r", "m").where(score="mean"), replaced(database)
    assert len(points) == count
    assert set(points["n"]) == {64}
    assert changed == 0
