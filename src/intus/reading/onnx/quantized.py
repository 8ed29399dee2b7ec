"""Turn a quantized ONNX model into one in floating point, with the weights of the model it was made from.

What rounds in a quantized file is known exactly: a weight by at most half a step, which its scale states.
A file in which each weight is within that, and whose operations compute what the model does once nothing is
rounded, differs from the model by its quantization alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx

from .loading import array_of, structure
from .naming import address_of

#: Operators of quantized models that have another meaning in floating point.
_QUANTIZED = re.compile("QLinear|.*Integer|DynamicQuantize|.*NBits|QGemm|QAttention|QEmbed|QOrdered")
#: The cosine similarity to its parameter of a weight without its name: so many standard deviations of that
#: of random numbers, but no more than what quantization leaves.
_SURE, _NEAR = 5.0, 0.999
_ROUNDING = 1e-6  # relative, of the quotient of a weight and its scale in float32


class Twin(NamedTuple):
    """A quantized model in floating point.

    Attributes:
        model: The model; b"" if it has operators that are not known in floating point.
        weights: The addresses of the parameters that are quantized in the file.
        faults: What the file holds otherwise than the model or itself, as sentences.
        wrong: Those of them that are of a parameter, by its address.
        unknown: Why the model cannot be compared in floating point, as sentences.
        unmatched: The weights that remain rounded in it, as sentences.
    """

    model: bytes
    weights: list[str]
    faults: list[str]
    wrong: dict[str, str]
    unknown: list[str]
    unmatched: list[str]


def is_quantized(model: onnx.ModelProto) -> bool:
    """Return whether a model computes with whole numbers, or holds weights as such."""
    kinds = {node.op_type for node in model.graph.node}
    return any(kind == "DequantizeLinear" or _QUANTIZED.match(kind) for kind in kinds)


def twin(path: Path, params: Mapping[str, np.ndarray]) -> Twin | None:
    """Return a quantized file in floating point; None if it is not quantized.

    Args:
        path: The file.
        params: The parameters of the model that it was made from, by address.
    """
    if not is_quantized(structure(path)):
        return None
    maker = _Maker(onnx.load(path), path, params)
    maker.nodes()
    return maker.twin()


class _Maker:
    def __init__(self, model: onnx.ModelProto, path: Path, params: Mapping[str, np.ndarray]) -> None:
        self._model, self._path, self._params = model, path, params
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._makers = {name: node for node in model.graph.node for name in node.output}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._made: dict[str, np.ndarray] = {}
        self._found = Twin(b"", [], [], {}, [], [])

    def nodes(self) -> None:
        """Replace the quantized nodes."""
        replaced = [self._node(node) for node in self._model.graph.node]
        left = sorted(
            {node.op_type for node in replaced if node is not None and _QUANTIZED.match(node.op_type)}
        )
        if left:
            self._found.unknown.append(f"{', '.join(left)} cannot be compared in floating point.")
        copies = [
            onnx.NodeProto.FromString(node.SerializeToString()) for node in replaced if node is not None
        ]
        del self._model.graph.node[:]
        self._model.graph.node.extend(copies)
        for name, array in self._made.items():
            self._model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        read = {name for node in copies for name in node.input} | {
            one.name for one in self._model.graph.output
        }
        kept = [tensor for tensor in self._model.graph.initializer if tensor.name in read]
        kept = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
        del self._model.graph.initializer[:], self._model.graph.value_info[:]
        self._model.graph.initializer.extend(kept)

    def twin(self) -> Twin:
        """Return what was found."""
        return self._found._replace(model=b"" if self._found.unknown else self._model.SerializeToString())

    def _node(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        """Return a node in floating point; None to leave it out."""
        kind, name = node.op_type, node.name
        if kind == "DequantizeLinear" and node.input[0] in self._tensors:
            axis = next((one.i for one in node.attribute if one.name == "axis"), 1)
            self._weight(node.input[0], node.input[1], [*node.input, ""][2], axis, node.output[0])
            return None
        if kind in ("QuantizeLinear", "DequantizeLinear"):
            self._check_pair(node)
            kind = "Relu" if kind == "QuantizeLinear" and self._begins_at_zero(node) else "Identity"
            return onnx.helper.make_node(kind, [node.input[0]], [node.output[0]], name)
        if kind == "Gather" and node.input[0] in self._tensors:
            found = self._table(node)
            if found:
                copy = onnx.helper.make_node(kind, [found, node.input[1]], list(node.output), name)
                copy.attribute.extend(node.attribute)
                return copy
        if kind == "DynamicQuantizeLinear":
            return onnx.helper.make_node("Identity", [node.input[0]], [node.output[0]], name)
        if kind in ("MatMulInteger", "ConvInteger") and node.input[1] in self._tensors:
            scale = self._scale_after(node)
            if scale is not None:
                target = f"{node.input[1]}/float"
                if target not in self._made:
                    axis = 0 if kind == "ConvInteger" else -1
                    self._weight(node.input[1], scale, [*node.input, "", ""][3], axis, target)
                copy = onnx.helper.make_node(
                    kind.removesuffix("Integer"), [node.input[0], target], list(node.output), name
                )
                copy.attribute.extend(node.attribute)
                return copy
        if kind == "Cast" and self._is_integer_product(node.input[0]):
            return onnx.helper.make_node("Identity", [node.input[0]], [node.output[0]], name)
        if kind == "Mul":
            product = self._cast_product(node)
            if product:
                return onnx.helper.make_node("Identity", [product], [node.output[0]], name)
            if any(self._is_scale(one) for one in node.input):
                return None  # the scale of a product
        return node

    def _is_integer_product(self, name: str) -> bool:
        made = self._makers.get(name)
        return made is not None and made.op_type in ("MatMulInteger", "ConvInteger")

    def _table(self, node: onnx.NodeProto) -> str:
        """Return the name in floating point of a table of whole numbers that rows are taken from."""
        readers = self._readers.get(node.output[0], [])
        for one in readers:
            scale = zero = ""
            if one.op_type == "DequantizeLinear":
                scale, zero = one.input[1], [*one.input, ""][2]
            elif one.op_type == "MatMulInteger" and one.input[0] == node.output[0]:
                scale, zero = self._scale_of_rows(one), [*one.input, ""][2]
            if scale in self._tensors:
                target = f"{node.input[0]}/float"
                if target not in self._made:
                    self._weight(node.input[0], scale, zero, -1, target)
                return target if target in self._made else ""
        return ""

    def _is_scale(self, name: str) -> bool:
        """Return whether a tensor is the scale of what a product in whole numbers is given first."""
        made = self._makers.get(name)
        if made is not None:
            return bool(made.op_type == "DynamicQuantizeLinear" and name == made.output[1])
        return name in self._scales_of_rows

    @cached_property
    def _scales_of_rows(self) -> set[str]:
        """The scales of the tables whose rows a product in whole numbers is given."""
        products = (node for node in self._model.graph.node if node.op_type == "MatMulInteger")
        taken = (node for node in products if self._is_taken(node.input[0]))
        return {scale for node in taken if (scale := self._scale_of_rows(node))}

    def _is_taken(self, name: str) -> bool:
        made = self._makers.get(name)
        return made is not None and made.op_type == "Gather" and made.input[0] in self._tensors

    def _scales(self, node: onnx.NodeProto) -> Iterator[list[str]]:
        """Yield the factors of the scale that a product in whole numbers is multiplied by."""
        for cast in self._readers.get(node.output[0], ()):
            for mul in self._readers.get(cast.output[0], ()):
                for name in mul.input if mul.op_type == "Mul" else ():
                    made = self._makers.get(name)
                    if made is not None and made.op_type == "Mul":
                        yield list(made.input)

    def _scale_of_rows(self, node: onnx.NodeProto) -> str:
        """Return the name of the scale of a table whose rows a product is given: the first of two factors."""
        found = [one for one in self._scales(node) if all(name in self._tensors for name in one)]
        return str(found[0][0]) if found else ""

    def _cast_product(self, mul: onnx.NodeProto) -> str:
        """Return the argument of a product with a scale that is the result in whole numbers."""
        for name in mul.input:
            made = self._makers.get(name)
            if made is not None and made.op_type == "Cast" and self._is_integer_product(made.input[0]):
                return str(name)
        return ""

    def _scale_after(self, node: onnx.NodeProto) -> str | None:
        """Return the name of the scale of the weight of a product in whole numbers."""
        for factors in self._scales(node):
            weights = [one for one in factors if one in self._tensors]
            if self._is_taken(node.input[0]) and len(weights) == 2:
                return weights[1]
            if weights and any(map(self._is_scale, factors)):
                return weights[0]
        return None

    def _array(self, name: str) -> np.ndarray | None:
        return array_of(self._tensors[name], self._path) if name in self._tensors else None

    def _begins_at_zero(self, node: onnx.NodeProto) -> bool:
        """Return whether a range begins at 0, for which onnxruntime leaves out the ReLU before it."""
        zero = self._array([*node.input, ""][2])
        return zero is not None and zero.dtype.kind in "iu" and bool((zero == np.iinfo(zero.dtype).min).all())

    def _check_pair(self, node: onnx.NodeProto) -> None:
        """Note a scale by which a tensor is not multiplied as it was divided."""
        if node.op_type == "DequantizeLinear":
            made = self._makers.get(node.input[0])
            if made is not None and made.op_type == "QuantizeLinear":
                for mine, other in zip(node.input[1:], made.input[1:], strict=False):
                    x, y = self._array(mine), self._array(other)
                    if x is not None and y is not None and not np.array_equal(x, y):
                        self._found.faults.append(
                            f"{made.input[0]} is divided by {other} and multiplied by another, {mine}"
                        )

    def _weight(self, name: str, scale: str, zero: str, axis: int, target: str) -> None:
        """Check a quantized weight, and put the model's own in its place."""
        whole, step, offset = self._array(name), self._array(scale), self._array(zero)
        if whole is None or step is None or whole.dtype.kind not in "iu":
            self._found.unknown.append(f"The weight {name} is of a kind that cannot be compared.")
            return
        lengths = [1] * whole.ndim
        if step.size > 1:
            lengths[axis] = step.size
        steps = step.astype(np.float64).reshape(lengths if step.size > 1 else ())
        zeros = np.zeros(()) if offset is None else offset.astype(np.float64)
        is_symmetric = not zeros.any()
        zeros = zeros.reshape(lengths if zeros.size > 1 else ())
        stored = (whole.astype(np.float64) - zeros) * steps
        self._made[target] = stored.astype(np.float32)
        address, own = self._own(name, stored)
        if own is None:
            if stored.size > 1:  # a number alone is not rounded: its scale is chosen for it
                self._found.unmatched.append(f"The model has no parameter that corresponds to {name}.")
            return
        self._made[target] = own.astype(np.float32)
        # The zero point of an asymmetric range is rounded too, so that its end may be another half step off.
        allowed = (0.5 if is_symmetric else 1.0) * 1.001
        apart = (np.abs(own - stored) - _ROUNDING * np.abs(own)) / np.where(steps > 0, steps, 1)
        self._found.weights.append(address)
        if apart.size and not apart.max() <= allowed:
            count = int(np.count_nonzero(~(apart <= allowed)))
            self._found.wrong[address] = (
                f"{address} is not what {name} holds: {count:,} of {apart.size:,} elements differ by more "
                f"than {'half a' if is_symmetric else 'one'} step of the quantization, at most by "
                f"{apart.max():.3g}"
            )
            self._found.faults.append(self._found.wrong[address])

    def _own(self, name: str, stored: np.ndarray) -> tuple[str, np.ndarray | None]:
        """Return the model's parameter that a weight was made from, in the order of its axes."""
        named = [one for one in self._params if address_of(name).startswith(one)]
        chosen = [max(named, key=len)] if named else []
        nearest = max(_fitting(chosen, self._params, stored), key=lambda found: found[0], default=None)
        if nearest is None:  # an exporter names what it has folded after something else
            others = _fitting(list(self._params), self._params, stored)
            nearest = max(others, key=lambda found: found[0], default=None)
            # Few numbers are alike by chance: of 8, the direction of others may be near.
            if nearest is None or nearest[0] < max(0.5, min(_SURE / stored.size**0.5, _NEAR)):
                return "", None
        return nearest[1], nearest[2]


def _fitting(
    addresses: list[str], params: Mapping[str, np.ndarray], stored: np.ndarray
) -> Iterator[tuple[float, str, np.ndarray]]:
    """Yield the parameters of the shape of a weight, with their cosine similarity to it."""
    for address in addresses:
        own = np.asarray(params[address], np.float64)
        for array in (own, own.T) if own.ndim == 2 else (own,):
            if array.shape == stored.shape:
                norms = float(np.linalg.norm(array) * np.linalg.norm(stored))
                yield (float((array * stored).sum()) / norms if norms else 0.0), address, array
