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
from ..core.errors import InputError, did_you_mean, require
from ..core.graph import Graph
from ..core.results import COLUMNS, Results
from ..core.units import UnitAxes
from ..scores import Score, Scorer, ScoreResult
from ..scores.multiple import false_discovery_rates
from ..storage.codec import encode_graph
from .axes import arrange, batch_axis
from .behaviours import Inputs, Records, behaviours, record_graph
from .feed import BlockFeed
from .hypotheses import Labels, as_hypotheses
from .models import as_checkpoints
from .observations import Observations, confounders_of, groups_of, types_of
from .places import places_of
from .units import UnitGroup, resolve

if TYPE_CHECKING:
    import pandas

_SAMPLES = 512 << 20  # bytes of all samples together
#: The columns of the table that ``inspect`` returns.
_TABLE: tuple[str, ...] = ("run", "model", "epoch", "address", "unit", "target", "score")
_TABLE += ("value", "low", "high", "baseline", "p", "q", "n", "note")


def inspect(
    models: Any,
    hypotheses: Any,
    scores: Any,
    data: Any,
    units: Any = None,
    *,
    groups: Any = None,
    types: Any = None,
    given: str | Sequence[str] = (),
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
            text (``"0,4:8"``). ``"act[:@1]"`` names the axis of the units where it is not known. A third
            place, ``(layer, units, ["ink"])``, names the hypotheses that these units are scored for. Default:
            all units of all layers with parameters, for all hypotheses.
        groups: What records belong to, such as a document, an episode or a subject: an id per record, or a
            function of a record. Records of a group are held out together, and intervals and p-values count
            groups, not records. Default: each record is a group of its own.
        types: What each symbol is an instance of, such as its word: an array or a function of a record, as a
            hypothesis. ``linear_selectivity`` needs it, whose control task has a random label for each type.
            Default: None.
        given: The names of hypotheses that are confounders. ``correlation`` is then partial: that of what
            these leave of a unit and of a hypothesis, with the note ``given …``. Default: none.
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
        with the labels of other records), ``p`` (two-sided, of no dependence; NaN for a score without a
        test), ``q`` (the false discovery rate if all rows with at most this p count as found; Benjamini and
        Hochberg 1995, over the whole table), ``n`` (the number of rows), ``note``, ``run`` and ``epoch``.

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
    confounders = confounders_of(given, labels.hypotheses)
    observed = Observations(groups_of(groups, records), types_of(types, len(records)), confounders)
    requested = Scorer(scores, seed=seed).scores
    needy = [score.name for score in requested if score.per != "layer"]
    if not labels.hypotheses and needy:
        raise InputError(f"There are no hypotheses, but the score {needy[0]!r} needs one.")
    if confounders and [score.name for score in requested] != ["correlation"]:
        other = next(score.name for score in requested if score.name != "correlation")
        raise InputError(
            f"given={given!r} holds confounders fixed for the score 'correlation' only, got {other!r}. Ask "
            "for the other scores in a call without given."
        )
    database = _open(store)
    run = run if run is not None else time.strftime("inspect %Y-%m-%d %H:%M:%S") if store else ""
    tables: list[Results] = []
    p_values: list[float] = []
    counts: list[int] = []  # the rows of each group of units
    try:
        for checkpoint in checkpoints:
            name, model = checkpoint.open()
            graph = record_graph(model, for_model(model), records)
            results, rows = _inspect_model(
                model, name, graph, units, records, labels, observed, requested, batch, seed, progress
            )
            tables.append(_table(results, run, name, checkpoint.epoch))
            p_values += [result.p for _, result in results]
            counts += rows
            if database is not None:
                infos = [info for score in requested for info in score.infos]
                database.add(_for_database(tables[-1]), infos)
                if graph is not None and database.graph(run, name) is None:
                    database.put_graph(run, name, encode_graph(graph))
            del model  # free it before the next is loaded
    finally:
        if database is not None:
            database.close()
    frame = _frame(Results.concat(tables), np.array(p_values))
    frame.attrs["rows"] = counts
    return frame


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
    observed: Observations,
    scores: Sequence[Score],
    batch: int,
    seed: int,
    progress: bool,
) -> tuple[list[tuple[str, ScoreResult]], list[int]]:
    """Return the results of one model, each with its address, and how many each group of units has.

    ``graph`` is None if it is not known.
    """
    backend = for_model(model)
    operations = backend.operations(model)
    axes = None if graph is None else UnitAxes(graph)
    if graph is None:
        graph = modules_graph(backend, name, operations)
    groups = resolve(units, graph, operations, backend)
    known = [hypothesis.name for hypothesis in labels.hypotheses]
    for name in [name for group in groups for name in group.hypotheses or ()]:
        if name not in known:
            raise InputError(f"units names the hypothesis {name!r}. {did_you_mean(name, known)}")
    places = {group: None if axes is None else places_of(graph, group.row) for group in groups}
    feeds = [BlockFeed(group, scores, seed, _SAMPLES // len(groups), places[group]) for group in groups]
    addresses = list(dict.fromkeys(group.address for group in groups))
    layouts: dict[UnitGroup, tuple[int, int]] = {}  # the axis of the records, and that of the units
    began = time.monotonic()
    for start, outputs in behaviours(model, backend, addresses, records, batch):
        block = partial(records.block, start, batch)
        block_labels, block_types = labels.of(start, block), observed.types_of_block(start, block)
        done = min(start + batch, len(records))
        block_groups = None if observed.groups is None else observed.groups[start:done]
        for feed in feeds:
            group, output = feed.group, outputs[feed.group.address]
            if group not in layouts:
                shape = output.array.shape
                by_kind = backend.unit_axis(output.operation, shape)
                units_axis = group.unit_axis(axes, by_kind, shape)
                records_axis = batch_axis(group.address, shape, done - start, units_axis, output.batch_axis)
                layouts[group] = records_axis, units_axis
            array = arrange(output.array, done - start, *layouts[group], group.address)
            images = partial(records.images, start)
            feed.update(
                array,
                block_labels,
                labels.ragged,
                start,
                images,
                block_groups,
                block_types,
                observed.confounders,
            )
        if progress:
            took = time.monotonic() - began
            print(f"\r{name}: {done} of {len(records)} records, {took:.0f} s", end="", file=sys.stderr)
    if progress:
        print(file=sys.stderr)
    results = [[(feed.group.address, result) for result in feed.result()] for feed in feeds]
    return [pair for part in results for pair in part], [len(part) for part in results]


def _table(results: list[tuple[str, ScoreResult]], run: str, model: str, epoch: float) -> Results:
    count = len(results)
    columns: dict[str, Any] = {
        "run": [run] * count,
        "model": [model] * count,
        "epoch": [epoch] * count,
        "address": [address for address, _ in results],
    }
    for name in set(ScoreResult._fields) & COLUMNS.keys():
        columns[name] = [getattr(result, name) for _, result in results]
    return Results(columns)


def _for_database(table: Results) -> Results:
    """Give scores of whole layers the kind ``inspect``, so that they do not replace a training run's."""
    kinds = np.where(table["unit"] == -1, "inspect", table["kind"])
    return Results({name: table[name] for name in COLUMNS} | {"kind": kinds})


def _frame(results: Results, p: np.ndarray) -> pandas.DataFrame:
    """Return the table with p-values, and with q-values over all of its rows."""
    frame = results.to_pandas()
    frame["p"], frame["q"] = p, false_discovery_rates(p)
    return frame[list(_TABLE)]
