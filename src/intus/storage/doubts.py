"""Doubts of rows in the database, which all scores of these rows have, stored before them or after.

A doubt is stored first, in one short transaction. From then on readers see it on all points. These are then
rewritten, some at a time.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

import sqlalchemy as sa

from ..core.doubt import Doubt
from ..core.notes import joined, remarks
from . import points
from . import tables as t
from .points import NUMBERS, SERIES_KEY, Columns

#: About how many points are changed in one transaction, so that others can write in between.
MOST_AT_ONCE = 1000
#: The key of a stored doubt's JSON that not all points have.
_OPEN = "open"
_OF = ("address", "target", "score", "epoch", "mode", "training", "note", "step")
#: The columns that ``doubted`` needs.
NEEDED = (*_OF, *NUMBERS)


def put(connection: sa.Connection, run: int, doubt: Doubt) -> tuple[Doubt, bool]:
    """Store a doubt, which points that are added later have then, unless it is stored.

    Args:
        connection: A connection inside a transaction that writes.
        run: The id of the run.
        doubt: The doubt. If its training is not known, it is about the newest that has points.

    Returns:
        The doubt with its training, and whether it is new.
    """
    if math.isnan(doubt.training):
        newest = connection.execute(sa.select(t.run.c.training).where(t.run.c.id == run)).scalar()
        doubt = replace(doubt, training=math.nan if newest is None else newest)
    if not any(_content(known) == _content(doubt) for known in read(connection, run)):
        connection.execute(sa.insert(t.doubt).values(run=run, content=_content(doubt, is_open=True)))
        return doubt, True
    return doubt, False


def touch(connection: sa.Connection, run: int, doubt: Doubt, number: int) -> None:
    """Note that the epochs changed that a doubt may be about, so that all who follow changes read them.

    Args:
        connection: A connection inside a transaction that writes.
        run: The id of the run.
        doubt: The doubt.
        number: The number of this change.
    """
    change = sa.update(t.epoch).where(t.epoch.c.run == run)
    if doubt.after is not None:
        change = change.where(t.epoch.c.epoch > doubt.after)
    if doubt.until is not None:
        change = change.where(t.epoch.c.epoch <= doubt.until)
    connection.execute(change.values(number=number))


def close(connection: sa.Connection, run: int, doubt: Doubt) -> None:
    """Register that all stored points have been changed as a doubt says."""
    of = t.doubt.c.run == run, t.doubt.c.content == _content(doubt, is_open=True)
    connection.execute(sa.update(t.doubt).where(*of).values(content=_content(doubt)))


def opened(connection: sa.Connection) -> list[tuple[int, str, str, Doubt]]:
    """Return the doubts that a kill has left before all points were changed: id, run, model and doubt."""
    found = sa.select(t.run.c.id, t.run.c.run, t.run.c.model, t.doubt.c.content)
    found = found.join(t.doubt, t.doubt.c.run == t.run.c.id).where(t.doubt.c.content.contains(f'"{_OPEN}"'))
    return [(*of, _parsed(content)) for *of, content in connection.execute(found)]


def half_done(connection: sa.Connection, run: str, model: str) -> list[Doubt]:
    """Return the doubts of which some points of a run may not be rewritten yet."""
    contents = sa.select(t.doubt.c.content).join(t.run, t.run.c.id == t.doubt.c.run)
    contents = contents.where(t.run.c.run == run, t.run.c.model == model)
    found = connection.execute(contents.where(t.doubt.c.content.contains(f'"{_OPEN}"'))).scalars()
    return [_parsed(content) for content in found]


def concerned(connection: sa.Connection, run: int, doubt: Doubt) -> list[tuple[int, int]]:
    """Return ranges of series, in order, that have all points of a run that a doubt changes.

    Each has about ``MOST_AT_ONCE`` of these points, or those of one series.

    Args:
        connection: A connection, which need not write: of points that are changed later, ``apply`` knows.
        run: The id of the run.
        doubt: The doubt, as ``put`` returned it.
    """
    columns = _stored(connection, run, doubt)
    series = sorted(columns["series"][row] for row in _changed(columns, doubted(columns, [doubt])))
    ranges, at = list[tuple[int, int]](), 0
    while at < len(series):
        last = series[min(at + MOST_AT_ONCE, len(series)) - 1]
        ranges.append((series[at], last))
        at = bisect_right(series, last)
    return ranges


def apply(connection: sa.Connection, run: int, doubt: Doubt, series: tuple[int, int], number: int) -> int:
    """Change points as a doubt says, as they are now; return the number of those that changed.

    Args:
        connection: A connection inside a transaction that writes.
        run: The id of the run.
        doubt: The doubt, as ``put`` returned it.
        series: The first and the last of the series of the points.
        number: The number of this change.
    """
    columns = _stored(connection, run, doubt, series)
    changed = doubted(columns, [doubt])
    rows = _changed(columns, changed)
    points.overwrite(connection, run, {name: [c[row] for row in rows] for name, c in changed.items()}, number)
    return len(rows)


def _changed(before: Columns, after: Columns) -> list[int]:
    return [row for row, note in enumerate(after["note"]) if note != before["note"][row]]


def read(connection: sa.Connection, run: int) -> list[Doubt]:
    """Return the doubts of a run."""
    contents = connection.execute(sa.select(t.doubt.c.content).where(t.doubt.c.run == run)).scalars()
    return [_parsed(content) for content in contents]


def _content(doubt: Doubt, *, is_open: bool = False) -> str:
    return json.dumps(doubt.stated() | ({_OPEN: True} if is_open else {}))


def _parsed(content: str) -> Doubt:
    facts = {name: value for name, value in json.loads(content).items() if name != _OPEN}
    return Doubt(**facts | {"modes": tuple(facts.get("modes", ()))})


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
            if not set(remarks(note)) <= set(remarks(out["note"][row])):
                out["note"][row] = joined(out["note"][row], note)
    return out


def _told(columns: Columns, doubts: Sequence[Doubt]) -> Iterator[tuple[int, list[Doubt]]]:
    """Yield each point with a value that there are doubts about, with these."""
    facts = zip(*(columns[name] for name in _OF), strict=True)
    for row, (fact, value) in enumerate(zip(facts, columns["value"], strict=True)):
        told = [] if value is None else [each for each in doubts if each.concerns(*fact)]
        if told:
            yield row, told


def _stored(
    connection: sa.Connection, run: int, doubt: Doubt, series: tuple[int, int] | None = None
) -> Columns:
    """Return the points of a run that have a value, without most of those that the doubt is not about."""
    names = [*SERIES_KEY, *points.WRITTEN]
    known = {column.name: column for column in (*t.series.c, *t.point.c)}
    query = sa.select(*(known[name] for name in names)).join(t.series, t.series.c.id == t.point.c.series)
    query = query.where(t.series.c.run == run, t.point.c.value.is_not(None))
    if series is not None:
        query = query.where(t.point.c.series.between(*series))
    if doubt.after is not None:
        query = query.where(t.point.c.epoch > doubt.after)
    if doubt.until is not None:
        query = query.where(t.point.c.epoch <= doubt.until)
    if doubt.address is not None:
        query = query.where(t.series.c.address == doubt.address)
    if doubt.modes:
        query = query.where(t.point.c.mode.in_(doubt.modes))
    rows = connection.execute(query).all()
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}
