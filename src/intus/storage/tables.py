"""Access to the database: its engine, its tables as queries see them, and an upsert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ..core.errors import InputError, require


def _table(name: str, *columns: str, floats: str = "") -> sa.Table:
    """Return a table for queries; ``migrations`` creates it."""
    types = {column: sa.Float() for column in floats.split()}
    return sa.Table(name, sa.MetaData(), *(sa.Column(column, types.get(column)) for column in columns))


run = _table(
    "run", "id", "run", "model", "framework", "started", "updated", "points", "config", "tags", "named",
    "training", floats="training",
)  # fmt: skip
series = _table("series", "id", "run", "address", "unit", "kind", "target", "score")
point = _table(
    "point", "series", "epoch", "step", "value", "low", "high", "baseline", "n", "note", "mode", "training",
    "revision", floats="training",
)  # fmt: skip
epoch = _table("epoch", "run", "epoch", "number", floats="epoch")
graph = _table("graph", "run", "content")
place = _table("place", "run", "address", "rank")
notice = _table("notice", "id", "run", "model", "level", "code", "text", "count", "time")
target = _table(
    "target", "name", "owner", "labels", "model_pattern", "layer_pattern", "run_pattern", "registered",
    "until", "claimed", "group_ids", "type_ids", "exact", "during", "number",
)  # fmt: skip
score = _table("score", "name", "info")
held_out = _table("held_out", "id", "run", "digest", "classes", "content")
prediction = _table("prediction", "series", "epoch", "step", "held_out", "wrong", floats="epoch")
counter = _table("counter", "name", "value")
inspection = _table("inspection", "run", "epoch", "fingerprint", "content")
followup = _table("followup", "run", "epoch", "address", "unit", "target", "kind", "content", floats="epoch")
log = _table(
    "log", "run", "name", "step", "time", "epoch", "value", "note", "training",
    floats="time epoch value training",
)  # fmt: skip
doubt = _table("doubt", "run", "content")
sketch = _table(
    "sketch", "run", "layer", "training", "epoch", "step", "previous_epoch", "previous_step", "number",
    "time", "content", floats="training epoch previous_epoch time",
)  # fmt: skip
change = _table("change", "what", "run", "model", "number")
#: Seconds that SQLite waits for another process to end its transaction.
BUSY_S = 20.0
_LOCK_KEY = 0x696E747573
TABLES: tuple[sa.Table, ...] = (run, series, point, epoch, graph, place, notice, target, score, counter)
TABLES += (inspection, change, held_out, prediction, followup, log, doubt, sketch)


def upsert(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> None:
    """Insert rows, or overwrite those whose keys exist.

    Args:
        connection: A connection inside a transaction, to SQLite or PostgreSQL.
        table: The table.
        rows: Dicts by column name.
        keys: The columns of a unique key of the table.
    """
    if rows:
        statement = _upsert(connection.dialect.name, table, tuple(rows[0]), tuple(keys))
        connection.execute(statement, [dict(row) for row in rows])


@lru_cache(maxsize=64)
def _upsert(dialect: str, table: sa.Table, names: tuple[str, ...], keys: tuple[str, ...]) -> Any:
    """Return the statement; to make it and to find it in SQLAlchemy's cache takes longer than SQLite does."""
    statement = insert_of(dialect, table)
    others = {name: statement.excluded[name] for name in names if name not in keys}
    if others:
        return statement.on_conflict_do_update(index_elements=list(keys), set_=others)
    return statement.on_conflict_do_nothing(index_elements=list(keys))


def reason(error: Exception) -> str:
    """Return why the database refused something, in the words of its driver, without a full stop."""
    return str(error.orig if isinstance(error, sa.exc.DBAPIError) else error).strip().rstrip(".")


def read_url(where: str | Path) -> sa.URL:
    """Return the URL of a database.

    Args:
        where: A path, or a URL.

    Raises:
        InputError: If it is not a URL, of an unknown kind of database, or in memory.
        MissingExtraError: If the driver of PostgreSQL is not installed.
    """
    if isinstance(where, Path) or "://" not in where:
        url = sa.URL.create("sqlite", database=str(where))
    else:
        url = _parse(where)
    dialect = url.get_backend_name()
    if dialect not in ("sqlite", "postgresql"):
        raise InputError(f"The database {where!r} is of kind {dialect!r}. Use sqlite or postgresql.")
    if dialect == "sqlite" and url.database in (None, "", ":memory:"):
        raise InputError(f"The database {where!r} is in memory, where threads cannot share it. Give a path.")
    return url


def _parse(where: str) -> sa.URL:
    try:
        url = sa.make_url(where)
    except sa.exc.ArgumentError:
        raise InputError(
            f"The database {where!r} is not a URL. Write one such as postgresql://user@host/name."
        ) from None
    if url.drivername == "postgresql":  # SQLAlchemy would take psycopg 2
        require("psycopg", extra="postgres", why="to keep scores in PostgreSQL")
        url = url.set(drivername="postgresql+psycopg")
    return url


def make_engine(url: sa.URL, fsync: bool = False) -> sa.Engine:
    """Create an engine whose transactions begin as the database requires.

    Args:
        url: The URL, from ``read_url``.
        fsync: Whether SQLite syncs to disk at every transaction.
    """
    engine = sa.create_engine(url)
    if url.get_backend_name() == "sqlite":
        sa.event.listen(engine, "connect", partial(_set_up_sqlite, "FULL" if fsync else "NORMAL"))
        sa.event.listen(engine, "begin", _begin_sqlite)
        sa.event.listen(engine, "handle_error", _drop_reader)
    return engine


def _set_up_sqlite(synchronous: str, connection: Any, _: object) -> None:
    connection.isolation_level = None  # _begin_sqlite issues BEGIN
    busy = f"busy_timeout={BUSY_S * 1000:.0f}"
    log = "wal_autocheckpoint=0", "journal_size_limit=0"  # it is shortened by Soundness.shorten
    for pragma in (busy, "journal_mode=WAL", *log, f"synchronous={synchronous}", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _drop_reader(context: sa.engine.ExceptionContext) -> None:
    """Drop a connection that cannot write, so that the next transaction has a new one.

    SQLite opens a file for reading only, for good, if it cannot be opened for writing at that moment.
    """
    if "readonly database" in str(context.original_exception):
        context.is_disconnect, context.invalidate_pool_on_disconnect = True, False


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that reads before it writes fails at once if another process wrote in between, unless it
    # took the write lock at its start, for which SQLite waits.
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def lock_for_write(connection: sa.Connection) -> None:
    """Let one transaction write at a time, as SQLite does itself, so that none fails because of another."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})")


def insert_of(dialect: str, table: sa.Table) -> Any:
    """Return an INSERT that supports ON CONFLICT, in a dialect."""
    return (sqlite if dialect == "sqlite" else postgresql).insert(table)


def insert_into(connection: sa.Connection, table: sa.Table) -> Any:
    """Return an INSERT that supports ON CONFLICT, in the connection's dialect."""
    return insert_of(connection.dialect.name, table)
