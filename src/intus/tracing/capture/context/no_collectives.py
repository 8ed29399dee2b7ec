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


class CollectivesRefused(AbstractContextManager[Any]):
    """A context in which operators that communicate raise an exception instead of running.

    Args:
        active: Whether to do so; otherwise the context does nothing.

    Attributes:
        refused: The first such operator; ``""`` if there was none.
    """

    def __init__(self, *, active: bool) -> None:
        self.refused = ""
        self._mode: AbstractContextManager[Any] = _Refuse(self) if active else nullcontext()

    def __enter__(self) -> CollectivesRefused:
        self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._mode.__exit__(*error)


class _Refuse(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises an exception instead of running an operator that communicates."""

    def __init__(self, context: CollectivesRefused) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._context = context

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(type_, "__tensor_flatten__") for type_ in types):
            return NotImplemented  # let ``DTensor`` run: this mode sees the operators that it calls
        name = str(getattr(func, "__name__", func)).partition(".")[0]
        if getattr(func, "namespace", "") in _NAMESPACES and name not in _LOCAL:
            self._context.refused = self._context.refused or name.strip("_")
            raise RuntimeError(f"{name} must not run here.")
        return func(*args, **(kwargs or {}))


def collectives_refused(func: Any, *, wraps: bool) -> CollectivesRefused:
    """Return a context that refuses collectives during a call of ``func``.

    It does nothing if there is one process only, or if the call cannot communicate: torch's own functions do
    so only for subclasses.

    Args:
        func: The function.
        wraps: Whether an argument is a wrapper subclass such as ``DTensor``.
    """
    if not wraps and isinstance(func, BuiltinFunctionType | MethodDescriptorType):
        return CollectivesRefused(active=False)
    distributed = torch.distributed
    several = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    return CollectivesRefused(active=several)
