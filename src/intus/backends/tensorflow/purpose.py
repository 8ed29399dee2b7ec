"""Tell the operations of a Session's model from those that only write: variables, files, summaries or logs.

A graph of TensorFlow 1 also holds what restores a checkpoint, initializes variables, keeps averages of them,
counts metrics, checks values and writes summaries. Such an operation may compute from data as a layer does,
but nothing that a run returns is computed from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

#: Operations whose result depends on the shape of their arguments alone.
OF_SHAPE = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})
#: Operations that bring data into a graph, besides those that take it from a queue or a reader of records.
_SOURCES = frozenset(
    {"Placeholder", "PlaceholderV2", "IteratorGetNext", "IteratorGetNextSync", "OptionalGetValue", "Unstage"}
)
_UPDATES = (
    "Assign",
    "Apply",
    "ResourceApply",
    "ResourceSparseApply",
    "SparseApply",
    "ResourceScatter",
    "Scatter",
)
#: Operations that return their argument, or fail. ``add_check_numerics_ops`` adds one for each tensor.
_CHECKS = frozenset({"CheckNumerics", "CheckNumericsV2"})
_EFFECTS = frozenset({"Assert", "Print", "PrintV2"})


def is_source(op: Any, *, with_default: bool = True) -> bool:
    """Return whether an operation brings data into a graph.

    Args:
        op: The operation.
        with_default: Whether one that has data of its own if it is fed none counts.
    """
    return (
        op.type in _SOURCES
        or "Dequeue" in op.type
        or op.type.startswith("ReaderRead")
        or (with_default and op.type == "PlaceholderWithDefault")
    )


def is_update(op: Any) -> bool:
    """Return whether an operation writes a variable."""
    is_write = op.type.startswith(_UPDATES)
    return is_write and any(one.dtype == tf.resource or one.dtype._is_ref_dtype for one in op.inputs)


def counts_a_metric(op: Any) -> bool:
    """Return whether an operation writes a variable of ``tf.compat.v1.metrics``."""
    if not is_update(op):
        return False
    metrics = op.graph.get_collection(tf.compat.v1.GraphKeys.METRIC_VARIABLES)
    return any(op.inputs[0].op is variable.op for variable in metrics)


def ends_data(op: Any) -> bool:
    """Return whether what an operation returns is no result of the model, whatever it is computed from."""
    return "Summary" in op.type or counts_a_metric(op) or _only_tells(op)


def leading_to_results(operations: Iterable[Any], gradients: Iterable[Any]) -> set[Any]:
    """Return the operations that something is computed from which a run may return, besides writes.

    What nothing reads is a result, such as a loss, unless it writes. What reads it does not count if it is of
    its gradient, reads its shape alone, or checks its numbers.

    Args:
        operations: All operations of a graph.
        gradients: Those that functions of gradients made.
    """
    operations, gradients = list(operations), set(gradients)
    read = {
        tensor.op
        for op in operations
        if op not in gradients and op.type not in OF_SHAPE | _CHECKS
        for tensor in op.inputs
    }
    found: set[Any] = set()
    todo = [op for op in operations if op not in read and not _only_writes(op)]
    while todo:
        op = todo.pop()
        if op not in found and not ends_data(op):
            found.add(op)
            todo += [tensor.op for tensor in op.inputs]
    return found


def _only_writes(op: Any) -> bool:
    """Return whether an operation that nothing reads has no result."""
    return not op.outputs or op.type in _CHECKS or is_update(op)


def _only_tells(op: Any) -> bool:
    """Return whether a condition returns flags alone, since its branches check values or write summaries."""
    if op.type not in ("If", "StatelessIf") or any(tensor.dtype != tf.bool for tensor in op.outputs):
        return False
    branches = [op.graph._get_function(op.get_attr(name).name) for name in ("then_branch", "else_branch")]
    types = {node.op for one in branches if one is not None for node in one.cached_definition.node_def}
    return any(kind in _EFFECTS or "Summary" in kind for kind in types)
