"""Damaged databases are refused at the start, in a sentence, or whole as far as they are read."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest
from sqlalchemy.exc import DatabaseError, OperationalError

from intus.core.errors import InputError, ServeError
from intus.core.results import Results
from intus.serving.frontend import Frontend
from intus.serving.run import Server
from intus.storage import database as database_module
from intus.storage import log_owner, soundness, write_ahead_log
from intus.storage.database import Database
from intus.storage.same_file import identity
from intus.storage.soundness import DamagedError, Soundness

PAGE = 4096


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A database with scores, notices, targets and facts of a run."""
    path = tmp_path_factory.mktemp("whole") / "whole.db"
    random = np.random.default_rng(0)
    with Database(path) as database:
        for epoch in range(40):
            keys = {"run": "r", "model": "m", "epoch": epoch, "target": "t"}
            rows = [
                keys | {"address": f"fc{n}", "score": score, "value": random.random()}
                for n in range(20)
                for score in ("mean", "std")
            ]
            database.add(Results.from_rows(rows))
        database.add_notice("code", "text", run="r", model="m")
        database.put_target("t", [0, 1] * 500)
        database.put_run("r", "m", config={"lr": 1}, tags=["a"])
    return path


def flip_bit(data, random) -> None:
    data[random.integers(len(data))] ^= 1 << random.integers(8)


def flip_many(data, random) -> None:
    at = random.integers(len(data) - 64)
    data[at : at + 64] = random.bytes(64)


def damage_header(data, random) -> None:
    data[random.integers(100)] = random.integers(256)


def damage_schema(data, random) -> None:
    at = random.integers(PAGE - 16)
    data[at : at + 16] = random.bytes(16)


def cut(data, random) -> None:
    del data[random.integers(1, len(data)) :]


