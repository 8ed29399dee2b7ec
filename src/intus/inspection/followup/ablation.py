"""Replace a unit by its mean and measure the effect on the model's output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.ablating import Ablates
from ...backends.base import Backend, for_model
from ...core.errors import CaptureError, InputError
from ...core.probes_disabled import probes_disabled
from ...scores.statistics.jackknife import LEAST_GROUPS, leave_one_out
from ..plan import Block
from ..reading import TracedRows
from .estimate import Estimate, estimates
from .unit_reader import UnitReader, annotated

#: ``metric(output, records)`` returns one number per record, or one per symbol.
Metric = Callable[[Any, list[Any]], Any]

_OTHERS = 20  # random units that the unit is compared with


@dataclass(frozen=True, slots=True)
class Ablation:
    """The effect of replacing a unit by its mean.

    Attributes:
        effect: The mean effect where the hypothesis holds less that where it does not.
        holds: The mean effect where it holds.
        lacks: The mean effect where it does not.
        anywhere: The mean effect.
        mean: The mean that replaced the unit.
        others: The ``effect`` of other units of the layer, chosen at random.
        p: The share of these and the unit itself whose ``effect`` is at least as far from 0.
        p_anywhere: The share whose mean effect is at least as far from 0.
        note: The reason why there are no intervals; ``""`` if there are.
    """

    effect: Estimate
    holds: Estimate
    lacks: Estimate
    anywhere: Estimate
    mean: float
    others: np.ndarray
    p: float
    p_anywhere: float
    note: str = ""


def ablate(reader: UnitReader, metric: Metric | None, records: int, seed: int) -> Ablation:
    """Replace the unit by its mean, and other units by theirs; see ``Inspection.verify``.

    Args:
        reader: The units of the row's layer.
        metric: Returns one number per record from the output and the records; None for the length of the
            change relative to the mean length of the output.
        records: The number of records to run.
        seed: The seed of the choice of records and of other units.

    Raises:
        InputError: If labels are not 0 and 1, or ``metric`` returns something else.
        CaptureError: If the backend cannot ablate, or the pass cannot be changed.
    """
    if reader.feed.group.basis is not None:
        raise InputError(
            f"The units of {reader.row.address!r} are computed from a layer and cannot be replaced."
        )
    reader = reader.of_activations()
    backend = for_model(reader.model)
    if not isinstance(backend, Ablates):
        raise CaptureError(
            f"The backend {backend.name!r} cannot run a pass with a changed unit; that of PyTorch can."
        )
    random = np.random.default_rng(seed)
    means, chosen = _means_and_records(reader, records, random)
    rest = np.delete(np.arange(reader.units), reader.row.unit)
    others = random.permutation(rest)[:_OTHERS]
    units = [reader.row.unit, *others.tolist()]
    changes = [{unit: float(means[unit])} for unit in units]
    sums = _Sums()
    with probes_disabled(), backend.evaluation(reader.model):
        for at in range(0, len(chosen), reader.plan.batch):
            block = reader.plan.block(chosen[at : at + reader.plan.batch])
            inputs = backend.inputs(reader.model, block.inputs)
            made = backend.ablate(reader.model, inputs, reader.row.address, reader.axis, changes)
            _check(reader, backend, made.graph)
            sums.add(block, reader.row.target, *_effects(reader, made.outputs, block, metric))
    return sums.compared(reader.plan.observed.groups, float(means[reader.row.unit]))


def _check(reader: UnitReader, backend: Backend, graph: Any) -> None:
    """Raise CaptureError if an operation's label means another operation in this pass."""
    group = reader.feed.group
    if group.operation and reader.model_pass.graph is not None:
        rows = {group.address: group.row}
        TracedRows(backend, reader.model, reader.model_pass.graph, rows).check(graph)


