"""Writing points: each once, and quickly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ..core.results import COLUMNS, Results
from . import tables as t
from .tables import insert_into, upsert

SERIES_KEY = ("address", "unit", "kind", "target", "score")
NUMBERS = ("value", "low", "high", "baseline")
_SAID = (*NUMBERS, "n", "note")
_KEY = ["series", "epoch", "step"]
_WRITTEN = (*_KEY, *_SAID)
#: What the column ``epoch`` holds where the epoch is unknown: part of a primary key cannot be NULL.
NO_EPOCH = -1e300
_COLUMNS = [t.series.c[name] for name in ("id", *SERIES_KEY)]

#: The ids of series, by run and key. They never change: a run that is removed and comes again has a new id.
Series = dict[int, dict[tuple[Any, ...], int]]
#: Columns of points, by name.
Columns = Mapping[str, Sequence[Any]]
_RUNS = 20


@contextmanager
def forgetting(series: Series) -> Iterator[None]:
    """Forget ids that a transaction made which then failed."""
    try:
        yield
    except BaseException:
        series.clear()
        raise


def grouped(results: Results) -> Iterator[tuple[str, str, Columns]]:
    """Each (run, model) with its rows as columns of what the tables hold: None where a number is missing, and
    the note of a value that is no number names it."""
    columns = {name: results[name].tolist() for name in COLUMNS}
    columns["note"] = [
        note or ("" if math.isfinite(value) else str(value))
        for note, value in zip(columns["note"], columns["value"], strict=True)
    ]
    columns["epoch"] = [epoch if math.isfinite(epoch) else NO_EPOCH for epoch in columns["epoch"]]
    for name in NUMBERS:
        if not np.isfinite(results[name]).all():
            columns[name] = [number if math.isfinite(number) else None for number in columns[name]]
    groups: dict[tuple[str, str], list[int]] = {}
    for row, group in enumerate(zip(columns.pop("run"), columns.pop("model"), strict=True)):
        groups.setdefault(group, []).append(row)
    for (run, model), rows in groups.items():
        whole = len(groups) == 1
        yield run, model, columns if whole else {name: [c[r] for r in rows] for name, c in columns.items()}


def add(connection: sa.Connection, series: Series, run: int, columns: Columns) -> int:
    """Insert what is new; only where rows came twice, write all of them over. Returns how many were new."""
    keys = list(zip(*(columns[name] for name in SERIES_KEY), strict=True))
    ids = _ids(connection, series, run, keys)
    epochs = [{"run": run, "epoch": epoch} for epoch in set(columns["epoch"])]
    upsert(connection, t.epoch, epochs, ["run", "epoch"])
    rows = list(zip(map(ids.__getitem__, keys), *(columns[name] for name in _WRITTEN[1:]), strict=True))
    new = _execute(connection, rows, over=False)
    if new < len(rows):
        _execute(connection, rows, over=True)
    connection.execute(sa.update(t.run).where(t.run.c.id == run).values(points=t.run.c.points + new))
    return new


def _execute(connection: sa.Connection, rows: Sequence[tuple[Any, ...]], *, over: bool) -> int:
    """Insert rows of _WRITTEN, past SQLAlchemy's handling of each, which would cost more than the database's.
    Returns how many were written."""
    text, order = _insert(connection.dialect, over)
    values: Any = rows
    if order is None:
        values = [dict(zip(_WRITTEN, row, strict=True)) for row in rows]
    elif order != _WRITTEN:
        places = [_WRITTEN.index(name) for name in order]
        values = [[row[place] for place in places] for row in rows]
    counted = {"preserve_rowcount": True}  # of many rows, psycopg forgets it otherwise
    return int(connection.exec_driver_sql(text, values, execution_options=counted).rowcount)


@lru_cache(maxsize=16)
def _insert(dialect: sa.Dialect, over: bool) -> tuple[str, tuple[str, ...] | None]:
    """The SQL, and the order of its parameters where they have no names."""
    insert = (sqlite if dialect.name == "sqlite" else postgresql).insert(t.point)
    if over:
        changed = {name: insert.excluded[name] for name in _SAID}
        other = sa.or_(*(t.point.c[name].is_distinct_from(insert.excluded[name]) for name in _SAID))
        one = sa.case((other, sa.literal_column("1")), else_=sa.literal_column("0"))
        changed["revision"] = t.point.c.revision + one
        statement = insert.on_conflict_do_update(index_elements=_KEY, set_=changed)
    else:
        statement = insert.on_conflict_do_nothing(index_elements=_KEY)
    compiled = statement.compile(dialect=dialect, column_keys=list(_WRITTEN))
    order = getattr(compiled, "positiontup", None)
    return str(compiled), None if order is None else tuple(order)


def _ids(
    connection: sa.Connection, series: Series, run: int, keys: Sequence[tuple[Any, ...]]
) -> dict[tuple[Any, ...], int]:
    """The ids of a run's series; those that are missing are made."""
    known = series.pop(run, None)
    if known is None:
        known = _read(connection, run)
    series[run] = known
    while len(series) > _RUNS:
        del series[next(iter(series))]
    missing = dict.fromkeys(key for key in keys if key not in known)
    if missing:
        rows = [dict(zip(SERIES_KEY, key, strict=True), run=run) for key in missing]
        insert = insert_into(connection, t.series).on_conflict_do_nothing(index_elements=["run", *SERIES_KEY])
        made = connection.execute(insert.returning(*_COLUMNS), rows)
        known.update({tuple(key): number for number, *key in made})
        if any(key not in known for key in missing):  # another process made them
            known.update(_read(connection, run))
    return known


def _read(connection: sa.Connection, run: int) -> dict[tuple[Any, ...], int]:
    found = connection.execute(sa.select(*_COLUMNS).where(t.series.c.run == run))
    return {tuple(key): number for number, *key in found}
