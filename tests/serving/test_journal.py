"""The journal's file format, and an aggregator that resumes after a kill."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_help import FakeEvaluator, Machine, numbered
from serving_help import record

from intus.core.errors import InputError, ServeError
from intus.monitoring.client import BINARY, JSON, Client
from intus.serving.aggregation import aggregator
from intus.serving.aggregation import journal as module
from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.aggregation.journal import Journal, Log
from intus.serving.aggregation.ledger import STORED
from intus.serving.aggregation.service import AggregatorService
from intus.serving.errors import FullError
from intus.serving.messages import IngestReply
from intus.serving.run import Server
from intus.storage.codec import decode_records, encode_records
from intus.storage.database import Database


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path / "journal")
    yield machine
    machine.stop()


# -- bytes -------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_truncated_log_yields_complete_frames_and_accepts_more(tmp_path_factory, bodies, data):
    folder = tmp_path_factory.mktemp("log")
    log = Log(folder, False)
    log.begin({"n": 0})
    ends = [log.nbytes]
    for number, body in enumerate(bodies):
        log.append({"number": number}, body)
        ends.append(log.nbytes)
    log.close()
    (path,) = folder.glob("*.log")
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut] + data.draw(st.binary(max_size=30)))
    again = Log(folder, False)
    kept = [frame.body for _, frame in again.frames() if frame is not None]
    survived = sum(end <= cut for end in ends)
    assert kept[1:survived] == bodies[: max(survived - 1, 0)]
    assert len(kept) in (survived, survived + 1)  # the random tail may be what was cut off
    again.begin({"n": 1})
    again.append({"number": 99}, b"more")
    again.close()
    assert [frame.body for _, frame in Log(folder, False).frames() if frame is not None][-1] == b"more"


@given(st.integers(0, 200), st.integers(1, 255))
@settings(max_examples=60)
def test_corrupted_frame_is_lost_alone_and_its_bytes_are_kept(tmp_path_factory, place, flip):
    folder = tmp_path_factory.mktemp("log")
    log = Log(folder, False)
    log.begin({})
    log.append({"number": 1}, b"a" * 50)
    log.append({"number": 2}, b"b" * 50)
    log.close()
    (path,) = folder.glob("*.log")
    content = bytearray(path.read_bytes())
    place %= len(content)
    content[place] ^= flip
    path.write_bytes(content)
    again = Log(folder, False)
    found = [frame and frame.body for _, frame in again.frames()]
    whole = [b"", b"a" * 50, b"b" * 50]
    at = found.index(None)
    assert found == [*whole[:at], None, *whole[at + 1 :]]
    (aside,) = folder.glob("*.damaged")
    assert aside.read_bytes() in bytes(content)
    assert len(again.damage) == 1


def test_journal_is_refused_to_second_server(tmp_path):
    first = Journal(tmp_path / "journal")
    with pytest.raises(ServeError, match=r"journal.* is used by another server"):
        Journal(tmp_path / "journal")
    first.close()
    Journal(tmp_path / "journal").close()
    (tmp_path / "file").write_text("")
    with pytest.raises(ServeError, match=r"cannot be written: .*--journal FOLDER"):
        Journal(tmp_path / "file")


def test_full_journal_refuses_large_and_accepts_small_requests(tmp_path):
    journal = Journal(tmp_path / "journal", max_bytes=1000)
    service = AggregatorService(FakeEvaluator(), Aggregator(), journal)
    with pytest.raises(FullError, match="at most 1,000 bytes"):
        service.records([record(100_000)], {"client": "c", "seq": 1})
    assert service.records([record(4)], {"client": "c", "seq": 2}).accepted == 1
    service.close()


# -- killed, and begun again -------------------------------------------------------------------------


def test_open_epoch_survives_restart(machine):
    machine.send(1, 2, seq=1)
    machine.kill()
    assert machine.send(1, 2, seq=1) == IngestReply(0, True)
    machine.send(3, seq=2)
    machine.kill()
    machine.send(4, seq=3, epoch=1)
    assert machine.evaluator.last() == {("fc1", 0): [1, 2, 3]}


def test_unstored_data_points_are_passed_on_again_after_restart(machine):
    machine.send(1, seq=1)
    machine.send(2, seq=2, epoch=1)
    assert machine.evaluator.last() == {("fc1", 0): [1]}
    machine.kill()
    assert machine.evaluator.last() == {("fc1", 0): [1]}
    machine.evaluator.store()
    machine.kill()
    assert machine.evaluator.got == []
    machine.service.flush()
    assert machine.evaluator.last() == {("fc1", 1): [2]}


def test_scored_records_are_deleted_from_journal(machine):
    machine.send(1, seq=1)
    machine.send(2, seq=2, address="fc2")
    assert machine.on_disk()
    machine.service.flush()
    machine.evaluator.store(1)
    assert machine.on_disk()
    machine.evaluator.store()
    assert not machine.on_disk()
    machine.kill()
    assert machine.send(1, seq=1).duplicate  # its number is known after its arrays are gone


def test_late_record_rewrites_its_window_to_journal(machine):
    machine.send(1, seq=1)
    machine.send(2, seq=2, epoch=1)
    machine.evaluator.store()
    assert machine.send(3, seq=3).accepted == 1
    machine.kill()
    machine.service.flush()
    assert machine.evaluator.last() == {("fc1", 0): [1, 3], ("fc1", 1): [2]}


def test_shared_arrays_survive_restart_and_late_records(machine):
    one = numbered(1)
    both = [one, replace(one, address="fc2")]
    envelope = {"client": "c", "seq": 1, "dropped": 0, "epochs": []}
    body = encode_records(both, envelope)
    assert machine.service.records(*decode_records(body), body).accepted == 2
    machine.kill()
    machine.send(2, seq=2, epoch=1)
    machine.evaluator.store()
    machine.send(3, seq=3)  # writes the window again
    machine.kill()
    machine.service.flush()
    assert machine.evaluator.last() == {("fc1", 0): [1, 3], ("fc2", 0): [1], ("fc1", 1): [2]}


def test_late_record_after_restart_is_refused(machine):
    machine.send(1, seq=1)
    machine.send(2, seq=2, epoch=1)
    machine.evaluator.store()
    machine.kill()
    assert machine.send(3, seq=3).accepted == 0
    assert [notice.code for notice in machine.evaluator.received_notices] == ["too_late"]


def test_request_of_two_runs_is_duplicate_in_both(machine):
    envelope = {"client": "c", "seq": 1, "dropped": 0}
    records = [numbered(1), numbered(2, run="s"), numbered(3)]
    assert machine.service.records(records, envelope).accepted == 3
    machine.kill()
    assert machine.service.records(records, envelope).duplicate
    machine.service.flush()
    assert [[int(r.array.flat[0]) for r in p.records] for p in machine.evaluator.got] in (
        [[1, 3], [2]],
        [[2], [1, 3]],
    )


def test_evicted_epoch_is_incomplete_after_restart(tmp_path):
    machine = Machine(tmp_path / "journal", max_bytes=100)
    for seq in range(1, 11):  # four fit, and twice as many while the journal is read
        machine.send(seq, seq=seq)
    machine.kill()
    machine.service.flush()
    (point,) = machine.evaluator.got
    assert not point.complete
    machine.service.close()


def test_removed_model_is_gone_after_restart(machine):
    machine.send(1, seq=1)
    machine.service.evaluator.remove = lambda run, model: None
    assert machine.service.remove("m", "another") == []
    assert machine.service.remove("m", "c") == [("r", "m")]
    machine.kill()
    machine.service.flush()
    assert machine.evaluator.got == []


def test_full_disk_refuses_request_and_recovers(machine, monkeypatch):
    machine.send(1, seq=1)
    whole = module._write

    def full(file, parts, fsync):
        file.write(b"half a fra")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "_write", full)
    with pytest.raises(FullError, match="No space left"):
        machine.send(2, seq=2)
    machine.service.flush()
    machine.evaluator.store()  # the journal cannot be shortened, and no error is raised
    assert machine.on_disk()
    monkeypatch.setattr(module, "_write", whole)
    machine.service.tick()
    assert not machine.on_disk()
    assert machine.send(2, seq=2, epoch=1).accepted == 1
    machine.kill()
    machine.service.flush()
    assert machine.evaluator.last() == {("fc1", 1): [2]}


def test_no_record_lost_after_concurrent_requests_and_kill(machine):
    def work(client):
        for seq in range(20):
            machine.send(seq, seq=seq, client=client, address=client)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    machine.kill()
    machine.service.flush()
    assert machine.evaluator.last() == {(name, 0): list(range(20)) for name in "abcd"}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 1), st.sampled_from(["a", "b"])),
        st.tuples(st.just("next")),
        st.tuples(st.just("kill")),
        st.tuples(st.just("again")),
        st.tuples(st.just("store"), st.integers(1, 3)),
        st.tuples(st.just("flush")),
    ),
    max_size=30,
)


@settings(max_examples=150)
@given(STEPS)
def test_each_record_counts_once_after_kills_and_repeats(tmp_path_factory, steps):
    """The last stored data point of a key contains exactly the records that were accepted for it."""
    machine = Machine(tmp_path_factory.mktemp("journal"))
    accepted, stored, epoch, sent = {}, {}, 0, []
    for step in [*steps, ("flush",), ("store", None)]:
        match step:
            case ("send", back, address):
                number = len(sent)
                facts = {"seq": number, "epoch": max(epoch - back, 0), "address": address}
                sent.append((number, facts))
                if machine.send(number, **facts).accepted:
                    accepted.setdefault((address, facts["epoch"]), []).append(number)
            case ("again",) if sent:
                assert machine.send(sent[-1][0], **sent[-1][1]).duplicate
            case ("next",):
                epoch += 1
            case ("kill",):
                machine.kill()
            case ("flush",):
                machine.service.flush()
            case ("store", most):
                for point, _ in machine.evaluator.waiting[:most]:
                    stored[point.key.address, point.epoch] = [int(r.array.flat[0]) for r in point.records]
                machine.evaluator.store(most)
    assert stored == accepted
    assert not machine.on_disk()
    machine.service.close()


COUNTED = st.lists(st.sampled_from(["send", "send", "next", "kill", "again", "lost", "store"]), max_size=40)


@pytest.mark.long
@settings(max_examples=150)
@given(COUNTED)
def test_epochs_of_reporting_client_are_complete_after_kills(tmp_path_factory, steps):
    """Like the real client, this one repeats requests without a reply and reports how much it sent."""
    machine = Machine(tmp_path_factory.mktemp("journal"))
    sent, stored, said, epoch, seq = {0: []}, {}, [], 0, 0

    def store(most=None):
        for point, _ in machine.evaluator.waiting[:most]:
            stored[point.epoch] = ([int(r.array.flat[0]) for r in point.records], point.complete)
        machine.evaluator.store(most)

    def reports(ended):
        return [
            {"run": "r", "model": "m", "epoch": of, "sent": len(numbers), "ended": of < epoch or ended}
            for of, numbers in sent.items()
        ]

    for step in [*steps, "end"]:
        match step:
            case "send" | "lost":
                seq += 1
                sent[epoch].append(seq)
                said.append(([seq], {"seq": seq, "epochs": reports(False), "epoch": epoch}))
                machine.send(*said[-1][0], **said[-1][1])
                if step == "lost":  # the answer: the server died before it could give it
                    machine.kill()
                    assert machine.send(*said[-1][0], **said[-1][1]).duplicate
            case "next" if sent[epoch]:
                epoch += 1
                sent[epoch] = []
            case "again" if said:
                assert machine.send(*said[-1][0], **said[-1][1]).duplicate
            case "kill":
                machine.kill()
            case "store":
                store(1)
            case "end":
                machine.send(seq=seq + 1, epochs=reports(True))
                store()
    assert stored == {of: (numbers, True) for of, numbers in sent.items() if numbers}
    assert not machine.on_disk()
    machine.stop()


def test_idle_runs_and_their_files_are_deleted(machine, monkeypatch):
    monkeypatch.setattr(aggregator, "RUNS", 3)
    monkeypatch.setattr(aggregator, "MAX_RUNS", 10)
    for number in range(10):
        machine.send(1, seq=number, run=f"run {number}")
    with pytest.raises(InputError, match=r"Run 'one more' of model 'm' is refused: 10 runs"):
        machine.send(1, seq=99, run="one more")
    machine.service.flush()
    machine.evaluator.store()
    machine.service.tick()
    assert len(list(machine.folder.glob("*/"))) == 10
    assert machine.journal.nbytes > 0
    machine.time += 10_000
    machine.service.tick()
    machine.service.tick()
    assert len(list(machine.folder.glob("*/"))) == 3
    assert machine.service.aggregator.nbytes == 0
    assert machine.send(1, seq=99, run="one more").accepted == 1


def test_arrays_that_came_after_an_eviction_are_scored_after_a_kill(tmp_path):
    """A snapshot that says that the first arrays of a data point were dropped does not drop the others."""
    machine = Machine(tmp_path, max_bytes=120)
    for seq in range(1, 7):
        machine.send(seq, seq=seq)
    log = machine.journal.log(("r", "m"))
    log.begin(machine.service.aggregator.snapshot(("r", "m"), 0.0))
    for _ in range(2):
        machine.kill()
        machine.service.flush()
        assert machine.evaluator.last() == {("fc1", 0): [6]}
        (row,) = machine.service.counts().runs
        assert (row.kept, row.waiting, row.lost) == (6, 1, 5)
    machine.stop()


def test_snapshot_of_version_0_1_0_is_restored():
    """The names in a snapshot of version 0.1.0 are part of the journal's format."""
    key = ["r", "m", "fc1", "output", 0, "train"]
    window = {"mark": [0, 0], "epoch": 0, "step": -1, "lacks": "", "closed": False, "over": False}
    client = {"seqs": [[0, 3]], "left": False, "states": True, "newest": 1, "dropped": 2, "heard": 5.0}
    written = {
        "group": ["r", "m"],
        "began": 1.5,
        "trigger": ["epoch"],
        "main_mode": "train",
        "members": {"c": client},
        "shares": [[0, "c", 2, 3, 0, False, 3]],
        "windows": [window | {"lost": [key], "scored": []}],
        "leaving": [],
        "finished": [[7, 7]],
    }
    restored = Aggregator()
    restored.restore(("r", "m"), written)
    new = {"before": 0, "training": 0, "attempt": 0, "job": "", "gone": False}
    now = {
        "members": {"c": client | new | {"unsure": -1, "latest": 3}},
        "finished_until": None,
        "shares": [[0, "c", 2, 3, 0, False, 3, 0, 0, False]],  # the last three are new
        "layers": [],
        "windows": [
            window
            | {"lost": [key], "scored": [], "pooled": False, "counted": False, "left": [[key, 0, 0]]}
            | {"arrived": 0.0, "unsaid": ""}
        ],
        "held": [[[0, 0], 0, False, 0]],
        "preceding": [],
        "newest": [],
        "doubtful": 0,
        "attempt": 0,
        "training": 0,
        "resumed": None,
        "settled": None,
        "counts": dict.fromkeys(STORED, 0),
    }
    assert restored.snapshot(("r", "m"), 0.0) == written | now
    assert restored.knows(("r", "m"), "c", 3)
    assert not restored.knows(("r", "m"), "c", 4)


