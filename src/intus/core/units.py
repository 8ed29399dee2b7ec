"""The units of a value: the axis they lie along, and the index that selects some of them.

``UnitAxes`` follows each axis through the graph: a convolution gives its channels second, a linear layer its
features last, an elementwise operation keeps the axes of its arguments, ``transpose`` and ``permute`` move
them. Where the operations do not tell, it refuses: a wrong axis would give plausible numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from math import prod

import numpy as np

from .address import UnitRange, Units
from .errors import AddressError, InputError
from .graph import OP, Graph

Index = int | slice | list[int]

#: Operations over k spatial axes, the last ones; the channels come before these.
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
""")
#: Operations whose features are the last axis.
_LAST = _names("""
    linear addmm mm embedding embedding_bag bilinear lstm gru rnn_tanh rnn_relu lstm_cell gru_cell
    rnn_tanh_cell rnn_relu_cell multi_head_attention_forward
""")
#: Operations on each element by itself.
_POINTWISE = _names("""
    abs acos acosh add addcdiv addcmul alpha_dropout angle asin asinh atan atan2 atanh bernoulli bfloat16
    bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bool byte cdouble
    ceil celu cfloat chalf char clamp clamp_max clamp_min clip clone complex conj conj_physical contiguous
    copy copysign cos cosh cpu cuda deg2rad detach digamma div divide double dropout elu eq erf erfc erfinv
    exp exp2 expm1 fill float float_power floor floor_divide floordiv fmax fmin fmod frac frexp gcd ge gelu
    greater greater_equal gt half hardshrink hardsigmoid hardswish hardtanh heaviside hypot i0 igamma
    igammac imag int isclose isfinite isinf isnan isneginf isposinf isreal lcm ldexp le leaky_relu lerp less
    less_equal lgamma log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or
    logical_xor log_sigmoid logit logsigmoid long lshift lt masked_fill maximum minimum mish mod mul multiply
    mvlgamma nan_to_num ne neg negative nextafter not_equal ones_like polar polygamma positive pow prelu
    rad2deg rand_like randn_like real reciprocal relu relu6 remainder requires_grad_ resolve_conj resolve_neg
    round rrelu rshift rsqrt rsub selu sgn short sigmoid sign signbit silu sin sinc sinh softplus softshrink
    softsign sqrt square sub subtract tan tanh tanhshrink threshold to true_divide trunc type type_as where
    xlogy xor zeros_like
""")
#: Operations that keep the number and the meaning of the axes, whatever they do along one of them.
_KEEPING = _POINTWISE | _names("""
    all amax amin any logsumexp max mean median min norm prod std sum var
    cat chunk concat concatenate constant_pad_nd cummax cummin cumprod cumsum flip glu index_select
    layer_norm log_softmax native_dropout native_layer_norm narrow normalize pad renorm rms_norm roll
    softmax softmin sort split split_with_sizes tensor_split topk
""")
_NORMALIZED = frozenset({"layer_norm", "native_layer_norm", "rms_norm"})
_RESHAPING = _names("view reshape flatten unflatten ravel squeeze unsqueeze view_as reshape_as _unsafe_view")
_SWAPPING = frozenset({"transpose", "swapaxes", "swapdims"})
_MOVING = frozenset({"movedim", "moveaxis"})
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")


class UnitAxes:
    """The axis along which the units of each value of a graph lie.

    Values of one or two axes have their units last. Of more axes, the operation tells that gave the value its
    form: the channels of a convolution, the features of a linear layer, a norm or an embedding, the heads
    of a fused attention; elementwise operations keep the axis of their arguments, transpositions move it.

    Example:
        >>> from intus import trace
        >>> conv = trace(torch.nn.Conv2d(3, 8, 3), torch.ones(1, 3, 5, 5)).graph
        >>> UnitAxes(conv).of(conv.rows("conv2d_1")[0])
        1
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def of(self, row: int, key: str | None = None) -> int:
        """Return the unit axis of a row's value.

        Args:
            row: A row of ``graph.ops``.
            key: The address that the caller wrote, for the message.

        Raises:
            AddressError: If no operation tells, or two tell different axes; ``@`` then names one.
        """
        axis = self.find(row)
        if axis is None:
            shape = self._graph.metas[int(self._graph.ops.meta[row])].shape
            raise unknown_axis(key or self._graph.label(row), shape)
        return axis

    def find(self, row: int) -> int | None:
        """Return the unit axis of a row's value; None if nothing tells it."""
        return self._known[row]

    @cached_property
    def _known(self) -> list[int | None]:
        """The axis of every row, None where it is not known: one sweep in the order of execution."""
        graph = self._graph
        shapes = [graph.metas[meta].shape for meta in graph.ops.meta.tolist()]
        known: list[int | None] = []
        for row, shape in enumerate(shapes):
            axis = _tells(graph, row, shape, shapes)
            if axis is None:
                parents = [(shapes[parent], known[parent]) for parent in graph.parents(row)]
                axis = _follows(graph, row, shape, parents)
            if axis is None and 1 <= len(shape) <= 2:
                axis = len(shape) - 1
            known.append(axis)
        return known


def unknown_axis(key: str, shape: tuple[int, ...]) -> AddressError:
    """Return the error for a value whose operations do not tell its unit axis."""
    if not shape:
        return AddressError(f"{key!r}: the value is a scalar and has no units.")
    name = key.partition("[")[0]
    return AddressError(
        f"{key!r} has shape {tuple(shape)}, and nothing tells which axis its units lie along. Name the axis: "
        f"'{name}[0@1]' is unit 0 along axis 1, '{name}[:@{len(shape) - 1}]' all units along the last axis."
    )


