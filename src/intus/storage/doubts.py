"""Doubts of rows in the database, which all scores of these rows have, stored before them or after."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import sqlalchemy as sa

from ..core.doubt import Doubt
from . import points
from . import tables as t
from .points import NUMBERS, SERIES_KEY, Columns

_OF = ("address", "target", "score", "epoch", "mode", "training", "note", "step")


def put(connection: sa.Connection, run: int, doubt: Doubt, number: int) -> int:
    """Store a doubt, and change the points that it is about; return their number.

    A repetition changes nothing.

    Args:
        connection: A connection inside a transaction.
        run: The id of the run.
        doubt: The doubt. If its training is not known, it is about the newest that has points.
        number: The number of this change.
    """
    if math.isnan(doubt.training):
        newest = connection.execute(sa.select(t.run.c.training).where(t.run.c.id == run)).scalar()
        doubt = replace(doubt, training=math.nan if newest is None else newest)
    content = json.dumps(doubt.stated())
    if content in (json.dumps(known.stated()) for known in read(connection, run)):
        return 0
    connection.execute(sa.insert(t.doubt).values(run=run, content=content))
    columns = _stored(connection, run, doubt)
    changed = doubted(columns, [doubt])
    rows = [row for row, note in enumerate(changed["note"]) if note != columns["note"][row]]
    points.overwrite(connection, run, {name: [c[row] for row in rows] for name, c in changed.items()}, number)
    return len(rows)


def read(connection: sa.Connection, run: int) -> list[Doubt]:
    """Return the doubts of a run."""
    contents = connection.execute(sa.select(t.doubt.c.content).where(t.doubt.c.run == run)).scalars()
    facts = map(json.loads, contents)
    return [Doubt(**each | {"modes": tuple(each.get("modes", ()))}) for each in facts]


def doubted(columns: Columns, doubts: Sequence[Doubt]) -> Columns:
    """Return points with the notes of doubts, and without the values of those that are withdrawn.

    The order of the doubts does not matter: what has no value gets no note.

    Args:
        columns: Lists by column name.
        doubts: The doubts.
    """
    if not doubts:
        return columns
    out = {name: list(column) for name, column in columns.items()}
    for row, told in _told(columns, doubts):
        withdrawn = [each.note for each in told if each.withdraw]
        if withdrawn:
            out["note"][row] = min(withdrawn)
            for name in NUMBERS:
                out[name][row] = None
            continue
        for note in sorted({each.note for each in told}):
            if note not in out["note"][row]:
                out["note"][row] = "; ".join(filter(None, (out["note"][row], note)))
    return out


def _told(columns: Columns, doubts: Sequence[Doubt]) -> Iterator[tuple[int, list[Doubt]]]:
    """Yield each point with a value that there are doubts about, with these."""
    facts = zip(*(columns[name] for name in _OF), strict=True)
    for row, (fact, value) in enumerate(zip(facts, columns["value"], strict=True)):
        told = [] if value is None else [each for each in doubts if each.concerns(*fact)]
        if told:
            yield row, told


def _stored(connection: sa.Connection, run: int, doubt: Doubt) -> Columns:
    """Return the points of a run that have a value, without most of those that the doubt is not about."""
    names = [*SERIES_KEY, *points.WRITTEN]
    known = {column.name: column for column in (*t.series.c, *t.point.c)}
    query = sa.select(*(known[name] for name in names)).join(t.series, t.series.c.id == t.point.c.series)
    query = query.where(t.series.c.run == run, t.point.c.value.is_not(None))
    if doubt.after is not None:
        query = query.where(t.point.c.epoch > doubt.after)
    if doubt.until is not None:
        query = query.where(t.point.c.epoch <= doubt.until)
    if doubt.address is not None:
        query = query.where(t.series.c.address == doubt.address)
    rows = connection.execute(query).all()
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}
