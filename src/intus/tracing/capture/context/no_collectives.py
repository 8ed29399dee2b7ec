"""Refuse communication between processes while calls are run again.

A collective needs all processes of its group. One process that runs it alone, as a replay would, waits for
the others forever, or makes their next collective return something else.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: The namespaces of the operators that communicate. All interfaces, from ``torch.distributed`` to
#: ``DTensor``, call these in the end.
_NAMESPACES = frozenset(
    {"c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"}
)
#: The operators of these namespaces that do not communicate.
_LOCAL = frozenset({"wait_tensor", "_wrap_tensor_autograd"})


class CollectiveError(RuntimeError):
    """A replay has reached a collective, which was not run."""


class _RefuseCollectives(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises CollectiveError instead of running an operator that communicates."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(type_, "__tensor_flatten__") for type_ in types):
            return NotImplemented  # let ``DTensor`` run: this mode sees the operators that it calls
        name = str(getattr(func, "__name__", func)).partition(".")[0]
        if getattr(func, "namespace", "") in _NAMESPACES and name not in _LOCAL:
            raise CollectiveError(
                f"it communicates with the other processes ({name.strip('_')}), and one of them cannot run "
                "a collective again alone"
            )
        return func(*args, **(kwargs or {}))


def refuse_collectives(func: Any, *, wraps: bool) -> AbstractContextManager[Any]:
    """Return a context in which collectives raise CollectiveError, for a call of ``func``.

    It does nothing if there is one process only, or if the call cannot communicate: torch's own functions do
    so only for subclasses.

    Args:
        func: The function.
        wraps: Whether an argument is a wrapper subclass such as ``DTensor``.
    """
    if not wraps and isinstance(func, BuiltinFunctionType | MethodDescriptorType):
        return nullcontext()
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return nullcontext()
    alone = torch.distributed.get_world_size() == 1
    return nullcontext() if alone else _RefuseCollectives()  # type: ignore[no-untyped-call]
