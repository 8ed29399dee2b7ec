"""Find out that an SQLite database is damaged while it is in use.

SQLite takes pages from its cache and from its log, and so goes on to write to a file whose other pages are
damaged. It can look sound for hours to a program that writes to it.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

from ..core.errors import IntusError
from .tables import reason

#: Most bytes of a database that is checked when nothing is known against it: a second for 50 to 1,000 MB.
CHECKED_BYTES = 256 << 20
#: After a check there is none for this many times as long, unless there is a new reason.
PAUSE = 20.0
#: Bytes from which on the log is written into the database: SQLite's own limit of 1,000 pages.
LOG_BYTES = 4 << 20


class DamagedError(IntusError, OSError):
    """Raised while a database is known to be damaged: what is written to it may be lost."""


class Soundness:
    """Knowledge of the pages of an SQLite database that is in use.

    Its file is written to only when the log is written into it, which ``shorten`` does. If it was written to
    otherwise, by a program that damages it or by another process that shortens the log, it is checked before
    anything else counts as stored; likewise after an error that damage can cause.

    Args:
        path: The database, which other connections hold open.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _version(path)  # of the file, when it was known to be sound
        self._doubted = False  # whether there is a reason to check
        self._found = ""  # what the last check found
        self._due = 0.0  # when it may be checked again for no new reason
        self._checking = threading.Lock()
        self.has_news = False  #: whether something was written since the last check

    def note(self, error: Exception) -> None:
        """Note an error of the driver, if it is one that a damaged database causes."""
        self._doubted |= _tells_of_damage(error)

    def examine(self, connection: sqlite3.Connection) -> str:
        """Check the database before it is used, and return what is damaged, as a clause; "" if nothing is.

        What is found holds for good.

        Raises:
            sqlite3.Error: If it cannot be checked for another reason, such as a lock.
        """
        try:
            self._found = _quick_check(connection)
        except sqlite3.Error as error:
            if not _tells_of_damage(error):
                raise
            self._found = reason(error)
        self._due = math.inf
        return self._found

    def prove(self, *, routine: bool = False) -> None:
        """Check the database if there is a reason to.

        Args:
            routine: Whether that something was written is one, if the last check is long ago.

        Raises:
            DamagedError: If it is damaged, or cannot be checked.
        """
        if self._is_trusted(routine):
            return
        with self._checking:
            if self._found and not self._doubted and time.monotonic() < self._due:
                raise self._error()
            if self._is_trusted(routine):  # another thread checked it
                return
            began, version = time.monotonic(), _version(self._path)
            self._doubted = self.has_news = False
            self._found = self._check()
            ended = time.monotonic()
            self._due = ended + PAUSE * (ended - began)
            if self._found:
                raise self._error()
            self._known = version

    def shorten(self, connection: sqlite3.Connection) -> None:
        """Write a long log into the database. SQLite would do it unasked, at any commit."""
        log = self._path.with_name(f"{self._path.name}-wal")
        with suppress(OSError, sqlite3.Error):
            if log.stat().st_size > LOG_BYTES:
                try:
                    connection.execute("PRAGMA wal_checkpoint").close()
                finally:
                    self._known = _version(self._path)

    def hold_log(self) -> sqlite3.Connection:
        """Return a connection that can only read: while it is open, no other one that is closed ends the log.

        SQLite writes the log into the database and deletes it when the last connection is closed that can.
        """
        connection = self._connect()
        with suppress(sqlite3.Error):  # the lock is held as well if the page is damaged
            connection.execute("PRAGMA application_id").fetchone()
        return connection

    def _is_trusted(self, routine: bool) -> bool:
        if self._doubted or self._found or _version(self._path) != self._known:
            return False
        if not (routine and self.has_news) or time.monotonic() < self._due:
            return True
        return self._known is None or self._known[1] > CHECKED_BYTES

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True)

    def _check(self) -> str:
        """Return what is damaged, as a clause; it is read without a cache."""
        try:
            with closing(self._connect()) as connection:
                return _quick_check(connection)
        except sqlite3.Error as error:
            return reason(error)

    def _error(self) -> DamagedError:
        return DamagedError(
            f"The database cannot be written now: {self._found}. What is not stored is kept. End this "
            f"program, put a copy in the place of {self._path}, and move {self._path.name}-wal away."
        )


def _quick_check(connection: sqlite3.Connection) -> str:
    """Return what SQLite's check finds first, as a clause; "" if nothing."""
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    return "" if found == "ok" else f"it is malformed: {' '.join(found.split())}"


def _tells_of_damage(error: Exception) -> bool:
    original = getattr(error, "orig", error)
    return type(original) is sqlite3.DatabaseError or "malformed" in str(original)


def _version(path: Path) -> tuple[int, int] | None:
    """Return when a file was last written to, and its size; None if it cannot be found."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
