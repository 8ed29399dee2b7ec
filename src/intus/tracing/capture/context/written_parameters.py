"""Restore the parameters that a forward itself writes to: a momentum encoder, a codebook of averages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..functions import Function, describe, written
from .state_restorer import StateRestorer


@contextmanager
def parameters_restored(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Restore at the end what torch functions wrote to parameters; a parameter is copied when it is written.

    Args:
        parameters: The parameters.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> with parameters_restored([weight]), torch.no_grad():
        ...     _ = weight.mul_(3)
        >>> weight.tolist()
        [1.0, 1.0]
    """
    restorer = StateRestorer()
    restorer.watch(())
    for parameter in parameters:
        restorer.add(parameter)
    try:
        with _BeforeWriting(restorer.before_writing):
            yield
    finally:
        restorer.restore()


class _BeforeWriting(TorchFunctionMode):
    """Calls a function with each tensor that a torch function is about to write to.

    Args:
        notify: The function.
    """

    def __init__(self, notify: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._notify = notify
        self._known: dict[Any, Function] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        about = self._known.get(func) or self._known.setdefault(func, describe(func))
        given = kwargs or {}
        if about.writes or about.mutates or about.statistics or given:
            with torch._C.DisableTorchFunction():
                for target in written(about, args, given):
                    self._notify(target)
        return func(*args, **given)
