"""Store examples and verifications of single units, which follow an inspection, in the database."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from ..core.errors import InputError
from ..core.followup import UnitExamples, UnitVerification
from . import tables as t
from .points import NO_EPOCH
from .tables import upsert

#: Most characters of the examples or the verification of a unit.
LARGEST = 4 << 20
KINDS = {UnitExamples: "examples", UnitVerification: "verification"}


def put(connection: sa.Connection, keys: Mapping[str, Any], content: UnitExamples | UnitVerification) -> None:
    """Store the examples or the verification of a unit and a hypothesis; see ``Database.put_followup``.

    Args:
        connection: A connection inside a transaction.
        keys: The columns run (its id), epoch, address, unit and target.
        content: What to store.

    Raises:
        InputError: If it is too large.
    """
    kind, text = KINDS[type(content)], json.dumps(asdict(content), allow_nan=False)
    if len(text) > LARGEST:
        raise InputError(
            f"The {kind} take {len(text) / 2**20:.1f} MB, and at most {LARGEST >> 20} MB are stored. Store "
            "fewer of them (k=)."
        )
    row = {**keys, "epoch": _known(keys["epoch"]), "kind": kind, "content": text}
    upsert(connection, t.followup, [row], [*keys, "kind"])


def read(
    connection: sa.Connection, run: str, model: str, target: str, unit: str, epoch: float | None
) -> tuple[float | None, dict[str, str]]:
    """Return the epoch, and what is stored of a unit at that epoch as JSON, by kind.

    Args:
        connection: A connection.
        run: The run.
        model: The model.
        target: The hypothesis.
        unit: The layer and the number of the unit, such as ``"conv1[3]"``.
        epoch: The epoch; None for the newest that the run has.

    Returns:
        The epoch, None if there is none; and the JSON of ``examples`` and ``verification``.
    """
    if epoch is None:
        newest = sa.select(sa.func.max(t.epoch.c.epoch)).join(t.run, t.run.c.id == t.epoch.c.run)
        found = connection.execute(newest.where(t.run.c.run == run, t.run.c.model == model)).scalar()
        epoch = NO_EPOCH if found is None else float(found)
    shown = None if epoch == NO_EPOCH else epoch
    address, _, number = unit.removesuffix("]").rpartition("[")
    if not number.isascii() or not number.isdigit() or len(number) > 18:
        return shown, {}
    query = sa.select(t.followup.c.kind, t.followup.c.content).where(
        *_of(run, model, target),
        t.followup.c.address == address,
        t.followup.c.unit == int(number),
        t.followup.c.epoch == epoch,
    )
    return shown, {row.kind: row.content for row in connection.execute(query)}


def units(connection: sa.Connection, run: str, model: str, target: str) -> list[tuple[str, float | None]]:
    """Return the units and epochs of which something is stored; the epoch is None if there are none.

    Args:
        connection: A connection.
        run: The run.
        model: The model.
        target: The hypothesis.
    """
    columns = t.followup.c.address, t.followup.c.unit, t.followup.c.epoch
    query = sa.select(*columns).where(*_of(run, model, target)).distinct().order_by(*columns)
    return [
        (f"{address}[{unit}]", None if epoch == NO_EPOCH else epoch)
        for address, unit, epoch in connection.execute(query)
    ]


def drop(
    connection: sa.Connection, run: int, epoch: float, addresses: Collection[str], targets: Collection[str]
) -> None:
    """Delete what is stored of the units of these layers and hypotheses, whose scores were computed again."""
    columns = t.followup.c.address, t.followup.c.target
    of_epoch = t.followup.c.run == run, t.followup.c.epoch == _known(epoch)
    for address, target in connection.execute(sa.select(*columns).where(*of_epoch).distinct()).all():
        if address in addresses and target in targets:
            named = t.followup.c.address == address, t.followup.c.target == target
            connection.execute(sa.delete(t.followup).where(*of_epoch, *named))


def _known(epoch: float) -> float:
    return epoch if epoch == epoch else NO_EPOCH


def _of(run: str, model: str, target: str) -> tuple[sa.ColumnElement[bool], ...]:
    number = sa.select(t.run.c.id).where(t.run.c.run == run, t.run.c.model == model).scalar_subquery()
    return t.followup.c.run == number, t.followup.c.target == target
