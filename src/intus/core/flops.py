"""How many floating point operations each call took, from its type and the shapes of what went in and out.

Products (``products.py``) count their multiply-adds alone, two for each. An elementwise function counts one
for each number it returns, whatever it computes; a reduction one for each it reads; the few in
``_PER_ELEMENT`` what stands there; pooling one for each number under its window; a norm 5 for each with
weight and bias and 4 without, ``batch_norm`` in eval 2 and 1; interpolation two for each of its taps. Moving
numbers, looking them up, making and drawing them is free.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod

import numpy as np

from .graph import CREATED, FAILED, OP, Graph
from .products import PRODUCTS, Given, first_setting

#: Stands for a count that is not known.
UNKNOWN = -1


def flops(graph: Graph) -> np.ndarray:
    """The operations of each row's call, at the first tensor that it returned, 0 at the others; UNKNOWN where
    no rule knows the type.

    >>> from intus import trace
    >>> flops(trace(torch.nn.Linear(4, 3), torch.ones(2, 4)).graph).tolist()
    [0, 48, 0]
    """
    ops, edges = graph.ops, graph.edges
    inputs: list[list[tuple[int, int]]] = [[] for _ in range(len(ops))]
    metas = ops.meta.tolist()
    for src, dst, arg in zip(*(c.tolist() for c in (edges.src, edges.dst, edges.arg)), strict=True):
        inputs[dst].append((arg, metas[src]))
    settings = ops.setting.tolist()
    out = np.zeros(len(ops), dtype=np.int64)
    seen: dict[tuple[object, ...], int] = {}
    for row in np.flatnonzero(_first_of_calls(graph)).tolist():
        params, flags = graph.row_params.get(row, ()), int(ops.flags[row])
        key = (ops.type[row], flags & (CREATED | FAILED), metas[row], settings[row], *params, *inputs[row])
        if key not in seen:
            given = Given(
                {graph.args[arg]: graph.metas[meta].shape for arg, meta in inputs[row]},
                tuple(graph.params[param].shape for param in params),
                graph.metas[metas[row]].shape,
                graph.settings[settings[row]] if settings[row] >= 0 else "",
            )
            seen[key] = _count(graph.types[ops.type[row]], given, flags)
        out[row] = seen[key]
    return out


def _first_of_calls(graph: Graph) -> np.ndarray:
    """Which rows are the first tensor that a function call returned."""
    event, first = graph.ops.event, graph.ops.kind == OP
    first[1:] &= (event[1:] != event[:-1]) | (event[1:] < 0)
    chosen: np.ndarray = first
    return chosen


def products(graph: Graph) -> np.ndarray:
    """Which rows are of types whose count is twice their multiply-adds."""
    which: np.ndarray = np.isin(graph.ops.type, [n for n, name in enumerate(graph.types) if name in PRODUCTS])
    return which


def _count(type_: str, given: Given, flags: int) -> int:
    if flags & FAILED or any(-1 in shape for shape in (given.out, *given.all())):
        return UNKNOWN  # what failed returned nothing; a length below zero differs from item to item
    if flags & CREATED or type_ in _MOVES:
        return 0
    rule = PRODUCTS.get(type_) or _OTHERS.get(type_)
    count = None if rule is None else rule(given)
    return UNKNOWN if count is None else count


def _read(given: Given) -> int | None:
    x = given.find("0", "input", "self")
    return prod(x) if x is not None else prod(given.params[0]) if given.params else None


def _each(factor: int) -> Callable[[Given], int]:
    return lambda given: factor * prod(given.out)


def _each_read(factor: int) -> Callable[[Given], int | None]:
    def rule(given: Given) -> int | None:
        count = _read(given)
        return None if count is None else factor * count

    return rule


def _norm(given: Given) -> int:
    return (5 if len(given.params) or given.find("weight", "2") is not None else 4) * prod(given.out)


def _batch_norm(given: Given) -> int:
    if "training=True" in given.settings:
        return (5 if given.params else 4) * prod(given.out)
    return (2 if given.params else 1) * prod(given.out)


def _pool(axes: int) -> Callable[[Given], int | None]:
    def rule(given: Given) -> int | None:
        kernel = first_setting(given.settings)
        if isinstance(kernel, int):
            kernel = (kernel,) * axes
        return prod(given.out) * prod(kernel) if isinstance(kernel, tuple) else None

    return rule


def _interpolate(given: Given) -> int | None:
    mode = re.search(r"mode='([a-z-]+)'", given.settings)
    taps = {"nearest": 0, "nearest-exact": 0, "linear": 2, "bilinear": 4, "trilinear": 8, "bicubic": 16}
    name = mode[1] if mode else "nearest"
    return _read(given) if name == "area" else 2 * taps[name] * prod(given.out) if name in taps else None


def _dropout(given: Given) -> int:
    return 0 if "training=False" in given.settings else prod(given.out)


_PER_ELEMENT = {"softmax": 5, "log_softmax": 5, "softmin": 5, "glu": 2, "addcmul": 2, "addcdiv": 2, "lerp": 2}
_ELEMENTWISE = """
    add sub rsub mul div floordiv floor_divide true_divide remainder fmod mod pow neg abs sign sgn square
    sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh
    tanh asinh acosh atanh sigmoid logit erf erfc erfinv floor ceil round trunc frac clamp clip clamp_min
    clamp_max maximum minimum fmax fmin relu relu6 leaky_relu prelu rrelu elu selu celu gelu silu mish
    softplus softsign tanhshrink hardtanh hardswish hardsigmoid hardshrink softshrink threshold logsigmoid
    eq ne lt le gt ge logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor
    bitwise_not lshift rshift isnan isinf isfinite where masked_fill hypot xlogy subtract multiply divide
    negative absolute greater less greater_equal less_equal not_equal nan_to_num deg2rad rad2deg logaddexp
    polygamma lgamma digamma sinc
