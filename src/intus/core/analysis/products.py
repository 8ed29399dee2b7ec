"""Count the floating point operations of matrix products, convolutions, attention and recurrent layers.

A multiplication and an addition count as two. The convention is that of ``torch.utils.flop_counter``: bias,
mask and the softmax within attention are not counted, and causal attention counts as full attention.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from math import prod
from typing import NamedTuple

from ..vocabularies.families import CONVOLUTIONS, RECURRENT

Shape = tuple[int, ...]


class CallShapes(NamedTuple):
    """The facts of a call from which its operations are counted.

    Attributes:
        tensors: The shapes of tensor arguments, by argument name (``"0"``, ``"1.2"``, ``"weight"``).
        params: The shapes of the parameters it used, in the graph's order.
        out: The shape of the first tensor it returned.
        settings: The other arguments, as text.
    """

    tensors: dict[str, Shape]
    params: tuple[Shape, ...]
    out: Shape
    settings: str

    def find(self, *names: str) -> Shape | None:
        """Return the shape of the first tensor argument with one of these names, or None."""
        return next((self.tensors[name] for name in names if name in self.tensors), None)

    def all(self) -> list[Shape]:
        """Return the shapes of all tensor arguments and parameters."""
        return [*self.tensors.values(), *self.params]


def _matmul(first: int, *names: str) -> Callable[[CallShapes], int | None]:
    """Return the rule of a matrix product of the arguments at ``first`` and ``first + 1``.

    An argument that is not a tensor of the graph is a parameter.
    """

    def rule(call: CallShapes) -> int | None:
        left = call.find(str(first), *names[:1])
        if left is None:
            right = call.find(str(first + 1), *names[1:])
            if right is None:
                return None
            inner = right[-2] if len(right) > 1 else right[0]
        else:
            inner = left[-1]
        return 2 * prod(call.out) * inner

    return rule


def _addbmm(call: CallShapes) -> int | None:
    left = call.find("1", "batch1")
    return None if left is None else 2 * prod(call.out) * left[0] * left[-1]


def _dot(call: CallShapes) -> int | None:
    return 2 * prod(call.all()[0]) if call.all() else None


def _linear(call: CallShapes) -> int | None:
    x = call.find("0", "input")
    return None if x is None else 2 * prod(call.out) * x[-1]


def _gemm(call: CallShapes) -> int | None:
    x = call.find("0")
    return None if x is None else 2 * prod(call.out) * x[0 if "transA=1" in call.settings else -1]


def _weight(call: CallShapes) -> Shape | None:
    return call.find("1", "weight") or next((p for p in call.params if len(p) > 2), None)


def _conv(call: CallShapes) -> int | None:
    weight = _weight(call)  # (out, in / groups, *kernel)
    return None if weight is None else 2 * prod(call.out) * prod(weight[1:])


def _conv_transpose(call: CallShapes) -> int | None:
    weight, x = _weight(call), call.find("0", "input")  # (in, out / groups, *kernel)
    return None if weight is None or x is None else 2 * prod(x) * prod(weight[1:])


def _attention(call: CallShapes) -> int | None:
    q, k, v = call.find("0", "query"), call.find("1", "key"), call.find("2", "value")
    if q is None or k is None or v is None:
        return None
    return 2 * prod(q[:-1]) * k[-2] * (q[-1] + v[-1])


def _multi_head(call: CallShapes) -> int | None:
    """Count three projections, attention, and the output projection; shapes are (length, batch, width)."""
    q, k, v = call.find("0", "query"), call.find("1", "key"), call.find("2", "value")
    if q is None or k is None or v is None or (len(q) == 3 and not q[1]):
        return None
    width, length = q[-1], k[0]
    into = 2 * width * (prod(q) + prod(k) + prod(v))
    return into + 4 * prod(q) * length + 2 * prod(q) * width


def _recurrent(call: CallShapes) -> int | None:
    """Count every weight matrix once for each item of each step."""
    x = call.find("0", "input")
    weights = [shape for name, shape in call.tensors.items() if re.match(r"[23](\.|$)", name)]
    weights += call.params
    axes = max(map(len, weights), default=0)  # ONNX has one more, for the directions
    weights = [shape for shape in weights if len(shape) == axes > 1]
    return 2 * (prod(x) // x[-1]) * sum(map(prod, weights)) if x and x[-1] and weights else None


def _dot_general(call: CallShapes) -> int | None:
    """Count a product of JAX, whose settings name the contracted axes of each argument.

    Parameters are known in the shape before transpositions, so that the axes are those of a tensor.
    """
    contracted = re.search(r"dimension_numbers=\(\(\(([\d, ]*)\), \(([\d, ]*)\)\)", call.settings)
    sides = [at for at in (0, 1) if str(at) in call.tensors]
    if contracted is None or not sides:
        return None
    shape = call.tensors[str(sides[0])]
    axes = [int(axis) for axis in re.findall(r"\d+", contracted[1 + sides[0]])]
    return 2 * prod(call.out) * prod(shape[axis] for axis in axes)


def _conv_general(call: CallShapes) -> int | None:
    """Count a convolution of JAX, whose settings name the axes of channels; zeros between rows are free."""
    specs = dict(re.findall(r"(lhs|out)_spec=\(\d+, (\d+)", call.settings))
    x, kernel = call.find("0"), call.find("1") or next((p for p in call.params if len(p) > 2), None)
    if x is None or kernel is None or len(specs) < 2 or "batch_group_count=1" not in call.settings:
        return None
    dilation = re.search(r"lhs_dilation=\(([\d, ]+)\)", call.settings)
    if dilation is not None and set(re.findall(r"\d+", dilation[1])) != {"1"}:
        return 2 * prod(x) * prod(kernel) * _groups(call) // x[int(specs["lhs"])]
    return 2 * prod(call.out) * prod(kernel) // call.out[int(specs["out"])]


def _groups(call: CallShapes) -> int:
    groups = re.search(r"feature_group_count=(\d+)", call.settings)
    return int(groups[1]) if groups else 1


def _matmul_by_settings(call: CallShapes) -> int | None:
    """Count a product of matrices of which either may be transposed; of MXNet also of more axes."""
    left, right = call.find("0"), call.find("1")
    swapped = {letter for letter in "ab" if f"transpose_{letter}=True" in call.settings}
    swapped |= {"xy"[at] for at in (0, 1) if f"adj_{'xy'[at]}=True" in call.settings}
    if left is not None and len(left) > 1:
        return 2 * prod(call.out) * left[-2 if swapped & {"a", "x"} else -1]
    if right is not None and len(right) > 1:
        return 2 * prod(call.out) * right[-1 if swapped & {"b", "y"} else -2]
    return 2 * prod(call.out) * left[0] if left else None


def _dot_by_settings(call: CallShapes) -> int | None:
    """Count ``dot`` of MXNet, which contracts the last axis with the first unless one is transposed."""
    left, right = call.find("0"), call.find("1")
    if left is not None:
        return 2 * prod(call.out) * left[0 if "transpose_a=True" in call.settings else -1]
    if right is not None:
        return 2 * prod(call.out) * right[-1 if "transpose_b=True" in call.settings else 0]
    return None


def _fully_connected(call: CallShapes) -> int | None:
    weight = call.find("1") or next((p for p in call.params if len(p) == 2), None)  # (out, in)
    return None if weight is None else 2 * prod(call.out) * weight[1]


def _kernel(call: CallShapes) -> Shape | None:
    return call.find("1") or next((p for p in call.params if len(p) > 3), None)


def _conv_to_last(call: CallShapes) -> int | None:
    kernel = _kernel(call)  # (*kernel, in / groups, out)
    return None if kernel is None else 2 * prod(call.out) * prod(kernel[:-1])


def _conv_transpose_to_last(call: CallShapes) -> int | None:
    kernel, x = _kernel(call), call.find("2")  # (*kernel, out, in)
    return None if kernel is None or x is None else 2 * prod(x) * prod(kernel[:-1])


def _conv_of_each_channel(call: CallShapes) -> int | None:
    kernel = _kernel(call)  # (*kernel, in, outputs of each)
    return None if kernel is None else 2 * prod(call.out) * prod(kernel[:-2])


def _rnn_of_flat_weights(call: CallShapes) -> int | None:
    """Count a recurrent layer of MXNet, whose settings say how its vector of weights is divided."""
    x, given = call.find("0"), dict(re.findall(r"(\w+)=(\w+)", call.settings))
    gates = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}.get(given.get("mode", ""))
    if x is None or gates is None or not given.get("state_size", "").isdigit():
        return None
    if given.get("projection_size", "None") != "None":
        return None
    size, layers = int(given["state_size"]), int(given.get("num_layers", 1))
    directions = 2 if given.get("bidirectional") == "True" else 1
    widths = [x[-1] + size, *[(directions + 1) * size] * (layers - 1)]
    return 2 * prod(x[:-1]) * directions * gates * size * sum(widths)


def _einsum(call: CallShapes) -> int | None:
    equation = first_setting(call.settings)
    return _contraction(equation, _operands(call)) if isinstance(equation, str) else None


def _einsum_by_settings(call: CallShapes) -> int | None:
    """Count an equation of TensorFlow, whose tensors are the only arguments."""
    equation = re.search(r"equation=(\S+)", call.settings)
    params, count = list(call.params), len(call.tensors) + len(call.params)
    if equation is None or any(name not in ("0", "1") for name in call.tensors) or count > 2:
        return None
    operands = [call.tensors.get(str(at)) or params.pop(0) for at in range(count)]
    return _contraction(equation[1].rstrip(","), operands)


def _contraction(equation: str, operands: list[Shape]) -> int | None:
    """Count one or two operands; the order in which more are contracted is not known here."""
    if not 1 <= len(operands) <= 2:
        return None
    left, _, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(operands):
        return None
    sizes = [_indices(part, shape) for part, shape in zip(parts, operands, strict=True)]
    kept = set(_indices(right, (1,) * 64)) if "->" in equation else _free_indices(left, sizes)
    every = {index: max(part.get(index, 1) for part in sizes) for part in sizes for index in part}
    if len(sizes) == 1:
        return 0 if set(every) <= kept else prod(operands[0])
    shared = {index for index in every if all(index in part for part in sizes)}
    pairs = prod(size for index, size in every.items() if index in kept or index in shared)
    return 2 * pairs if shared - kept else pairs


def _free_indices(left: str, sizes: list[dict[str, int]]) -> set[str]:
    """Return the indices kept by an equation without ``->``: letters that occur once, and an ellipsis."""
    return {index for part in sizes for index in part if index[0] == "." or left.count(index) == 1}


def _operands(call: CallShapes) -> list[Shape]:
    """Return the tensors after the equation, in order; a position without an edge is a parameter."""
    positions = {
        int(name.rpartition(".")[2]): shape for name, shape in call.tensors.items() if name[-1:].isdigit()
    }
    start = 0 if any("." in name for name in call.tensors) else 1
    params, operands = list(call.params), list[Shape]()
    for position in range(start, start + len(positions) + len(params)):
        if position not in positions and not params:
            return []
        operands.append(positions[position] if position in positions else params.pop(0))
    return operands


def _indices(part: str, shape: Shape) -> dict[str, int]:
    """Return the size of each index: letters, and ``.1``, ``.2`` ... for an ellipsis, from the right."""
    before, dots, after = part.partition("...")
    sizes = dict(zip(before, shape, strict=False))
    if dots:
        middle = shape[len(before) : len(shape) - len(after)]
        sizes |= {f".{place}": size for place, size in enumerate(reversed(middle), 1)}
        sizes |= dict(zip(after, shape[len(shape) - len(after) :], strict=False))
    return sizes


def first_setting(settings: str) -> object:
    """Return the first positional argument that is not a tensor, or None if it is absent or not a literal."""
    try:
        node = ast.parse(f"f({settings})", mode="eval").body
        return ast.literal_eval(node.args[0]) if isinstance(node, ast.Call) and node.args else None
    except (SyntaxError, ValueError):
        return None


#: The rule of each type; a rule returns None if the count cannot be determined.
PRODUCTS: dict[str, Callable[[CallShapes], int | None]] = {
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "grouped_mm"), _matmul(0, "input", "other")),
    **dict.fromkeys(("addmm", "addmv"), _matmul(1, "mat1", "mat2")),
    "baddbmm": _matmul(1, "batch1", "batch2"),
    "addbmm": _addbmm,
    **dict.fromkeys(("dot", "vdot"), _dot),
    "linear": _linear,
    "einsum": _einsum,
    **dict.fromkeys((*CONVOLUTIONS, "convolution", "conv"), _conv),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "conv_transpose"), _conv_transpose
    ),
    "gemm": _gemm,
    "dot_general": _dot_general,
    "conv_general_dilated": _conv_general,
    **dict.fromkeys(("matmul_by_settings", "batch_dot"), _matmul_by_settings),
    "dot_by_settings": _dot_by_settings,
    "fully_connected": _fully_connected,
    "conv_by_layout": _conv,
    "conv_transpose_by_layout": _conv_transpose,
    "conv_to_last": _conv_to_last,
    "conv_transpose_to_last": _conv_transpose_to_last,
    "conv_of_each_channel": _conv_of_each_channel,
    "einsum_by_settings": _einsum_by_settings,
    "rnn_of_flat_weights": _rnn_of_flat_weights,
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _multi_head,
    **{name + cell: _recurrent for name in RECURRENT for cell in ("", "_cell")},
}
