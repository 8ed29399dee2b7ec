"""The values that a user logs during a training, in the database."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import sqlalchemy as sa

from . import tables as t
from .tables import upsert


class Logged(NamedTuple):
    """A logged value.

    Attributes:
        name: Its name, such as ``"loss"``.
        step: The step.
        time: When, in seconds since 1970.
        epoch: The epoch; None if unknown.
        value: The value, which may be NaN or infinite.
    """

    name: str
    step: int
    time: float
    epoch: float | None
    value: float


def put(connection: sa.Connection, run: int, values: Iterable[Logged]) -> None:
    """Store values of a run. Those of the same name, step and time are replaced."""
    rows = [
        each._asdict()
        | {"run": run, "value": each.value, "note": ""}
        | ({} if math.isfinite(each.value) else {"value": None, "note": str(each.value)})
        for each in values
    ]
    upsert(connection, t.log, rows, ["run", "name", "step", "time"])


def read(connection: sa.Connection, run: str, model: str) -> list[Logged]:
    """Return the values of a run, ordered by name, step and time."""
    names = [t.log.c[name] for name in (*Logged._fields, "note")]
    query = sa.select(*names).join(t.run, t.run.c.id == t.log.c.run)
    query = query.where(t.run.c.run == run, t.run.c.model == model)
    rows = connection.execute(query.order_by(t.log.c.name, t.log.c.step, t.log.c.time))
    return [
        Logged(name, step, time, epoch, float(note) if value is None else value)
        for name, step, time, epoch, value, note in rows
    ]


def thinned(values: Sequence[Logged], most: int) -> Iterator[Logged]:
    """Yield at most about ``most`` values of each name, among them the lowest and highest of each stretch.

    Values that are not finite are all kept, and so are the first and the last of each name.

    Example:
        >>> spike = [Logged("loss", step, 0.0, 0.0, float(step == 700)) for step in range(1000)]
        >>> kept = list(thinned(spike, 100))
        >>> len(kept), max(each.value for each in kept)
        (52, 1.0)
    """
    for _, group in groupby(values, lambda each: each.name):
        of_name = list(group)
        size = math.ceil(2 * len(of_name) / most)
        if size <= 2:
            yield from of_name
            continue
        for start in range(0, len(of_name), size):
            stretch = range(start, min(start + size, len(of_name)))
            finite = [at for at in stretch if math.isfinite(of_name[at].value)]
            kept = {at for at in stretch if not math.isfinite(of_name[at].value)}
            kept |= {pick(finite, key=lambda at: of_name[at].value) for pick in (min, max) if finite}
            kept |= {0, len(of_name) - 1} & set(stretch)
            yield from (of_name[at] for at in sorted(kept))


def columns(values: Sequence[Logged]) -> dict[str, list[Any]]:
    """Return values as columns of JSON; one that is not finite is the text ``nan``, ``inf`` or ``-inf``."""
    found: dict[str, list[Any]] = {name: [getattr(each, name) for each in values] for name in Logged._fields}
    found["value"] = [value if math.isfinite(value) else str(value) for value in found["value"]]
    return found