"""
_REDUCTIONS = """
    sum mean prod max min amax amin all any argmax argmin cumsum cumprod cummax cummin nansum nanmean
    count_nonzero adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
    adaptive_max_pool2d adaptive_max_pool3d
"""
#: What only moves, names or makes numbers.
_FREE = """
    view reshape view_as reshape_as flatten unflatten ravel permute transpose t T mT H mH swapaxes swapdims
    movedim moveaxis squeeze unsqueeze expand expand_as broadcast_to broadcast_tensors getitem setitem
    select narrow chunk split split_with_sizes tensor_split unbind cat concat concatenate stack hstack
    vstack dstack column_stack repeat repeat_interleave tile flip fliplr flipud roll rot90 gather scatter
    index_select index_put index_copy take take_along_dim masked_select masked_scatter embedding one_hot to
    type type_as float double half bfloat16 int long bool cpu cuda clone contiguous copy detach data real
    imag pad zero fill zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros
    new_ones new_empty new_full new_tensor zeros ones empty full rand randn randint arange linspace tensor
    as_tensor as_strided diagonal diag tril triu meshgrid unfold pixel_shuffle pixel_unshuffle
    channel_shuffle atleast_1d atleast_2d atleast_3d requires_grad set_data alias view_as_real
    view_as_complex lift_fresh normal uniform bernoulli nonzero identity resolve_conj resolve_neg pin_memory
    repeat_kv item
"""
_OTHERS: dict[str, Callable[[Given], int | None]] = {
    **{name: _each(factor) for name, factor in _PER_ELEMENT.items()},
    **dict.fromkeys(_ELEMENTWISE.split(), _each(1)),
    **dict.fromkeys(_REDUCTIONS.split(), _each_read(1)),
    **dict.fromkeys(("norm", "vector_norm", "linalg_norm", "linalg_vector_norm"), _each_read(2)),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean", "logsumexp"), _each_read(4)),
    **dict.fromkeys(("layer_norm", "group_norm", "instance_norm", "rms_norm"), _norm),
    "batch_norm": _batch_norm,
    **{f"{name}_pool{n}d": _pool(n) for name in ("max", "avg") for n in (1, 2, 3)},
    **dict.fromkeys(("interpolate", "upsample"), _interpolate),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"), _dropout),
}
_MOVES = frozenset(_FREE.split())
