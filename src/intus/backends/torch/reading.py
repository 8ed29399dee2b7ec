"""Read any operation of a forward pass through ``intus.trace``, and gradients without touching ``.grad``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...core.errors import CaptureError, InputError
from ..reading import Reading, Target
from .captured_tensor import main_tensor, to_numpy


def read(model: nn.Module, inputs: Any, chosen: Sequence[int | str], target: Target | None = None) -> Reading:
    """Run a module once and read operations; see ``backends.reading.ReadsOperations``."""
    from ...tracing.front_door import Arguments
    from ...tracing.run import trace

    def traced(given: Any, **options: Any) -> Any:
        if isinstance(given, Mapping):
            arguments = Arguments((), dict(given))
        else:
            arguments = Arguments(given if isinstance(given, tuple) else (given,), {})
        return trace(model, arguments, save=list(chosen), kwargs={}, **options)

    if target is None:
        t = traced(inputs)
        values = {row: to_numpy(value.detach()) for row, value in t.values.items()}
        return Reading(t.graph, values, {}, np.zeros(0, bool))
    with torch.inference_mode(False), torch.enable_grad(), all_differentiable(model):
        given = differentiable(inputs)
        t = traced(given, grads=list(chosen))
        # ``torch.autograd.grad`` runs the hooks of the trace, but adds nothing to the parameters' ``.grad``.
        scalars, leaves = numbers(t.output, target), [*_tensors(given), *model.parameters()]
        total = scalars.sum() if target.only is None else scalars[target.only]
        torch.autograd.grad(total, _unique(leaves), allow_unused=True)
        gradients = {row: to_numpy(gradient) for row, gradient in t.gradients.by_row.items()}
        predicted = _predicted(t.output, target)
    values = {row: to_numpy(value.detach()) for row, value in t.values.items()}
    return Reading(t.graph, values, gradients, predicted)


def _predicted(output: Any, target: Target) -> np.ndarray:
    """Return whether the class of the target is the largest output of each record."""
    if not isinstance(target.choice, int):
        return np.ones(target.records, bool)
    logits = _logits(output).detach()
    return to_numpy(logits.argmax(1) == target.choice % logits.shape[1])


def numbers(output: Any, target: Target) -> Tensor:
    """Return the number of each record that gradients are of, (records,).

    Args:
        output: What the model returned.
        target: Which number.

    Raises:
        InputError: If it does not fit the output.
        CaptureError: If it has no gradient.
    """
    records, choice = target.records, target.choice
    if callable(choice):
        chosen = choice(output)
        if not isinstance(chosen, Tensor) or tuple(chosen.shape) not in ((records,), (records, 1)):
            got = f"shape {tuple(chosen.shape)}" if isinstance(chosen, Tensor) else repr(chosen)
            raise InputError(
                f"output= must return a tensor of one number per record, of shape ({records},) here, got "
                f"{got}."
            )
    else:
        chosen = _chosen(output, records, choice)
    if not chosen.requires_grad:
        raise CaptureError(
            "The numbers that gradients are of do not depend on the model's inputs or parameters through "
            "autograd: the model or output= runs under torch.no_grad, detaches them, or returns integers."
        )
    return chosen.reshape(records)


def _logits(output: Any) -> Tensor:
    """Return the main tensor of a model's output."""
    logits = getattr(output, "logits", None)
    main = main_tensor(output if logits is None else logits)
    if main is None:
        raise InputError(
            f"The model returned a {type(output).__name__} without tensors, so it has no gradient."
        )
    return main[1]


def _chosen(output: Any, records: int, choice: Any) -> Tensor:
    tensor = _logits(output)
    shape = tuple(tensor.shape)
    if choice is None:
        if shape not in ((records,), (records, 1)):
            raise InputError(
                f"The model's output has shape {shape} for {records} records, so gradients need output=: an "
                "index of the class, a label per record, or a function of the output that returns one number "
                "per record."
            )
        return tensor
    if len(shape) != 2 or shape[0] != records:
        raise InputError(
            f"output={_short(choice)} selects a class of an output (records, classes), but the model "
            f"returned shape {shape} for {records} records. Pass a function of the output that returns one "
            "number per record."
        )
    index = torch.as_tensor(choice, device=tensor.device).expand(records)
    wrong = index[(index < -shape[1]) | (index >= shape[1])]
    if len(wrong):
        raise InputError(
            f"output= names class {int(wrong[0])}, but the model's output has {shape[1]} classes."
        )
    return tensor.gather(1, (index.long() % shape[1])[:, None])


def _short(choice: Any) -> str:
    return repr(choice) if isinstance(choice, int) else f"{len(choice)} labels"


@contextmanager
def all_differentiable(model: nn.Module) -> Iterator[None]:
    """Let frozen parameters require a gradient for the time being, so that layers behind them have one."""
    frozen = [p for p in model.parameters() if not p.requires_grad and p.is_floating_point()]
    try:
        for parameter in frozen:
            parameter.requires_grad_(True)
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def differentiable(inputs: Any) -> Any:
    """Return inputs whose floating-point tensors are copies that require a gradient."""
    if isinstance(inputs, Mapping):
        return {name: differentiable(value) for name, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(map(differentiable, inputs))
    if isinstance(inputs, Tensor) and inputs.is_floating_point():
        return inputs.detach().clone().requires_grad_(True)
    return inputs


def _tensors(inputs: Any) -> list[Tensor]:
    if isinstance(inputs, Tensor):
        return [inputs]
    parts = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def _unique(leaves: list[Tensor]) -> list[Tensor]:
    return list({id(leaf): leaf for leaf in leaves if leaf.requires_grad}.values())
