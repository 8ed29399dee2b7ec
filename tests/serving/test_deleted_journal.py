"""A journal that is deleted or replaced under way: it is written anew from memory, or nothing is taken."""

from __future__ import annotations

import json
import shutil
from contextlib import closing

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from journal_help import Machine, check_sums
from server_help import Served, pairs, stored
from serving_help import target_of
from test_ledger import STEP, CountingClient, Outcomes, ledger_of, take

from intus.serving.aggregation import journal
from intus.serving.aggregation.journal import IDLE_LOOKS
from intus.serving.errors import FullError
from intus.serving.http.remote import RemoteEvaluator, _Spool

#: Six arrays of one epoch, the last of which comes after its end. Memory of 120 bytes has room for five.
TWO_REQUESTS = [("make", ["a", "a"]), ("make", ["a"] * 3), ("deliver", 0), ("make", ["a"]), ("next",)]
WIPE = st.tuples(st.just("wipe"), st.sampled_from(["folder", "run", "newest", "oldest"]))


def wipe(folder, what) -> None:
    """Delete a part of a journal."""
    files = sorted(folder.rglob("*.log"))
    if what == "folder":
        shutil.rmtree(folder)
    elif what == "run":
        for path in {path.parent for path in files}:
            shutil.rmtree(path)
    elif files:
        files[-1 if what == "newest" else 0].unlink()


def outcome(machine):
    """Return what a server that was killed scores after its next start, and its ledger."""
    machine.kill()
    machine.service.flush()
    got = {
        (point.key, point.epoch): (sorted(int(record.array.flat[0]) for record in point.records), point.lacks)
        for point in machine.evaluator.got
    }
    row = ledger_of(machine)
    machine.stop()
    return got, row


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(STEP, STEP, WIPE), max_size=30), st.sampled_from([1 << 20, 120]))
@example([*TWO_REQUESTS, ("deliver", 0), ("wipe", "folder")], 120)
@example([*TWO_REQUESTS, ("flush",), ("next",)], 120)
@example([("make", ["a"]), ("deliver", 0), ("next",), ("settle", 0, False), ("wipe", "run")], 1 << 20)
@example([("make", ["a"]), ("deliver", 0), ("next",), ("settle", 0, True), ("wipe", "newest")], 1 << 20)
def test_deleted_journal_changes_nothing_that_a_restart_finds(tmp_path_factory, steps, max_bytes):
    """Arrays that were evicted from memory are the exception: only the journal that was deleted had them."""
    machines = [Machine(tmp_path_factory.mktemp("journal"), max_bytes=max_bytes) for _ in range(2)]
    clients = [(machine, CountingClient(machine), Outcomes()) for machine in machines]
    for step in steps:
        if step[0] == "wipe":
            wipe(machines[0].folder, step[1])
            machines[0].service.tick()
            continue
        for machine, client, outcomes in clients:
            take(step, machine, client, outcomes)
    lost = [row.lost for row in map(ledger_of, machines) if row]
    (got, row), (expected, expected_row) = map(outcome, machines)
    for found, counts in ((got, row), (expected, expected_row)):
        if counts is not None:
            check_sums(counts)
            assert counts.waiting == sum(len(numbers) for numbers, _ in found.values())
    lost += [counts.lost for counts in (row, expected_row) if counts is not None]
    assert not any(lost) or max_bytes < 1000
    if not any(lost):
        assert (got, row) == (expected, expected_row)
        return
    for key in got.keys() & expected.keys():
        (numbers, lacks), (others, other_lacks) = got[key], expected[key]
        assert set(numbers) <= set(others) or set(others) <= set(numbers)
        assert lacks or len(numbers) >= len(others)
        assert other_lacks or len(others) >= len(numbers)
    accepted = [(counts.sent, counts.refused, counts.kept) for counts in (row, expected_row)]
    assert accepted[0] == accepted[1]


@pytest.mark.parametrize("max_bytes", [1 << 20, 100])
def test_many_unscored_epochs_are_written_anew(tmp_path, max_bytes):
    """Only the newest windows of a run are among those that a snapshot lists, and few fit into memory."""
    machine = Machine(tmp_path / "journal", max_bytes=max_bytes)
    for epoch in range(6):
        machine.send(epoch, seq=epoch, epoch=epoch)
    machine.evaluator.store(2)
    shutil.rmtree(machine.folder)
    machine.service.tick()
    machine.kill()
    machine.service.flush()
    assert machine.evaluator.last() == {("fc1", epoch): [epoch] for epoch in range(2, 6)}
    row = ledger_of(machine)
    check_sums(row)
    assert (row.kept, row.scored, row.waiting, row.lost) == (6, 2, 4, 0)
    machine.stop()


def test_request_is_not_acknowledged_by_a_file_that_is_gone(tmp_path):
    machine = Machine(tmp_path / "journal")
    machine.send(1, seq=1)
    shutil.rmtree(machine.folder)
    machine.send(2, seq=2, address="fc2")  # writes the journal anew
    assert machine.send(1, seq=1).duplicate
    machine.kill()
    machine.service.flush()
    assert machine.evaluator.last() == {("fc1", 0): [1], ("fc2", 0): [2]}
    assert not any("damaged" in notice.code for notice in machine.evaluator.received_notices)
    machine.stop()


