"""What a call depends on besides its arguments and random numbers: grad mode, autocast, the default dtype."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import get_default_dtype, is_grad_enabled, is_inference_mode_enabled
from torch._C import _is_any_autocast_enabled


class ExecutionContext(NamedTuple):
    """The state of torch that a call ran in; ``autocast`` pairs a device type with its dtype."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, torch.dtype], ...]
    dtype: torch.dtype


DEFAULT = ExecutionContext(True, False, (), torch.float32)


def current_context() -> tuple[bool, bool, tuple[tuple[str, torch.dtype], ...], torch.dtype]:
    """The context state as it is now, as a plain tuple, which an ExecutionContext equals."""
    cast = _autocast() if _is_any_autocast_enabled() else ()
    return is_grad_enabled(), is_inference_mode_enabled(), cast, get_default_dtype()


@contextmanager
def within(then: ExecutionContext) -> Iterator[None]:
    """What runs inside runs in that state.

    >>> with within(DEFAULT._replace(grad=False)):
    ...     torch.is_grad_enabled()
    False
    """
    dtype = get_default_dtype()
    with ExitStack() as stack:
        if then != current_context():
            stack.enter_context(torch.inference_mode(then.inference))
            stack.enter_context(torch.set_grad_enabled(then.grad))
            wanted = dict(then.autocast)
            for device in {"cpu", *wanted}:
                if device in wanted or torch.is_autocast_enabled(device):
                    on = torch.autocast(device, dtype=wanted.get(device), enabled=device in wanted)
                    stack.enter_context(on)
        try:
            torch.set_default_dtype(then.dtype)
            yield
        finally:
            torch.set_default_dtype(dtype)


def _autocast() -> tuple[tuple[str, torch.dtype], ...]:
    devices = ("cpu", "cuda", "mps", "xpu")
    return tuple(
        (device, torch.get_autocast_dtype(device)) for device in devices if torch.is_autocast_enabled(device)
    )
