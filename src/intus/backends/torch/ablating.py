"""Recompute a forward pass with units replaced by numbers, through ``intus.trace`` and its rerun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from ...core.errors import AddressError, did_not_run
from ...core.selection import main_rows
from ..ablating import Ablations
from .captured_tensor import to_numpy


def ablate(
    model: nn.Module, inputs: Any, address: str, axis: int, changes: Sequence[Mapping[int, float]]
) -> Ablations:
    """Run a module once, and the rest of the pass for each change; see ``backends.ablating.Ablates``."""
    from ...tracing.front_door import Arguments
    from ...tracing.run import trace

    if isinstance(inputs, Mapping):
        arguments = Arguments((), dict(inputs))
    else:
        arguments = Arguments(inputs if isinstance(inputs, tuple) else (inputs,), {})
    unchanged = trace(model, arguments, kwargs={})
    rows = main_rows(unchanged.graph, address)
    if not rows:
        raise AddressError(did_not_run(address))
    label = unchanged.graph.label(rows[0])
    outputs = [_outputs(unchanged)]
    for change in changes:
        to: dict[Any, Any] = {f"{label}[{unit}@{axis}]": value for unit, value in change.items()}
        outputs.append(_outputs(unchanged.rerun(to)))
    return Ablations(unchanged.graph, outputs)


def _outputs(trace: Any) -> list[np.ndarray]:
    return [to_numpy(op.value.detach()) for op in trace.outputs]
