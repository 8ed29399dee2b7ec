"""The units of a value: the axis that enumerates them, and the index that selects some of them.

``UnitAxes`` follows this axis through the graph: a convolution has its channels second, a linear layer its
features last, an elementwise operation keeps the axes of its arguments, ``transpose`` and ``permute`` move
them. If the operations do not determine the axis, it is refused: a wrong axis would give plausible numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import combinations
from math import prod
from operator import eq, le

import numpy as np

from .address import UnitRange, Units
from .errors import AddressError, InputError
from .graph import OP, Graph
from .vocabularies import common_types, is_translated
from .vocabularies.families import CASTS, ELEMENTWISE

Index = int | slice | list[int]

#: Operations over the last k axes, which are spatial; the channels are the axis before these.
_SPATIAL = re.compile(
    r"(?:conv|conv_transpose|(?:adaptive_)?(?:avg|max)_pool|lp_pool|max_unpool|fractional_max_pool|dropout)([123])d"
    r"(?:_with_indices)?"
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Operations whose channels are the second axis.
_SECOND = _names("""
    batch_norm instance_norm group_norm native_batch_norm native_group_norm convolution local_response_norm
    channel_shuffle interpolate upsample grid_sample grid_sampler feature_dropout feature_alpha_dropout
    conv conv_transpose batch_normalization instance_normalization group_normalization max_pool average_pool
    global_max_pool global_average_pool
""")
#: Operations whose features are the last axis.
_LAST = _names("""
    linear addmm mm embedding embedding_bag bilinear lstm gru rnn_tanh rnn_relu lstm_cell gru_cell
    rnn_tanh_cell rnn_relu_cell multi_head_attention_forward gemm fully_connected rnn_of_flat_weights
""")
#: Operations that compute each element of the result from those at its place.
_POINTWISE = (ELEMENTWISE | CASTS) | _names("""
    alpha_dropout bernoulli clone conj contiguous copy cpu cuda detach dropout fill imag ones_like positive
    rand_like randn_like real requires_grad_ resolve_conj resolve_neg zeros_like
""")
#: Operations that keep the number and meaning of the axes, whatever they compute along one of them.
KEEPING = _POINTWISE | _names("""
    all amax amin any logsumexp max mean median min norm prod std sum var
    cat chunk concat concatenate constant_pad_nd cummax cummin cumprod cumsum flip glu index_select
    layer_norm log_softmax native_dropout native_layer_norm narrow normalize pad renorm rms_norm roll
    softmax softmin sort split split_with_sizes tensor_split topk
    identity layer_normalization rms_normalization
""")
#: Operations that may compute one number along some axes, which the result then lacks.
_REDUCING = _names("""
    all amax amin any argmax argmin count_nonzero logsumexp max mean median min mode nanmean nanmedian nansum
    norm prod std sum var vector_norm reduce_l1 reduce_l2 reduce_log_sum reduce_log_sum_exp reduce_max
    reduce_mean reduce_min reduce_prod reduce_sum reduce_sum_square
""")
_INDEXING = _names("getitem select unbind")
_EXPANDING = _names("expand expand_as broadcast_to")
_NORMALIZED = frozenset({"layer_norm", "native_layer_norm", "rms_norm"})
_RESHAPING = _names("view reshape flatten unflatten ravel squeeze unsqueeze view_as reshape_as _unsafe_view")
_SWAPPING = frozenset({"transpose", "swapaxes", "swapdims"})
_MOVING = frozenset({"movedim", "moveaxis"})
#: Operations whose parameters hold several gates or projections, one below the other.
_GATED = _names(
    "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell multi_head_attention_forward rnn_of_flat_weights"
)
#: Operations whose units are the columns of a matrix.
_SECOND_OF_MATRIX = _names("addmm mm matmul embedding embedding_bag")
#: Operations that keep the axes of arguments, though one along which they compute may be shorter.
_KEEPING_AXES = KEEPING | {"pool_by_window"}
#: Operations of TensorFlow whose channels are last, unless they say that these come first.
_CHANNELS_LAST = _names("""
    conv_to_last conv_transpose_to_last conv_of_each_channel pool_to_last batch_norm_to_last add_to_channels
