"""Identify the memory of a tensor, the part of it that the tensor views, and its write count."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped

from .containers import is_wrapped

#: The part of its memory that a tensor views: storage offset, shape and strides, in elements.
Geometry = tuple[int, tuple[int, ...], tuple[int, ...]]


def memory_of(t: Tensor) -> int | None:
    """Return the identity of a tensor's storage; None if it has no plain storage (sparse, uninitialized).

    For a wrapper made by a transform (``vmap``) this is the storage of the innermost tensor.
    """
    while is_wrapped(t):
        t = get_unwrapped(t)
    try:
        return int(t.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError, ValueError):
        return None


def geometry_of(t: Tensor) -> Geometry:
    """Return the part of its memory that a tensor views.

    >>> geometry_of(torch.ones(2, 3)[1])
    (3, (3,), (1,))
    """
    return int(t.storage_offset()), tuple(t.shape), t.stride()


def extent_of(t: Tensor) -> tuple[int, int]:
    """Return the first and last byte of its memory that a tensor can view.

    >>> extent_of(torch.ones(2, 3)[1])
    (12, 23)
    """
    first = int(t.storage_offset())
    last = first + sum((n - 1) * int(step) for n, step in zip(t.shape, t.stride(), strict=True) if n)
    return first * t.element_size(), (last + 1) * t.element_size() - 1


def is_freed(t: Tensor) -> bool:
    """Return whether a tensor's storage no longer has the memory that the tensor views.

    Storage can be freed or shrunk while tensors refer to it. Reading such a tensor is a segmentation fault.

    >>> t = torch.ones(2, 3)
    >>> _ = t.untyped_storage().resize_(0)
    >>> is_freed(t), is_freed(torch.ones(2))
    (True, False)
    """
    try:
        size = t.untyped_storage().nbytes()
        if size == t.nbytes and not t.storage_offset():  # most tensors; this is called for each saved value
            return False
        return t.numel() > 0 and size <= extent_of(t)[1]
    except (RuntimeError, NotImplementedError, ValueError):  # no plain storage
        return False


def version_of(t: Tensor) -> int | None:
    """Return how often a tensor's memory was written to; None for inference tensors, which do not count."""
    try:
        return t._version
    except RuntimeError:
        return None


def pointer_of(t: Any) -> int:
    """Return the address at which a tensor's memory begins; 0 if it has none."""
    try:
        return int(t.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return 0


def is_foreign(t: Tensor) -> bool:
    """Return whether another library allocated a tensor's memory (``from_numpy``, ``from_dlpack``)."""
    try:
        return not t.untyped_storage().resizable()
    except (RuntimeError, NotImplementedError):
        return False


#: Maximum ratio of memory to elements for which a copy keeps the strides. One gate of an LSTM has a ratio of
#: 4.
_MAX_SPREAD = 8


def copied(t: Tensor) -> Tensor:
    """Return a copy with the strides of ``t``, because a kernel's rounding may depend on strides.

    Tensors without plain strides, or spread too thinly over their memory, are cloned instead.
    """
    span = 1 + sum((length - 1) * stride for length, stride in zip(t.shape, t.stride(), strict=True))
    if t.numel() == 0 or t.layout != torch.strided or t.is_quantized or span > _MAX_SPREAD * t.numel():
        return t.clone()
    return t.as_strided((span,), (1,)).clone().as_strided(t.shape, t.stride())
