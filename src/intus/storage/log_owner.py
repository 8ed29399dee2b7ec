"""Note which database a write-ahead log belongs to: SQLite writes a log into any file that is at its path.

Every SQLite database of intus has a random id in its header. While it is open, a file beside it
(``x.db-owner``) names this id, and which files the database and its log are. A process that is killed leaves
that and the log.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from .same_file import identity


def log_of(path: Path) -> Path:
    """Return the path of a database's write-ahead log."""
    return path.with_name(f"{path.name}-wal")


def note_of(path: Path) -> Path:
    """Return the path of the note."""
    return path.with_name(f"{path.name}-owner")


def give_id(connection: sa.Connection) -> bool:
    """Give an SQLite database an id if it has none, and return whether it had none."""
    if connection.dialect.name != "sqlite" or connection.exec_driver_sql("PRAGMA application_id").scalar():
        return False
    connection.exec_driver_sql(f"PRAGMA application_id = {1 + secrets.randbelow(2**31 - 1)}")
    return True


def write_note(path: Path) -> None:
    """Note that the log belongs to the database, which is open. Without room there is no note."""
    facts, note = _facts(path), note_of(path)
    with suppress(OSError):
        if _read(note) != facts:
            note.unlink(missing_ok=True)
            partial = note.with_name(f"{note.name}.{os.getpid()}")
            try:
                partial.write_text(json.dumps(facts))
                partial.replace(note)
            finally:
                partial.unlink(missing_ok=True)


def remove_note(path: Path) -> None:
    """Remove the note if there is no log."""
    with suppress(OSError):
        if not log_of(path).exists():
            note_of(path).unlink(missing_ok=True)


def stray_log(path: Path) -> str:
    """Return why a database must not be opened with the log beside it; "" if nothing is known against it.

    It is another database than the noted one if it has another id. One with the same id, or one whose id
    cannot be read, is another if it is another file beside the same log: both are others if they were copied
    together.
    """
    noted, found = _read(note_of(path)), _facts(path)
    if not noted or not found["log"] or noted["log"] != found["log"]:
        return ""
    another = noted["id"] and found["id"] is not None and noted["id"] != found["id"]
    if not another and noted["file"] == found["file"]:
        return ""
    log, note = str(log_of(path)), str(note_of(path))
    if found["file"] is None:
        what = f"belongs to the database {str(path)!r}, which is gone: SQLite would delete the log"
    else:
        before = "another database" if another else "an earlier file"
        what = (
            f"was not written for {str(path)!r}, which took the place of {before}: SQLite would write the "
            "log into it and damage it"
        )
    return (
        f"The log {log!r} {what}. Put the earlier file back. Or move the log away: then the newest scores of "
        "the earlier file are lost that are in it alone. If both files were restored together, delete "
        f"{note!r}."
    )


def _facts(path: Path) -> dict[str, Any]:
    """Return what is noted of a database, as JSON has it."""
    found: dict[str, Any] = {name: identity(file) for name, file in (("file", path), ("log", log_of(path)))}
    return {name: each and list(each) for name, each in found.items()} | {"id": _id_of(path)}


def _id_of(path: Path) -> str | None:
    """Return the id in a database's file; "" if it has none, None if it cannot be read.

    SQLite reads it: a process that opens and closes the file by itself loses the locks of all its
    connections, and another could then delete the log (https://sqlite.org/howtocorrupt.html, section 2.2).
    """
    if not path.exists():
        return ""
    alone = f"{path.resolve().as_uri()}?mode=ro&immutable=1"  # without the log
    with suppress(sqlite3.Error), closing(sqlite3.connect(alone, uri=True)) as connection:
        # a kill or a full disk may end the writing of the log into the file half-way: SQLite then refuses a
        # file of fewer pages than its first one counts, unless its schema may be repaired
        connection.execute("PRAGMA writable_schema=ON")
        (number,) = connection.execute("PRAGMA application_id").fetchone()
        return f"{number:08x}" if number else ""
    return None


def _read(note: Path) -> dict[str, Any]:
    """Return a note; empty if there is none, or it is damaged."""
    with suppress(OSError, ValueError):
        facts = json.loads(note.read_bytes())
        if isinstance(facts, dict) and facts.keys() == {"file", "log", "id"}:
            return facts
    return {}