def test_renewed_journal_is_told_and_has_one_owner(tmp_path):
    machine = Machine(tmp_path / "journal")
    machine.send(1, seq=1)
    shutil.rmtree(machine.folder)
    machine.service.tick()
    (notice,) = machine.evaluator.received_notices
    assert "was deleted or moved while it was in use. The 1 epochs that are not scored yet" in notice.text
    assert (machine.folder / "format").read_text() == "2\n"
    with pytest.raises(OSError, match="is used by another server"):
        Machine(machine.folder)
    machine.stop()


@pytest.mark.parametrize("how", ["folder", "file"])
def test_nothing_is_acknowledged_while_a_journal_cannot_be_written_anew(tmp_path, how):
    machine = Machine(tmp_path / "journal")
    machine.send(1, seq=1)
    machine.folder.rename(tmp_path / "moved")
    if how == "folder":
        other = Machine(machine.folder)
        other.send(7, seq=7)
        other.stop()
    else:
        machine.folder.touch()
    for seq in (2, 3):
        with pytest.raises(FullError, match=r"The journal cannot be written: "):
            machine.send(2, seq=seq, address="fc2")
        machine.service.tick()
    (notice,) = machine.evaluator.received_notices
    assert "No data are taken until it can be, and a crash would lose what is not scored" in notice.text
    assert "The journal cannot be written" in ledger_of(machine).trouble
    shutil.rmtree(machine.folder, ignore_errors=True)
    machine.folder.unlink(missing_ok=True)
    (tmp_path / "moved").rename(machine.folder)
    machine.service.tick()
    assert machine.send(2, seq=2, address="fc2").accepted == 1
    assert ledger_of(machine).trouble == ""
    machine.kill()
    machine.service.flush()
    assert machine.evaluator.last() == {("fc1", 0): [1], ("fc2", 0): [2]}
    machine.stop()


def test_messages_that_wait_for_the_next_server_are_written_anew(tmp_path):
    folder = tmp_path / "journal" / "spool"
    evaluator = RemoteEvaluator("http://127.0.0.1:1", folder=folder)
    for name in ("a", "b"):
        evaluator.put_target(target_of({"name": name, "targets": [0, 1]}))
    shutil.rmtree(tmp_path / "journal")
    evaluator.check()
    evaluator.put_target(target_of({"name": "c", "targets": [0, 1]}))
    shutil.rmtree(tmp_path / "journal")
    evaluator.put_target(target_of({"name": "d", "targets": [0, 1]}))
    evaluator.close(patience=5)
    with closing(_Spool(folder)) as spool:
        waiting = spool.waiting()
    assert [json.loads(body)["name"] for _, _, body in waiting] == ["a", "b", "c", "d"]


def test_clock_looks_at_few_files_of_runs_that_are_scored_and_misses_none(tmp_path, monkeypatch):
    """It looked at the files of all runs each second, while no request was answered."""
    machine, runs, looks = Machine(tmp_path / "journal"), 3 * IDLE_LOOKS, []
    for number in range(runs):
        machine.send(number, seq=1, run=f"r{number}", client=f"c{number}")
    machine.service.flush()
    machine.evaluator.store()
    machine.send(7, seq=2, epoch=1, run="r7", client="c7")
    machine.service.tick()  # new folders, so that it looks at all
    look = journal.identity
    monkeypatch.setattr(journal, "identity", lambda path: looks.append(path) or look(path))

    def told():
        looks.clear()
        machine.service.tick()
        assert len(looks) <= IDLE_LOOKS + 10
        return [notice.run for notice in machine.evaluator.received_notices]

    def delete(number):
        log = machine.journal.log((f"r{number}", "m"))
        log._path(log._number).unlink()

    delete(7)
    assert told() == ["r7"]
    delete(8)
    for _ in range(3):
        found = told()
    assert found == ["r7", "r8"]
    shutil.rmtree(machine.journal.log(("r9", "m"))._folder)
    machine.service.tick()
    assert machine.evaluator.received_notices[-1].run == "r9"
    machine.kill()
    assert ledger_of(machine, "r7").kept == 2
    assert [ledger_of(machine, run).kept for run in ("r8", "r9")] == [1, 1]
    machine.stop()


def test_run_whose_files_cannot_be_written_anew_is_not_forgotten(tmp_path, monkeypatch):
    """Only some of the runs without unscored records are looked at each second."""
    machine = Machine(tmp_path / "journal")
    for number in range(2 * IDLE_LOOKS):
        machine.send(number, seq=1, run=f"r{number}", client=f"c{number}")
    machine.service.flush()
    machine.evaluator.store()
    for _ in range(2):
        machine.service.tick()
    log = machine.journal.log(("r3", "m"))
    log._path(log._number).unlink()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(log, "renew", full)
        for _ in range(6):
            machine.service.tick()
        assert "No space left" in ledger_of(machine, "r3").trouble
        assert len(machine.evaluator.received_notices) == 1
    machine.service.tick()
    assert ledger_of(machine, "r3").trouble == ""
    machine.kill()
    assert ledger_of(machine, "r3").scored == 1
    machine.stop()


@pytest.mark.long
def test_killed_server_whose_journal_was_deleted_loses_nothing(tmp_path):
    with Served(tmp_path) as server:
        assert server.send(0) == 200
        assert server.flush() == (200, "")
        assert server.send(1, ended=False) == 200
        shutil.rmtree(tmp_path / "x.db.journal")
        assert server.send(2, ended=False) == 200
        server.kill()
    with Served(tmp_path) as server:
        assert server.flush() == (200, "")
        assert server.ledger["scored"] == 6
    assert stored(tmp_path / "x.db") == pairs(range(3))