def axis_of_type(type_: str, axes: int) -> int | None:
    """Return the unit axis that an operation's type tells of its result.

    Args:
        type_: The type of the operation, as ``conv2d``.
        axes: How many axes the result has.

    Returns:
        The axis; None if the type alone does not tell.
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


def _tells(graph: Graph, row: int, shape: tuple[int, ...], shapes: list[tuple[int, ...]]) -> int | None:
    """The axis that the row's own operation tells."""
    type_, last = graph.types[int(graph.ops.type[row])], len(shape) - 1
    if type_ == "multi_head_attention_forward" and int(graph.ops.output[row]) > 0:
        return None  # attention weights
    axis = axis_of_type(type_, len(shape))
    if axis is not None:
        return axis
    if type_ in _NORMALIZED:
        return last if len(_numbers(graph.setting(row).partition(")")[0].partition("]")[0])) == 1 else None
    if type_ == "scaled_dot_product_attention":
        return 1 if last == 3 else None  # (batch, heads, positions, features)
    if type_ == "matmul":
        second = [shapes[src] for src, arg in _arguments(graph, row) if arg in ("1", "other")]
        second += [graph.params[number].shape for number in graph.row_params.get(row, ())]
        return last if any(len(one) == 2 for one in second) and last >= 1 else None
    return None


def _follows(
    graph: Graph, row: int, shape: tuple[int, ...], parents: Iterable[tuple[tuple[int, ...], int | None]]
) -> int | None:
    """The axis that the arguments' axes become; None where that is not known, or they disagree."""
    type_, settings = graph.types[int(graph.ops.type[row])], graph.setting(row)
    found: set[int] = set()
    for was, axis in parents:
        if axis is None:
            continue
        if type_ in _KEEPING or graph.ops.kind[row] != OP:
            if len(was) == len(shape) and (
                was[axis] == shape[axis] or was[axis] > 1
            ):  # else it was broadcast
                found.add(axis)
        else:
            order = _order(type_, settings, was, shape)
            if order is not None and axis in order:
                found.add(order.index(axis))
    return found.pop() if len(found) == 1 else None


def _order(type_: str, settings: str, was: tuple[int, ...], shape: tuple[int, ...]) -> list[int] | None:
    """For every axis of the result, the axis of the argument that it was (-1: none); None if not known."""
    axes, numbers, n = list(range(len(was))), _numbers(settings), len(was)
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
    if type_ in _RESHAPING:
        return _reshaped(was, shape)
    return None


def _reshaped(was: tuple[int, ...], shape: tuple[int, ...]) -> list[int]:
    """For every axis of a row-major reshape, the axis that it was: of equal length, with as much behind
    it.
    """
    behind = {(length, prod(was[at + 1 :])): at for at, length in enumerate(was) if length > 1}
    return [behind.get((length, prod(shape[at + 1 :])), -1) for at, length in enumerate(shape)]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in _NUMBER.findall(text)]


def _arguments(graph: Graph, row: int) -> list[tuple[int, str]]:
    """Pairs of a parent and the name of the argument that it is."""
    start, stop = np.searchsorted(graph.edges.dst, [row, row + 1])
    pairs = zip(graph.edges.src[start:stop].tolist(), graph.edges.arg[start:stop].tolist(), strict=True)
    return [(src, graph.args[arg]) for src, arg in pairs]


def needs_axis(units: Sequence[Units]) -> bool:
    """Return whether any brackets leave the axis to ``UnitAxes``."""
    return any(part.axis is None for part in units)


def index(shape: Sequence[int], units: Sequence[Units], axis: int | None, key: str) -> list[Index]:
    """Return what selects some units of a value, an entry per axis.

    Args:
        shape: The value's shape.
        units: The units, as ``Address.units`` holds them.
        axis: The axis of those without ``@``; None where all of them have one.
        key: The address that the caller wrote, for messages.

    Raises:
        AddressError: If there is no such unit or axis.
        InputError: If two brackets name the same axis.

    Example:
        >>> from intus.core.address import Address
        >>> index((2, 8, 5), Address.parse("conv1[3,5][:2@2]").units, 1, "conv1[3,5][:2@2]")
        [slice(None, None, None), [3, 5], slice(None, 2, None)]
    """
    found: list[Index] = [slice(None)] * len(shape)
    taken: set[int] = set()
    for part in units:
        at = axis if part.axis is None else part.axis
        assert at is not None
        if not -len(shape) <= at < len(shape):
            raise AddressError(f"{key!r}: the value has {len(shape)} axes, of shape {tuple(shape)}; no {at}.")
        at %= len(shape)
        if at in taken:
            raise InputError(f"{key!r} selects along axis {at} twice: write [3,5] for several units.")
        taken.add(at)
        count = shape[at]
        for unit in part.which:
            if isinstance(unit, int) and not -count <= unit < count:
                where = "" if part.axis is None else f" along axis {at}"
                raise AddressError(
                    f"{key!r} is out of range: there are {count} units{where}, counted from 0."
                )
        found[at] = _indices(part.which, count)
    return found


def _indices(units: tuple[int | UnitRange, ...], count: int) -> Index:
    if len(units) == 1 and isinstance(units[0], int):
        return units[0]
    if len(units) == 1 and isinstance(units[0], UnitRange) and (units[0].step or 1) > 0:
        return slice(*units[0])
    found: list[int] = []
    for unit in units:
        found += range(count)[slice(*unit)] if isinstance(unit, UnitRange) else [unit]
    return found
