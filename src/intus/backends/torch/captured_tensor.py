"""A tensor as the tap is shown it, and the copies that are made of it if the tap asks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.nested import leaves
from ..base import CapturedTensor
from .random_projection import projected, summary

#: Real dtypes that numpy knows; any other is widened to float32.
_NUMPY = {
    torch.float64, torch.float32, torch.float16, torch.bool, torch.uint8,
    torch.int8, torch.int16, torch.int32, torch.int64,
}  # fmt: skip


def seen(address: str, kind: str, index: int, tensor: Tensor, axis: int | None = None) -> CapturedTensor:
    """The tensor ``index`` of those at an address; ``axis`` is where the rows of a sequence's lie."""
    size = tensor.element_size() if tensor.dtype in _NUMPY else 4
    copy, shape = partial(to_numpy, tensor), tuple(tensor.shape)
    axis = axis if len(shape) == 3 else None
    return CapturedTensor(
        address, kind, index, shape, tensor.numel() * size, copy, axis, partial(to_projected, tensor)
    )


def main_tensor(value: Any) -> tuple[int, Tensor] | None:
    """The first tensor that has rows, with its index among all; a scalar where there is no other.

    A model called with labels returns its loss first: the logits are what it says.
    """
    found = list(enumerate(leaves(value, Tensor)))
    return next((pair for pair in found if pair[1].ndim), found[0] if found else None)


def to_numpy(tensor: Tensor, rows: int | None = None, axis: int = 0) -> np.ndarray:
    """A numpy copy of a tensor, C-contiguous, of its first ``rows`` along ``axis`` if given.

    bfloat16 and the 8-bit floats become float32. Raises TypeError for complex numbers.
    """
    if tensor.is_complex():
        raise TypeError(f"complex tensors ({tensor.dtype}) cannot be recorded")
    part = _first(tensor.detach(), rows, axis)
    shared = part.is_cpu and part.dtype in _NUMPY
    if part.dtype not in _NUMPY:
        part = part.float()
    array: np.ndarray = part.cpu().numpy()
    return np.array(array, order="C") if shared else np.asarray(array, order="C")


def to_projected(tensor: Tensor, rows: int | None = None, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Those rows projected, and their summary; see ``wide.py``."""
    if tensor.is_complex():
        raise TypeError(f"complex tensors ({tensor.dtype}) cannot be recorded")
    with torch.no_grad():
        part = _first(tensor.detach(), rows, axis).float()
        own = part if part.ndim == 3 else part.flatten(1)
        return to_numpy(projected(own)), to_numpy(summary(part.movedim(axis, 0).flatten(1)))


def _first(tensor: Tensor, rows: int | None, axis: int) -> Tensor:
    if rows is not None and tensor.ndim > axis and tensor.shape[axis] > rows:
        return tensor.narrow(axis, 0, rows)
    return tensor
