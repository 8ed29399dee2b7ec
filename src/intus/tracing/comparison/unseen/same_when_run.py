"""Show that two calls of one operation of PyTorch compute the same, by running both on made tensors.

An argument that is None in one call may stand for what the other one states, which only the operation knows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # traces of files and of other frameworks have no calls, and need no torch
    from torch import Tensor

    from ...capture.invocation import Invocation
    from ...results.trace import Trace

#: The sizes of made numbers: epsilons, thresholds and bounds show at some of them.
_SIZES = (1e-30, 1e-12, 1e-8, 1e-6, 1e-4, 1e-2, 1.0, 30.0, 1e3, 1e6, 1e30)
#: The most elements that the tensors of a call may have.
_MOST = 1 << 20


def compute_same(a: Trace, row: int, b: Trace, other: int) -> bool:
    """Return whether two calls return the same, bit for bit, on all made tensors of their shapes.

    False also if that cannot be found out: of a call that draws numbers, or is given whole numbers or a
    parameter.

    Args:
        a: The first trace.
        row: A row of it.
        b: The second trace.
        other: A row of it of the same type.
    """
    calls = [_call(a, row), _call(b, other)]
    if calls[0] is None or calls[1] is None or calls[0].context != calls[1].context:
        return False
    given = [_given(trace, call) for trace, call in zip((a, b), calls, strict=True) if call is not None]
    if not given[0] or given[0] != given[1]:
        return False
    import torch

    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        return all(_are_same(_run(calls[0], tensors), _run(calls[1], tensors)) for tensors in _made(given[0]))


def _call(trace: Trace, row: int) -> Invocation | None:
    """Return the call of a row; None if it is not known, or draws random numbers."""
    replays = trace._replays
    call = None if replays is None else replays.call(int(trace.graph.ops.event[row]))
    return None if call is None or call.states or call.script is not None else call


def _given(trace: Trace, call: Invocation) -> list[tuple[tuple[int, ...], str]]:
    """Return the shapes and dtypes of the tensors of a call; empty if they are not floats, or too many."""
    if any(one.source < 0 or one.patch is not None for one in call.tensor_args):
        return []
    metas = [trace.graph.metas[int(trace.graph.ops.meta[one.source])] for one in call.tensor_args]
    are_floats = all(meta.dtype in ("float32", "float64", "float16", "bfloat16") for meta in metas)
    is_small = sum(math.prod(meta.shape) for meta in metas) <= _MOST
    return [(tuple(meta.shape), meta.dtype) for meta in metas] if are_floats and is_small else []


def _made(given: list[tuple[tuple[int, ...], str]]) -> Iterator[list[Tensor]]:
    """Yield tensors of some shapes: of each size, of whole numbers that are often equal, and of no number."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def normal(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    ways: list[Callable[[Tensor], Tensor]] = [lambda t, size=size: t * size for size in _SIZES]  # type: ignore[misc]
    ways += [torch.round, torch.sigmoid, torch.zeros_like, torch.log, lambda t: 1 / torch.round(t)]
    for way in ways:
        yield [way(normal(shape)).to(getattr(torch, dtype)) for shape, dtype in given]


def _run(call: Invocation | None, tensors: list[Tensor]) -> Any:
    """Return what a call returns for other tensors; None if it cannot be run."""
    from ...capture.invocation import arguments

    if call is None:
        return None
    try:
        args, kwargs = arguments(call.args, call.kwargs, (t.clone() for t in tensors))
        return call.func(*args, **kwargs)
    except Exception:  # whatever the operation raises for these numbers
        return None


def _are_same(x: Any, y: Any) -> bool:
    """Return whether two results are the same tensors."""
    import torch

    if isinstance(x, tuple | list) and isinstance(y, tuple | list):
        return len(x) == len(y) and all(map(_are_same, x, y))
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
        return False
    is_alike = x.shape == y.shape and x.dtype == y.dtype
    return is_alike and bool(((x == y) | ((x != x) & (y != y))).all())