def zero_page(data, random) -> None:
    at = random.integers(len(data) // PAGE) * PAGE
    data[at : at + PAGE] = bytes(PAGE)


def use(database: Database) -> None:
    """Read everything, and write."""
    frontend = Frontend(database)
    frontend.runs()
    frontend.targets()
    database.notices()
    database.columns("r", "m", ["epoch", "value", "address", "note"])
    database.add(
        Results.from_rows([{"run": "new", "model": "m", "epoch": 0, "address": "a", "score": "mean"}])
    )


@pytest.mark.parametrize("damage", [flip_bit, flip_many, damage_header, damage_schema, cut, zero_page])
def test_damage_anywhere_is_refused_at_the_start_or_does_no_harm(whole, tmp_path, damage):
    refusals = []
    for seed in range(12):
        path, data = tmp_path / f"{seed}.db", bytearray(whole.read_bytes())
        damage(data, np.random.default_rng(seed))
        path.write_bytes(data)
        try:
            with Database(path) as database:
                use(database)
        except InputError as error:
            refusals.append(str(error))
    remedies = ("Restore a copy", "Give the path", "Update intus")
    for text in refusals:
        assert text.startswith(f"Could not open the database sqlite:///{tmp_path}")
        assert any(remedy in text for remedy in remedies)
    if damage in (cut, zero_page):
        assert len(refusals) == 12


def test_folder_is_no_database(tmp_path):
    """Before, the disk was said to fail perhaps."""
    with pytest.raises(InputError, match="It is a folder: give the path of a file in it, such as"):
        Database(tmp_path)


def test_server_on_a_damaged_database_ends_with_a_sentence(whole, tmp_path):
    path, data = tmp_path / "x.db", bytearray(whole.read_bytes())
    data[2 * PAGE :: PAGE] = bytes(len(data[2 * PAGE :: PAGE]))  # the type of every page but the first two
    path.write_bytes(data)
    with pytest.raises(
        ServeError, match=r"did not start: Could not open the database .*Restore a copy"
    ) as refused:
        Server(database=path, port=0)
    assert "Traceback" not in str(refused.value)
    assert path.read_bytes() == data


def test_database_that_is_refused_is_checked_once_and_keeps_its_files(whole, tmp_path, monkeypatch, caplog):
    """It was checked again when it was closed, for an error that nobody had raised."""
    again = []
    monkeypatch.setattr(Soundness, "_check", lambda self: again.append(self))
    path, data = tmp_path / "x.db", bytearray(whole.read_bytes())
    data[-PAGE:] = bytes(PAGE)
    path.write_bytes(data)
    with pytest.raises(
        InputError, match=r"Could not open the database .*: it is malformed: .*Restore a copy"
    ):
        Database(path)
    assert path.read_bytes() == data
    assert (again, caplog.text) == ([], "")


# -- the write-ahead log -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A database whose log has a hundred transactions of a row each, as a kill leaves it."""
    path = tmp_path_factory.mktemp("logged") / "live.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute("CREATE TABLE item (number INTEGER PRIMARY KEY, text TEXT)")
    for number in range(100):
        connection.execute("INSERT INTO item VALUES (?, ?)", (number, "x" * (number * 37 % 900)))
    yield path, connection
    connection.close()


def rows_of(path, log, folder) -> int:
    """Return how many rows SQLite finds in a copy of a database with this log."""
    copy = folder / "copy.db"
    shutil.copy(path, copy)
    (folder / "copy.db-wal").write_bytes(log)
    (folder / "copy.db-shm").unlink(missing_ok=True)
    connection = sqlite3.connect(copy)
    try:
        return connection.execute("SELECT count(*) FROM item").fetchone()[0]
    except sqlite3.OperationalError:  # no such table
        return 0
    finally:
        connection.close()


def test_damage_of_a_log_is_said_where_sqlite_forgets_transactions(logged, tmp_path, monkeypatch):
    monkeypatch.setattr(write_ahead_log, "PAUSE_S", 0)
    path, _ = logged
    whole = path.with_name("live.db-wal").read_bytes()
    assert write_ahead_log.damage(path.with_name("live.db-wal")) == ""
    random, log = np.random.default_rng(0), tmp_path / "log"
    for _ in range(60):
        data = bytearray(whole)
        flip_bit(data, random)
        log.write_bytes(data)
        last = len(whole) - PAGE - 24
        lost = rows_of(path, bytes(data), tmp_path) < 100 and data[:last] != whole[:last]
        assert bool(write_ahead_log.damage(log)) == lost


def test_log_whose_end_was_not_written_is_no_damage(logged, tmp_path):
    path, _ = logged
    whole, log = path.with_name("live.db-wal").read_bytes(), tmp_path / "log"
    for end in np.random.default_rng(0).integers(0, len(whole), 40):
        log.write_bytes(whole[:end])
        assert write_ahead_log.damage(log) == ""


def test_log_that_begins_again_in_an_older_one_is_no_damage(tmp_path):
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE item (number INTEGER)")
    connection.executemany("INSERT INTO item VALUES (?)", [(number,) for number in range(5000)])
    connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    connection.execute("INSERT INTO item VALUES (0)")
    log = tmp_path / "x.db-wal"
    assert log.stat().st_size > 10 * PAGE
    assert write_ahead_log.damage(log) == ""
    connection.close()


@pytest.mark.long
@pytest.mark.parametrize("end", range(0, 33, 4))
@pytest.mark.parametrize("copied", [True, False])
def test_crash_while_a_log_begins_anew_is_no_damage(tmp_path, monkeypatch, end, copied):
    """SQLite writes new first bytes once the database has all of the log; a crash may leave half of them."""
    monkeypatch.setattr(write_ahead_log, "PAUSE_S", 0)
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute("CREATE TABLE item (number INTEGER)")
    connection.executemany("INSERT INTO item VALUES (?)", [(number,) for number in range(300)])
    before, log = (tmp_path / "x.db").read_bytes(), tmp_path / "x.db-wal"
    old = log.read_bytes()
    connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    database = (tmp_path / "x.db").read_bytes() if copied else before
    connection.execute("INSERT INTO item VALUES (0)")
    new = log.read_bytes()
    connection.close()
    assert old[12:32] != new[12:32]
    torn = new[:end] + old[end:]
    (tmp_path / "y.db").write_bytes(database)
    (tmp_path / "y.db-wal").write_bytes(torn)
    is_torn = end > 12 and torn[:32] not in (old[:32], new[:32])
    lost = is_torn and not copied
    assert bool(write_ahead_log.damage(tmp_path / "y.db-wal")) == lost
    if copied:
        assert rows_of(tmp_path / "y.db", torn, tmp_path) == 300


@pytest.mark.parametrize("size", [0, 16, 100])
def test_damaged_log_of_an_emptied_database_is_said(logged, tmp_path, monkeypatch, size):
    """Nothing in the log is compared with nothing in the database."""
    monkeypatch.setattr(write_ahead_log, "PAUSE_S", 0)
    data = bytearray(logged[0].with_name("live.db-wal").read_bytes())
    data[20] ^= 1
    data[39] = 2  # the first page ends a transaction, as that of a small one
    (tmp_path / "y.db").write_bytes(logged[0].read_bytes()[:size])
    (tmp_path / "y.db-wal").write_bytes(data)
    assert write_ahead_log.damage(tmp_path / "y.db-wal")


def test_database_with_a_damaged_log_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "x.db"
    with Database(path) as database:
        for epoch in range(5):
            database.add_notice("code", f"text {epoch}")
        for end in ("", "-wal"):
            shutil.copy(tmp_path / f"x.db{end}", tmp_path / f"y.db{end}")
    log = tmp_path / "y.db-wal"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(
        InputError, match=r"y\.db-wal' of the database is damaged: \d+ pages in it cannot be read"
    ):
        Database(tmp_path / "y.db")
    assert log.read_bytes() == data
    log.rename(tmp_path / "aside")
    Database(tmp_path / "y.db").close()


# -- a log that belongs to another file ------------------------------------------------------------------


def left_by_a_kill(path, folder, *, after=2, text="text"):
    """Put the files into a folder that a killed process leaves: a database with its new rows in its log."""
    with Database(path) as database:
        for number in range(after):
            database.add_notice("code", f"{text} {number}")
        for end in ("", "-wal", "-owner"):
            shutil.copy(f"{path}{end}", folder / f"x.db{end}")
    # the copies stand for the files of the process
    log_owner.note_of(folder / "x.db").unlink()
    log_owner.write_note(folder / "x.db")
    return folder / "x.db"


def checkpoint(path):
    """Let SQLite write the log into the database."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def another(path):
    with Database(path) as database:
        database.add_notice("code", "of another")
    return path


def backup_of(path):
    """Return an older copy of a database."""
    copy = path.with_name("backup.db")
    shutil.copy(path, copy)
    return copy


STRAYS = {
    "another moved over": lambda path: another(path.with_name("y.db")).replace(path),
    "another copied over": lambda path: shutil.copyfile(another(path.with_name("y.db")), path),
    "an older copy moved over": lambda path: backup_of(path).replace(path),
    "an empty file": lambda path: path.write_bytes(b""),
    "no file": lambda path: path.unlink(),
}


@pytest.mark.parametrize("how", STRAYS)
def test_log_is_not_written_into_another_database(tmp_path, how):
    """The rows of the other database were gone, without a word."""
    path = left_by_a_kill(tmp_path / "z.db", tmp_path)
    STRAYS[how](path)
    files = {file: file.read_bytes() for file in tmp_path.glob("x.db*")}
    for _ in range(2):
        with pytest.raises(
            InputError, match=r"x\.db-wal' (was not written for|belongs to) .*Put the earlier"
        ):
            Database(path)
    assert files == {file: file.read_bytes() for file in tmp_path.glob("x.db*")}
    log_owner.log_of(path).rename(tmp_path / "aside")
    with Database(path) as database:
        texts = [each["text"] for each in database.notices()]
    assert texts == (["of another"] if "another" in how else [])


def test_database_whose_checkpoint_was_not_finished_has_all_rows(tmp_path):
    """Its header counts pages that the file lacks yet; it was refused as another database."""
    path = left_by_a_kill(tmp_path / "z.db", tmp_path, after=40, text="text" * 900)
    log, before = log_owner.log_of(path).read_bytes(), path.read_bytes()
    noted = json.loads(log_owner.note_of(path).read_bytes())
    assert noted["id"]
    copied_without_note(path, tmp_path / "y.db")
    checkpoint(tmp_path / "y.db")
    after = (tmp_path / "y.db").read_bytes()
    assert len(before) + 20 * PAGE < len(after)
    for copied in range(0, len(after) + 1, PAGE):
        log_owner.log_of(path).write_bytes(log)  # the same files, with the content of before
        path.write_bytes(after[:copied] + before[copied:])
        noted["log"] = identity(log_owner.log_of(path))
        log_owner.note_of(path).write_text(json.dumps(noted))
        assert log_owner.stray_log(path) == ""
        copied_without_note(path, tmp_path / "judged.db")
        with closing(sqlite3.connect(tmp_path / "judged.db")) as judge:
            assert judge.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        with Database(path) as database:
            assert len(database.notices()) == 40


@pytest.mark.parametrize("how", ["another moved over", "an older copy moved over"])
def test_log_is_not_written_into_another_file_whose_id_cannot_be_read(tmp_path, how):
    path = left_by_a_kill(tmp_path / "z.db", tmp_path)
    STRAYS[how](path)
    with path.open("r+b") as file:
        file.write(bytes(100))
    with pytest.raises(InputError, match=r"x\.db-wal' was not written for .*Put the earlier"):
        Database(path)


def moved_together(path, target):
    for end in ("", "-wal", "-owner"):
        path.with_name(path.name + end).rename(f"{target}{end}")


def copied_together(path, target):
    for end in ("", "-wal", "-owner"):
        shutil.copy(f"{path}{end}", f"{target}{end}")


def copied_without_note(path, target):
    for end in ("", "-wal"):
        shutil.copy(f"{path}{end}", f"{target}{end}")


def restored(path, target):
    """A copy takes the place of files that a kill left, of which the note stays."""
    copied_without_note(path, path.with_name("copy.db"))
    for end in ("", "-wal"):
        path.with_name(f"copy.db{end}").replace(f"{path}{end}")
    moved_together(path, target)


@pytest.mark.parametrize("how", [moved_together, copied_together, copied_without_note, restored])
def test_database_that_is_copied_with_its_log_has_all_rows(tmp_path, how):
    path = left_by_a_kill(tmp_path / "z.db", tmp_path)
    how(path, tmp_path / "new.db")
    with Database(tmp_path / "new.db") as database:
        assert len(database.notices()) == 2
    assert not log_owner.note_of(tmp_path / "new.db").exists()


def test_database_that_a_kill_left_is_opened_by_several(tmp_path):
    path = left_by_a_kill(tmp_path / "z.db", tmp_path)
    with Database(path) as first, Database(path) as second:
        first.add_notice("code", "more")
        assert len(second.notices()) == 3
    assert not log_owner.note_of(path).exists()


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
print(connection.execute("SELECT count(*) FROM notice").fetchone()[0], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def replaced(tmp_path):
    """A database that another one replaced while two had it open: this process, and one that still has it."""
    path = tmp_path / "x.db"
    with Database(path) as database:
        database.add_notice("code", "text")
        command = [sys.executable, "-c", HOLD, str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout.readline() == "1\n"
            another(tmp_path / "y.db").replace(path)
            yield path, database, holder
            holder.kill()


def test_database_that_replaced_one_in_use_by_others_is_opened(replaced):
    """It was "damaged", or a disk I/O error: the index of the other's log was used."""
    path, database, holder = replaced
    database.close()
    with Database(path) as other:
        other.add_notice("code", "more")
        assert len(other.notices()) == 2
    assert holder.poll() is None


def test_database_whose_index_another_program_uses_is_refused_with_what_is_known(replaced):
    path, _, holder = replaced
    log_owner.log_of(path).rename(path.with_name("aside"))
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"another program still has the files open .*x\.db-shm"):
        Database(path)
    assert path.read_bytes() == before
    holder.kill()
    holder.wait()


