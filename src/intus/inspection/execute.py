"""``inspect``: one pass over the data per model, shared by all hypotheses, scores and units."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.base import Operation, for_model
from ..core.address import Address
from ..core.errors import InputError, require
from ..core.results import COLUMNS, Results
from ..scores import Reading, Score, Scorer
from . import align
from .behaviours import Inputs, Records, arguments, behaviours, quiet
from .hypotheses import Labels, as_hypotheses
from .models import as_checkpoints
from .units import UnitGroup, resolve

if TYPE_CHECKING:
    import pandas

_SAMPLES = 512 << 20  # bytes of all samples together
_CHUNK = 64 << 20  # bytes of behaviours brought onto a grid at once
_CHANNELS_SECOND = re.compile(r"Conv(Transpose)?[123]d|BatchNorm|InstanceNorm|GroupNorm|Pool")
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
    ``run``         under this name, by default one with the time

    Models run in evaluation mode without gradients, ``batch`` records at a time, and are left as they were.
    Maps are resized to the labels' grid; layers without positions answer labels of whole records. Low and
    high bound a 95 % interval over records; the baseline is what hypotheses of other records reach;
    unit -1 is the layer as a whole. Raises InputError or AddressError where the parts do not fit.
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
            readings = _one(model, name, units, records, labels, wished, batch, seed, progress)
            tables.append(_table(readings, run, name, checkpoint.epoch))
            if database is not None:
                database.add(tables[-1])
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
    progress: bool,
) -> list[tuple[str, Reading]]:
    """Every reading of one model, with its address."""
    operations = for_model(model).operations(model)
    groups = resolve(units, operations, name)
    feeds = [_Feed(group, operations, scores, seed, _SAMPLES // len(groups)) for group in groups]
    addresses = list(dict.fromkeys(group.address for group in groups))
    began = time.monotonic()
    for start, found in behaviours(model, addresses, records, batch):
        given = labels.of(start, partial(records.block, start, batch))
        done = min(start + batch, len(records))
        for feed in feeds:
            feed.update(found[feed.group.address], given, labels.ragged, start, done - start)
        if progress:
            took = time.monotonic() - began
            print(f"\r{name}: {done} of {len(records)} records, {took:.0f} s", end="", file=sys.stderr)
    if progress:
        print(file=sys.stderr)
    return [(feed.group.address, reading) for feed in feeds for reading in feed.result()]


class _Feed:
    """One group of units, and a scorer for each grid of labels that hypotheses give."""

    def __init__(
        self, group: UnitGroup, operations: Sequence[Operation], scores: Sequence[Score], seed: int, room: int
    ) -> None:
        self.group, self.scores, self.seed, self.room = group, scores, seed, room
        name = str(Address(Address.parse(group.address).name))
        layer = next(operation for operation in operations if operation.address == name)
        self.layer = layer
        self.time_first = getattr(layer.module, "batch_first", True) is False
        self.picked, self.count = np.empty(0, dtype=np.int64), 0
        self.scorers: dict[Any, Scorer] = {}

    def update(
        self, array: np.ndarray, labels: dict[str, np.ndarray], ragged: set[str], start: int, count: int
    ) -> None:
        """Add what the layer gave for a block of records, and their labels by hypothesis."""
        array = align.units_second(
            array,
            count,
            self.group.address,
            last=_units_last(self.layer, array.shape),
            time_first=self.time_first,
        )
        self.count = array.shape[1]
        self.picked = self.group.pick(self.count)
        array = array[:, self.picked]
        shapes: dict[Any, dict[str, np.ndarray]] = {} if labels else {0: {}}
        for name, column in labels.items():
            if name in ragged and array.ndim == 3 and column.shape[1] < array.shape[2]:
                column = align.fill(column, array.shape[2])
            key = column.shape[1:] if column.ndim > 2 else column.ndim - 1
            shapes.setdefault(key, {})[name] = column
        for key, columns in shapes.items():
            self._add(self._scorer(key, len(shapes)), array, columns, start)

    def _scorer(self, key: Any, grids: int) -> Scorer:
        """The scorer of one grid; scores of the layer alone are taken on the first grid only."""
        if key not in self.scorers:
            some = [s for s in self.scores if not self.scorers or s.per != "layer"]
            self.scorers[key] = Scorer(some, seed=self.seed, sample_bytes=max(self.room // grids, 1 << 20))
        return self.scorers[key]

    def _add(self, scorer: Scorer, array: np.ndarray, columns: dict[str, np.ndarray], start: int) -> None:
        """In chunks, since a small map on a large grid takes much room."""
        first = next(iter(columns), "")
        grid = columns[first].shape[1:] if columns else ()
        symbols = int(np.prod(grid)) if grid else 1
        size = max(1, _CHUNK // (4 * max(1, symbols * array.shape[1])))
        for at in range(0, len(array), size):
            part = slice(at, at + size)
            aligned = align.onto(array[part], grid, self.group.address, first)
            items = np.repeat(np.arange(start + at, start + at + len(aligned)), symbols)
            flat = {name: column[part].reshape(-1) for name, column in columns.items()}
            scorer.update(align.rows(aligned), flat, items)

    def result(self) -> list[Reading]:
        """All readings, units by their own numbers, in their order."""
        found = [reading for scorer in self.scorers.values() for reading in scorer.result()]
        found = [self._renamed(reading) for reading in found]
        order = {unit: place for place, unit in enumerate([-1, *self.picked.tolist()])}
        return sorted(found, key=lambda reading: order[reading.unit])

    def _renamed(self, reading: Reading) -> Reading:
        """With the unit's own number; a reading of the layer says when it is of some units only."""
        if reading.unit >= 0:
            return reading._replace(unit=int(self.picked[reading.unit]))
        if len(self.picked) < self.count:
            some = f"{len(self.picked)} of {self.count} units"
            return reading._replace(note=f"{reading.note}, {some}" if reading.note else some)
        return reading


def _units_last(layer: Operation, shape: tuple[int, ...]) -> bool | None:
    """Whether a layer's units are the last axis of what it gives, None where its kind does not tell."""
    if _CHANNELS_SECOND.search(layer.type):
        return False
    for name in ("out_features", "embedding_dim", "normalized_shape"):
        size = getattr(layer.module, name, None)
        if size is not None:
            return shape[-1:] == (size if isinstance(size, tuple) else (size,))
    return None


def _table(readings: list[tuple[str, Reading]], run: str, model: str, epoch: float) -> Results:
    count = len(readings)
    columns: dict[str, Any] = {
        "run": [run] * count,
        "model": [model] * count,
        "epoch": [epoch] * count,
        "address": [address for address, _ in readings],
    }
    for name in Reading._fields:
        columns[name] = [getattr(reading, name) for _, reading in readings]
    return Results(columns)


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