""")
#: Operations of MXNet whose layout is a setting; without one the channels are second.
_BY_LAYOUT = _names("conv_by_layout conv_transpose_by_layout pool_by_layout")
_DOT_GENERAL = re.compile(
    r"dimension_numbers=\(\(\(([\d, ]*)\), \(([\d, ]*)\)\), \(\(([\d, ]*)\), \([\d, ]*\)\)\)"
)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")


class UnitAxes:
    """The unit axis of each value of a graph.

    The operation that produced the value determines it: the channels of a convolution, the features of a
    linear layer, a norm or an embedding, the heads of fused attention. Elementwise operations keep the axis
    of their arguments; transpositions move it. Values that do not descend from such an operation, such as
    inputs, have their units along the last of one or two axes.

    Args:
        graph: The graph of a forward pass.

    Attributes:
        is_translated: Whether its operations are those of another framework than PyTorch.

    Example:
        >>> from intus import trace
        >>> conv = trace(torch.nn.Conv2d(3, 8, 3), torch.ones(1, 3, 5, 5)).graph
        >>> UnitAxes(conv).of(conv.rows("conv2d_1")[0])
        1
    """

    def __init__(self, graph: Graph) -> None:
        self._graph, self._types = graph, common_types(graph)
        self.is_translated = is_translated(graph)

    def of(self, row: int, key: str | None = None) -> int:
        """Return the unit axis of a row's value.

        Args:
            row: A row of ``graph.ops``.
            key: The address that the caller wrote, for the error message; the row's label by default.

        Raises:
            AddressError: If the operations do not determine the axis, or contradict each other. The caller
                can then name an axis with ``@``.
        """
        axis = self.find(row)
        if axis is None:
            shape = self._graph.metas[int(self._graph.ops.meta[row])].shape
            raise unknown_axis(key or self._graph.label(row), shape)
        return axis

    def find(self, row: int) -> int | None:
        """Return the unit axis of a row's value, or None if the operations do not determine it."""
        return self._axes[row]

    @cached_property
    def _axes(self) -> list[int | None]:
        """The axis of every row, None if not determined: one sweep in order of execution."""
        graph = self._graph
        shapes = [graph.metas[meta].shape for meta in graph.ops.meta.tolist()]
        axes: list[int | None] = []
        lost: list[bool] = []  # whether the units of an argument are no axis of the row any more
        for row, shape in enumerate(shapes):
            type_ = self._types[int(graph.ops.type[row])]
            axis = _axis_of_operation(graph, row, type_, shape, shapes)
            if axis is None:
                above = graph.parents(row) if graph.ops.kind[row] == OP else []
                parents = [(shapes[parent], axes[parent]) for parent in graph.parents(row)]
                axis = _axis_of_arguments(graph, row, type_, shape, parents)
                known = any(axes[parent] is not None or lost[parent] for parent in above)
                if axis is None and not known and 1 <= len(shape) <= 2:
                    axis = len(shape) - 1
                lost.append(axis is None and known)
            else:
                lost.append(False)
            axes.append(axis)
        return axes

    def of_parameter(self, number: int, key: str) -> int:
        """Return the axis of a parameter whose entries belong to the units of the operations that use it.

        It is the first axis of the weight of a linear layer or a convolution, the second of a transposed
        convolution or an embedding. Units of a matrix that computes gates of a recurrent layer, or of one
        that two operations use differently, are not determined.

        Args:
            number: Index into ``graph.params``.
            key: The address that the caller wrote, for the error message.

        Raises:
            AddressError: If the operations do not determine the axis.
        """
        graph, shape = self._graph, self._graph.params[number].shape
        rows = [row for row, params in graph.row_params.items() if number in params]
        axes = {_axis_of_parameter(self._types[int(graph.ops.type[row])], len(shape)) for row in rows}
        axis = axes.pop() if len(axes) == 1 else 0 if len(shape) == 1 and not axes else None
        if axis is None:
            raise unknown_axis(key, shape)
        return axis


