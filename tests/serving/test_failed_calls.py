"""Calls of the journal that fail: what was not done is refused, what was done stays, and a retry succeeds."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from journal_help import Machine

from intus.core.errors import ServeError
from intus.serving.aggregation import journal as module
from intus.serving.aggregation.journal import Journal, Log
from intus.serving.errors import AwayError, FullError
from intus.serving.options import ServerOptions
from intus.serving.run import _make_roles


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path / "journal")
    yield machine
    machine.stop()


def failing(real, times=1):
    """Return a function that raises an OSError so many times, and then does its work."""
    left = [times]

    def call(*arguments, **options):
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, "Input/output error")
        return real(*arguments, **options)

    return call


def test_run_whose_folder_could_not_be_synced_is_taken_later(tmp_path, monkeypatch):
    log = Log(tmp_path / "run", fsync=True)
    monkeypatch.setattr(module, "_sync_folder", failing(module._sync_folder))
    with pytest.raises(OSError, match="Input/output"):
        log.begin({"first": 1})
    log.begin({"second": 2})
    log.append({"time": 0.0}, b"body")
    log.close()
    assert [frame.head.get("state") for _, frame in Log(tmp_path / "run", fsync=True).frames()] == [
        {"second": 2},
        None,
    ]


def test_file_that_a_failed_try_left_is_written_again(tmp_path, monkeypatch):
    log = Log(tmp_path / "run", fsync=False)
    monkeypatch.setattr(module, "_write", failing(module._write))
    monkeypatch.setattr(Path, "unlink", failing(Path.unlink))
    with pytest.raises(OSError, match="Input/output"):
        log.begin({"first": 1})
    log.begin({"second": 2})
    log.close()
    assert [frame.head["state"] for _, frame in Log(tmp_path / "run", fsync=False).frames()] == [
        {"second": 2}
    ]


def test_half_a_mark_at_the_end_of_a_file_is_cut_off(tmp_path, monkeypatch):
    log = Log(tmp_path / "run", fsync=False)
    log.begin({"number": 1})
    write, calls = module._write, []

    def half(file, parts, fsync):
        calls.append(1)
        if len(calls) == 2:  # the mark in the first file, after the second one's snapshot
            file.write(b"ints half")
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, parts, fsync)

    monkeypatch.setattr(module, "_write", half)
    log.begin({"number": 2})
    log.close()
    again = Log(tmp_path / "run", fsync=False)
    assert [frame.head["state"]["number"] for _, frame in again.frames()] == [1, 2]
    assert again.damage == []


@pytest.mark.parametrize("full", [False, True], ids=["", "full disk"])
def test_removed_run_that_the_next_role_kept_is_removed_after_a_kill(machine, monkeypatch, full):
    """The server dies before the database has forgotten the run."""
    machine.send(1, seq=1)

    def away(self, run, model):
        raise AwayError("The database cannot be written now.")

    machine.service.evaluator.remove = away.__get__(machine.service.evaluator)
    with monkeypatch.context() as patched:
        if full:
            patched.setattr(module, "_write", failing(module._write))
        with pytest.raises(AwayError, match="what waits of it is kept: The database cannot be written now"):
            machine.service.clear("c")
    machine.kill()
    removed = []
    machine.service.evaluator.remove = lambda run, model: removed.append((run, model))
    machine.service.evaluator.clear = lambda owner: None
    assert machine.service.clear("c") == [("r", "m")]
    assert removed == [("r", "m")]
    machine.service.flush()
    assert machine.evaluator.got == []


def test_removal_on_a_full_disk_needs_no_room(machine, monkeypatch):
    machine.send(1, seq=1)
    machine.service.evaluator.remove = lambda run, model: None
    monkeypatch.setattr(module, "_write", failing(module._write))
    assert machine.service.remove("m", "c") == [("r", "m")]
    machine.kill()
    machine.service.flush()
    assert machine.evaluator.got == []


def test_removal_that_the_disk_refuses_is_refused_and_repeated(machine, monkeypatch):
    machine.send(1, seq=1)
    machine.service.evaluator.remove = lambda run, model: None
    monkeypatch.setattr(module, "_write", failing(module._write))
    monkeypatch.setattr(shutil, "rmtree", failing(shutil.rmtree))
    with pytest.raises(FullError, match="cannot be deleted now"):
        machine.service.remove("m", "c")
    assert machine.service.remove("m", "c") == [("r", "m")]
    machine.kill()
    machine.service.flush()
    assert machine.evaluator.got == []


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), MemoryError("3 GiB")])
def test_start_that_cannot_write_its_journal_says_so(tmp_path, monkeypatch, error):
    machine = Machine(tmp_path / "journal")
    machine.send(1, seq=1)
    machine.journal.close()

    def fail(*arguments):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Log, "begin", fail)
        with pytest.raises(ServeError, match=r"cannot be read: .*What is in it is kept"):
            machine.start()
        machine.journal.close()
    machine.start()
    machine.service.flush()
    assert machine.evaluator.last() == {("fc1", 0): [1]}
    machine.stop()


def test_start_that_cannot_list_its_journal_says_so(tmp_path, monkeypatch):
    machine = Machine(tmp_path / "journal")
    machine.send(1, seq=1)
    machine.journal.close()
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", failing(os.scandir, times=9))
        with pytest.raises(ServeError, match="cannot be read"):
            Journal(tmp_path / "journal")
    Journal(tmp_path / "journal").close()  # the lock was released


def test_newer_journal_is_refused_in_one_sentence(tmp_path):
    Journal(tmp_path / "journal").close()
    (tmp_path / "journal" / "format").write_text("99\n")
    with pytest.raises(ServeError) as refused:
        Journal(tmp_path / "journal")
    assert str(refused.value).startswith("The journal ")
    assert str(refused.value).count("--journal FOLDER") == 1


def test_want_of_memory_at_the_start_is_told_in_a_sentence(tmp_path, monkeypatch):
    def read(path):
        raise MemoryError("Unable to allocate 48 bytes")

    monkeypatch.setattr("intus.storage.write_ahead_log.damage", read)
    with pytest.raises(
        ServeError, match=r"memory does not suffice: Unable to allocate 48 bytes\. The server"
    ):
        _make_roles(ServerOptions(database=tmp_path / "x.db"))


def test_run_whose_first_file_could_not_be_opened_leaves_no_folder(machine, monkeypatch):
    """The next start told that the journal was damaged, though nothing of the run had been acknowledged."""
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", failing(Path.open))
        with pytest.raises(FullError, match="Input/output"):
            machine.send(1, seq=1)
    machine.kill()
    assert machine.journal.damage == {}
    assert machine.send(1, seq=1).accepted == 1


@pytest.mark.parametrize("call", ["_write", "_sync_folder"])
def test_kill_before_the_first_file_of_a_run_is_there_is_no_damage(tmp_path, monkeypatch, call):
    class Killed(BaseException):
        pass

    def kill(*arguments):
        raise Killed

    journal = Journal(tmp_path / "journal", fsync=True)
    with monkeypatch.context() as patched:
        patched.setattr(module, call, kill)
        with pytest.raises(Killed):
            journal.log(("r", "m")).begin({"group": ["r", "m"]})
    assert any(path.is_dir() for path in (tmp_path / "journal").iterdir())
    for path in [*journal._files._files]:
        journal._files.close(path)
    journal.close()
    again = Journal(tmp_path / "journal", fsync=True)
    assert list(again.replay()) == []
    assert again.damage == {}
    assert not any(path.is_dir() for path in (tmp_path / "journal").iterdir())
    again.close()


def test_folder_whose_file_was_deleted_is_damage(machine):
    machine.send(1, seq=1)
    (log,) = machine.folder.glob("*/*.log")
    machine.journal.close()
    log.unlink()
    machine.start()
    assert machine.journal.damage == {log.parent: ["its folder has no file"]}
