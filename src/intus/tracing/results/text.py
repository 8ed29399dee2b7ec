"""Describe an op or a module as a card, which is printed and shown in notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.graph import Param
from ...viewing.outline import count, dimensions, duration, size
from ...viewing.repr_text import Card, listed
from .value_summary import summary_of

if TYPE_CHECKING:
    from .module import Module
    from .op import Op


def op_card(op: Op) -> Card:
    """Return the card of an op."""
    kind = "operation" if op.kind == "op" else op.kind
    flags = {
        "writes in place": op.in_place,
        "made inside the model": op.is_factory,
        "computes a condition": op.in_condition,
        "used by no op": op.is_terminal,
        "failed": op.failed,
        "may be modified": op.maybe_modified,
    }
    passes = f"{op.pass_number} of {op.num_passes}" if op.num_passes > 1 else ""
    cost = [duration(op.seconds * 1e9)] if op.seconds else []
    cost += [f"{count(op.flops)} FLOPs"] if op.flops else []
    facts = (
        (
            "output",
            "" if op.failed else f"{_tensor(op.shape, op.dtype)} on {op.meta.place}, {size(op.nbytes)}",
        ),
        ("pass", passes),
        ("arguments", op.non_tensor_args),
        ("parameters", _params(op.params)),
        ("from", listed([parent.label for parent in op.parents])),
        ("to", listed([child.label for child in op.children])),
        ("in module", " › ".join(address or op._trace.name for address in op.modules)),
        ("output of", listed([address or "the model" for address in op.output_of])),
        ("may be output of", listed([address or "the model" for address in op.maybe_output_of])),
        ("cost", ", ".join(cost)),
        ("also", ", ".join(name for name, holds in flags.items() if holds)),
    )
    return Card(
        op.label,
        f"{kind} {op.buffer_address or ''}".strip(),
        facts,
        op.source,
        summary_of(op.value) if op.saved else None,
    )


_IN_A_ROW, _NOWHERE = "tell calls in a row apart", "state which operations are its own"


def times_called(module: Module) -> str:
    """Return how often a module was called, as far as that is known."""
    least, most = module.num_calls, module.most_calls
    if most > least:
        return f"{least} to {most} times"
    return "never" if not least else "once" if least == 1 else f"{least} times"


def module_card(module: Module) -> Card:
    """Return the card of a module."""
    frozen = f", {module.num_frozen:,} frozen" if module.num_frozen else ""
    number, nbytes = module.num_params, module.param_bytes
    held = "?" if number is None or nbytes is None else f"{number:,} ({size(nbytes)}){frozen}"
    calls = times_called(module)
    if module.most_calls > module.num_calls:
        calls += f": the file does not {_IN_A_ROW if module.num_calls else _NOWHERE}"
    cost = [duration(module.seconds * 1e9)] if module.seconds else []
    cost += [f"{count(module.flops)} FLOPs"] if module.flops else []
    inputs = [op for call in module.calls for op in call.inputs]
    returned = listed([f"{op.label} {dimensions(op.shape)}" for op in module.outputs])
    leaves = f"the file does not state which of {len(module.outputs)} it returned"
    facts = (
        ("arguments", module.args),
        ("called", calls),
        ("input", listed([f"{op.label} {dimensions(op.shape)}" for op in inputs])),
        ("output", "" if module.has_unknown_output else returned),
        ("output unknown", f"{leaves}: {returned}" if module.has_unknown_output else ""),
        ("parameters", held if module.params else ""),
        ("its own", _params(module.own_params)),
        ("buffers", listed([f"{b.address} {dimensions(b.shape)}" for b in module.buffers])),
        ("children", listed([f"{child.address} {child.type}" for child in module.children])),
        ("operations", f"{len(module.ops):,}" if module.ops else ""),
        ("cost", ", ".join(cost)),
        ("mode", "training" if module.training else "eval"),
    )
    return Card(module.address or "the model", module.type, facts, module.source)


def _tensor(shape: tuple[int, ...], dtype: str) -> str:
    return f"{dimensions(shape)} {dtype}"


def _params(params: list[Param]) -> str:
    return listed(
        [
            f"{p.address} {dimensions(p.shape)}"
            f"{f' ({p.placement})' if p.placement else ''}{'' if p.trainable else ' frozen'}"
            for p in params
        ],
        most=4,
    )