def _axis_of_parameter(type_: str, axes: int) -> int | None:
    """Return the axis of the units in a parameter of an operation, or None if its type does not tell."""
    if type_ in _GATED:
        return None
    if axes == 1:
        return 0
    if type_ in ("conv_to_last", "conv_transpose_to_last"):
        return axes - (2 if "transpose" in type_ else 1)
    if type_ in ("conv_general_dilated", "conv_of_each_channel"):
        return None
    if type_.startswith("conv"):
        return 1 if "transpose" in type_ else 0
    if type_ in ("linear", "fully_connected"):
        return 0
    return 1 if axes == 2 and type_ in _SECOND_OF_MATRIX else None


def unknown_axis(key: str, shape: tuple[int, ...]) -> AddressError:
    """Return the error for a value whose unit axis is not determined by its operations."""
    if not shape:
        return AddressError(f"{key!r}: the value is a scalar and has no units.")
    name = key.partition("[")[0]
    return AddressError(
        f"{key!r} has shape {tuple(shape)}, and its operations do not determine its unit axis. "
        f"Name the axis: '{name}[0@1]' is unit 0 along axis 1, '{name}[:@{len(shape) - 1}]' all units "
        "along the last axis."
    )


def axis_of_type(type_: str, axes: int) -> int | None:
    """Return the unit axis of an operation's result, if its type determines it.

    Args:
        type_: The type of the operation, such as ``conv2d``.
        axes: The number of axes of the result.

    Returns:
        The axis, or None if the type does not determine it.
    """
    last = axes - 1
    spatial = _SPATIAL.fullmatch(type_)
    if spatial and last >= int(spatial[1]):
        return last - int(spatial[1])
    if type_ in _SECOND and last >= 1:
        return 1
    if type_ in ("pixel_shuffle", "pixel_unshuffle") and last >= 2:
        return last - 2
    return last if type_ in _LAST and last >= 0 else None


def _axis_of_operation(
    graph: Graph, row: int, type_: str, shape: tuple[int, ...], shapes: list[tuple[int, ...]]
) -> int | None:
    """Return the axis that the row's own operation determines, or None."""
    last = len(shape) - 1
    if type_ == "multi_head_attention_forward" and int(graph.ops.output[row]) > 0:
        return None  # attention weights
    axis = axis_of_type(type_, len(shape))
    if axis is not None:
        return axis
    if type_ in _NORMALIZED:
        return last if len(_numbers(graph.setting(row).partition(")")[0].partition("]")[0])) == 1 else None
    if type_ == "scaled_dot_product_attention":
        return 1 if last == 3 else None  # (batch, heads, positions, features)
    if last >= 2 and (axis := _axis_of_settings(type_, graph.setting(row), last)) is not None:
        return axis
    if type_ == "gather_slices":  # of JAX and TensorFlow: rows of a table
        tables = [graph.params[number].shape for number in graph.row_params.get(row, ())]
        places = re.search(r"offset_dims=\((\d+),?\)", graph.setting(row))
        if len(tables) != 1 or len(tables[0]) != 2:
            return None
        return int(places[1]) if places else last if "offset_dims" not in graph.setting(row) else None
    if type_ == "dot_general":
        return _axis_of_dot_general(graph, row, last, shapes)
    if type_ in ("matmul", "matmul_by_settings", "dot_by_settings", "batch_dot"):
        second = [shapes[src] for src, arg in _arguments(graph, row) if arg in ("1", "other")]
        second += [graph.params[number].shape for number in graph.row_params.get(row, ())]
        return last if any(len(one) == 2 for one in second) and last >= 1 else None
    return None


def _axis_of_settings(type_: str, settings: str, last: int) -> int | None:
    """Return the axis of the channels that an operation declares in its settings, or None."""
    if type_ in _CHANNELS_LAST:
        return 1 if "data_format=NC" in settings else last
    if type_ in _BY_LAYOUT:
        layout = re.search(r"layout=(N\w+)", settings)
        return layout[1].find("C") if layout and layout[1] != "None" else 1
    if type_ == "batch_norm_by_axis":
        declared = re.search(r"\baxis=(-?\d+)", settings)
        return int(declared[1]) % (last + 1) if declared else 1
    if type_ == "conv_general_dilated":
        channels = re.search(r"out_spec=\(\d+, (\d+)", settings)
        return int(channels[1]) if channels else None
    return None


