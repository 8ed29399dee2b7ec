"""What is printed of an op, a module and a value: figures and texts, nothing kept and nothing changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..core.graph import Param
from ..viewing.card import Card, listed
from ..viewing.picture import Look
from ..viewing.text import count, dimensions, duration, size

if TYPE_CHECKING:
    from .module import Module
    from .op import Op

_BINS = 40
_PIXELS = 64


def op_card(op: Op) -> Card:
    """The facts about an op."""
    kind = "operation" if op.kind == "op" else op.kind
    flags = {
        "writes in place": op.in_place,
        "made inside": op.created,
        "serves a decision": op.in_condition,
        "ends inside": op.is_terminal,
        "failed": op.failed,
        "unverified": op.unverified,
    }
    passes = f"{op.pass_number} of {op.num_passes}" if op.num_passes > 1 else ""
    cost = [duration(op.seconds * 1e9)] if op.seconds else []
    cost += [f"{count(op.flops)} FLOPs"] if op.flops else []
    facts = (
        (
            "output",
            "" if op.failed else f"{_tensor(op.shape, op.dtype)} on {op.meta.device}, {size(op.nbytes)}",
        ),
        ("pass", passes),
        ("arguments", op.settings),
        ("parameters", _params(op.params)),
        ("from", listed([parent.label for parent in op.parents])),
        ("to", listed([child.label for child in op.children])),
        ("in module", " › ".join(address or op._trace.name for address in op.modules)),
        ("output of", listed([address or "the model" for address in op.output_of])),
        ("cost", ", ".join(cost)),
        ("also", ", ".join(name for name, holds in flags.items() if holds)),
    )
    return Card(op.label, f"{kind} {op.buffer_address or ''}".strip(), facts, op.source, look(op))


def module_card(module: Module) -> Card:
    """The facts about a module."""
    frozen = f", {module.num_frozen:,} frozen" if module.num_frozen else ""
    held = f"{module.num_params:,} ({size(module.param_bytes)}){frozen}" if module.params else ""
    calls = (
        "never" if not module.num_calls else "once" if module.num_calls == 1 else f"{module.num_calls} times"
    )
    cost = [duration(module.seconds * 1e9)] if module.seconds else []
    cost += [f"{count(module.flops)} FLOPs"] if module.flops else []
    inputs = [op for call in module.calls for op in call.inputs]
    facts = (
        ("arguments", module.args),
        ("called", calls),
        ("input", listed([f"{op.label} {dimensions(op.shape)}" for op in inputs])),
        ("output", listed([f"{op.label} {dimensions(op.shape)}" for op in module.outputs])),
        ("parameters", held),
        ("its own", _params(module.own_params)),
        ("buffers", listed([f"{b.address} {dimensions(b.shape)}" for b in module.buffers])),
        ("children", listed([f"{child.address} {child.type}" for child in module.children])),
        ("operations", f"{len(module.ops):,}" if module.ops else ""),
        ("cost", ", ".join(cost)),
        ("mode", "training" if module.training else "eval"),
    )
    return Card(module.address or "the model", module.type, facts, module.source)


def look(op: Op) -> Look | None:
    """What is shown of an op's value; None where it was not saved, or has no plain numbers."""
    if not op.saved:
        return None
    with torch._C.DisableTorchFunction(), torch.no_grad():
        try:
            return look_at(op.value)
        except (RuntimeError, NotImplementedError, TypeError):  # sparse, nested, on meta, quantised
            return None


def look_at(value: Tensor) -> Look | None:
    """Figures, a histogram of 40 bins, and at most 64 by 64 numbers of the first item as a picture.

    >>> look_at(torch.tensor([0.0, 1.0, float("nan")]))[:7]
    (3, 1, 0, 1, 0.0, 0.5, 1.0)
    """
    if value.is_meta or value.layout != torch.strided:
        return None
    plain = (value.abs() if value.is_complex() else value).detach().cpu()
    numbers = plain.reshape(-1).to(torch.float64)
    finite = numbers[numbers.isfinite()]
    nan = int(numbers.isnan().sum())
    zero = int((numbers == 0).sum())
    rest = (numbers.numel(), nan, numbers.numel() - finite.numel() - nan, zero)
    if not finite.numel():
        return Look(*rest, None, None, None, None, (), None)
    low, high = float(finite.min()), float(finite.max())
    counts = torch.histc(finite, _BINS, low, high) if low < high else torch.tensor([finite.numel()])
    std = float(finite.std(correction=0))
    bars = tuple(int(n) for n in counts.tolist())
    return Look(*rest, low, float(finite.mean()), high, std, bars, _image(plain))


def _image(value: Tensor) -> np.ndarray | None:
    """The first item: the channels of an image beside each other, the rows of a matrix; thinned out."""
    if value.dim() < 2 or min(value.shape[-2:]) < 2:
        return None
    while value.dim() > 3:
        value = value[0]
    if value.dim() == 3:
        value = (
            torch.cat(list(value[: max(1, min(8, _PIXELS // value.shape[-1]))]), -1)
            if value.shape[0]
            else value
        )
    if value.dim() != 2:
        return None
    rows, columns = (max(1, -(-n // _PIXELS)) for n in value.shape)
    image: np.ndarray = value[::rows, ::columns].to(torch.float64).numpy()
    return image


def _tensor(shape: tuple[int, ...], dtype: str) -> str:
    return f"{dimensions(shape)} {dtype}"


def _params(params: list[Param]) -> str:
    return listed(
        [f"{p.address} {dimensions(p.shape)}{'' if p.trainable else ' frozen'}" for p in params], most=4
    )
