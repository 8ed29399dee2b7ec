"""Count the floating point operations of each call, from its type and the shapes of its inputs and outputs.

The conventions are:

- products (``products.py``): two for each multiply-add, nothing else
- elementwise functions: one for each element of the result, whatever the function computes
- reductions: one for each element of the argument; vector norms 2, variances and ``logsumexp`` 4
- the functions in ``_PER_ELEMENT``: that many for each element of the result
- pooling: one for each element under each window
- norms: 5 per element with weight and bias, 4 without; ``batch_norm`` in eval mode 2 and 1
- interpolation: two for each tap
- copies, views, lookups, factory functions and random numbers: none
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod

import numpy as np

from ..graph import CREATED, FAILED, OP, Graph
from ..vocabularies import common_types
from ..vocabularies.families import (
    AVERAGE_POOLS,
    BATCH_NORMS,
    DROPOUTS,
    ELEMENTWISE,
    MAX_POOLS,
    MOVES,
    NORMS,
    VIEWS,
)
from .products import PRODUCTS, CallShapes, first_setting

#: The count of a call whose type has no rule.
UNKNOWN = -1


def flops(graph: Graph) -> np.ndarray:
    """Return the floating point operations of each row's call.

    Args:
        graph: The graph of a forward pass.

    Returns:
        int64 of shape (rows,): the count at the first tensor that a call returned, 0 at its other tensors,
        UNKNOWN if no rule covers the type.

    Example:
        >>> from intus import trace
        >>> flops(trace(torch.nn.Linear(4, 3), torch.ones(2, 4)).graph).tolist()
        [0, 48, 0]
    """
    ops, edges = graph.ops, graph.edges
    inputs: list[list[tuple[int, int]]] = [[] for _ in range(len(ops))]
    metas = ops.meta.tolist()
    for src, dst, arg in zip(*(c.tolist() for c in (edges.src, edges.dst, edges.arg)), strict=True):
        inputs[dst].append((arg, metas[src]))
    settings, types = ops.setting.tolist(), common_types(graph)
    result = np.zeros(len(ops), dtype=np.int64)
    counts: dict[tuple[object, ...], int] = {}
    for row in np.flatnonzero(_first_of_calls(graph)).tolist():
        params, flags = graph.row_params.get(row, ()), int(ops.flags[row])
        key = (ops.type[row], flags & (CREATED | FAILED), metas[row], settings[row], *params, *inputs[row])
        if key not in counts:
            call = CallShapes(
                {graph.args[arg]: graph.metas[meta].shape for arg, meta in inputs[row]},
                tuple(graph.params[param].shape for param in params),
                graph.metas[metas[row]].shape,
                graph.settings[settings[row]] if settings[row] >= 0 else "",
            )
            counts[key] = _count(types[ops.type[row]], call, flags)
        result[row] = counts[key]
    return _times(result, runs(graph))


def runs(graph: Graph) -> np.ndarray:
    """Return how often each row ran: by ``facts["runs"]``, numbers of runs by the address of a module.

    Of an ``If`` and a ``Loop`` of ONNX, the graphs inside are modules that run any number of times.

    Args:
        graph: The graph.

    Returns:
        int64 of shape (rows,): 1 for rows outside of such modules, UNKNOWN if not known.
    """
    times = np.ones(len(graph.ops), dtype=np.int64)
    known = graph.facts.get("runs") or {}
    calls = graph.calls
    for module, start, stop in zip(
        calls.module.tolist(), calls.start.tolist(), calls.stop.tolist(), strict=True
    ):
        number = known.get(graph.modules[module].address)
        if number is not None:
            inside = times[start:stop]
            times[start:stop] = _times(inside, np.full_like(inside, number))
    return times


def _times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply numbers of which some are UNKNOWN; nothing times an unknown number is nothing."""
    found: np.ndarray = np.where((a == 0) | (b == 0), 0, np.where((a < 0) | (b < 0), UNKNOWN, a * b))
    return found


def _first_of_calls(graph: Graph) -> np.ndarray:
    """Return a mask of rows that are the first tensor returned by a function call."""
    event, first = graph.ops.event, graph.ops.kind == OP
    first[1:] &= (event[1:] != event[:-1]) | (event[1:] < 0) | (graph.ops.kind[:-1] != OP)
    mask: np.ndarray = first
    return mask


def products(graph: Graph) -> np.ndarray:
    """Return a mask of rows whose type counts two operations per multiply-add."""
    mask: np.ndarray = np.isin(
        graph.ops.type, [n for n, name in enumerate(common_types(graph)) if name in PRODUCTS]
    )
    return mask