# -- no journal ---------------------------------------------------------------------------------------


def send_epoch(server, epoch):
    array = np.random.default_rng(epoch).normal(size=(500, 64)).astype(np.float32)
    body = encode_records([record(array=array, epoch=epoch)], {"client": "c", "seq": epoch})
    post(server, "/records", body, BINARY)
    return array.tobytes()


def post(server, path, body=b"{}", content=JSON):
    with closing(Client(server.host, server.port)) as client:
        assert client.post(path, body, content).ok


def open_files(process):
    """Return the files that a process has open, except devices, pipes and sockets."""
    places = set()
    for each in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            places.add(os.readlink(each))
    return {place for place in places if place.startswith("/") and not place.startswith("/dev/")}


def written(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("journal", ["memory", None])
def test_activations_on_disk(tmp_path, journal):
    with Server(database=tmp_path / "x.db", port=0, journal=journal) as server:
        arrays = [send_epoch(server, epoch) for epoch in range(3)]
        files, contents = open_files(server.process.pid), written(tmp_path)
        post(server, "/flush")
        contents |= {Path(f"{path} later"): each for path, each in written(tmp_path).items()}
    on_disk = any(array[:4096] in content for content in contents.values() for array in arrays)
    assert on_disk is (journal is None)
    own = {name for name in files if name.startswith(str(tmp_path))}
    if journal == "memory":
        assert own <= {f"{tmp_path}/x.db", f"{tmp_path}/x.db-wal", f"{tmp_path}/x.db-shm"}
        assert {path.name for path in tmp_path.iterdir()} == {"x.db"}
    with Database(tmp_path / "x.db") as database:
        assert database.points("r", "m").where(score="mean")["n"].tolist() == [500] * 3
        said = [each["text"] for each in database.notices() if each["code"] == "memory_only"]
    assert len(said) == (journal == "memory")
    assert not said or "a crash loses those that are not scored yet" in said[0]


@pytest.mark.long
def test_killed_server_without_journal_keeps_scores_alone(tmp_path):
    options = {"database": tmp_path / "x.db", "port": 0, "journal": "memory"}
    with Server(**options) as server:
        send_epoch(server, 0)
        post(server, "/flush")
        send_epoch(server, 1)
        server.process.kill()
    with Server(**options) as server:
        post(server, "/flush")
    with Database(tmp_path / "x.db") as database:
        assert database.points("r", "m").where(score="mean")["epoch"].tolist() == [0]
