"""A tensor's memory: which one it is, where in it the tensor lies, how often it was written to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped

from .containers import is_wrapped

#: Where a tensor lies in its memory: offset, shape, strides, in elements.
Geometry = tuple[int, tuple[int, ...], tuple[int, ...]]


def memory_of(t: Tensor) -> int | None:
    """The identity of the memory of a tensor, of the one under all transforms (``vmap``); None where it has
    none to speak of (sparse, uninitialised)."""
    while is_wrapped(t):
        t = get_unwrapped(t)
    try:
        return int(t.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError, ValueError):
        return None


def geometry_of(t: Tensor) -> Geometry:
    """Where a tensor lies in its memory.

    >>> geometry_of(torch.ones(2, 3)[1])
    (3, (3,), (1,))
    """
    return int(t.storage_offset()), tuple(t.shape), t.stride()


def extent_of(t: Tensor) -> tuple[int, int]:
    """The first and last byte of its memory that a tensor may see.

    >>> extent_of(torch.ones(2, 3)[1])
    (12, 23)
    """
    first = int(t.storage_offset())
    last = first + sum((n - 1) * int(step) for n, step in zip(t.shape, t.stride(), strict=True) if n)
    return first * t.element_size(), (last + 1) * t.element_size() - 1


def version_of(t: Tensor) -> int | None:
    """How often a tensor's memory has been written to; None for inference tensors, which do not count."""
    try:
        return t._version
    except RuntimeError:
        return None


def pointer_of(t: Any) -> int:
    """The address at which a tensor's memory begins; 0 where it has none."""
    try:
        return int(t.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return 0


def is_foreign(t: Tensor) -> bool:
    """Whether the memory of a tensor is not torch's own: ``from_numpy`` and ``from_dlpack`` make such."""
    try:
        return not t.untyped_storage().resizable()
    except (RuntimeError, NotImplementedError):
        return False


_SPARSEST = 8  # how much more memory than numbers a copy may take: a gate of an LSTM is a fourth of its rows


def copied(t: Tensor) -> Tensor:
    """A copy that lies in memory as ``t`` does: a kernel may round by the strides it is given."""
    span = 1 + sum((length - 1) * stride for length, stride in zip(t.shape, t.stride(), strict=True))
    if t.numel() == 0 or t.layout != torch.strided or t.is_quantized or span > _SPARSEST * t.numel():
        return t.clone()
    return t.as_strided((span,), (1,)).clone().as_strided(t.shape, t.stride())