def test_full_disk_at_the_start_asks_for_room(tmp_path, monkeypatch):
    def fail(_):
        raise OperationalError("", None, sqlite3.OperationalError("database or disk is full"))

    monkeypatch.setattr(database_module, "migrate", fail)
    with pytest.raises(InputError, match=r"disk is full\. Make room on its disk and try again"):
        Database(tmp_path / "x.db")


def test_log_of_an_open_database_stays_when_other_processes_close_it(tmp_path):
    """SQLite deletes the log with the last connection, and a process must not lose the locks of its own."""
    path = tmp_path / "with space.db"
    reader = f"import sqlite3; c = sqlite3.connect({str(path)!r}); c.execute('SELECT 1 FROM run'); c.close()"
    with Database(path) as database:
        with Database(path):
            pass
        subprocess.run([sys.executable, "-c", reader], check=True, timeout=60)
        assert log_owner.log_of(path).exists()
        database.add_notice("code", "text")
    with Database(path) as database:
        assert [notice["text"] for notice in database.notices()] == ["text"]


# -- damage under way ------------------------------------------------------------------------------------


@pytest.fixture
def used(tmp_path, monkeypatch):
    """A database in use, whose file has all that was written, and the checks of it."""
    checks, check = [], Soundness._check
    monkeypatch.setattr(Soundness, "_check", lambda self: checks.append(0) or check(self))
    with Database(tmp_path / "x.db") as database:
        database.add_notice("code", "text", run="r")
        checkpoint(tmp_path / "x.db")
        database.add_notice("code", "more", run="r")
        del checks[:]
        database._sound._due = 0.0
        yield database, tmp_path / "x.db", checks


