"""Writing points: each once, and quickly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from . import tables as t
from .tables import insert_into, upsert

SERIES_KEY = ("address", "unit", "kind", "target", "score")
NUMBERS = ("value", "low", "high", "baseline")
_SAID = (*NUMBERS, "n", "note")
_KEY = ["series", "epoch", "step"]
_COLUMNS = [t.series.c[name] for name in ("id", *SERIES_KEY)]

#: The ids of series, by run and key. They never change: a run that is removed and comes again has a new id.
Series = dict[int, dict[tuple[Any, ...], int]]
_RUNS = 20


@contextmanager
def forgetting(series: Series) -> Iterator[None]:
    """Forget ids that a transaction made which then failed."""
    try:
        yield
    except BaseException:
        series.clear()
        raise


def add(connection: sa.Connection, series: Series, run: int, rows: Sequence[Mapping[str, Any]]) -> int:
    """Insert what is new; only where rows came twice, write all of them over. Returns how many were new."""
    ids = _ids(connection, series, run, rows)
    epochs = [{"run": run, "epoch": epoch} for epoch in {row["epoch"] for row in rows}]
    upsert(connection, t.epoch, epochs, ["run", "epoch"])
    points = [
        {"series": ids[_key(row)], "epoch": row["epoch"], "step": row["step"]}
        | {name: row[name] for name in _SAID}
        for row in rows
    ]
    insert = insert_into(connection, t.point)
    first = insert.on_conflict_do_nothing(index_elements=_KEY)
    counted = {"preserve_rowcount": True}  # of many rows, psycopg forgets it otherwise
    new = connection.execute(first, points, execution_options=counted).rowcount
    if new < len(points):
        changed = {name: insert.excluded[name] for name in _SAID}
        other = sa.or_(*(t.point.c[name].is_distinct_from(insert.excluded[name]) for name in _SAID))
        changed["revision"] = t.point.c.revision + sa.case((other, 1), else_=0)
        connection.execute(insert.on_conflict_do_update(index_elements=_KEY, set_=changed), points)
    connection.execute(sa.update(t.run).where(t.run.c.id == run).values(points=t.run.c.points + new))
    return int(new)


def _ids(
    connection: sa.Connection, series: Series, run: int, rows: Sequence[Mapping[str, Any]]
) -> dict[tuple[Any, ...], int]:
    """The ids of a run's series; those that are missing are made."""
    known = series.pop(run, None)
    if known is None:
        known = _read(connection, run)
    series[run] = known
    while len(series) > _RUNS:
        del series[next(iter(series))]
    missing = dict.fromkeys(key for row in rows if (key := _key(row)) not in known)
    if missing:
        keys = [dict(zip(SERIES_KEY, key, strict=True), run=run) for key in missing]
        insert = insert_into(connection, t.series).on_conflict_do_nothing(index_elements=["run", *SERIES_KEY])
        made = connection.execute(insert.returning(*_COLUMNS), keys)
        known.update({tuple(key): number for number, *key in made})
        if any(key not in known for key in missing):  # another process made them
            known.update(_read(connection, run))
    return known


def _read(connection: sa.Connection, run: int) -> dict[tuple[Any, ...], int]:
    found = connection.execute(sa.select(*_COLUMNS).where(t.series.c.run == run))
    return {tuple(key): number for number, *key in found}


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple([row[name] for name in SERIES_KEY])
