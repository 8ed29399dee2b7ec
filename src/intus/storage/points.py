"""Write points to the database, each once, in bulk."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import sqlalchemy as sa

from ..core.results import COLUMNS, Results
from . import tables as t
from .tables import insert_into, insert_of, upsert

SERIES_KEY = ("address", "unit", "kind", "target", "score")
NUMBERS = ("value", "low", "high", "baseline")
_VALUES = (*NUMBERS, "n", "note", "mode", "training")
_KEY = ["series", "epoch", "step"]
WRITTEN = (*_KEY, *_VALUES)
#: The value of the column ``epoch`` if unknown: a part of a primary key cannot be NULL.
NO_EPOCH = -1e300
_COLUMNS = [t.series.c[name] for name in ("id", *SERIES_KEY)]

_COUNT = (
    sa.update(t.run)
    .where(t.run.c.id == sa.bindparam("of"))
    .values(points=t.run.c.points + sa.bindparam("new"))
)

#: The ids of series, by run and key. They never change: a run that is removed and added again has a new id.
Series = dict[int, dict[tuple[Any, ...], int]]
#: Columns of points, by name.
Columns = Mapping[str, Sequence[Any]]
_MAX_RUNS = 20


def grouped(results: Results) -> Iterator[tuple[str, str, Columns]]:
    """Yield each (run, model) with its rows as columns of the tables.

    Numbers that are NaN or infinite become None. If the value is one and the row has no note, the note names
    it.

    Args:
        results: The results to store.

    Yields:
        The run, the model, and lists by column name.
    """
    columns = {name: results[name].tolist() for name in COLUMNS}
    columns["note"] = [
        note or ("" if math.isfinite(value) else str(value))
        for note, value in zip(columns["note"], columns["value"], strict=True)
    ]
    columns["epoch"] = [epoch if math.isfinite(epoch) else NO_EPOCH for epoch in columns["epoch"]]
    for name in (*NUMBERS, "training"):
        if not np.isfinite(results[name]).all():
            columns[name] = [number if math.isfinite(number) else None for number in columns[name]]
    groups: dict[tuple[str, str], list[int]] = {}
    for row, group in enumerate(zip(columns.pop("run"), columns.pop("model"), strict=True)):
        groups.setdefault(group, []).append(row)
    for (run, model), rows in groups.items():
        single = len(groups) == 1
        yield run, model, columns if single else {name: [c[r] for r in rows] for name, c in columns.items()}


def add(connection: sa.Connection, series: Series, run: int, columns: Columns, number: int) -> int:
    """Insert new points, and overwrite those that exist.

    All rows are written again only if some of them exist.

    Args:
        connection: A connection inside a transaction.
        series: The cache of ids.
        run: The id of the run.
        columns: Lists by column name, from ``grouped``.
        number: The number of this change.

    Returns:
        The number of new points.
    """
    keys = list(zip(*(columns[name] for name in SERIES_KEY), strict=True))
    ids = _ids(connection, series, run, keys)
    _note_epochs(connection, run, columns, number)
    rows = list(zip(map(ids.__getitem__, keys), *(columns[name] for name in WRITTEN[1:]), strict=True))
    new = _execute(connection, rows, overwrite=False)
    if new < len(rows):
        _execute(connection, rows, overwrite=True)
    connection.execute(_COUNT, {"of": run, "new": new})
    _note_training(connection, run, columns["training"], number)
    return new


def overwrite(connection: sa.Connection, run: int, columns: Columns, number: int) -> None:
    """Overwrite points that exist, given with the ids of their series."""
    rows = list(zip(*(columns[name] for name in WRITTEN), strict=True))
    if rows:
        _note_epochs(connection, run, columns, number)
        _execute(connection, rows, overwrite=True)


def _note_epochs(connection: sa.Connection, run: int, columns: Columns, number: int) -> None:
    epochs = [{"run": run, "epoch": epoch, "number": number} for epoch in set(columns["epoch"])]
    upsert(connection, t.epoch, epochs, ["run", "epoch"])


def _note_training(
    connection: sa.Connection, run: int, trainings: Sequence[float | None], number: int
) -> None:
    """Note the newest training of a run. What the earlier ones have left is then marked, so it changes."""
    newest = max((each for each in trainings if each is not None), default=None)
    known = connection.execute(sa.select(t.run.c.training).where(t.run.c.id == run)).scalar()
    if newest is None or (known is not None and known >= newest):
        return
    connection.execute(sa.update(t.run).where(t.run.c.id == run).values(training=newest))
    if known is not None:
        connection.execute(sa.update(t.epoch).where(t.epoch.c.run == run).values(number=number))


def _execute(connection: sa.Connection, rows: Sequence[tuple[Any, ...]], *, overwrite: bool) -> int:
    """Insert rows of ``WRITTEN`` and return the number written.

    The driver is called directly: SQLAlchemy's handling of each row would take longer than the database.
    """
    text, order = _insert(connection.dialect, overwrite)
    values: Any = rows
    if order is None:
        values = [dict(zip(WRITTEN, row, strict=True)) for row in rows]
    elif order != WRITTEN:
        places = [WRITTEN.index(name) for name in order]
        values = [[row[place] for place in places] for row in rows]
    counted = {"preserve_rowcount": True}  # otherwise psycopg does not count many rows
    return int(connection.exec_driver_sql(text, values, execution_options=counted).rowcount)


@lru_cache(maxsize=16)
def _insert(dialect: sa.Dialect, overwrite: bool) -> tuple[str, tuple[str, ...] | None]:
    """Return the SQL, and the order of its parameters if they are positional."""
    insert = insert_of(dialect.name, t.point)
    if overwrite:
        changed = {name: insert.excluded[name] for name in _VALUES}
        changes = sa.or_(*(t.point.c[name].is_distinct_from(insert.excluded[name]) for name in _VALUES))
        revised = sa.case((changes, sa.literal_column("1")), else_=sa.literal_column("0"))
        changed["revision"] = t.point.c.revision + revised
        statement = insert.on_conflict_do_update(index_elements=_KEY, set_=changed)
    else:
        statement = insert.on_conflict_do_nothing(index_elements=_KEY)
    compiled = statement.compile(dialect=dialect, column_keys=list(WRITTEN))
    order = getattr(compiled, "positiontup", None)
    return str(compiled), None if order is None else tuple(order)


def _ids(
    connection: sa.Connection, series: Series, run: int, keys: Sequence[tuple[Any, ...]]
) -> dict[tuple[Any, ...], int]:
    """Return the ids of a run's series, creating those that are missing."""
    known = series.pop(run, None)
    if known is None:
        known = _read(connection, run)
    series[run] = known
    while len(series) > _MAX_RUNS:
        del series[next(iter(series))]
    missing = dict.fromkeys(key for key in keys if key not in known)
    if missing:
        rows = [dict(zip(SERIES_KEY, key, strict=True), run=run) for key in missing]
        insert = insert_into(connection, t.series).on_conflict_do_nothing(index_elements=["run", *SERIES_KEY])
        created = connection.execute(insert.returning(*_COLUMNS), rows)
        known.update({tuple(key): number for number, *key in created})
        if any(key not in known for key in missing):  # another process created them
            known.update(_read(connection, run))
    return known


def _read(connection: sa.Connection, run: int) -> dict[tuple[Any, ...], int]:
    found = connection.execute(sa.select(*_COLUMNS).where(t.series.c.run == run))
    return {tuple(key): number for number, *key in found}
