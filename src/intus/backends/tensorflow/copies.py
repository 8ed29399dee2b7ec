"""Compute tensors of a graph once more, inside of a branch, from what the graph reads.

TensorFlow optimizes across operations as long as nothing else reads what is between them: constants of
adjacent operations become one, and a product is computed with its bias and activation. A tensor that is
recorded would undo that and change the last bits of the training. Its copy reads inputs, variables and random
numbers alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def copied(tensors: Sequence[Any]) -> list[Any]:
    """Return copies of tensors in the graph that operations are added to now.

    What has effects, draws random numbers or calls functions is not computed again, but read.

    Args:
        tensors: Tensors of the graph around it.
    """
    outside = tensors[0].graph if tensors else None
    needed = _computed([tensor.op for tensor in tensors])
    copies: dict[str, Any] = {}
    for op in outside.get_operations() if outside is not None else ():
        if op not in needed:
            continue
        attributes = {name: value for name, value in op.node_def.attr.items() if name[0] != "_"}
        copy = tf.compat.v1.get_default_graph()._create_op_internal(
            op.type,
            [copies.get(tensor.name, tensor) for tensor in op.inputs],
            [output.dtype for output in op.outputs],
            attrs=attributes,
        )
        copies.update(zip([output.name for output in op.outputs], copy.outputs, strict=True))
    return [copies.get(tensor.name, tensor) for tensor in tensors]


def _computed(ends: Sequence[Any]) -> set[Any]:
    """Return the operations by which ``ends`` are computed, themselves among them, that can be copied."""
    found: set[Any] = set()
    todo = list(ends)
    while todo:
        op = todo.pop()
        if op not in found and _is_pure(op):
            found.add(op)
            todo += [tensor.op for tensor in op.inputs]
    return found


def _is_pure(op: Any) -> bool:
    if op.op_def is None or op.op_def.is_stateful or op.type == "Placeholder":
        return False
    if any(attribute.type in ("func", "list(func)") for attribute in op.op_def.attr):
        return False
    return not any(one.dtype in (tf.resource, tf.variant) for one in (*op.inputs, *op.outputs))