def _axis_of_dot_general(graph: Graph, row: int, last: int, shapes: list[tuple[int, ...]]) -> int | None:
    """Return the axis of the features of a product of JAX: the only one that comes from a matrix.

    The result has the common axes of both arguments first, then the others of the first, then of the second.
    """
    axes = _DOT_GENERAL.search(graph.setting(row))
    sides = {arg: len(shapes[src]) for src, arg in _arguments(graph, row)}
    if axes is None or axes[3]:
        return None
    left, right = (len(_numbers(axes[at])) for at in (1, 2))
    if "1" in sides and "0" not in sides and graph.row_params.get(row):
        return 0 if last + 1 - (sides["1"] - right) == 1 else None
    if "0" in sides and ("1" not in sides or sides["1"] == 2):
        return last if last + 1 - (sides["0"] - left) == 1 else None
    return None


def _axis_of_arguments(
    graph: Graph,
    row: int,
    type_: str,
    shape: tuple[int, ...],
    parents: Iterable[tuple[tuple[int, ...], int | None]],
) -> int | None:
    """Return the axis that the unit axes of the arguments become, or None if unknown or contradictory."""
    settings = graph.setting(row)
    axes: set[int] = set()
    for before, axis in parents:
        if axis is None:
            continue
        if type_ in _KEEPING_AXES or graph.ops.kind[row] != OP:
            # An axis of length 1 that grew was broadcast.
            if len(before) == len(shape) and (before[axis] == shape[axis] or before[axis] > 1):
                axes.add(axis)
        else:
            order = _order(type_, settings, before, shape)
            if order is not None and axis in order:
                axes.add(order.index(axis))
            elif type_ in _RESHAPING and _is_merged_last(before, shape, axis):
                axes.add(len(shape) - 1)
    return axes.pop() if len(axes) == 1 else None


def _order(type_: str, settings: str, before: tuple[int, ...], shape: tuple[int, ...]) -> list[int] | None:
    """Return for every axis of the result the axis of the argument (-1: none), or None if unknown."""
    axes, numbers, n = list(range(len(before))), _numbers(settings), len(before)
    if type_ in ("T", "t", "H") and (n == 2 or type_ == "T"):
        return axes[::-1]
    if type_ in ("mT", "mH", "H", "adjoint") and n >= 2:
        return [*axes[:-2], axes[-1], axes[-2]]
    if type_ in (*_SWAPPING, *_MOVING, "permute") and not all(-n <= number < n for number in numbers):
        return None
    if type_ in _SWAPPING and len(numbers) == 2:
        a, b = (number % n for number in numbers)
        axes[a], axes[b] = axes[b], axes[a]
        return axes
    if type_ == "permute" and len(numbers) == n:
        return [number % n for number in numbers]
    if type_ in _MOVING and len(numbers) == 2:
        axes.insert(numbers[1] % n, axes.pop(numbers[0] % n))
        return axes
    if type_ == "broadcast_in_dim":
        places = re.search(r"broadcast_dimensions=\(([\d, ]*)\)", settings)
        kept = _numbers(places[1]) if places else []
        return [kept.index(axis) if axis in kept else -1 for axis in range(len(shape))] if places else None
    if type_ in _RESHAPING:
        return _reshaped(before, shape)
    if type_ in _REDUCING:
        return _reduced(before, shape, settings)
    if type_ in _INDEXING:
        return _common([kept for kept in combinations(axes, len(shape)) if _fits(before, shape, kept, le)])
    if type_ in _EXPANDING and len(shape) >= n:
        new = len(shape) - n
        return [-1] * new + [axis if before[axis] == shape[new + axis] else -1 for axis in axes]
    return None


def _reduced(before: tuple[int, ...], shape: tuple[int, ...], settings: str) -> list[int] | None:
    """Return for every axis of a reduction's result the axis of the argument, or None if unknown."""
    if len(shape) >= len(before):
        return None
    numbers = [number % len(before) for number in _numbers(settings) if -len(before) <= number < len(before)]
    named = tuple(axis for axis in range(len(before)) if axis not in numbers)
    if len(named) == len(shape) and _fits(before, shape, named, eq):
        return list(named)
    kept = [one for one in combinations(range(len(before)), len(shape)) if _fits(before, shape, one, eq)]
    return _common(kept)