def _count(type_: str, call: CallShapes, flags: int) -> int:
    if flags & FAILED or any(-1 in shape for shape in (call.out, *call.all())):
        return UNKNOWN  # a failed call returned nothing; -1 is a length that is not known
    if flags & CREATED or type_ in MOVES | VIEWS:
        return 0
    rule = PRODUCTS.get(type_) or _OTHERS.get(type_)
    try:
        count = None if rule is None else rule(call)
    except IndexError:  # shapes that contradict each other, as in a damaged file
        count = None
    return UNKNOWN if count is None else count


def _read(call: CallShapes) -> int | None:
    x = call.find("0", "input", "self")
    return prod(x) if x is not None else prod(call.params[0]) if call.params else None


def _each(factor: int) -> Callable[[CallShapes], int]:
    return lambda call: factor * prod(call.out)


def _each_read(factor: int) -> Callable[[CallShapes], int | None]:
    def rule(call: CallShapes) -> int | None:
        count = _read(call)
        return None if count is None else factor * count

    return rule


def _norm(call: CallShapes) -> int:
    return (5 if len(call.params) or call.find("weight", "2") is not None else 4) * prod(call.out)


def _batch_norm(call: CallShapes) -> int:
    if "training=True" in call.settings:  # of PyTorch and MXNet
        return (5 if call.params else 4) * prod(call.out)
    return (2 if call.params else 1) * prod(call.out)


def _pool(axes: int) -> Callable[[CallShapes], int | None]:
    def rule(call: CallShapes) -> int | None:
        kernel = first_setting(call.settings)
        if isinstance(kernel, int):
            kernel = (kernel,) * axes
        return prod(call.out) * prod(kernel) if isinstance(kernel, tuple) else None

    return rule


def _named_pool(call: CallShapes) -> int | None:
    """Count a pooling whose window is a setting with a name, which each framework calls otherwise."""
    if "global_pool=True" in call.settings:
        return _read(call)
    names = "kernel_shape|ksize|kernel|window_dimensions"
    kernel = re.search(rf"\b(?:{names})=[\[(]([\d, ]+)[\])]", call.settings)
    return prod(call.out) * prod(map(int, re.findall(r"\d+", kernel[1]))) if kernel else None


def _interpolate(call: CallShapes) -> int | None:
    mode = re.search(r"mode='([a-z-]+)'", call.settings)
    taps = {"nearest": 0, "nearest-exact": 0, "linear": 2, "bilinear": 4, "trilinear": 8, "bicubic": 16}
    name = mode[1] if mode else "nearest"
    return _read(call) if name == "area" else 2 * taps[name] * prod(call.out) if name in taps else None


def _dropout(call: CallShapes) -> int:
    is_training = not re.search(r"\btrain(ing)?=False\b", call.settings)  # train in a .pt2 file
    return prod(call.out) if is_training else 0


_PER_ELEMENT = {"softmax": 5, "log_softmax": 5, "softmin": 5, "glu": 2, "addcmul": 2, "addcdiv": 2, "lerp": 2}
_REDUCTIONS = """
    sum mean prod max min amax amin all any argmax argmin cumsum cumprod cummax cummin nansum nanmean
    count_nonzero adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
    adaptive_max_pool2d adaptive_max_pool3d
    reduce_sum reduce_mean reduce_prod reduce_max reduce_min global_average_pool global_max_pool
"""
_POOLS = ("pool_by_window", "pool_by_layout", "pool_to_last")
_OTHERS: dict[str, Callable[[CallShapes], int | None]] = {
    **dict.fromkeys(ELEMENTWISE, _each(1)),
    **{name: _each(factor) for name, factor in _PER_ELEMENT.items()},
    **dict.fromkeys(_REDUCTIONS.split(), _each_read(1)),
    **dict.fromkeys(("norm", "vector_norm", "linalg_norm", "linalg_vector_norm"), _each_read(2)),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean", "logsumexp"), _each_read(4)),
    **dict.fromkeys(NORMS, _norm),
    **dict.fromkeys(BATCH_NORMS, _batch_norm),
    **dict.fromkeys(("max_pool", "average_pool", *_POOLS), _named_pool),
    "batch_norm_to_last": lambda call: (2 if "is_training=False" in call.settings else 5) * prod(call.out),
    **{pool: _pool(axes) for pools in (MAX_POOLS, AVERAGE_POOLS) for axes, pool in enumerate(pools, 1)},
    **dict.fromkeys(("interpolate", "upsample"), _interpolate),
    **dict.fromkeys(DROPOUTS, _dropout),
}
