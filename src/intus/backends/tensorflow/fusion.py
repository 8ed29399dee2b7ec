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
APART = (
    "The operation %s is recorded as which= selects it. TensorFlow computes it in one operation with the "
    "next only if it is not read, so losses and weights may differ from those without the probe by rounding."
)


def inner_members(operations: Collection[Any], without: Collection[str]) -> set[Any]:
    """Return the operations whose output TensorFlow does not compute, because the next one is fused with it.

    A chain is a product of matrices or a convolution, then biases, other sums and a normalization, then an
    activation. Operations with constants are a chain too, and so is ``x * sigmoid(x)``. What reads the output
    in the gradients does not count, because often only its shape is read.

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
        inner |= _inside_of_swish(op, read_by)
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
