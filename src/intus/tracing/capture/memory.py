"""Identify the memory of a tensor, the part of it that the tensor views, and its write count.

Some subclasses have no memory: they wrap another tensor, for example a ``DTensor`` this process's part. Their
memory is that of the tensor inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped

from .containers import is_wrapped

_PLAIN = frozenset({Tensor, torch.nn.Parameter})

#: The part of its memory that a tensor views: storage offset, shape and strides, in elements.
Geometry = tuple[int, tuple[int, ...], tuple[int, ...]]


def inner_of(t: Tensor) -> Tensor | None:
    """Return the tensor that a subclass wraps (``DTensor``, ``AsyncCollectiveTensor``); None for any other.

    None also for subclasses that wrap several tensors, such as jagged nested tensors.
    """
    flatten = getattr(type(t), "__tensor_flatten__", None)
    if flatten is None or t.is_nested:
        return None
    inner = [value for name in flatten(t)[0] if isinstance(value := getattr(t, name), Tensor)]
    return inner[0] if len(inner) == 1 else None


def settled(t: Tensor) -> Tensor:
    """Return the result of an asynchronous collective, once it is there; any other tensor unchanged.

    Waiting needs no communication: the other processes have called the collective, too.
    """
    wait = getattr(t, "trigger_wait", None)
    result: Tensor = t if wait is None else wait()
    return result


def local_of(t: Tensor) -> Tensor:
    """Return the plain tensor inside a wrapper subclass, or the tensor itself, without communication.

    >>> t = torch.ones(2)
    >>> local_of(t) is t
    True
    """
    t = settled(t)
    while (inner := inner_of(t)) is not None:
        t = settled(inner)
    return t


def unwrapping(depth: int) -> Callable[[Tensor], Tensor]:
    """Return a function that takes the tensor out of ``depth`` wrapper subclasses."""

    def unwrap(t: Tensor) -> Tensor:
        for _ in range(depth):
            t = inner_of(t) if (inner_of(t)) is not None else t  # type: ignore[assignment]
        return t

    return unwrap


def wrapping(like: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function that wraps a tensor as ``like``, a wrapper subclass, wraps its own."""
    class_: Any = type(like)
    names, context = like.__tensor_flatten__()  # type: ignore[attr-defined]
    parts = {name: part for name in names if not isinstance(part := getattr(like, name), Tensor)}
    size, stride = like.size(), like.stride()
    (name,) = set(names) - set(parts)

    def wrap(t: Tensor) -> Tensor:
        wrapped: Tensor = class_.__tensor_unflatten__({**parts, name: t}, context, size, stride)
        return wrapped

    return wrap


def viewing(t: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function that views the memory of another tensor as ``t`` views it.

    It raises RuntimeError if that is not the same memory, because a parameter's ``data`` was set.
    """
    dtype, (start, shape, stride), memory = t.dtype, geometry_of(t), memory_of(t)

    def view(base: Tensor) -> Tensor:
        if memory_of(base) != memory:
            raise RuntimeError("the parameter has other memory now")
        base = local_of(base).detach()
        empty = torch.empty(0, dtype=dtype, device=base.device)
        return empty.set_(base.untyped_storage(), start, shape, stride)

    return view


def same_wrapper(a: Tensor, b: Tensor) -> bool:
    """Return whether two wrapper subclasses are of one class and distribute their tensor alike."""
    return type(a) is type(b) and a.shape == b.shape and distribution(a) == distribution(b)


def distribution(t: Any) -> tuple[tuple[int, ...], str] | tuple[()]:
    """Return the shape of this process's part of a ``DTensor`` and its placement; empty for any other tensor.

    The placement names each dimension of the device mesh, or numbers it: ``"dp=2: Shard(dim=0), tp=2: …"``.
    """
    if type(t) is Tensor or not hasattr(type(t), "placements"):
        return ()
    mesh, part = t.device_mesh, inner_of(t)
    names = mesh.mesh_dim_names or range(mesh.ndim)
    sizes = tuple(mesh.shape)
    placed = zip(names, sizes, t.placements, strict=True)
    placement = ", ".join(f"{name}={size}: {where!r}" for name, size, where in placed)
    return tuple(() if part is None else part.shape), placement


def memory_of(t: Tensor) -> int | None:
    """Return the identity of a tensor's storage; None if it has no plain storage (sparse, uninitialized).

    For a wrapper made by a transform (``vmap``) or a subclass this is the storage of the innermost tensor.
    """
    while is_wrapped(t):
        t = get_unwrapped(t)
    if type(t) not in _PLAIN:
        t = _inside(t)
    try:
        cdata: int = t.untyped_storage()._cdata
        return cdata
    except (RuntimeError, NotImplementedError, ValueError):
        return None


def _inside(t: Tensor) -> Tensor:
    """Return the innermost tensor of a wrapper subclass; any other tensor unchanged."""
    while type(t) not in _PLAIN and (inner := inner_of(t)) is not None:
        t = inner
    return t


def geometry_of(t: Tensor) -> Geometry:
    """Return the part of its memory that a tensor views.

    >>> geometry_of(torch.ones(2, 3)[1])
    (3, (3,), (1,))
    """
    t = _inside(t)
    return int(t.storage_offset()), tuple(t.shape), t.stride()


def extent_of(t: Tensor) -> tuple[int, int]:
    """Return the first and last byte of its memory that a tensor can view.

    >>> extent_of(torch.ones(2, 3)[1])
    (12, 23)
    """
    t = _inside(t)
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
        t = _inside(t)
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
        return int(_inside(t).untyped_storage().data_ptr())
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
    if inner_of(t) is not None:
        return t.clone()
    span = 1 + sum((length - 1) * stride for length, stride in zip(t.shape, t.stride(), strict=True))
    if t.numel() == 0 or t.layout != torch.strided or t.is_quantized or span > _MAX_SPREAD * t.numel():
        return t.clone()
    return t.as_strided((span,), (1,)).clone().as_strided(t.shape, t.stride())