def overwrite(path):
    """Damage all pages but the first two."""
    with path.open("r+b") as file:
        file.seek(2 * PAGE)
        file.write(np.random.default_rng(0).bytes(path.stat().st_size - 2 * PAGE))


def test_nothing_is_written_to_a_file_that_was_damaged_under_way(used):
    database, path, _ = used
    overwrite(path)
    damaged, log = path.read_bytes(), log_owner.log_of(path).stat().st_size
    for _ in range(3):
        with pytest.raises(DamagedError, match=r"cannot be written now: .*malformed.* move x\.db-wal away\."):
            database.add_notice("code", "lost")
    database.close()
    assert (path.read_bytes(), log_owner.log_of(path).stat().st_size) == (damaged, log)
    with pytest.raises(InputError, match=r"Restore a copy of it, without .*x\.db-wal"):
        Database(path)
    assert (path.read_bytes(), log_owner.log_of(path).stat().st_size) == (damaged, log)


def test_row_that_was_written_while_the_file_was_damaged_does_not_count(used):
    database, path, _ = used
    with pytest.raises(DamagedError, match="malformed"), database._write():
        overwrite(path)


def test_file_that_is_written_to_by_others_and_sound_is_used(used):
    database, path, checks = used
    checkpoint(path)
    for number in range(5):
        database.add_notice("code", f"text {number}")
    assert len(checks) == 1
    assert len(database.notices()) == 7


