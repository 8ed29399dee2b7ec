"""Operations of MXNet that report their result, and the gradient that passes through them.

A tap is an identity operation inside a graph that has an operation hook. MXNet cannot remove such a hook, so
that only graphs of intus get one. (``autograd.Function`` would do for gradients, but it corrupts them where
MXNet's own operations run by MKL-DNN.)
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import mxnet as mx
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray import CachedOp, NDArray
from mxnet.symbol import Symbol

from ...core.errors import CaptureError
from .symbols import TAP, identity

_NAME = re.compile(rf"{TAP}(\d+)_(backward_)?(?:0|output)$")
_NUMBERS = itertools.count()
#: All taps by number, as long as somebody keeps them.
_TAPS: weakref.WeakValueDictionary[int, Tap] = weakref.WeakValueDictionary()
_MKLDNN = mx.runtime.Features().is_enabled("MKLDNN") and os.environ.get("MXNET_MKLDNN_ENABLED", "1") != "0"
#: The flags of a graph without optimizations that would leave out taps.
PLAIN: dict[str, Any] = {"static_alloc": False, "static_shape": False, "inline_limit": 0}


class Tap(Protocol):
    """A listener of one identity operation."""

    def on_value(self, array: NDArray) -> None:
        """Handle the result."""

    def on_gradient(self, array: NDArray) -> None:
        """Handle the gradient of the result."""


def tapped(symbol: Symbol, tap: Tap) -> Symbol:
    """Return a symbol of the same value that reports to a tap, if it runs inside a ``HookedOp``."""
    number = next(_NUMBERS)
    _TAPS[number] = tap
    # The attribute keeps MXNet from merging it with another identity of the same tensor.
    name = f"{TAP}{number}"
    return identity(symbol, name=name, attr={"__intus_tap__": name})


def with_gradient(array: NDArray, tap: Tap, what: str) -> NDArray:
    """Return an equal array, whose gradient a tap receives.

    Args:
        array: The array.
        tap: The tap.
        what: What the gradient is called in errors.

    Raises:
        CaptureError: If the array may have a layout of MKL-DNN, which an operation more would change, or a
            gradient of its own, to which MXNet's identities do not add as ``grad_req="add"`` demands.
    """
    if array.grad is not None:
        raise CaptureError(
            f"{what} is not recorded, because the array has a gradient of its own. Read .grad."
        )
    if array.ndim > 2 and array.context.device_type == "cpu" and _MKLDNN:
        if _is_data(array):
            return array  # it has no gradient
        raise CaptureError(
            f"{what} is not recorded: the array has {array.ndim} axes, and outside of a hybridized block "
            "reading its gradient would change the layout that MKL-DNN gave it, and so the last bits of the "
            "training. Call hybridize() on the model, or set MXNET_MKLDNN_ENABLED=0."
        )
    symbol = mx.symbol.var("data")
    if isinstance(array, mx.np.ndarray):
        symbol = symbol.as_np_ndarray()
    flags = {**PLAIN, "data_indices": [0], "param_indices": []}
    return HookedOp(tapped(symbol, tap), flags)(array)


def _is_data(array: NDArray) -> bool:
    """Return whether autograd has not recorded how an array was computed."""
    try:
        mx.autograd.get_symbol(array)
    except mx.base.MXNetError:
        return True
    return False


class HookedOp(CachedOp):  # type: ignore[misc]
    """A graph whose taps are called.

    Args:
        symbol: The graph.
        flags: The flags of MXNet's ``CachedOp``.
    """

    def __init__(self, symbol: Symbol, flags: dict[str, Any]) -> None:
        super().__init__(symbol, list(flags.items()))
        check_call(_LIB.MXCachedOpRegisterOpHook(self.handle, _HOOK, ctypes.c_int(0)))


def _on_operation(name: bytes, op: bytes, handle: int, _: Any) -> None:
    """Handle the result of an operation. A backward pass may call it after the tap is gone."""
    array = NDArray(ctypes.cast(handle, NDArrayHandle), writable=False)  # it must be freed in any case
    match = _NAME.search(name.decode())
    tap = _TAPS.get(int(match[1])) if match else None
    if tap is not None and match is not None:
        (tap.on_gradient if match[2] else tap.on_value)(array)


#: MXNet may call it as long as the process lives, so that it is never freed.
_HOOK: Callable[..., None] = ctypes.CFUNCTYPE(None, *[ctypes.c_char_p] * 2, NDArrayHandle, ctypes.c_void_p)(
    _on_operation
)
