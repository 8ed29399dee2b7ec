"""Follow the batch axis through functions between modules, along autograd's graph.

Only operations whose effect on axes is known are followed: elementwise ones, those that move, add or drop an
axis, and reductions. Behind anything else, and without gradients, the axis is not known.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from torch import Tensor

#: Operations, as autograd names them, whose result has the axes of what they are given.
_SAME = {
    "Add", "Sub", "Mul", "Div", "Pow", "Neg", "Abs", "Exp", "Log", "Sqrt", "Tanh", "Sigmoid", "Relu", "Gelu",
    "Silu", "Elu", "LeakyRelu", "Softplus", "Hardtanh", "Mish", "NativeDropout", "FusedDropout", "MaskedFill",
    "Where", "Clamp", "ClampMin", "ClampMax", "Clone", "Alias", "ToCopy", "Softmax", "LogSoftmax",
    "NativeLayerNorm", "Cat", "Slice",
}  # fmt: skip
_REDUCTIONS = {"Mean", "Sum", "Amax", "Amin", "Max", "Min", "Prod", "Select"}
#: The most operations between two modules, and the least saved number that stands for a negative one.
_MOST, _NEGATIVE = 24, 1 << 63


class _Axis(NamedTuple):
    """The batch axis of a tensor, and its number of axes."""

    axis: int
    ndim: int


class AutogradAxes:
    """The batch axes of a pass at autograd's nodes. It keeps the nodes, so it must not outlive the pass.

    Example:
        >>> import torch
        >>> axes, made = AutogradAxes(), torch.zeros(2, 3, 4, requires_grad=True) * 1
        >>> axes.add(made, 0)
        >>> axes.of((made + 1).transpose(0, 1)), axes.of(made.mean(1)), axes.of(made.mean(0))
        (1, 0, None)
    """

    def __init__(self) -> None:
        self._known: dict[Any, _Axis | None] = {}

    def add(self, tensor: Tensor | None, axis: int) -> None:
        """Register the batch axis of a tensor."""
        if tensor is not None and tensor.grad_fn is not None:
            self._known[tensor.grad_fn] = _Axis(axis, tensor.ndim)

    def of(self, tensor: Tensor | None) -> int | None:
        """Return the batch axis of a tensor, or None."""
        if tensor is None or tensor.grad_fn is None or not self._known:
            return None
        found = self._at(tensor.grad_fn, _MOST)
        return None if found is None or found.ndim != tensor.ndim else found.axis

    def _at(self, node: Any, most: int) -> _Axis | None:
        if node in self._known:
            return self._known[node]
        given = (
            [] if not most else [self._at(one, most - 1) for one, _ in node.next_functions if one is not None]
        )
        known = {one for one in given if one is not None}
        found = _after(node, known.pop()) if len(known) == 1 else None
        self._known[node] = found
        return found


def _after(node: Any, given: _Axis) -> _Axis | None:
    """Return the batch axis behind an operation, given the one before it; None if it is not known."""
    name = re.sub(r"Backward\d*$", "", node.name())
    axis, ndim = given

    def saved(what: str) -> list[int]:
        value = getattr(node, f"_saved_{what}")
        numbers = value if isinstance(value, tuple | list) else (value,)
        return [(one - 2 * _NEGATIVE if one >= _NEGATIVE else one) % ndim for one in numbers]

    if name in _SAME:
        is_along = name in ("Cat", "Slice") and saved("dim") == [axis]
        return None if is_along else given
    if name == "Transpose":
        pair = [*saved("dim0"), *saved("dim1")]
        return _Axis(pair[1 - pair.index(axis)] if axis in pair else axis, ndim)
    if name == "T" and ndim == 2:
        return _Axis(1 - axis, ndim)
    if name == "Permute":
        return _Axis(saved("dims").index(axis), ndim)
    if name in _REDUCTIONS and hasattr(node, "_saved_dim"):
        dropped = saved("dim")
        if not dropped or axis in dropped:
            return None
        if getattr(node, "_saved_keepdim", False):
            return given
        return _Axis(axis - sum(one < axis for one in dropped), ndim - len(dropped))
    return None
