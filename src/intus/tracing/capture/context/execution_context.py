"""The execution context of a call: grad mode, inference mode, autocast, default dtype and kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import get_default_dtype, is_grad_enabled, is_inference_mode_enabled
from torch._C import _is_any_autocast_enabled

from .kernel_settings import KernelSettings, with_kernel_settings


class ExecutionContext(NamedTuple):
    """The state of torch that a call ran in.

    Attributes:
        grad: Whether grad mode was on.
        inference: Whether inference mode was on.
        autocast: The device types for which autocast was on, each with its dtype.
        dtype: The default dtype.
        kernels: The settings by which torch chose kernels; None for those of the moment.
    """

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, torch.dtype], ...]
    dtype: torch.dtype
    kernels: KernelSettings | None = None


DEFAULT = ExecutionContext(True, False, (), torch.float32)


def current_context(
    kernels: KernelSettings | None = None,
) -> tuple[bool, bool, tuple[tuple[str, torch.dtype], ...], torch.dtype, KernelSettings | None]:
    """Return the current context as a plain tuple, which compares equal to an ExecutionContext.

    Args:
        kernels: The settings of kernels, which take longer to read than everything else.
    """
    cast = _autocast() if _is_any_autocast_enabled() else ()
    return is_grad_enabled(), is_inference_mode_enabled(), cast, get_default_dtype(), kernels


@contextmanager
def within(context: ExecutionContext) -> Iterator[None]:
    """Run the ``with`` block in the given context.

    Example:
        >>> with within(DEFAULT._replace(grad=False)):
        ...     torch.is_grad_enabled()
        False
    """
    dtype = get_default_dtype()
    with ExitStack() as stack:
        if context.kernels is not None:
            stack.enter_context(with_kernel_settings(context.kernels))
        if context != current_context(context.kernels):
            stack.enter_context(torch.inference_mode(context.inference))
            stack.enter_context(torch.set_grad_enabled(context.grad))
            dtypes = dict(context.autocast)
            for device in {**dtypes, **dict(_autocast())}:
                autocast = torch.autocast(device, dtype=dtypes.get(device), enabled=device in dtypes)
                stack.enter_context(autocast)
        try:
            torch.set_default_dtype(context.dtype)
            yield
        finally:
            torch.set_default_dtype(dtype)


def _autocast() -> tuple[tuple[str, torch.dtype], ...]:
    devices = ("cpu", "cuda", "mps", "xpu")
    return tuple(
        (device, torch.get_autocast_dtype(device)) for device in devices if torch.is_autocast_enabled(device)
    )