def _fits(
    before: tuple[int, ...],
    shape: tuple[int, ...],
    kept: tuple[int, ...],
    compare: Callable[[int, int], bool],
) -> bool:
    return all(compare(length, before[axis]) for length, axis in zip(shape, kept, strict=True))


def _common(orders: list[tuple[int, ...]]) -> list[int] | None:
    """Return the axes that all possible orders agree on, -1 where they differ; None if there is no order."""
    if not orders:
        return None
    return [axes[0] if len(set(axes)) == 1 else -1 for axes in zip(*orders, strict=True)]


def _is_merged_last(before: tuple[int, ...], shape: tuple[int, ...], axis: int) -> bool:
    """Return whether a reshape merged the axis and all axes after it into the last axis of the result."""
    return bool(shape) and shape[-1] in {prod(before[first:]) for first in range(axis + 1)}


def _reshaped(before: tuple[int, ...], shape: tuple[int, ...]) -> list[int]:
    """Return for every axis of a row-major reshape the axis of the argument, or -1.

    An axis is kept if it has equal length and the same number of elements after it.
    """
    kept = {(length, prod(before[axis + 1 :])): axis for axis, length in enumerate(before) if length > 1}
    return [kept.get((length, prod(shape[axis + 1 :])), -1) for axis, length in enumerate(shape)]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in _NUMBER.findall(text)]


def _arguments(graph: Graph, row: int) -> list[tuple[int, str]]:
    """Return pairs of a parent and the name of the argument that it is."""
    start, stop = np.searchsorted(graph.edges.dst, [row, row + 1])
    pairs = zip(graph.edges.src[start:stop].tolist(), graph.edges.arg[start:stop].tolist(), strict=True)
    return [(src, graph.args[arg]) for src, arg in pairs]


def needs_axis(units: Sequence[Units]) -> bool:
    """Return whether any pair of brackets leaves out the axis, so that ``UnitAxes`` has to find it."""
    return any(part.axis is None for part in units)


def index(shape: Sequence[int], units: Sequence[Units], axis: int | None, key: str) -> list[Index]:
    """Return the index that selects some units of a value.

    Args:
        shape: The value's shape.
        units: The units, as in ``Address.units``.
        axis: The axis of brackets without ``@``; None if all of them have one.
        key: The address that the caller wrote, for error messages.

    Returns:
        One int, slice or list of ints per axis.

    Raises:
        AddressError: If there is no such unit or axis.
        InputError: If two pairs of brackets name the same axis.

    Example:
        >>> from intus.core.address import Address
        >>> index((2, 8, 5), Address.parse("conv1[3,5][:2@2]").units, 1, "conv1[3,5][:2@2]")
        [slice(None, None, None), [3, 5], slice(None, 2, None)]
    """
    selected: list[Index] = [slice(None)] * len(shape)
    taken: set[int] = set()
    for part in units:
        along = axis if part.axis is None else part.axis
        assert along is not None
        if not -len(shape) <= along < len(shape):
            raise AddressError(
                f"{key!r}: the value has {len(shape)} axes (shape {tuple(shape)}), no axis {along}."
            )
        along %= len(shape)
        if along in taken:
            raise InputError(f"{key!r} selects along axis {along} twice. Write [3,5] for several units.")
        taken.add(along)
        count = shape[along]
        for unit in part.which:
            if isinstance(unit, int) and not -count <= unit < count:
                where = "" if part.axis is None else f" along axis {along}"
                raise AddressError(
                    f"{key!r} is out of range: there are {count} units{where}, counted from 0."
                )
        chosen = selected[along] = _indices(part.which, count)
        if chosen == [] or (isinstance(chosen, slice) and count and not range(count)[chosen]):
            raise AddressError(f"{key!r} selects no unit: there are {count}, counted from 0.")
    return selected


def _indices(units: tuple[int | UnitRange, ...], count: int) -> Index:
    if len(units) == 1 and isinstance(units[0], int):
        return units[0]
    if len(units) == 1 and isinstance(units[0], UnitRange) and (units[0].step or 1) > 0:
        return slice(*units[0])
    numbers: list[int] = []
    for unit in units:
        numbers += range(count)[slice(*unit)] if isinstance(unit, UnitRange) else [unit]
    return numbers
