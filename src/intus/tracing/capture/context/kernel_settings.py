"""The settings of the process by which torch chooses kernels and their precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

_C = torch._C
#: What computes float32 with fewer digits if it is told to: a backend of torch and an operation. Before
#: torch 2.9 only CUDA's have settings of their own.
_PLACES = (("cuda", "matmul"), ("cuda", "conv"), ("mkldnn", "matmul"), ("mkldnn", "conv"))
_HAS_PLACES = hasattr(_C, "_get_fp32_precision_getter")
#: The implementations of attention that can be turned off.
_ATTENTION = tuple(
    name
    for name in ("flash", "mem_efficient", "math", "cudnn")
    if hasattr(_C, f"_get_{name}_sdp_enabled") and hasattr(_C, f"_set_sdp_use_{name}")
)
_GET_ATTENTION = tuple(getattr(_C, f"_get_{name}_sdp_enabled") for name in _ATTENTION)
_GET_ORDER = getattr(_C, "_get_sdp_priority_order", list)


class KernelSettings(NamedTuple):
    """Settings by which torch chooses kernels.

    Attributes:
        precisions: How float32 is multiplied, for each of ``_PLACES``.
        attention: Which implementations of attention are allowed.
        order: The order in which they are tried.
        deterministic: Whether only deterministic algorithms are allowed, and in cuDNN.
        benchmark: Whether cuDNN times its algorithms and takes the fastest.
    """

    precisions: tuple[str, ...]
    attention: tuple[bool, ...]
    order: tuple[int, ...]
    deterministic: tuple[bool, bool]
    benchmark: bool


def kernel_settings() -> KernelSettings:
    """Return the present settings."""
    return KernelSettings(
        _precisions(),
        tuple([get() for get in _GET_ATTENTION]),
        tuple(_GET_ORDER()),
        (_C._get_deterministic_algorithms(), _C._get_cudnn_deterministic()),
        _C._get_cudnn_benchmark(),
    )


@contextmanager
def with_kernel_settings(wanted: KernelSettings) -> Iterator[None]:
    """Have these settings within the ``with`` block.

    Example:
        >>> with with_kernel_settings(kernel_settings()._replace(benchmark=True)):
        ...     torch.backends.cudnn.benchmark
        True
    """
    before = kernel_settings()
    if wanted == before:
        yield
        return
    try:
        _apply(wanted, before)
        yield
    finally:
        _apply(before, kernel_settings())


@contextmanager
def full_float32() -> Iterator[None]:
    """Multiply float32 with all its digits within the ``with`` block, whatever the caller has allowed.

    Example:
        >>> with full_float32():
        ...     "tf32" in kernel_settings().precisions
        False
    """
    exact = ("ieee",) * len(_PLACES)
    with with_kernel_settings(kernel_settings()._replace(precisions=exact)):
        yield


def _precisions() -> tuple[str, ...]:
    if _HAS_PLACES:
        return tuple([_C._get_fp32_precision_getter(*place) for place in _PLACES])
    lower = _C._get_cublas_allow_tf32(), _C._get_cudnn_allow_tf32(), False, False
    return tuple(["tf32" if one else "ieee" for one in lower])


def _apply(wanted: KernelSettings, now: KernelSettings) -> None:
    """Change the settings that differ."""
    for place, value, old in zip(_PLACES, wanted.precisions, now.precisions, strict=True):
        if value != old and _HAS_PLACES:
            _C._set_fp32_precision_setter(*place, value)
    if wanted.precisions != now.precisions and not _HAS_PLACES:
        _C._set_cublas_allow_tf32(wanted.precisions[0] == "tf32")
        _C._set_cudnn_allow_tf32(wanted.precisions[1] == "tf32")
    for name, on, was in zip(_ATTENTION, wanted.attention, now.attention, strict=True):
        if on != was:
            getattr(_C, f"_set_sdp_use_{name}")(on)
    if wanted.order != now.order:
        _C._set_sdp_priority_order(list(wanted.order))
    if wanted.deterministic != now.deterministic:
        warn = _C._get_deterministic_algorithms_warn_only()
        _C._set_deterministic_algorithms(wanted.deterministic[0], warn_only=warn)
        _C._set_cudnn_deterministic(wanted.deterministic[1])
    if wanted.benchmark != now.benchmark:
        _C._set_cudnn_benchmark(wanted.benchmark)
