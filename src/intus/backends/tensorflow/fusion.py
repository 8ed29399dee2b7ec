"""Operations that TensorFlow computes as one, as long as nothing else reads what is between them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

_PRODUCTS = frozenset({"MatMul", "BatchMatMulV2", "Conv2D", "Conv3D", "DepthwiseConv2dNative"})
_NORMS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_ACTIVATIONS = frozenset({"Relu", "Relu6", "Elu", "LeakyRelu", "Tanh", "Sigmoid", "Gelu"})
_FOLLOWING = frozenset({"BiasAdd", "BiasAddV1", "Add", "AddV2", "Identity", *_NORMS, *_ACTIVATIONS})
#: Operations of which TensorFlow makes one if each has a constant.
_ARITHMETIC = frozenset({"Mul", "RealDiv", "Div", "Add", "AddV2", "Sub"})
#: Operations inside of a GELU, written out as ``tf.nn.gelu`` does, and those of them that tell it.
_BELLS = frozenset({"Erf", "Erfc", "Tanh"})
_IN_GELU = frozenset({*_ARITHMETIC, *_BELLS, "Neg", "Pow", "Square", "Cast", "Identity"})
APART = (
    "The operation %s is recorded as which= selects it. TensorFlow computes it in one operation with the "
    "next only if it is not read, so losses and weights may differ from those without the probe by rounding."
)


def inner_members(operations: Collection[Any], without: Collection[str]) -> set[Any]:
    """Return the operations whose output TensorFlow does not compute, because the next one is fused with it.

    A chain is a product of matrices or a convolution, then biases, other sums and a normalization, then an
    activation. Operations with constants are a chain too, and so are ``x * sigmoid(x)`` and a GELU, in whose
    gradients TensorFlow joins constants, and in whose approximation it writes the power as a product. What
    reads the output in the gradients does not count, because often only its shape is read.

    Args:
        operations: The operations of a forward pass, each after those that it reads.
        without: Types of operations that read no values.
    """
    readers: dict[str, list[Any]] = {}
    for op in operations:
        if op.type not in without:
            for tensor in op.inputs:
                readers.setdefault(tensor.name, []).append(op)
    members: set[Any] = set()
    inner: set[Any] = set()
    for op in operations:
        if op.type in _PRODUCTS or op.type in _NORMS:
            members.add(op)
        read_by = readers.get(op.outputs[0].name, ()) if op.outputs else ()
        inner |= _inside_of_swish(op, read_by) | _inside_of_gelu(op)
        if len(read_by) != 1:
            continue
        (reader,) = read_by
        if _has_constant(op) and _has_constant(reader):
            inner.add(op)
        if op in members and op.type not in _ACTIVATIONS and reader.type in _FOLLOWING:
            inner.add(op)
            members.add(reader)
    return inner


def _has_constant(op: Any) -> bool:
    return op.type in _ARITHMETIC and any(tensor.op.type == "Const" for tensor in op.inputs)


def _inside_of_swish(op: Any, read_by: Collection[Any]) -> set[Any]:
    """Return a tensor's operation and the sigmoid, maybe of a multiple, that the tensor is multiplied by."""
    for end in read_by:
        for gate in (tensor.op for tensor in end.inputs if end.type == "Mul"):
            given = gate.inputs[0].op if gate.type == "Sigmoid" else None
            if given is op or (given in read_by and _has_constant(given)):
                return {op, gate, given}
    return set()


def _inside_of_gelu(end: Any) -> set[Any]:
    """Return the operations between ``x`` and the product that is a GELU of it; none if it is another."""
    if end.type != "Mul":
        return set()
    for one, gate in (end.inputs, reversed(end.inputs)):
        half = {one.op} if _has_constant(one.op) else set()
        given = next((tensor for op in half for tensor in op.inputs if tensor.op.type != "Const"), one)
        found: set[Any] = set()
        todo = [gate]
        while todo:
            tensor = todo.pop()
            if tensor is given or tensor.op.type == "Const" or tensor.op in found:
                continue
            if tensor.op.type not in _IN_GELU:
                break
            found.add(tensor.op)
            todo += tensor.op.inputs
        else:
            if any(op.type in _BELLS for op in found):
                return found | half
    return set()
