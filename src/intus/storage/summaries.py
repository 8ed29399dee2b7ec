"""The list of runs and what each contains, with one query per kind of content for all runs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from ..core.findings import CLASSIFIERS, REGRESSION
from ..core.notes import Facts
from . import tables as t
from .groups import label
from .points import NO_EPOCH


def read(connection: sa.Connection) -> list[dict[str, Any]]:
    """Return every (run, model), newest first; see ``Database.runs``."""
    runs = connection.execute(
        sa.select(t.run, t.graph.c.run.is_not(None).label("has_graph"))
        .select_from(t.run.outerjoin(t.graph, t.graph.c.run == t.run.c.id))
        .order_by(t.run.c.started.desc(), t.run.c.id.desc())
    ).mappings()
    epochs, addresses = _epochs(connection), _addresses(connection)
    kinds = _distinct(connection, "kind")
    logged = _by_run(connection, sa.select(t.log.c.run, t.log.c.name).distinct().order_by(t.log.c.name))
    numbers = _targets_of_numbers(connection)
    of_layers, of_units = (_distinct(connection, "score", "target", units=units) for units in (False, True))
    return [
        {name: value for name, value in row.items() if name not in ("id", "named", "training")}
        | {
            "epochs": [epoch for (epoch,) in epochs[row["id"]]],
            "addresses": [address for (address,) in addresses[row["id"]]],
            "targets": list(dict.fromkeys(target for _, target in of_layers[row["id"]] if target)),
            "scores": list(dict.fromkeys(score for score, _ in of_layers[row["id"]])),
            "kinds": [kind for (kind,) in kinds[row["id"]]],
            "layers": _pairs(of_layers[row["id"]]),
            "first": [
                {"score": score, "target": target}
                for score, target in of_layers[row["id"]]
                if score == REGRESSION and [target] in numbers[row["id"]]
            ],
            "units": _pairs(of_units[row["id"]]),
            "has_graph": bool(row["has_graph"]),
            "logged": [name for (name,) in logged[row["id"]]],
            "config": json.loads(row["config"] or "{}"),
            "tags": json.loads(row["tags"] or "[]"),
            "group": label(json.loads(row["config"] or "{}")),
        }
        for row in runs
    ]


def _pairs(rows: list[list[Any]]) -> list[dict[str, str]]:
    return [{"score": score, "target": target} for score, target in rows]


_ByRun = dict[int, list[list[Any]]]


def _by_run(connection: sa.Connection, query: sa.Select[Any]) -> _ByRun:
    """Group the rows of a query by the id of the run, which is their first column."""
    return _grouped(connection.execute(query))


def _grouped(rows: Iterable[Sequence[Any]]) -> _ByRun:
    """Group rows by their first column."""
    groups: _ByRun = defaultdict(list)
    for run, *values in rows:
        groups[run].append(values)
    return groups


def _targets_of_numbers(connection: sa.Connection) -> _ByRun:
    """Return the targets whose labels are numbers, as the newest point of a classifier says of each."""
    series, point = t.series.c, t.point.c
    order = point.epoch.desc(), point.step.desc()
    newest = (
        sa.select(point.note).where(point.series == series.id).order_by(*order).limit(1).scalar_subquery()
    )
    query = sa.select(series.run, series.target, newest.label("note"))
    query = query.where(series.unit < 0, series.score.in_(CLASSIFIERS))
    said = newest.contains(Facts(are_numbers=True).note, autoescape=True)  # also by the name of a run
    rows = connection.execute(query.where(said).distinct())
    return _grouped({(run, target): None for run, target, note in rows if Facts.of(note).are_numbers})


def _epochs(connection: sa.Connection) -> _ByRun:
    of_run = t.epoch.c
    query = sa.select(of_run.run, of_run.epoch).where(of_run.epoch > NO_EPOCH)
    return _by_run(connection, query.order_by(of_run.epoch))


def addresses(connection: sa.Connection, run: str, model: str) -> list[str]:
    """Return the addresses of one run; see ``Database.addresses``."""
    of_run = sa.select(t.run.c.id).where(t.run.c.run == run, t.run.c.model == model).scalar_subquery()
    return [address for rows in _addresses(connection, of_run).values() for (address,) in rows]


def _addresses(connection: sa.Connection, run: Any = None) -> _ByRun:
    """Return addresses in network order if the graph is known, else in order of first appearance."""
    series, place = t.series.c, t.place.c
    placed = (place.run == series.run) & (place.address == series.address)
    rank, first = sa.func.coalesce(sa.func.min(place.rank), 2**62), sa.func.min(series.id)
    query = sa.select(series.run, series.address).select_from(t.series.outerjoin(t.place, placed))
    if run is not None:
        query = query.where(series.run == run)
    return _by_run(connection, query.group_by(series.run, series.address).order_by(rank, first))


def _distinct(connection: sa.Connection, *names: str, units: bool = False) -> _ByRun:
    """Return the distinct values of columns for layers, or for units, in order of first appearance."""
    chosen = [t.series.c.run, *(t.series.c[name] for name in names)]
    query = sa.select(*chosen).where(t.series.c.unit >= 0 if units else t.series.c.unit < 0)
    return _by_run(connection, query.group_by(*chosen).order_by(sa.func.min(t.series.c.id)))
