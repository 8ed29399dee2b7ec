"""Registered targets in the database, with their owner and the runs they apply to."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from . import tables as t
from .needed_labels import needed_beside

#: The number of owners whose labels of one name are kept, the newest first.
OWNERS = 100
#: The number of choices of patterns of an owner that are kept for one name, the newest first.
CHOICES = 1000
_KEYS = ("name", "owner", "model_pattern", "layer_pattern", "run_pattern")
_JSON = ("labels", "group_ids", "type_ids", "during")


def put(connection: sa.Connection, facts: Mapping[str, Any]) -> None:
    """Store a target's labels, and remove those of the same owner, name and patterns that are not needed.

    Args:
        connection: A connection inside a transaction.
        facts: ``name``, ``targets`` (JSON-serializable), and optionally ``groups`` and ``types`` (likewise),
            ``exact``, ``owner``, the three patterns, ``during``, ``number``, ``registered``, ``waiting`` and
            ``moments``.
    """
    of_name = t.target.c.name == facts["name"]
    before = connection.execute(sa.select(sa.func.max(t.target.c.registered)).where(of_name)).scalar()
    registered, waiting = facts.get("registered"), facts.get("waiting")
    row = {
        "name": facts["name"],
        "owner": facts.get("owner", ""),
        "labels": json.dumps(facts["targets"]),
        "group_ids": _json(facts.get("groups")),
        "type_ids": _json(facts.get("types")),
        # the clock may have been set back
        "registered": max(time.time(), (before or 0.0) + 1e-3) if registered is None else registered,
        "until": None,
        "claimed": 0,
        "exact": int(facts.get("exact", False)),
        "during": json.dumps(list(facts.get("during", ()))),
        "number": facts.get("number", 1),
    } | {name: facts.get(name, ".*") for name in ("model_pattern", "layer_pattern", "run_pattern")}
    same = [t.target.c[key] == row[key] for key in _KEYS]
    times = connection.execute(sa.select(t.target.c.registered).where(*same)).scalars().all()
    needed = needed_beside(row["registered"], times, waiting, facts.get("moments"))
    connection.execute(sa.delete(t.target).where(*same, t.target.c.registered.not_in(needed)))
    connection.execute(sa.insert(t.target).values(row))
    last = sa.func.max(t.target.c.registered)
    owners = sa.select(t.target.c.owner).where(of_name).group_by(t.target.c.owner)
    kept = owners.order_by(last.desc()).limit(OWNERS)
    connection.execute(sa.delete(t.target).where(of_name, t.target.c.owner.not_in(kept)))
    of_owner = of_name & (t.target.c.owner == row["owner"])
    of_owner_times = sa.select(t.target.c.registered).where(of_owner)
    newest = of_owner_times.order_by(t.target.c.registered.desc()).limit(CHOICES)
    connection.execute(sa.delete(t.target).where(of_owner, t.target.c.registered.not_in(newest)))


def end(connection: sa.Connection, now: float) -> None:
    """Restrict the targets stored so far to runs that began before ``now``."""
    connection.execute(sa.update(t.target).where(t.target.c.until.is_(None)).values(until=now))


def claim(connection: sa.Connection, name: str, owner: str) -> None:
    """Restrict an owner's targets of a name to the runs of that owner."""
    this = (t.target.c.name == name) & (t.target.c.owner == owner)
    connection.execute(sa.update(t.target).where(this).values(claimed=1))


def read(connection: sa.Connection) -> list[dict[str, Any]]:
    """Return all targets, ordered by name and time of registration.

    ``runs`` are the [run, model] pairs whose layers have scores against a target of that name.
    """
    pairs = (
        sa.select(t.series.c.target, t.run.c.run, t.run.c.model)
        .join(t.run, t.run.c.id == t.series.c.run)
        .where(t.series.c.unit < 0, t.series.c.target.in_(sa.select(t.target.c.name)))
        .distinct()
        .order_by(t.run.c.run, t.run.c.model)
    )
    runs: dict[str, list[list[str]]] = {}
    for target, run, model in connection.execute(pairs):
        runs.setdefault(target, []).append([run, model])
    rows = connection.execute(sa.select(t.target).order_by(t.target.c.name, t.target.c.registered)).mappings()
    return [
        {"targets": json.loads(row["labels"]), "runs": runs.get(row["name"], [])}
        | {"groups": _parsed(row["group_ids"]), "types": _parsed(row["type_ids"])}
        | {"during": json.loads(row["during"])}
        | {str(name): value for name, value in row.items() if name not in _JSON}
        | {name: bool(row[name]) for name in ("claimed", "exact")}
        for row in rows
    ]


def _json(ids: Any) -> str | None:
    return None if ids is None else json.dumps(ids)


def _parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)
