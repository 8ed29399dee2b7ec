"""Tell in which order two operations take the axes of a matrix or of the kernel of a convolution.

An order is that of PyTorch: the axis of the units, the one that is summed over, and those of the window.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....core.graph import Graph
from ....core.vocabularies import common_type
from ....core.vocabularies.families import CONVOLUTIONS, MOVES
from ..values.elements import plain, value_of
from ..values.settings import arguments

if TYPE_CHECKING:
    from ...results.trace import Trace


class Order(NamedTuple):
    """The order in which an operation takes the axes of a parameter.

    Attributes:
        axes: The axis of the units, the one that is summed over, and those of the window.
        is_flipped: Whether the window begins at its end, as that of a transposed convolution does, whose
            kernel is written for the other direction.
    """

    axes: tuple[int, ...]
    is_flipped: bool = False


class Turn(NamedTuple):
    """A change of one array's axes by which it is compared with another array.

    Attributes:
        axes: The order of the axes.
        flipped: The axes along which it is flipped before.
    """

    axes: tuple[int, ...]
    flipped: tuple[int, ...] = ()

    def of(self, array: np.ndarray) -> np.ndarray:
        """Return the array turned so."""
        return np.flip(array, self.flipped).transpose(self.axes)


TRANSPOSED = Turn((1, 0))

_TORCH: Mapping[str, Mapping[int, int]] = {
    "linear": {1: 1},
    "matmul": {0: 1, 1: 0},
    "mm": {0: 1, 1: 0},
    "addmm": {1: 1, 2: 0},
    "gemm": {0: 1, 1: 0},
    "embedding": {1: 0},
    "gather": {0: 0},
    "multi_head_attention_forward": {4: 1, 9: 1},
}
_TENSORFLOW: Mapping[str, Mapping[int, int]] = {
    **{kind: {0: 1, 1: 0} for kind in ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")},
    **{kind: {0: 0} for kind in ("GatherV2", "ResourceGather")},
}
_MXNET: Mapping[str, Mapping[int, int]] = {
    "FullyConnected": {1: 1},
    "dot": {0: 1, 1: 0},
    "Embedding": {1: 0},
}
#: The axis of a matrix that is summed over (or looked up), by the framework, the type of the operation and
#: the argument that the matrix is.
_SUMMED: Mapping[str, Mapping[str, Mapping[int, int]]] = {
    **dict.fromkeys(("torch", "torch.export", "ONNX"), _TORCH),
    "jax": {"dot_general": {0: 1, 1: 0}, "gather": {0: 0}},
    **dict.fromkeys(("tensorflow", "keras"), _TENSORFLOW),
    **dict.fromkeys(("mxnet", "MXNet symbol"), _MXNET),
}
#: Settings that turn the first and the second matrix, by the type of the operation.
_FLIPS = {
    "gemm": ("transA", "transB"),
    "MatMul": ("transpose_a", "transpose_b"),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), ("adj_x", "adj_y")),
    "dot": ("transpose_a", "transpose_b"),
}
#: Convolutions whose kernel has its units first, then the channels; and those that have both last.
_UNITS_FIRST, _UNITS_LAST = frozenset({"conv", *CONVOLUTIONS}), frozenset({"Conv2D", "Conv3D"})
#: Transposed convolutions, of which groups are units of the kernel's first axis.
_TRANSPOSED = frozenset(
    {"conv_transpose", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "Deconvolution"}
)
_TRANSPOSED_TO_LAST = frozenset({"Conv2DBackpropInput", "Conv3DBackpropInputV2"})
#: The names of arguments, where they are given by name.
_NAMES = {"input": 0, "weight": 1, "other": 1, "mat1": 1, "mat2": 2}


def turn(a: Trace, address: str, b: Trace, other: str) -> Turn | None:
    """Return how to turn a parameter of ``b`` to compare it with that of ``a`` that computes the same.

    Args:
        a: The first trace.
        address: The address of a parameter in it.
        b: The second trace.
        other: The address of the parameter in it that corresponds.

    Returns:
        None if that is not known: of other operations, or of a parameter that is used in several orders.
    """
    if a.graph.facts.get("framework") == b.graph.facts.get("framework"):
        uses = [_uses(trace.graph, _users(trace.graph, name)) for trace, name in ((a, address), (b, other))]
        if uses[0] and uses[0] == uses[1]:
            return Turn(tuple(range(_axes_of(a.graph, address))))
    one, two = (set(_orders(trace, name)) for trace, name in ((a, address), (b, other)))
    found = {_between(x, y) for x in one for y in two if len(x.axes) == len(y.axes)}
    fitting = [turn for turn in found if {_turned(y, turn) for y in two} <= one]
    return fitting[0] if len(fitting) == 1 else None


def is_turned(a: Trace, address: str, b: Trace, other: str) -> bool | None:
    """Return whether a matrix of ``b`` has to be the transpose of the matrix of ``a`` to compute the same.

    Args and None: as of ``turn``.
    """
    found = turn(a, address, b, other)
    return None if found is None else found == TRANSPOSED


def _between(x: Order, y: Order) -> Turn:
    """Return how to turn what is used in the order ``y`` to what is used in the order ``x``."""
    axes = tuple(y.axes[x.axes.index(axis)] for axis in range(len(x.axes)))
    return Turn(axes, y.axes[2:] if x.is_flipped != y.is_flipped else ())


def _turned(own: Order, turn: Turn) -> Order:
    """Return the order in which an operation takes what was turned, and it took in ``own`` before."""
    return Order(tuple(turn.axes.index(axis) for axis in own.axes), own.is_flipped != bool(turn.flipped))


def _axes_of(graph: Graph, address: str) -> int:
    return next(len(param.shape) for param in graph.params if param.address == address)


def _users(graph: Graph, address: str) -> dict[int, int]:
    """Return the rows that use a parameter, each with the place of it among their parameters."""
    number = next((n for n, param in enumerate(graph.params) if param.address == address), None)
    return {row: list(used).index(number) for row, used in graph.row_params.items() if number in used}


def _uses(graph: Graph, users: Mapping[int, Hashable]) -> frozenset[Hashable] | None:
    """Return what operations compute with a tensor, whatever that is; None if it is not known of one.

    Args:
        graph: The graph.
        users: The rows that use the tensor, with the place that it has there.
    """
    found: set[Hashable] = set()
    for row, place in users.items():
        kind = common_type(graph, row)
        uses: frozenset[Hashable] | None = frozenset()
        if kind in MOVES:
            uses = _uses(graph, {n: graph.parents(n).index(row) for n in graph.children(row)})
        if not kind or uses is None:
            return None
        given = tuple(sorted(name for name, _ in graph.parents_by_argument(row)))
        found.add((graph.type_of(row), graph.setting(row), given, place, uses))
    return frozenset(found)


def _orders(trace: Trace, address: str) -> Iterator[Order]:
    """Yield the orders in which operations use the axes of a parameter, as far as they are known."""
    graph = trace.graph
    summed = _SUMMED.get(str(graph.facts.get("framework")))
    if summed is None:
        return
    for row in _users(graph, address):
        numbers, kind, parents = graph.row_params[row], graph.type_of(row), set(_arguments(trace, row))
        places = [place for place in summed.get(kind, {}) if place not in parents]
        matrices = [n for n in numbers if len(graph.params[n].shape) == 2]
        if _axes_of(graph, address) > 2:
            yield from _order_of_kernel(graph, row, _axes_of(graph, address))
        elif places and (len(matrices) == 1 == len(places) or kind == "multi_head_attention_forward"):
            yield from _order_of_matrix(graph, row, places[0])
        elif not parents and len(numbers) == 1:  # a transposition, or a copy, of the matrix alone
            yield from _orders_of_copy(trace, row, address)


def _orders_of_copy(trace: Trace, row: int, address: str) -> Iterator[Order]:
    """Yield the orders in which operations use what another made of a matrix: itself, or its transpose."""
    value = trace.values.get(row)
    copy, own = None if value is None else plain(value), value_of(trace, address)
    if copy is None or own is None:
        return
    same, turned = (np.array_equal(copy.array, one) for one in (own.array, own.array.T))
    if same == turned:
        return
    for child in trace.graph.children(row):
        for place, parent in _arguments(trace, child).items():
            if parent == row:
                found = _order_of_matrix(trace.graph, child, place)
                yield from (Order(one.axes[::-1]) if turned else one for one in found)


def _order_of_matrix(graph: Graph, row: int, place: int) -> Iterator[Order]:
    """Yield the order of a matrix that an operation takes as an argument, if it is known."""
    kind, given = graph.type_of(row), arguments(graph.setting(row))
    axis = _SUMMED[str(graph.facts.get("framework"))].get(kind, {}).get(place)
    if kind == "dot_general":
        axis = _contracted(given, place)
    if kind == "gather" and graph.facts.get("framework") == "jax":
        is_lookup = given.get("start_index_map") == given.get("collapsed_slice_dims") == "(0,)"
    else:
        is_lookup = kind not in ("gather", "GatherV2") or given.get("axis") == "0"
    if axis is None or not is_lookup:
        return
    if kind in _FLIPS and given.get(_FLIPS[kind][place], "0") not in ("0", "False"):
        axis = 1 - axis
    yield Order((1 - axis, axis))


def _contracted(given: Mapping[str, str], place: int) -> int | None:
    """Return the one axis of a matrix that a product of JAX sums over; None if it has others."""
    axes, batch = ast.literal_eval(given.get("dimension_numbers", "((), ((), ()))"))
    return axes[place][0] if axes and len(axes[place]) == 1 and not batch[place] else None


def _order_of_kernel(graph: Graph, row: int, axes: int) -> Iterator[Order]:
    """Yield the order of the kernel of a convolution, if it is known."""
    kind, given = graph.type_of(row), arguments(graph.setting(row))
    window, last = tuple(range(2, axes)), given.get("layout", "").endswith("C")
    if kind in _UNITS_FIRST:
        yield Order((0, 1, *window))
    elif kind in _UNITS_LAST:
        yield Order((axes - 1, axes - 2, *range(axes - 2)))
    elif kind == "Convolution":  # whose units and channels have the places of the batch and the channels
        yield Order((0, axes - 1, *range(1, axes - 1)) if last else (0, 1, *window))
    elif kind == "conv_general_dilated" and "rhs_spec" in given:
        yield Order(tuple(ast.literal_eval(given["rhs_spec"])))
    elif kind in _TRANSPOSED_TO_LAST:
        yield Order((axes - 2, axes - 1, *range(axes - 2)), is_flipped=True)
    elif kind in _TRANSPOSED and not last and _groups(graph, row, given) == 1:
        yield Order((1, 0, *window), is_flipped=True)


def _groups(graph: Graph, row: int, given: Mapping[str, str]) -> int:
    """Return the groups of a transposed convolution, which are 1 if one group makes all units."""
    kernel = max((graph.params[n].shape for n in graph.row_params[row]), key=len)
    if "num_group" in given:
        return int(given["num_group"])
    channels = graph.metas[int(graph.ops.meta[row])].shape[1 - len(kernel)]
    return channels // kernel[1]


def _arguments(trace: Trace, row: int) -> dict[int, int]:
    """Return the rows that an operation takes, by the place of the argument; -1 for an unknown name."""
    given = trace.graph.parents_by_argument(row)
    return {int(name) if name.isdigit() else _NAMES.get(name, -1): parent for name, parent in given}
