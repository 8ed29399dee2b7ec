"""Floating point operations of products: linear maps, matrices, convolutions, attention, recurrent layers.

A multiplication and an addition are two. What is counted is what ``torch.utils.flop_counter`` counts: no
bias, no mask, no softmax within attention, a causal half as if it were whole.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from math import prod
from typing import NamedTuple

Shape = tuple[int, ...]


class Given(NamedTuple):
    """What a count is made from: tensors by the argument's name (``"0"``, ``"1.2"``, ``"weight"``),
    parameters in the graph's order, what came out first, and the other arguments as text."""

    tensors: dict[str, Shape]
    params: tuple[Shape, ...]
    out: Shape
    settings: str

    def find(self, *names: str) -> Shape | None:
        """The first tensor of one of these names."""
        return next((self.tensors[name] for name in names if name in self.tensors), None)

    def all(self) -> list[Shape]:
        """Every shape that went in."""
        return [*self.tensors.values(), *self.params]


def _matmul(first: int, *names: str) -> Callable[[Given], int | None]:
    """Of the arguments at ``first`` and after it; one that is no tensor of the graph is a parameter."""

    def rule(given: Given) -> int | None:
        left = given.find(str(first), *names[:1])
        if left is None:
            right = given.find(str(first + 1), *names[1:])
            if right is None:
                return None
            inner = right[-2] if len(right) > 1 else right[0]
        else:
            inner = left[-1]
        return 2 * prod(given.out) * inner

    return rule


def _addbmm(given: Given) -> int | None:
    left = given.find("1", "batch1")
    return None if left is None else 2 * prod(given.out) * left[0] * left[-1]


def _dot(given: Given) -> int | None:
    return 2 * prod(given.all()[0]) if given.all() else None


def _linear(given: Given) -> int | None:
    x = given.find("0", "input")
    return None if x is None else 2 * prod(given.out) * x[-1]


def _weight(given: Given) -> Shape | None:
    return given.find("1", "weight") or next((p for p in given.params if len(p) > 2), None)


def _conv(given: Given) -> int | None:
    weight = _weight(given)  # (out, in / groups, *kernel)
    return None if weight is None else 2 * prod(given.out) * prod(weight[1:])


def _conv_transpose(given: Given) -> int | None:
    weight, x = _weight(given), given.find("0", "input")  # (in, out / groups, *kernel)
    return None if weight is None or x is None else 2 * prod(x) * prod(weight[1:])


def _attention(given: Given) -> int | None:
    q, k, v = given.find("0", "query"), given.find("1", "key"), given.find("2", "value")
    if q is None or k is None or v is None:
        return None
    return 2 * prod(q[:-1]) * k[-2] * (q[-1] + v[-1])


def _multi_head(given: Given) -> int | None:
    """Three projections, attention, and the one back; shapes are (length, batch, width)."""
    q, k, v = given.find("0", "query"), given.find("1", "key"), given.find("2", "value")
    if q is None or k is None or v is None or (len(q) == 3 and not q[1]):
        return None
    width, length = q[-1], k[0]
    into = 2 * width * (prod(q) + prod(k) + prod(v))
    return into + 4 * prod(q) * length + 2 * prod(q) * width


def _recurrent(given: Given) -> int | None:
    """Every weight matrix is applied to every item of every step."""
    x = given.find("0", "input")
    weights = [shape for name, shape in given.tensors.items() if re.match(r"[23](\.|$)", name)]
    weights = [shape for shape in (*weights, *given.params) if len(shape) == 2]
    return 2 * (prod(x) // x[-1]) * sum(map(prod, weights)) if x and x[-1] and weights else None


def _einsum(given: Given) -> int | None:
    """Of two operands; more are contracted in an order that is not known here."""
    equation = first_setting(given.settings)
    if not isinstance(equation, str) or not 1 <= len(operands := _operands(given)) <= 2:
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
    """What is kept where the equation does not say: letters that stand once, and an ellipsis."""
    return {index for part in sizes for index in part if index[0] == "." or left.count(index) == 1}


def _operands(given: Given) -> list[Shape]:
    """The tensors after the equation in their order; a place that no edge leads to is a parameter's."""
    places = {
        int(name.rpartition(".")[2]): shape for name, shape in given.tensors.items() if name[-1:].isdigit()
    }
    begin = 0 if any("." in name for name in given.tensors) else 1
    params, found = list(given.params), list[Shape]()
    for place in range(begin, begin + len(places) + len(params)):
        if place not in places and not params:
            return []
        found.append(places[place] if place in places else params.pop(0))
    return found


def _indices(part: str, shape: Shape) -> dict[str, int]:
    """The size of each index: letters, and ``.1``, ``.2`` … for an ellipsis, from the right."""
    before, dots, after = part.partition("...")
    sizes = dict(zip(before, shape, strict=False))
    if dots:
        middle = shape[len(before) : len(shape) - len(after)]
        sizes |= {f".{place}": size for place, size in enumerate(reversed(middle), 1)}
        sizes |= dict(zip(after, shape[len(shape) - len(after) :], strict=False))
    return sizes


def first_setting(settings: str) -> object:
    """The first positional argument that is no tensor; None where there is none or it is no literal."""
    try:
        call = ast.parse(f"f({settings})", mode="eval").body
        return ast.literal_eval(call.args[0]) if isinstance(call, ast.Call) and call.args else None
    except (SyntaxError, ValueError):
        return None


_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
#: A rule for each type: what the call took, or None where that cannot be told.
PRODUCTS: dict[str, Callable[[Given], int | None]] = {
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "grouped_mm"), _matmul(0, "input", "other")),
    **dict.fromkeys(("addmm", "addmv"), _matmul(1, "mat1", "mat2")),
    "baddbmm": _matmul(1, "batch1", "batch2"),
    "addbmm": _addbmm,
    **dict.fromkeys(("dot", "vdot"), _dot),
    "linear": _linear,
    "einsum": _einsum,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _conv),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _conv_transpose),
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _multi_head,
    **{name + cell: _recurrent for name in _RECURRENT for cell in ("", "_cell")},
}
