"""Let updates of variables in a traced function wait for the operations that still read the old values.

An update writes in place, unless an operation that has yet to run holds the old value: then TensorFlow copies
the variable first. In a training that is the update of a layer's weights and the gradient of the layer's
input, neither of which needs the other. Which of them runs first follows from the order of the operations in
the graph, which any added operation may change: a step with weights of 2,048 x 2,048 took a seventh longer
for an operation of ours that reads one number. So updates in an observed function come last in any order.

TensorFlow fuses no operation that another one waits for, and adds in another order around it: the training's
bits would change. So an update waits for gradients alone: for readers that come after an earlier reader of
the same variable, which the update comes after anyway, and that are not fused. A weight decay, which needs no
result of the forward pass, waits for nothing. Neither does an update of a vector or a number, such as that of
a normalization, whose copy costs nothing, nor one that gives a variable another tensor, which copies nothing.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.framework.auto_control_deps_utils import get_read_write_resource_inputs

from .fusion import inner_members
from .plan import ancestors
from .purpose import OF_SHAPE

#: Operations whose result is in the memory of their argument.
_PASSING = frozenset({"Identity", "StopGradient", "Reshape", "ExpandDims", "Squeeze"})
#: Operations of TensorFlow 1 that keep others from running, and so all that waits for those.
_BRANCHING = frozenset({"Switch", "RefSwitch", "Enter", "RefEnter"})
#: The operation that gives a variable another tensor, and leaves the old one to those that still read it.
_REPLACING = "AssignVariableOp"


def let_updates_wait(graph: Any) -> None:
    """Add the control inputs to a function's graph that was traced and is not compiled yet.

    They lead from earlier operations to later ones, so there are no cycles, and only from operations that the
    function runs anyway.
    """
    needed = ancestors([*graph.outputs, *graph.control_outputs])
    operations = [op for op in graph.get_operations() if op in needed]
    if any(op.type in _BRANCHING for op in graph.get_operations()):
        return
    fused = inner_members(operations, OF_SHAPE)
    variables: dict[Any, Any] = {}  # the variable in whose memory a tensor is
    readers: dict[Any, list[Any]] = {}
    number: dict[Any, int] = {}  # of an operation that reads a variable
    before: dict[Any, int] = {}  # the readers that an operation comes after, itself among them, as bits
    for op in operations:
        known = _union(before, [*(tensor.op for tensor in op.inputs), *op.control_inputs])
        for variable in _updated(op):
            reading = readers.pop(variable, ())
            earlier = known & sum(1 << number[one] for one in reading)
            waiting = [
                one
                for one in reading
                if before[one] & earlier and one not in fused and not known >> number[one] & 1
            ]
            if waiting and op.type != _REPLACING:
                op._add_control_inputs(waiting)
                known |= _union(before, waiting)
        before[op] = known
        if op.type == "ReadVariableOp":
            if op.outputs[0].shape.rank not in (0, 1):
                variables[op.outputs[0].ref()] = op.inputs[0].ref()
            continue
        read = {variables[tensor.ref()] for tensor in op.inputs if tensor.ref() in variables}
        if op.type in _PASSING:
            variables.update((op.outputs[0].ref(), variable) for variable in read)
            continue
        if read:
            number[op] = len(number)
            before[op] |= 1 << number[op]
        for variable in read:
            readers.setdefault(variable, []).append(op)


def _union(bits: dict[Any, int], operations: list[Any]) -> int:
    """Return the bits of any of some operations."""
    union = 0
    for op in operations:
        union |= bits.get(op, 0)
    return union


def _updated(op: Any) -> list[Any]:
    """Return the variables that an operation writes to."""
    if not any(tensor.dtype == tf.resource for tensor in op.inputs):
        return []
    return [tensor.ref() for tensor in get_read_write_resource_inputs(op)[1]]
