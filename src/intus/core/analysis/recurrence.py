"""Decide whether a model is recurrent: it runs a part of itself again on what that part computed before.

That a layer has several passes (the rule of the TorchLens paper, ``loops.py``) does not suffice:
``a + b + c + d`` has three passes of one layer, and so have siamese towers. A pass must also be computed from
an earlier pass, and on no path between them may weights be used that are used once in the forward pass: a
module that several blocks with weights of their own share is no recurrence. Then the layer is

1. a loop, if the same instruction of the model's code ran both passes in the same modules. A loop that only
   moves or collects tensors does not count: sums, concatenations, indexing, writes into parts of a tensor.
2. a loop that is written out, or weights shared over depth, if both passes use the same weights.

Weights are parameters that do more than scale or shift: those of ``linear``, not those of ``layer_norm``.
Functions that are recurrent in themselves, such as ``lstm``, count too, and so do operations that are a loop,
such as ``scan`` in JAX and ``While`` in TensorFlow: a loop passes a state from step to step, and what it does
with it is not looked into. Only a ``scan`` that passes nothing, as in ``jax.lax.map``, is known to be none.
"""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from ..graph import Graph
from ..vocabularies import common_types
from ..vocabularies.families import MOVES, NORMS, RECURRENT

#: The functions behind ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN``, and the same in ONNX, MXNet and
#: TensorFlow.
_LAYERS = frozenset(
    {*RECURRENT, "rnn", "quantized_lstm", "quantized_gru"} | {"cudnnrnn", "cudnnrnnv2", "cudnnrnnv3"}
)
#: Operations that are a loop: of JAX and ``torch.export``, TensorFlow (1 and 2), ONNX and TorchScript, MXNet.
_LOOPS = frozenset(
    {"scan", "while", "while_loop", "statelesswhile", "nextiteration", "refnextiteration", "loop", "foreach"}
)
#: The settings of a ``scan`` of JAX that passes no state from step to step.
_NO_STATE = re.compile(r"\bnum_carry=0\b")
#: Functions that combine many tensors when repeated: sums, products, extrema, concatenations.
_REDUCTIONS = frozenset(
    {"add", "sub", "mul", "maximum", "minimum", "max", "min", "cat", "concat", "concatenate"}
    | {"logical_and", "logical_or", "bitwise_and", "bitwise_or"}
    | {"index_add", "index_reduce", "scatter_add", "scatter_reduce"}
)
#: Functions that only move numbers. A concatenation does too, but what it repeats may be computed between.
_MOVES = MOVES - _REDUCTIONS
#: Functions whose parameters scale, shift or look up.
_NO_WEIGHTS = NORMS | {"prelu", "embedding", "mul", "add", "sub", "div"}


def is_recurrent(graph: Graph) -> bool:
    """Return whether the model runs a part of itself again on what that part computed before.

    Args:
        graph: The graph of the pass.

    Example:
        >>> cell = torch.nn.RNNCell(2, 2)
        >>> def unrolled(x):
        ...     h = torch.zeros(1, 2)
        ...     for step in x:
        ...         h = cell(step, h)
        ...     return h
        >>> is_recurrent(intus.trace(unrolled, torch.ones(3, 1, 2)).graph)
        True
        >>> is_recurrent(intus.trace(lambda x: x + x.cos() + x.sin() + 1, torch.ones(2)).graph)
        False
    """
    ops = graph.ops
    types = {graph.types[number].lower() for number in np.unique(ops.type[ops.event >= 0]).tolist()}
    if types & _LAYERS or (types & _LOOPS and any(map(partial(_is_loop, graph), range(len(ops))))):
        return True
    passes = np.bincount(ops.layer) if len(ops) else np.zeros(0, np.int64)
    return bool((passes > 1).any()) and _repeats_on_itself(graph, passes[ops.layer] > 1)


def _is_loop(graph: Graph, row: int) -> bool:
    """Return whether an operation is a loop that passes a state from step to step, as far as is known."""
    return graph.type_of(row).lower() in _LOOPS and not _NO_STATE.search(graph.setting(row))


def _repeats_on_itself(graph: Graph, repeated: np.ndarray) -> bool:
    """Return whether a pass of a layer descends from an earlier one, as a loop or with shared weights.

    One sweep in order of execution. Each row gets the set, as bits, of the loops and layers that it descends
    from, and the set of those from which a path leads to it through weights that are used once.

    Args:
        graph: The graph of the pass.
        repeated: A mask of the rows whose layer has several passes.
    """
    ops, stack_of = graph.ops, _module_stacks(graph)
    names = common_types(graph)
    types = [names[number] for number in ops.type.tolist()]
    bits: dict[tuple[int, ...], int] = {}
    loop_of = [0] * len(ops)  # by row: the bit of its loop
    arrived: list[tuple[int, int]] = []  # by row: its two sets, itself included
    rows = zip(repeated.tolist(), ops.layer.tolist(), ops.site.tolist(), ops.call.tolist(), strict=True)
    for row, (many, layer, site, call) in enumerate(rows):
        type_, parents = types[row], graph.parents(row)
        weights = row in graph.row_params and type_ not in _NO_WEIGHTS
        own = loop = 0
        if many and site >= 0 and type_ not in _MOVES:
            loop_of[row] = own = loop = 1 << bits.setdefault((layer, site, stack_of[call]), len(bits))
        elif type_ in _MOVES and len(parents) == 1:
            loop_of[row] = loop_of[parents[0]]  # a sum that is moved is still that sum
        if many and weights:
            own |= 1 << bits.setdefault((layer,), len(bits))
        reduces = loop > 0 and len(parents) > 1 and type_ in _REDUCTIONS
        ancestors = through_others = 0
        for parent in parents:
            of_parent, others = arrived[parent]
            ancestors |= of_parent & ~loop if reduces and loop_of[parent] == loop else of_parent
            through_others |= others
        if ancestors & ~through_others & own:
            return True
        if weights and not many:
            through_others |= ancestors
        arrived.append((ancestors | own, through_others & ~own))
    return False


def _module_stacks(graph: Graph) -> list[int]:
    """Return a number per call, equal for calls of one module in the same modules; -1 for no call."""
    numbers: dict[tuple[int, int], int] = {}
    stacks: list[int] = []
    for module, parent in zip(graph.calls.module.tolist(), graph.calls.parent.tolist(), strict=True):
        key = (stacks[parent] if parent >= 0 else -1, module)
        stacks.append(numbers.setdefault(key, len(numbers)))
    return [*stacks, -1]  # index -1: outside any module
