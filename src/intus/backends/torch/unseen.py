"""Keep out of passes that torch traces or compiles, and hide operations of intus from the caller's modes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

import torch
from torch._ops import _len_torch_dispatch_stack_pre_dispatch
from torch.fx import Proxy
from torch.jit import _trace
from torch.utils._python_dispatch import _disable_current_modes

from ...core.nested import leaves

_Key = torch._C._TorchDispatchModeKey
#: The modes in which tensors have no values, or operations become a graph.
_SYMBOLIC = _Key.FAKE, _Key.PROXY, _Key.FUNCTIONAL
_TRACER = _trace.__name__


def is_symbolic() -> bool:
    """Return whether this thread traces or compiles what it runs, so that it is no pass of a training.

    Operations of intus would become a part of the graph, and tensors may have no values. See also
    ``has_proxies``.
    """
    return (
        torch.compiler.is_compiling()  # first: the compiler takes it for a constant, and goes no further
        or torch._C._is_tracing()
        or _len_torch_dispatch_stack_pre_dispatch() > 0  # type: ignore[no-untyped-call]
        or (
            torch._C._len_torch_dispatch_stack() > 0
            and any(torch._C._get_dispatch_mode(key) is not None for key in _SYMBOLIC)
        )
    )


def has_proxies(*values: Any) -> bool:
    """Return whether values are those of ``torch.fx.symbolic_trace``, which is in no mode of the thread."""
    return bool(leaves(values, Proxy))


def is_check_of_tracer() -> bool:
    """Return whether ``torch.jit.trace`` runs the model once more, to compare with what it has traced."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != _TRACER:
        frame = frame.f_back
    return frame is not None


def hidden() -> AbstractContextManager[None]:
    """Return a context whose operations no mode of the caller sees.

    A mode may count operations, or keep their results in the order in which they come, as the one of
    selective checkpoints does.
    """
    if torch._C._len_torch_dispatch_stack():
        return _without_modes()
    return torch._C.DisableTorchFunction()


@contextmanager
def _without_modes() -> Iterator[None]:
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield
