"""Inspect models: the function ``inspect``, one pass over the data per model."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.base import for_model, modules_graph
from ..core.errors import InputError, require
from ..core.graph import Graph
from ..core.results import COLUMNS, Results
from ..core.units import UnitAxes
from ..scores import Score, Scorer, ScoreResult
from ..storage.codec import encode_graph
from .axes import arrange, batch_axis
from .behaviours import Inputs, Records, behaviours, record_graph
from .feed import BlockFeed
from .hypotheses import Labels, as_hypotheses
from .models import as_checkpoints
from .units import UnitGroup, resolve

if TYPE_CHECKING:
    import pandas

_SAMPLES = 512 << 20  # bytes of all samples together
_ALWAYS = {"model", "address", "unit", "target", "score", "value", "low", "high", "baseline", "n"}


def inspect(
    models: Any,
    hypotheses: Any,
    scores: Any,
    data: Any,
    units: Any = None,
    *,
    inputs: Inputs | None = None,
    store: str | Path | None = None,
    run: str | None = None,
    batch: int = 256,
    seed: int = 0,
    progress: bool = False,
) -> pandas.DataFrame:
    """Score how well each unit of a model responds to each hypothesis.

    Models run in evaluation mode without gradients and are restored afterwards. Each model runs over the data
    once, for all hypotheses, scores and units. If labels have positions, maps are resized to their grid,
    which must cover the record: its height and width, or a whole multiple or fraction of both. If there is
    one label per record, behaviors are averaged over the positions. Scores of a whole layer that need no
    labels read its output as it is, one row per record.

    Args:
        models: A model; a list of checkpoints, whose epochs are 0, 1, 2 …; or a dict by epoch or by name.
            Each may be a function without arguments that loads one, so that only one is in memory.
        hypotheses: Functions of one record that return a label for each symbol (pixel, position) or one
            label; or labeled arrays with an entry per record. One, a list, or a dict by name. NaN, or None
            among strings, means not annotated. ``hypothesis`` names a function and declares the kind of its
            labels. May be empty for scores of whole layers.
        scores: Names of scores (``"iou"``, ``"correlation"``, ``"linear_f1"``, see ``intus.scores.names()``),
            scores, functions or scikit-learn estimators; one or a list.
        data: A tensor, an array, or a sequence of records.
        units: A pair ``(layer, units)``, a layer, or a list of these. A layer is an address or pattern
            (``"features.*"``), which may name its units (``"conv2[0,3]"``), or a number that counts the
            layers with parameters from 1. Units are ``"*"`` for all, a number, a slice, a list, a mask, or
            text (``"0,4:8"``). ``"act[:@1]"`` names the axis of the units where it is not known. Default: all
            units of all layers with parameters.
        inputs: Turns a list of records into the model's input: a tensor, a tuple of positional arguments, or
            a mapping of keyword arguments. Default: records are stacked.
        store: Also write the rows and the graph of the model to this database, a path or URL. Default: no.
        run: The name of the run in the database and the table. Default: with ``store`` the current time.
            Under the name of a training run both sets of scores are kept: those of ``inspect`` for whole
            layers have the kind ``"inspect"``.
        batch: The number of records that are run at a time. Default: 256.
        seed: The seed that decides which rows are sampled, held out and shuffled. Default: 0.
        progress: Whether to show the progress on standard error. Default: False.

    Returns:
        A DataFrame with one row per model, unit, hypothesis and score: ``model``, ``address``, ``unit`` (-1
        for the layer as a whole), ``target`` (the hypothesis), ``score``, ``value``, ``low`` and ``high`` (a
        95 % interval over records), ``baseline`` (what the score reaches without knowledge; for most scores,
        with the labels of other records), ``n`` (the number of rows) and, unless they are empty, ``run``,
        ``epoch`` and ``note``.

    Raises:
        InputError: If an argument has an impossible value, or labels and layers do not fit.
        AddressError: If a layer or unit does not exist, or the axis of its units is not known.
        CaptureError: If a layer did not run, or its output cannot be read.
        MissingExtraError: If pandas, or SQLAlchemy for ``store``, is not installed.
        Exception: Whatever a model or hypothesis raised.

    Example:
        >>> net = torch.nn.Linear(2, 3)
        >>> data = torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [3.0, 0.0]])
        >>> table = inspect(net, {"first": lambda record: record[0]}, "correlation", data)
        >>> table[["address", "unit", "target", "score"]].values.tolist()
        [['', 0, 'first', 'correlation'], ['', 1, 'first', 'correlation'], ['', 2, 'first', 'correlation']]

    References:
        Sellam, Lin, Huang, Yang, Vondrick and Wu (2019), "DeepBase: Deep Inspection of Neural Networks",
        SIGMOD: ``inspect(models, hypotheses, scores, data, units)``.
    """
    require("pandas", extra="inspect", why="to return a DataFrame")
    if batch < 1:
        raise InputError(f"batch={batch!r} must be 1 or more.")
    records, checkpoints = Records(data, inputs), as_checkpoints(models)
    labels = Labels(as_hypotheses(hypotheses, len(records)))
    requested = Scorer(scores, seed=seed).scores
    needy = [score.name for score in requested if score.per != "layer"]
    if not labels.hypotheses and needy:
        raise InputError(f"There are no hypotheses, but the score {needy[0]!r} needs one.")
    database = _open(store)
    run = run if run is not None else time.strftime("inspect %Y-%m-%d %H:%M:%S") if store else ""
    tables: list[Results] = []
    try:
        for checkpoint in checkpoints:
            name, model = checkpoint.open()
            graph = record_graph(model, for_model(model), records)
            results = _inspect_model(
                model, name, graph, units, records, labels, requested, batch, seed, progress
            )
            tables.append(_table(results, run, name, checkpoint.epoch))
            if database is not None:
                infos = [info for score in requested for info in score.infos]
                database.add(_for_database(tables[-1]), infos)
                if graph is not None and database.graph(run, name) is None:
                    database.put_graph(run, name, encode_graph(graph))
            del model  # free it before the next is loaded
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


def _inspect_model(
    model: Any,
    name: str,
    graph: Graph | None,
    units: Any,
    records: Records,
    labels: Labels,
    scores: Sequence[Score],
    batch: int,
    seed: int,
    progress: bool,
) -> list[tuple[str, ScoreResult]]:
    """Return the results of one model, each with its address; ``graph`` is None if it is not known."""
    backend = for_model(model)
    operations = backend.operations(model)
    axes = None if graph is None else UnitAxes(graph)
    if graph is None:
        graph = modules_graph(backend, name, operations)
    groups = resolve(units, graph, operations, backend)
    feeds = [BlockFeed(group, scores, seed, _SAMPLES // len(groups)) for group in groups]
    addresses = list(dict.fromkeys(group.address for group in groups))
    layouts: dict[UnitGroup, tuple[int, int]] = {}  # the axis of the records, and that of the units
    began = time.monotonic()
    for start, outputs in behaviours(model, backend, addresses, records, batch):
        block_labels = labels.of(start, partial(records.block, start, batch))
        done = min(start + batch, len(records))
        for feed in feeds:
            group, output = feed.group, outputs[feed.group.address]
            if group not in layouts:
                shape = output.array.shape
                by_kind = backend.unit_axis(output.operation, shape)
                units_axis = group.unit_axis(axes, by_kind, shape)
                records_axis = batch_axis(group.address, shape, done - start, units_axis, output.batch_axis)
                layouts[group] = records_axis, units_axis
            array = arrange(output.array, done - start, *layouts[group], group.address)
            feed.update(array, block_labels, labels.ragged, start, partial(records.images, start))
        if progress:
            took = time.monotonic() - began
            print(f"\r{name}: {done} of {len(records)} records, {took:.0f} s", end="", file=sys.stderr)
    if progress:
        print(file=sys.stderr)
    return [(feed.group.address, result) for feed in feeds for result in feed.result()]


def _table(results: list[tuple[str, ScoreResult]], run: str, model: str, epoch: float) -> Results:
    count = len(results)
    columns: dict[str, Any] = {
        "run": [run] * count,
        "model": [model] * count,
        "epoch": [epoch] * count,
        "address": [address for address, _ in results],
    }
    for name in ScoreResult._fields:
        columns[name] = [getattr(result, name) for _, result in results]
    return Results(columns)


def _for_database(table: Results) -> Results:
    """Give scores of whole layers the kind ``inspect``, so that they do not replace a training run's."""
    kinds = np.where(table["unit"] == -1, "inspect", table["kind"])
    return Results({name: table[name] for name in COLUMNS} | {"kind": kinds})


def _tidy(results: Results) -> pandas.DataFrame:
    """Return the table without the columns that are empty."""
    frame = results.to_pandas()
    informative = [
        name
        for name, missing in COLUMNS.items()
        if name in _ALWAYS
        or (frame[name].notna().any() if missing != missing else (frame[name] != missing).any())
    ]
    return frame[informative]
