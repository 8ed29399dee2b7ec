"""The predictions of classifiers on held-out rows in the database.

The held-out rows and their classes are the same for all layers and epochs of a run, so they are stored once.
What a layer adds is where its predictions differ from them, which compresses to a fraction of a byte per row.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import sqlalchemy as sa

from ..core.doubt import Doubt
from ..core.results import Predictions
from . import tables as t
from .points import NO_EPOCH
from .tables import insert_into, upsert

_KNOWN = sa.select(t.held_out.c.id).where(
    t.held_out.c.run == sa.bindparam("run"), t.held_out.c.digest == sa.bindparam("digest")
)


def put(
    connection: sa.Connection,
    run: int,
    series: Mapping[tuple[Any, ...], int],
    predictions: Sequence[Predictions],
) -> None:
    """Store the predictions of a run, in place of those of the same scores and epochs.

    Args:
        connection: A connection inside a transaction.
        run: The id of the run.
        series: The ids of its series by key (``points.SERIES_KEY``).
        predictions: The predictions; those of a score without results are left out.
    """
    rows = []
    for each in predictions:
        key = (each.address, -1, each.kind, each.target, each.score)
        if key not in series:
            continue
        wrong = (each.guess - each.truth) % max(len(each.classes), 1)
        rows.append(
            {
                "series": series[key],
                "epoch": each.epoch if math.isfinite(each.epoch) else NO_EPOCH,
                "step": each.step,
                "held_out": _held_out(connection, run, each),
                "wrong": zlib.compress(wrong.astype("<u2").tobytes()),
            }
        )
    upsert(connection, t.prediction, rows, ["series", "epoch", "step"])


def read(
    connection: sa.Connection,
    run: str,
    model: str,
    address: str,
    kind: str,
    target: str,
    scores: Sequence[str],
    epoch: float | None,
    step: int | None,
    withdrawing: Sequence[Doubt],
) -> Predictions | None:
    """Return the predictions of one of these scores; None if there are none, or the score was withdrawn.

    An ``epoch`` or ``step`` of None is the newest. Some scores may have their values still that doubts
    withdraw.
    """
    query = (
        sa.select(t.series.c.score, t.prediction, t.held_out.c.classes, t.held_out.c.content)
        .add_columns(t.point.c.mode, t.point.c.training, t.point.c.note)
        .join(t.series, t.series.c.id == t.prediction.c.series)
        .join(t.run, t.run.c.id == t.series.c.run)
        .join(t.held_out, t.held_out.c.id == t.prediction.c.held_out)
        .join(
            t.point,
            (t.point.c.series == t.prediction.c.series)
            & (t.point.c.epoch == t.prediction.c.epoch)
            & (t.point.c.step == t.prediction.c.step),
        )
        .where(
            t.run.c.run == run, t.run.c.model == model, t.series.c.unit == -1, t.point.c.value.is_not(None)
        )
        .where(t.series.c.score.in_(scores))
    )
    named = {"address": address, "kind": kind, "target": target}
    query = query.where(*(t.series.c[name] == value for name, value in named.items()))
    if epoch is not None:
        query = query.where(t.prediction.c.epoch == epoch)
    if step is not None:
        query = query.where(t.prediction.c.step == step)
    newest = t.prediction.c.epoch.desc(), t.prediction.c.step.desc()
    query = query.order_by(*newest) if withdrawing else query.order_by(*newest).limit(1)
    for row in connection.execute(query).mappings():
        facts = (row[name] for name in ("score", "epoch", "mode", "training", "note", "step"))
        of = address, target, *facts
        if not any(doubt.concerns(*of) for doubt in withdrawing):
            break
    else:
        return None
    classes = tuple(json.loads(row["classes"]))
    items, truth = _unpacked(bytes(row["content"]))
    wrong = np.frombuffer(zlib.decompress(bytes(row["wrong"])), "<u2").astype(np.int64)
    return Predictions(
        run=run,
        model=model,
        epoch=math.nan if row["epoch"] == NO_EPOCH else row["epoch"],
        step=row["step"],
        score=row["score"],
        classes=classes,
        items=items,
        truth=truth,
        guess=(truth + wrong) % max(len(classes), 1),
        **named,
    )


def _held_out(connection: sa.Connection, run: int, predictions: Predictions) -> int:
    """Return the id of the held-out rows and their classes, storing them if they are new."""
    classes = json.dumps(list(predictions.classes))
    content = predictions.items.astype("<i8").tobytes() + predictions.truth.astype("<u2").tobytes()
    digest = blake2b(content + classes.encode(), digest_size=16).hexdigest()
    number = connection.execute(_KNOWN, {"run": run, "digest": digest}).scalar()
    if number is None:
        row = {"run": run, "digest": digest, "classes": classes, "content": zlib.compress(content)}
        insert = insert_into(connection, t.held_out).values(row)
        connection.execute(insert.on_conflict_do_nothing(index_elements=["run", "digest"]))
        number = connection.execute(_KNOWN, {"run": run, "digest": digest}).scalar_one()
    return int(number)


def _unpacked(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the items and the classes of held-out rows."""
    plain = zlib.decompress(content)
    rows = len(plain) // 10  # 8 bytes of the item and 2 of the class
    items = np.frombuffer(plain, "<i8", rows)
    return items.astype(np.int64), np.frombuffer(plain, "<u2", rows, 8 * rows).astype(np.int64)
