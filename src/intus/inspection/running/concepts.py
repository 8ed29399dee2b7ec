"""Score concepts by TCAV: a pass over the records of its own, which reads units and their gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ...backends.base import for_model
from ...core.errors import CaptureError, InputError
from ...core.probes_disabled import probes_disabled
from ...scores import ScoreColumns, ScoreResult
from ..alignment.axes import arrange
from ..plan import Block, Plan
from ..reading import Behavior, GradientReader
from ..reading.tcav import NAME, per_record, score
from .model_pass import ModelPass


def concept_rows(
    model_pass: ModelPass, blocks: Iterable[Block], plan: Plan, behavior: Behavior
) -> tuple[np.ndarray, ScoreColumns]:
    """Return the TCAV scores of every hypothesis in every layer, and the address of each.

    Args:
        model_pass: The model with its units.
        blocks: The records.
        plan: What is asked.
        behavior: The gradient of the class.

    Raises:
        InputError: If a hypothesis has no label 0 or 1 per record.
        CaptureError: If the model has no gradients.
    """
    backend, groups = (
        for_model(model_pass.model),
        [feed.group for feed in model_pass.feeds if feed.left_out is None],
    )
    if based := [group for group in groups if group.basis is not None]:
        raise InputError(f"tcav is of the units of a layer, not of {based[0].shown!r}. Name the layer alone.")
    rows = {group.address: group.row for group in groups}
    parts: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in groups]
    labels: dict[str, list[np.ndarray]] = {}
    chosen, members = [], []
    with probes_disabled(), backend.evaluation(model_pass.model):
        reader = GradientReader(backend, model_pass.model, model_pass.graph, rows, {}, behavior)
        for block in blocks:
            inputs = backend.inputs(model_pass.model, block.inputs)
            values, gradients, predicted = reader.sensitivity(inputs, block.numbers)
            chosen.append(predicted)
            members.append(block.numbers if block.groups is None else block.groups)
            for group, part in zip(groups, parts, strict=True):
                if group.address not in values:
                    raise CaptureError(f"{group.address!r} did not run for record {block.numbers[0]}.")
                layout = model_pass.layout(group, values[group.address], backend, len(block))
                arrays = [
                    arrange(one[group.address].array, len(block), *layout, group.address)
                    for one in (values, gradients)
                ]
                picked = group.pick(arrays[0].shape[1])
                part.append(
                    (
                        per_record(arrays[0], block.padding, total=False)[:, picked],
                        per_record(arrays[1], block.padding, total=True)[:, picked],
                    )
                )
            for name, column in block.labels.items():
                if column.ndim != 1 or column.dtype.kind not in "fiub":
                    raise InputError(
                        f"tcav needs one label 0 or 1 per record, but the hypothesis {name!r} gives "
                        f"labels of shape {column.shape[1:]} and dtype {column.dtype}."
                    )
                labels.setdefault(name, []).append(column.astype(float))
    of_class, ids = np.concatenate(chosen), np.concatenate(members)
    found, addresses = [], []
    for group, part in zip(groups, parts, strict=True):
        units, slopes = (np.concatenate(arrays) for arrays in zip(*part, strict=True))
        for name, columns in labels.items():
            grouped = ids if plan.observed.groups is not None else None
            column = np.concatenate(columns)
            found.append(score(units, slopes, column, of_class, grouped, name, plan.seed))
            addresses.append(group.shown)
    for feed in model_pass.feeds:
        if feed.left_out is not None:
            found.append(ScoreResult(NAME, math.nan, note=f"left out: {feed.left_out}"))
            addresses.append(feed.group.shown)
    return np.array(addresses, dtype=object), ScoreColumns.of(found)