def test_error_of_a_damaged_database_in_a_query_leads_to_a_check(used, monkeypatch):
    """It may be all that tells of pages which the disk gives back changed."""
    database, path, checks = used
    of_file = path.stat()
    overwrite(path)
    os.utime(path, ns=(of_file.st_atime_ns, of_file.st_mtime_ns))  # as if nobody had written to it
    database.add_notice("code", "not noticed")
    with pytest.raises(DatabaseError, match="malformed"), database._read():
        raise DatabaseError("", None, sqlite3.DatabaseError("database disk image is malformed"))
    with pytest.raises(DamagedError):
        database.add_notice("code", "noticed")
    assert checks == [0]


def test_error_that_passes_is_forgotten_by_a_check(used):
    database, _, checks = used
    with pytest.raises(DatabaseError), database._write():
        raise DatabaseError("", None, sqlite3.DatabaseError("database disk image is malformed"))
    for number in range(3):
        database.add_notice("code", f"text {number}")
    assert checks == [0]


def test_database_is_checked_at_a_flush_in_a_small_part_of_the_time(used, monkeypatch):
    database, path, checks = used
    database.prove()
    assert checks == [0]
    database.prove()  # nothing was written
    monkeypatch.setattr(soundness.time, "monotonic", lambda: 0.0)
    database.add_notice("code", "one")
    database.prove()
    assert checks == [0]
    monkeypatch.undo()
    of_file = path.stat()
    overwrite(path)
    os.utime(path, ns=(of_file.st_atime_ns, of_file.st_mtime_ns))
    monkeypatch.setattr(database._sound, "_due", 0.0)
    with pytest.raises(DamagedError):
        database.prove()


def test_log_stays_short_without_a_check(used, monkeypatch):
    """The file is written to only by this database."""
    database, path, checks = used
    monkeypatch.setattr(soundness, "LOG_BYTES", 50 * PAGE)
    sizes = []
    for number in range(200):
        database.add_notice("code", f"{number} " + "x" * 2000)
        sizes.append(log_owner.log_of(path).stat().st_size)
    assert max(sizes) < 90 * PAGE
    assert path.stat().st_size > 100 * PAGE
    assert sizes[-1] < sum(sizes) / 10
    assert checks == []
