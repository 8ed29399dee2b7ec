"""Score concepts by TCAV: a pass over the records of its own, which reads units and their gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...backends.base import for_model
from ...core.errors import CaptureError, InputError, IntusError
from ...core.probes_disabled import probes_disabled
from ...engines import Engine
from ...scores import ScoreColumns, ScoreResult
from ..alignment.axes import arrange
from ..plan import Block, Plan
from ..reading import Behavior, GradientReader
from ..reading.tcav import NAME, per_record, score
from .engine import spread
from .model_pass import ModelPass


class _Sensitivity(NamedTuple):
    """The units of each layer in one block of records, and the derivatives of the class along them.

    Attributes:
        layers: The units and the derivatives of each group of units, both (records, units); None for a group
            that is left out.
        left_out: The reason why each group of units is left out; None for one that is not.
        of_class: Whether each record is predicted as the class, (records,).
    """

    layers: list[tuple[np.ndarray, np.ndarray] | None]
    left_out: list[IntusError | None]
    of_class: np.ndarray


class _Concepts:
    """The labels and groups of the records, collected while their blocks are read."""

    def __init__(self) -> None:
        self._labels: dict[str, list[np.ndarray]] = {}
        self._groups: list[np.ndarray] = []

    def of(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks after their labels are collected; raises InputError for labels of another kind."""
        for block in blocks:
            for name, column in block.labels.items():
                if column.ndim != 1 or column.dtype.kind not in "fiub":
                    raise InputError(
                        f"tcav needs one label 0 or 1 per record, but the hypothesis {name!r} gives "
                        f"labels of shape {column.shape[1:]} and dtype {column.dtype}."
                    )
                self._labels.setdefault(name, []).append(column.astype(float))
            if block.groups is not None:
                self._groups.append(block.groups)
            yield block

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """The labels of all records, (records,), by the name of the concept."""
        return {name: np.concatenate(parts) for name, parts in self._labels.items()}

    @property
    def groups(self) -> np.ndarray | None:
        """The group of each record; None if each is a group of its own."""
        return np.concatenate(self._groups) if self._groups else None


def concept_rows(
    model_pass: ModelPass,
    blocks: Iterable[Block],
    plan: Plan,
    behavior: Behavior,
    engine: Engine | None,
    show: Callable[[int], Any],
) -> tuple[np.ndarray, ScoreColumns, np.ndarray]:
    """Return the TCAV scores of every hypothesis in every layer.

    Args:
        model_pass: The model with its units.
        blocks: The records.
        plan: What is asked.
        behavior: The gradient of the class.
        engine: What runs the model; None for this process.
        show: Called with the number of records that were read so far.

    Returns:
        The address of each row, the rows, and the number of the group of units of each.

    Raises:
        InputError: If a hypothesis has no label 0 or 1 per record.
        CaptureError: If the model has no gradients.
    """
    if based := [feed.group for feed in model_pass.feeds if feed.group.basis is not None]:
        raise InputError(f"tcav is of the units of a layer, not of {based[0].shown!r}. Name the layer alone.")
    concepts = _Concepts()
    parts: list[_Sensitivity] = []
    for part in _read_all(model_pass, concepts.of(blocks), behavior, engine, len(plan.order())):
        for feed, why in zip(model_pass.feeds, part.left_out, strict=True):
            with model_pass.optional(feed):
                if why is not None and feed.left_out is None:
                    raise why
        parts.append(part)
        show(sum(len(one.of_class) for one in parts))
    of_class, groups = np.concatenate([part.of_class for part in parts]), concepts.groups
    found, addresses, numbers = [], [], []
    for number, feed in enumerate(model_pass.feeds):
        if feed.left_out is not None:
            results = [ScoreResult(NAME, math.nan, note=f"left out: {feed.left_out}")]
        else:
            arrays = zip(*(part.layers[number] or () for part in parts), strict=True)
            units, slopes = (np.concatenate(array) for array in arrays)
            results = [
                score(units, slopes, labels, of_class, groups, name, plan.seed)
                for name, labels in feed.group.labels(concepts.labels).items()
            ]
        found += results
        addresses += [feed.group.shown] * len(results)
        numbers += [number] * len(results)
    return np.array(addresses, dtype=object), ScoreColumns.of(found), np.array(numbers)


def _read_all(
    model_pass: ModelPass, blocks: Iterator[Block], behavior: Behavior, engine: Engine | None, count: int
) -> Iterator[_Sensitivity]:
    """Yield the sensitivity of each block, here or by an engine, in order."""
    if engine is None:
        yield from _read(blocks, model_pass, behavior)
        return
    # The first block is run here, because it determines the layout of every output.
    yield from _read(itertools.islice(blocks, 1), model_pass, behavior)
    for _, answer in spread(blocks, _read_in_worker, (model_pass.empty(), behavior), engine, count):
        yield from answer


def _read_in_worker(blocks: list[Block], model_pass: ModelPass, behavior: Behavior) -> list[_Sensitivity]:
    """Return the sensitivity of each of some blocks."""
    return list(_read(blocks, model_pass.empty(), behavior))


def _read(blocks: Iterable[Block], model_pass: ModelPass, behavior: Behavior) -> Iterator[_Sensitivity]:
    """Run the model over blocks and yield the sensitivity of each."""
    model, backend, feeds = model_pass.model, for_model(model_pass.model), model_pass.feeds
    rows = {feed.group.address: feed.group.row for feed in feeds if feed.left_out is None}
    with probes_disabled(), backend.evaluation(model):
        reader = GradientReader(backend, model, model_pass.graph, rows, {}, behavior)
        for block in blocks:
            values, gradients, of_class = reader.sensitivity(
                backend.inputs(model, block.inputs), block.numbers
            )
            layers: list[tuple[np.ndarray, np.ndarray] | None] = [None] * len(feeds)
            for number, feed in enumerate(feeds):
                with model_pass.optional(feed):
                    if feed.left_out is not None:
                        continue
                    address = feed.group.address
                    if address not in values:
                        raise CaptureError(f"{address!r} did not run for record {block.numbers[0]}.")
                    layout = model_pass.layout(feed.group, values[address], backend, len(block))
                    value, slope = (
                        arrange(one[address].array, len(block), *layout, address)
                        for one in (values, gradients)
                    )
                    picked = feed.group.pick(value.shape[1])
                    layers[number] = (
                        per_record(value, block.padding, total=False)[:, picked],
                        per_record(slope, block.padding, total=True)[:, picked],
                    )
            yield _Sensitivity(layers, [feed.left_out for feed in feeds], of_class)
