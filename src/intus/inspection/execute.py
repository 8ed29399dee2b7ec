"""``inspect``: one pass over the data per model, shared by all hypotheses, scores and units."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.base import for_model
from ..core.errors import InputError, require
from ..core.results import COLUMNS, Results
from ..scores import Score, Scorer, ScoreResult
from .behaviours import Inputs, Records, arguments, behaviours, quiet
from .feed import BlockFeed
from .hypotheses import Labels, as_hypotheses
from .layout import decide
from .models import as_checkpoints
from .units import resolve

if TYPE_CHECKING:
    import pandas

_SAMPLES = 512 << 20  # bytes of all samples together
_log = logging.getLogger(__name__)
_ALWAYS = {"model", "address", "unit", "target", "score", "value", "low", "high", "baseline", "n"}


def inspect(
    models: Any,
    hypotheses: Any,
    scores: Any,
    data: Any,
    units: Any = "*",
    *,
    inputs: Inputs | None = None,
    store: str | Path | None = None,
    run: str | None = None,
    batch: int = 256,
    seed: int = 0,
    units_axis: int | None = None,
    progress: bool = False,
) -> pandas.DataFrame:
    """Which units respond to which hypothesis? One row per model, unit, hypothesis and score.

    ``models``      a module, a list of checkpoints (epochs 0, 1, 2 …), a dict by epoch or name; each may
                    be a function of no arguments that loads one
    ``hypotheses``  functions of one record giving a label per symbol (pixel, position) or one label,
                    or labelled arrays; one, a list, or a dict by name; NaN is "not annotated"
    ``scores``      names (``"iou"``, ``"correlation"``, ``"linear_f1"`` …), scores or functions
    ``data``        a tensor, an array or a sequence of records; ``inputs`` turns a list of records into
                    the model's input where stacking them does not
    ``units``       ``(layer, units)``, a layer, or a list: ``[(1, "*")]`` all units of the first layer
                    with parameters, ``("conv2", [0, 3])``, ``"features.*"``
    ``store``       also write the rows, and the network's graph, into this database (a path or URL)
    ``run``         under this name, by default one with the time; beside a training run of that name, whose
                    layers' scores are kept: those of ``inspect`` have the kind "inspect"
    ``units_axis``  which axis of what the layers give are the units (1 or -1 as a rule), for layers whose
                    kind does not tell

    Models run in evaluation mode without gradients, ``batch`` records at a time, and are left as they were.
    Maps are resized to the labels' grid; layers without positions answer labels of whole records; scores of
    a layer alone read what it gave as it is, a row per record. Low and high bound a 95 % interval over
    records; the baseline is what hypotheses of other records reach; unit -1 is the layer as a whole.
    Raises InputError or AddressError where the parts do not fit.
    """
    require("pandas", extra="inspect", why="to return a DataFrame")
    if batch < 1:
        raise InputError(f"batch={batch!r} must be 1 or more.")
    records, checkpoints = Records(data, inputs), as_checkpoints(models)
    labels = Labels(as_hypotheses(hypotheses, len(records)))
    wished = Scorer(scores, seed=seed).scores
    if not labels.hypotheses and any(score.per != "layer" for score in wished):
        raise InputError("There are no hypotheses, and these scores need one.")
    database = _open(store)
    run = run if run is not None else time.strftime("inspect %Y-%m-%d %H:%M:%S") if store else ""
    tables: list[Results] = []
    try:
        for checkpoint in checkpoints:
            name, model = checkpoint.open()
            readings = _one(model, name, units, records, labels, wished, batch, seed, units_axis, progress)
            tables.append(_table(readings, run, name, checkpoint.epoch))
            if database is not None:
                database.add(_apart(tables[-1]), [info for score in wished for info in score.infos])
                if database.graph(run, name) is None:
                    _keep_graph(database, run, name, model, records)
            del model  # before the next is loaded
    finally:
        if database is not None:
            database.close()
    return _tidy(Results.concat(tables))


def _open(store: str | Path | None) -> Any:
    if store is None:
        return None
    require("sqlalchemy", extra="inspect", why="to write results into a database")
    from ..storage.database import Database

    return Database(store)


def _keep_graph(database: Any, run: str, name: str, model: Any, records: Records) -> None:
    """Put the network's graph beside its scores, which the page then paints; scores stand without it."""
    from ..storage.codec import encode_graph
    from ..tracing.run import trace

    try:
        with quiet(model):
            args, kwargs = arguments(model, records.model_input(0, 1))
            graph = trace(model, args, kwargs, save="none").graph
        database.put_graph(run, name, encode_graph(graph))
    except Exception:
        _log.warning("The graph of %s could not be recorded; its scores are stored.", name, exc_info=True)


def _one(
    model: Any,
    name: str,
    units: Any,
    records: Records,
    labels: Labels,
    scores: Sequence[Score],
    batch: int,
    seed: int,
    units_axis: int | None,
    progress: bool,
) -> list[tuple[str, ScoreResult]]:
    """Every reading of one model, with its address."""
    operations = for_model(model).operations(model)
    groups = resolve(units, operations, name)
    feeds = [BlockFeed(group, scores, seed, _SAMPLES // len(groups)) for group in groups]
    addresses = list(dict.fromkeys(group.address for group in groups))
    named, layouts = {operation.address: operation for operation in operations}, {}
    began = time.monotonic()
    for start, found, outputs in behaviours(model, addresses, records, batch):
        given = labels.of(start, partial(records.block, start, batch))
        done = min(start + batch, len(records))
        for address, array in found.items():
            if address not in layouts:
                layouts[address] = decide(address, outputs, named, done - start, units_axis)
            found[address] = layouts[address].apply(array, done - start, address)
        for feed in feeds:
            feed.update(found[feed.group.address], given, labels.ragged, start)
        if progress:
            took = time.monotonic() - began
            print(f"\r{name}: {done} of {len(records)} records, {took:.0f} s", end="", file=sys.stderr)
    if progress:
        print(file=sys.stderr)
    return [(feed.group.address, reading) for feed in feeds for reading in feed.result()]


def _table(readings: list[tuple[str, ScoreResult]], run: str, model: str, epoch: float) -> Results:
    count = len(readings)
    columns: dict[str, Any] = {
        "run": [run] * count,
        "model": [model] * count,
        "epoch": [epoch] * count,
        "address": [address for address, _ in readings],
    }
    for name in ScoreResult._fields:
        columns[name] = [getattr(reading, name) for _, reading in readings]
    return Results(columns)


def _apart(table: Results) -> Results:
    """For the store: scores of layers of a kind of their own, so that those of a training run stay."""
    kinds = np.where(table["unit"] == -1, "inspect", table["kind"])
    return Results({name: table[name] for name in COLUMNS} | {"kind": kinds})


def _tidy(results: Results) -> pandas.DataFrame:
    """The table without columns that say nothing."""
    frame = results.to_pandas()
    says = [
        name
        for name, missing in COLUMNS.items()
        if name in _ALWAYS
        or (frame[name].notna().any() if missing != missing else (frame[name] != missing).any())
    ]
    return frame[says]
