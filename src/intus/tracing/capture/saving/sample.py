"""Sample the contents of a tensor's memory, to notice writes that torch does not count."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch._C import _AutoDispatchBelowAutograd as BelowAutograd
from torch.nn import Parameter

from ..containers import is_wrapped
from ..memory import local_of

#: The number of elements in a sample of a large tensor.
SIZE = 64

_PLAIN = frozenset({Tensor, Parameter})
_LENGTH = 1 << 50  # no memory is allocated for an array at an address
#: Arrays of words, by the size of a word in bytes.
_ARRAYS: dict[int, Any] = {
    1: ctypes.c_uint8 * _LENGTH,
    2: ctypes.c_uint16 * _LENGTH,
    4: ctypes.c_uint32 * _LENGTH,
    8: ctypes.c_uint64 * _LENGTH,
}

_SMALL = SIZE * 8  # bytes

#: The bytes of a small CPU tensor, words of a large one, or elements on another device.
Sample = bytes | list[int] | Tensor


def sample(t: Tensor) -> Sample | None:
    """Return the contents of about 64 evenly spaced elements of a tensor, or of all if it has no more.

    Those of another device are copied there, so that nothing waits for it. Neither autograd nor a trace
    sees any of this. None for a tensor without plain memory (on meta, sparse, freed, a fake tensor).

    Example:
        >>> list(sample(torch.tensor([1, 2, 3], dtype=torch.uint8))), len(sample(torch.ones(1000)))
        ([1, 2, 3], 67)
    """
    with torch._C.DisableTorchFunction():
        try:
            if type(t) not in _PLAIN:
                t = local_of(t)
                if type(t).__torch_dispatch__.__name__ != "_disabled_torch_dispatch_impl":
                    return None
            if t.is_cpu and _is_dense(t):
                return _read(t)
            if is_wrapped(t) or t.is_meta or t.is_quantized:
                return None
            with BelowAutograd():
                copy = t.as_strided(*_grid(t)).clone()  # raises if the memory was freed
        except (RuntimeError, ValueError):
            return None
    return None if is_wrapped(copy) else copy


def is_unchanged(t: Tensor, before: Sample) -> bool:
    """Return whether a tensor's elements are bit for bit those of an earlier sample, as far as it shows.

    Example:
        >>> t = torch.zeros(3)
        >>> before = sample(t)
        >>> t.data[1] = -0.0
        >>> is_unchanged(t, before), is_unchanged(torch.zeros(3), before)
        (False, True)
    """
    now = sample(t)
    if not isinstance(now, Tensor) or not isinstance(before, Tensor):
        return type(now) is type(before) and now == before
    if (now.shape, now.dtype, now.device) != (before.shape, before.dtype, before.device):
        return False
    with torch._C.DisableTorchFunction():
        return torch.equal(_bits(now), _bits(before))


def _is_dense(t: Tensor) -> bool:
    """Return whether the elements of a tensor are one piece of memory, in any order."""
    if t.is_contiguous():
        return True
    return t.numel() == 1 + sum((n - 1) * step for n, step in zip(t.shape, t.stride(), strict=True))


def _read(t: Tensor) -> bytes | list[int] | None:
    """Return the bytes of a dense CPU tensor, or words at evenly spaced places; None if it was freed.

    ``ctypes`` reads them several times as fast as torch.
    """
    size, width, pointer = t.nbytes, t.element_size(), t.data_ptr()
    if not pointer or t.untyped_storage().nbytes() < size + width * t.storage_offset():
        return None
    if size <= _SMALL:
        return ctypes.string_at(pointer, size)
    width = 8 if width > 8 else width
    count = size // width
    words: list[int] = _ARRAYS[width].from_address(pointer)[0 : count : max(1, (count - 1) // (SIZE - 1))]
    return words


def _grid(t: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape and strides of a view of evenly spaced elements."""
    if _is_dense(t):
        count = t.numel()
        step = max(1, (count - 1) // (SIZE - 1))
        return (-(-count // step),), (step,)
    along = max(2, int(SIZE ** (1 / max(1, sum(length > 1 for length in t.shape)))))
    steps = [max(1, -(-length // along)) for length in t.shape]
    return (
        tuple(-(-length // step) for length, step in zip(t.shape, steps, strict=True)),
        tuple(stride * step for stride, step in zip(t.stride(), steps, strict=True)),
    )


def _bits(t: Tensor) -> Tensor:
    return t.resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)
