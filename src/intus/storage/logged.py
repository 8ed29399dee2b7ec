"""The values that a user logs during a training, in the database."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import sqlalchemy as sa

from ..core.results import EARLIER
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
        training: When the training began that it is of, in seconds since 1970; None if unknown. Of a
            value to store it is that of the process, of one that was read that of all processes together.
        note: ``EARLIER`` if another training has begun since, else ``""``.
    """

    name: str
    step: int
    time: float
    epoch: float | None
    value: float
    training: float | None = None
    note: str = ""


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
    """Return the values of a run, ordered by name, step and time.

    Of an earlier training under its name are those that a newer one has not replaced, with a note.
    """
    names = [t.log.c[name] for name in Logged._fields]
    query = sa.select(*names).join(t.run, t.run.c.id == t.log.c.run)
    query = query.where(t.run.c.run == run, t.run.c.model == model)
    rows = connection.execute(query.order_by(t.log.c.name, t.log.c.step, t.log.c.time))
    return _of_trainings(
        [
            Logged(name, step, time, epoch, float(note) if value is None else value, training)
            for name, step, time, epoch, value, training, note in rows
        ]
    )


def _of_trainings(values: Sequence[Logged]) -> list[Logged]:
    """Return values of processes as those of trainings, without those that a newer training has replaced.

    As an epoch of scores does, a value replaces that of an earlier training of the same name, epoch and step.

    Example:
        >>> first = [Logged("loss", step, 1.0 + step, 1.0, 9.0, 1.0) for step in range(2)]
        >>> for each in _of_trainings([*first, Logged("loss", 0, 6.0, 1.0, 0.5, 5.0)]):
        ...     print(each.step, each.value, each.training, each.note)
        1 9.0 1.0 of an earlier training under the same run=
        0 0.5 5.0
    """
    trainings = _joined(values)
    if len(set(trainings.values())) < 2:
        return [each._replace(training=trainings[each.training]) for each in values]
    rank = {training: place for place, training in enumerate(dict.fromkeys(trainings.values()))}
    newest: dict[tuple[str, float | None, int], int] = {}
    for each in values:
        of, place = (each.name, each.epoch, each.step), rank[trainings[each.training]]
        newest[of] = max(newest.get(of, place), place)
    return [
        each._replace(training=training, note=EARLIER if rank[training] < len(rank) - 1 else "")
        for each in values
        if newest[each.name, each.epoch, each.step] == rank[training := trainings[each.training]]
    ]


def _joined(values: Iterable[Logged]) -> dict[float | None, float | None]:
    """Return when the training of each process began, by when it did itself, in this order.

    Processes are of one training if one of them began before the last value of another. What is not known
    is of the training before all others.
    """
    last: dict[float | None, float] = {}
    for each in values:
        last[each.training] = max(last.get(each.training, -math.inf), each.time)
    found: dict[float | None, float | None] = {}
    training, until = None, -math.inf
    for began in sorted(last, key=lambda began: -math.inf if began is None else began):
        if began is None or began > until:
            training = began
        found[began] = training
        until = max(until, last[began])
    return found


def thinned(values: Sequence[Logged], most: int) -> Iterator[Logged]:
    """Yield at most about ``most`` values of each name, among them the lowest and highest of each stretch.

    Values that are not finite are all kept, and so are the first and the last of each name. It is so for each
    training, the newest of each name last.

    Example:
        >>> spike = [Logged("loss", step, 0.0, 0.0, float(step == 700)) for step in range(1000)]
        >>> kept = list(thinned(spike, 100))
        >>> len(kept), max(each.value for each in kept)
        (52, 1.0)
    """
    ordered = sorted(values, key=_training_of)
    for _, group in groupby(ordered, _training_of):
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


def totals(values: Iterable[Logged]) -> dict[str, int]:
    """Return how many values of each name are of the newest training that has any."""
    counts = Counter(map(_training_of, values))
    return {name: counts[name, training] for name, training in sorted(counts)}


def _training_of(value: Logged) -> tuple[str, float]:
    return value.name, -math.inf if value.training is None else value.training


def columns(values: Sequence[Logged]) -> dict[str, list[Any]]:
    """Return values as columns of JSON; one that is not finite is the text ``nan``, ``inf`` or ``-inf``."""
    found: dict[str, list[Any]] = {name: [getattr(each, name) for each in values] for name in Logged._fields}
    found["value"] = [value if math.isfinite(value) else str(value) for value in found["value"]]
    return found