def _means_and_records(
    reader: UnitReader, count: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each unit over the data, and records: half of them with the hypothesis, if possible.

    Positions beyond the labels of a shorter sequence do not count.
    """
    total, number = np.zeros(reader.units), 0.0
    holds: list[np.ndarray] = []
    lacks: list[np.ndarray] = []
    with reader.reading() as read:
        for block in reader.plan.blocks():
            array = read(block)
            labels = block.labels[reader.row.target]
            _require_binary(labels, reader.row.target)
            counts = _counted(reader, block, array)
            counts = counts.reshape(len(block), 1, *counts.shape[1:], *(1,) * (array.ndim - 1 - counts.ndim))
            total += np.where(counts, array, 0).sum(axis=(0, *range(2, array.ndim)), dtype=float)
            number += np.broadcast_to(counts, (len(block), 1, *array.shape[2:])).sum()
            has = (labels == 1).reshape(len(block), -1).any(axis=1)
            known = annotated(labels).reshape(len(block), -1).any(axis=1)
            holds.append(block.numbers[has])
            lacks.append(block.numbers[known & ~has])
    first, second = (random.permutation(np.concatenate(part)) for part in (holds, lacks))
    half = count // 2
    take = max(half, count - len(second))
    chosen = np.concatenate([first[:take], second[: max(half, count - len(first))]])[:count]
    return total / number, np.sort(chosen)


def _counted(reader: UnitReader, block: Block, array: np.ndarray) -> np.ndarray:
    """Return which positions are no padding, (records, positions); or (records,) if none is."""
    labels = block.labels[reader.row.target]
    if block.symbols is not None and array.ndim == 3:
        index = block.symbols.index.reshape(len(block), -1)
        used = np.zeros((len(block), array.shape[2] + 1), dtype=bool)
        np.put_along_axis(used, index, True, axis=1)  # -1, of no position, is the last column
        return used[:, :-1]
    if labels.ndim == 2 and reader.row.target in reader.plan.labels.ragged:
        return annotated(reader.filled(labels, array, block))
    mask = block.padding.masked(array.shape[2]) if array.ndim == 3 else None
    if mask is not None:
        return mask
    return np.ones(len(block), dtype=bool)


def _require_binary(labels: np.ndarray, target: str) -> None:
    known = labels[annotated(labels)]
    if known.dtype.kind not in "fiub" or not np.isin(known, (0, 1)).all():
        raise InputError(
            f"The labels of {target!r} are not 0 and 1, so the effect cannot be compared between where it "
            "holds and where it does not."
        )


def _effects(
    reader: UnitReader, outputs: list[list[np.ndarray]], block: Block, metric: Metric | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the effects of the ablations, (ablations, records, …grid), and the sizes of the outputs."""
    if metric is None:
        first = [arrays[0].astype(float) for arrays in outputs]
        grid = block.labels[reader.row.target].shape[1:]
        if first[0].ndim == 0 or len(first[0]) != len(block):
            raise InputError(
                f"The model's output has shape {first[0].shape} for {len(block)} records. Pass metric=, a "
                "function (output, records) that returns one number per record."
            )
        ragged = len(grid) == 1 and reader.row.target in reader.plan.labels.ragged
        of_symbols = (
            bool(grid)
            and block.symbols is None
            and (
                first[0].shape[1 : 1 + len(grid)] == grid
                or (ragged and first[0].ndim > 1 and first[0].shape[1] >= grid[0])
            )
        )
        if of_symbols:
            first = [array[tuple(slice(size) for size in (len(block), *grid))] for array in first]
        axes = tuple(range(1 + len(grid) if of_symbols else 1, first[0].ndim))
        size = np.sqrt((first[0] ** 2).sum(axis=axes))
        change = np.stack([np.sqrt(((array - first[0]) ** 2).sum(axis=axes)) for array in first[1:]])
        return change, size
    records = reader.plan.records.block(block.numbers)
    numbers = []
    for arrays in outputs:
        one = np.asarray(metric(arrays[0] if len(arrays) == 1 else arrays, records), dtype=float)
        shapes = (len(block),), block.labels[reader.row.target].shape
        if one.shape not in shapes:
            raise InputError(
                f"metric= must return one number per record, of shape {shapes[0]}, got shape {one.shape}."
            )
        numbers.append(one)
    return np.stack(numbers[1:]) - numbers[0], np.ones(len(block))


class _Sums:
    """The sums of effects by record, where the hypothesis holds and where it does not."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []
        self._numbers: list[np.ndarray] = []
        self._size = np.zeros(2)

    def add(self, block: Block, target: str, effects: np.ndarray, sizes: np.ndarray) -> None:
        """Add the effects of a block, (ablations, records, …grid or nothing), and the sizes of outputs.

        Effects are divided by the mean size of all records, because that of one record may be near 0.
        """
        self._size += sizes.sum(), sizes.size
        labels = block.labels[target].reshape(len(block), -1)
        if effects.ndim == 2:  # one effect per record: the hypothesis holds in it, or nowhere in it
            known = annotated(labels).any(axis=1, keepdims=True)
            labels = np.where(known, (labels == 1).any(axis=1, keepdims=True), np.nan)
        effects = effects.reshape(*effects.shape[:2], -1)
        parts = []
        for value in (1, 0):
            chosen = labels == value
            parts += [(effects * chosen).sum(axis=2), np.broadcast_to(chosen.sum(axis=1), effects.shape[:2])]
        self._parts.append(np.stack(parts, axis=-1).swapaxes(0, 1))  # (records, ablations, 4)
        self._numbers.append(block.numbers)

    def compared(self, groups: np.ndarray | None, mean: float) -> Ablation:
        """Return the effects, with intervals over groups."""
        numbers, parts = np.concatenate(self._numbers), np.concatenate(self._parts)
        names, which = np.unique(numbers if groups is None else groups[numbers], return_inverse=True)
        sums = np.zeros((len(names), *parts.shape[1:]))
        np.add.at(sums, which.reshape(-1), parts)
        if self._size[0] > 0:
            sums[..., [0, 2]] /= self._size[0] / self._size[1]
        total = sums.sum(axis=0)
        if not total[0, 1] or not total[0, 3]:
            never, where = ("nowhere", "holds") if not total[0, 1] else ("everywhere", "does not hold")
            raise InputError(
                f"The hypothesis holds {never} in the records, so there is no effect where it {where}. If "
                "the model returns an output for each symbol, let metric= return one number per symbol."
            )

        def means(of: np.ndarray) -> np.ndarray:
            with np.errstate(invalid="ignore", divide="ignore"):
                holds, lacks = of[..., 0] / of[..., 1], of[..., 2] / of[..., 3]
                anywhere = (of[..., 0] + of[..., 2]) / (of[..., 1] + of[..., 3])
            return np.stack([holds - lacks, holds, lacks, anywhere], axis=-1)

        value = means(total)
        n = (int(total[0, 1]), int(total[0, 3]))
        without = means(leave_one_out(sums[:, 0], axis=0))
        effect, holds, lacks, anywhere = estimates(value[0], without, (sum(n), *n, sum(n)))
        as_far = (np.abs(value) >= np.abs(value[0])).mean(axis=0)  # the unit itself counts
        p, p_anywhere = float(as_far[0]), float(as_far[3])
        note = ""
        if not np.isfinite(effect.low):
            note = (
                f"no intervals: {LEAST_GROUPS} records, or groups of them, are needed where the hypothesis "
                "holds and where it does not."
            )
        return Ablation(effect, holds, lacks, anywhere, mean, value[1:, 0], p, p_anywhere, note)
