"""Whether a model is recurrent: whether it runs a part of itself again on what that part computed before.

That a layer has several passes (the rule of the TorchLens paper, ``building/loops.py``) does not suffice:
``a + b + c + d`` has three passes of one layer, and so have siamese towers. A pass must also be computed from
an earlier pass of the layer. Then the layer is

1. a loop, if the same instruction of the model's code ran both in the same modules. A loop that only sums (or
   multiplies, concatenates …) tensors that it did not compute from the sum is a reduction, and does not count;
   nor does a loop that only writes into parts of a tensor.
2. a loop that is written out, or weights shared over depth, if both use the same parameters.

In a loop over an operation without parameters, and in the second case, every operation with parameters on the
paths from one pass to the other must belong to a layer with several passes. So a function, or a ``PReLU``,
that blocks with weights of their own share does not count.

Functions that are recurrent in themselves, such as ``lstm``, count too.
"""

from __future__ import annotations

import numpy as np

from .graph import Graph

#: The functions behind ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN``.
_RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu", "quantized_lstm", "quantized_gru"})
#: Functions that combine many tensors when repeated: sums, products, extrema, concatenations.
_REDUCTIONS = frozenset(
    {"add", "sub", "mul", "maximum", "minimum", "max", "min", "cat", "concat", "concatenate"}
    | {"logical_and", "logical_or", "bitwise_and", "bitwise_or", "and", "or"}
)
_WRITES = frozenset({"setitem", "copy_", "fill_", "index_put_", "index_copy_", "index_fill_", "scatter_"})


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
    types = {graph.types[number] for number in np.unique(ops.type[ops.event >= 0]).tolist()}
    if types & _RECURRENT:
        return True
    passes = np.bincount(ops.layer) if len(ops) else np.zeros(0, np.int64)
    return bool((passes > 1).any()) and _repeats_on_itself(graph, passes[ops.layer] > 1)


def _repeats_on_itself(graph: Graph, repeated: np.ndarray) -> bool:
    """Return whether a pass of a layer descends from an earlier one, as a loop or with shared weights.

    One sweep in order of execution. Each row gets the set, as bits, of the loops and layers that it descends
    from, and the set of those from which a path leads to it through weights that are used once.

    Args:
        graph: The graph.
        repeated: A mask of the rows whose layer has several passes.
    """
    ops, stack_of = graph.ops, _module_stacks(graph)
    has_params = graph.row_params.keys()
    bits: dict[tuple[int, ...], int] = {}
    loop_of = [0] * len(ops)
    arrived: list[tuple[int, int]] = []  # by row: its two sets, itself included
    rows = zip(repeated.tolist(), ops.layer.tolist(), ops.site.tolist(), ops.call.tolist(), strict=True)
    for row, (many, layer, site, call) in enumerate(rows):
        with_params, parents = row in has_params, graph.parents(row)
        loop = shared = 0
        if many and site >= 0:
            loop_of[row] = loop = 1 << bits.setdefault((layer, site, stack_of[call]), len(bits))
        if many and with_params:
            shared = 1 << bits.setdefault((layer,), len(bits))
        reduces = bool(loop) and _reduces(graph.type_of(row), len(parents))
        ancestors = through_others = 0
        for parent in parents:
            of_parent, others = arrived[parent]
            ancestors |= of_parent & ~loop if reduces and loop_of[parent] == loop else of_parent
            through_others |= others
        if ancestors & (~through_others & (loop | shared) | (loop if with_params else 0)):
            return True
        if with_params and not many:
            through_others |= ancestors
        arrived.append((ancestors | loop | shared, through_others & ~(loop | shared)))
    return False


def _reduces(type_: str, parents: int) -> bool:
    """Return whether an operation, when repeated, only combines or collects tensors."""
    return type_ in _WRITES or (parents > 1 and type_ in _REDUCTIONS)


def _module_stacks(graph: Graph) -> list[int]:
    """Return a number for each call, equal for calls of the same module in the same modules; -1 for no call."""
    numbers: dict[tuple[int, int], int] = {}
    stacks: list[int] = []
    for module, parent in zip(graph.calls.module.tolist(), graph.calls.parent.tolist(), strict=True):
        key = (stacks[parent] if parent >= 0 else -1, module)
        stacks.append(numbers.setdefault(key, len(numbers)))
    return [*stacks, -1]  # index -1: outside any module
