"""The settings of the process by which torch chooses kernels and their precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

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
#: Other settings that change numbers, by backend: names, and the functions of torch that return them.
_OTHERS = {
    "cuda": {
        "cudnn.enabled": "_get_cudnn_enabled",
        "reduced precision in sums of float16": "_get_cublas_allow_fp16_reduced_precision_reduction",
        "reduced precision in sums of bfloat16": "_get_cublas_allow_bf16_reduced_precision_reduction",
        "sums in float16": "_get_cublas_allow_fp16_accumulation",
    },
    "mkldnn": {
        "mkldnn.enabled": "_get_mkldnn_enabled",
        "reduced precision in sums of float16": "_get_cpu_allow_fp16_reduced_precision_reduction",
    },
}


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


def named_kernel_settings(device: str) -> dict[str, Any]:
    """Return the present settings that matter on a type of device, by name.

    They are those of ``kernel_settings``, and others that a rerun of a trace does not need.

    Example:
        >>> named_kernel_settings("cpu")["deterministic algorithms"]
        False
    """
    now, is_cuda = kernel_settings(), device == "cuda"
    backend = "cuda" if is_cuda else "mkldnn"
    precisions = dict(zip(_PLACES, now.precisions, strict=True))
    if _HAS_PLACES:
        precisions["cuda", "rnn"] = _C._get_fp32_precision_getter("cuda", "rnn")
    named: dict[str, Any] = {
        f"the float32 precision of {where} {operation}": "ieee" if value == "none" else value
        for (where, operation), value in precisions.items()
        if where == backend
    }
    named |= {f"{name} attention": on for name, on in zip(_ATTENTION, now.attention, strict=True)}
    named |= {"the order of attentions": now.order, "deterministic algorithms": now.deterministic[0]}
    if is_cuda:
        named |= {"cudnn.deterministic": now.deterministic[1], "cudnn.benchmark": now.benchmark}
    named |= {name: getattr(_C, getter)() for name, getter in _OTHERS[backend].items() if hasattr(_C, getter)}
    return named


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
