"""Find where the positions of a map lie in the image that the model receives.

A position of a convolution's map responds to the pixels under its kernel, so it belongs to their center. The
kernels, strides and paddings of the operations between the input and the map are composed along the graph
(Dumoulin and Visin 2016, "A guide to convolution arithmetic for deep learning"). Stretching a map over the
image instead would shift it wherever a convolution does not pad.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...core.graph import INPUT, OP, OUTPUT, Graph
from ...core.units import KEEPING

Numbers = tuple[float, ...]
Sizes = tuple[int, ...]


class Places(NamedTuple):
    """The places of a map's positions in the image, along each of its spatial axes.

    Attributes:
        start: The place of the first position; that of a pixel is its number.
        step: The distance between two positions.
    """

    start: Numbers
    step: Numbers


def places_of(graph: Graph, row: int) -> Places | None:
    """Return the places of the positions of a row's value; None if the graph does not tell.

    Args:
        graph: The graph of a pass whose inputs have their spatial axes last, after those of the batch and of
            the channels.
        row: The row.
    """
    known: dict[int, Places | None] = {}
    of_input: set[int] = set()  # rows that descend from an input
    for one in sorted(_needed(graph, row)):
        parents = graph.parents(one)
        if int(graph.ops.kind[one]) == INPUT or not of_input.isdisjoint(parents):
            of_input.add(one)
        known[one] = _places(graph, one, known, of_input)
    return known[row]


def _needed(graph: Graph, row: int) -> set[int]:
    needed, todo = {row}, [row]
    while todo:
        new = set(graph.parents(todo.pop())) - needed
        needed |= new
        todo += new
    return needed


def _shape(graph: Graph, row: int) -> Sizes:
    return graph.metas[int(graph.ops.meta[row])].shape


def _places(graph: Graph, row: int, known: dict[int, Places | None], of_input: set[int]) -> Places | None:
    kind, shape = int(graph.ops.kind[row]), _shape(graph, row)
    axes = len(shape) - 2
    if axes not in (1, 2, 3):
        return None
    if kind == INPUT:
        return Places((0.0,) * axes, (1.0,) * axes)
    # What does not come from an input, and one number for a whole channel, have no places of their own.
    parents = [
        parent
        for parent in graph.parents(row)
        if parent in of_input and (known[parent] is not None or set(_shape(graph, parent)[2:]) - {1})
    ]
    found, sizes = {known[parent] for parent in parents}, {_shape(graph, parent)[2:] for parent in parents}
    if len(found) != 1 or len(sizes) != 1:
        return None  # of no image, or of images that lie differently
    (before,), (size,) = found, sizes
    if before is None:
        return None
    type_ = graph.type_of(row)
    if kind == OUTPUT or type_ in KEEPING:
        return before if size == shape[2:] and type_ not in _MOVING else _padded(graph, row, before)
    rule = _RULES.get(re.sub(r"[123]d(_with_indices)?$", "", type_))
    moves = rule(_Call(graph, row, size, shape[2:])) if rule and kind == OP else None
    return None if moves is None else _composed(before, moves)


#: Operations of ``KEEPING`` that may move positions along an axis without changing its length.
_MOVING = frozenset({"flip", "roll", "sort", "topk", "index_select", "narrow", "split", "chunk"})


def _composed(before: Places, moves: Sequence[tuple[float, float]]) -> Places:
    """Return the places after an operation.

    Args:
        before: The places of its argument.
        moves: For each axis, the place of its first result and the distance of two, in positions of its
            argument.
    """
    start = tuple(s + d * first for s, d, (first, _) in zip(*before, moves, strict=True))
    return Places(start, tuple(d * step for d, (_, step) in zip(before.step, moves, strict=True)))


class _Call(NamedTuple):
    """A call: its graph and row, and the sizes of its argument and its result along the spatial axes."""

    graph: Graph
    row: int
    size: Sizes
    out: Sizes

    def arguments(self, names: str) -> dict[str, object]:
        """Return the arguments that are not tensors by name; ``names`` are those of positional ones."""
        try:
            call = ast.parse(f"f({self.graph.setting(self.row)})", mode="eval").body
            assert isinstance(call, ast.Call)
            given = [ast.literal_eval(one) for one in call.args]
            if given[:1] == [None] and self.graph.type_of(self.row).startswith("conv"):
                del given[0]  # no bias
            named = {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg}
        except (SyntaxError, ValueError, AssertionError):
            return {}
        return dict(zip(names.split(), given, strict=False)) | named

    def each(self, value: object, default: int) -> list[int] | None:
        """Return an argument as one number per axis; None if it is something else."""
        value = default if value is None or value in ([], ()) else value
        if isinstance(value, int):
            return [value] * len(self.size)
        if isinstance(value, list | tuple) and all(type(one) is int for one in value):
            return list(value) if len(value) == len(self.size) else None
        return None

    def kernel(self) -> Sizes | None:
        """Return the size of the kernel of a convolution."""
        weights = [self.graph.params[n].shape for n in self.graph.row_params.get(self.row, ())]
        weights += [_shape(self.graph, parent) for parent in self.graph.parents(self.row)[1:]]
        return next((shape[2:] for shape in weights if len(shape) == len(self.size) + 2), None)


Moves = list[tuple[float, float]] | None


def _convolution(call: _Call) -> Moves:
    given, kernel = call.arguments("stride padding dilation groups"), call.kernel()
    stride, dilation = call.each(given.get("stride"), 1), call.each(given.get("dilation"), 1)
    if kernel is None or stride is None or dilation is None:
        return None
    padding = given.get("padding")
    if padding == "same":
        pads: list[int] | None = [d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True)]
    else:
        pads = call.each(None if padding == "valid" else padding, 0)
    if pads is None:
        return None
    reach = zip(kernel, stride, pads, dilation, strict=True)
    return [((k - 1) * d / 2 - p, float(s)) for k, s, p, d in reach]


def _transposed(call: _Call) -> Moves:
    given = call.arguments("stride padding output_padding groups dilation")
    kernel, stride = call.kernel(), call.each(given.get("stride"), 1)
    pads, dilation = call.each(given.get("padding"), 0), call.each(given.get("dilation"), 1)
    if kernel is None or stride is None or pads is None or dilation is None:
        return None
    reach = zip(kernel, stride, pads, dilation, strict=True)
    return [((p - (k - 1) * d / 2) / s, 1 / s) for k, s, p, d in reach]


def _pooling(call: _Call) -> Moves:
    averages = "avg" in call.graph.type_of(call.row)
    given = call.arguments("kernel_size stride padding" + (" ceil_mode" if averages else " dilation"))
    kernel = call.each(given.get("kernel_size"), 1)
    pads, dilation = call.each(given.get("padding"), 0), call.each(given.get("dilation"), 1)
    stride = kernel if given.get("stride") in (None, [], ()) else call.each(given.get("stride"), 1)
    if kernel is None or stride is None or pads is None or dilation is None:
        return None
    reach = zip(kernel, stride, pads, dilation, strict=True)
    return [((k - 1) * d / 2 - p, float(s)) for k, s, p, d in reach]


def _evenly(call: _Call) -> Moves:
    """Return the moves of an operation whose results cover the whole argument, as adaptive pooling does."""
    return [(old / new / 2 - 0.5, old / new) for old, new in zip(call.size, call.out, strict=True)]


def _interpolated(call: _Call) -> Moves:
    if not call.arguments("size scale_factor mode align_corners").get("align_corners"):
        return _evenly(call)
    return [(0.0, (old - 1) / max(new - 1, 1)) for old, new in zip(call.size, call.out, strict=True)]


_RULES: dict[str, Callable[[_Call], Moves]] = {
    "conv": _convolution,
    "conv_transpose": _transposed,
    "max_pool": _pooling,
    "avg_pool": _pooling,
    "adaptive_avg_pool": _evenly,
    "adaptive_max_pool": _evenly,
    "interpolate": _interpolated,
    "upsample": _interpolated,
} | dict.fromkeys(
    ["dropout", "feature_dropout", "batch_norm", "instance_norm", "group_norm", "channel_shuffle"],
    lambda call: [(0.0, 1.0)] * len(call.size) if call.size == call.out else None,
)


def _padded(graph: Graph, row: int, before: Places) -> Places | None:
    """Return the places after ``torch.nn.functional.pad``; None for any other operation."""
    axes = len(before.step)
    pads = _Call(graph, row, (), ()).arguments("pad").get("pad")
    if graph.type_of(row) not in ("pad", "constant_pad_nd") or not isinstance(pads, list | tuple):
        return None
    left = [int(pads[at]) if at < len(pads) else 0 for at in range(0, 2 * axes, 2)][::-1]
    return _composed(before, [(-float(one), 1.0) for one in left])
