"""Samples of the rows of layers in the database, with which servers compare later epochs.

A comparison needs a sample of a layer's rows. It is kept until no epoch is left that can be compared with it:
the epochs that wait to be scored, and those that more rows may still come of.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from . import tables as t
from .kept_sketch import KeptSketch
from .tables import upsert

#: Epochs of a layer that are kept before the first one that is not scored: late rows may still come of the
#: newest two, and the third is what the older one of these is compared with.
KEPT_EPOCHS = 3
#: Of trainings that are over, the newest of these remain, and those of the last day: a pause is no end.
MOST_OVER, PAUSE_S = 400, 86_400.0


def put(
    connection: sa.Connection, run: int, sketch: KeptSketch, unscored: tuple[float, int] | None = None
) -> None:
    """Store a sketch, and delete those of the layer that nothing can be compared with any more.

    Args:
        connection: A connection inside a transaction.
        run: The id of the run.
        sketch: The sketch.
        unscored: The earliest (epoch, step) of the run that is not scored in full; None if all are.
    """
    row = sketch._asdict() | {"run": run, "time": time.time()}
    row["previous_epoch"], row["previous_step"] = row.pop("previous") or (None, None)
    upsert(connection, t.sketch, [row], ["run", "layer", "training", "epoch", "step"])
    own = (t.sketch.c.run == run) & (t.sketch.c.layer == sketch.layer)
    this = own & (t.sketch.c.training == sketch.training)
    places = connection.execute(sa.select(t.sketch.c.epoch, t.sketch.c.step).where(this)).all()
    settled = sorted((epoch, step) for epoch, step in places if unscored is None or (epoch, step) < unscored)
    earlier = own & (t.sketch.c.training < sketch.training)
    if len(places) == 1:
        connection.execute(sa.delete(t.sketch).where(earlier))
    for epoch, step in settled[:-KEPT_EPOCHS]:
        one = (t.sketch.c.epoch == epoch) & (t.sketch.c.step == step)
        connection.execute(sa.delete(t.sketch).where(this & one))


def read(
    connection: sa.Connection,
    run: str,
    model: str,
    training: float,
    at: tuple[str, float, int] | None = None,
) -> list[KeptSketch]:
    """Return the sketches of a training without their contents, or the one of a (layer, epoch, step)."""
    columns = t.sketch.c
    query = sa.select(
        columns.layer,
        columns.training,
        columns.epoch,
        columns.step,
        columns.previous_epoch,
        columns.previous_step,
        columns.number,
    )
    query = query.join(t.run, t.run.c.id == columns.run)
    query = query.where(t.run.c.run == run, t.run.c.model == model, columns.training == training)
    if at is not None:
        layer, epoch, step = at
        query = query.add_columns(columns.content)
        query = query.where(columns.layer == layer, columns.epoch == epoch, columns.step == step)
    return [_sketch(row) for row in connection.execute(query)]


def _sketch(row: Sequence[Any]) -> KeptSketch:
    layer, training, epoch, step, previous_epoch, previous_step, number, *content = row
    previous = None if previous_epoch is None else (previous_epoch, previous_step)
    return KeptSketch(layer, training, epoch, step, previous, number, *map(bytes, content))


def tidy(connection: sa.Connection) -> None:
    """Delete the sketches of trainings that are over, except the newest MOST_OVER."""
    newest = sa.select(t.sketch.c.time).order_by(t.sketch.c.time.desc()).offset(MOST_OVER).limit(1)
    old = (t.sketch.c.time < time.time() - PAUSE_S) & (t.sketch.c.time <= newest.scalar_subquery())
    connection.execute(sa.delete(t.sketch).where(old))
