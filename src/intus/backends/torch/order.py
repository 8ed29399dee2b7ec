"""The batch axis of a module's tensors, and a hash that shows whether data comes in the same order."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...core.nested import leaves
from ...core.shared_array import shared_array
from ...core.sketch import hashed, row_hashes

_SAMPLE = 1 << 16  # values of the first batch that are hashed


def batch_axis(module: nn.Module) -> int | None:
    """Return the batch axis of a module's inputs and outputs, or None if the module does not determine it.

    Recurrent layers and attention have time first unless ``batch_first``.

    Example:
        >>> batch_axis(nn.LSTM(2, 3)), batch_axis(nn.GRU(2, 3, batch_first=True)), batch_axis(nn.Linear(2, 3))
        (1, 0, None)
    """
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        return 0 if module.batch_first else 1
    return None


def first_rows(inputs: Any, axis: int) -> int | None:
    """Return the length along ``axis`` of the first tensor of the arguments that has that axis, or None."""
    return next((t.shape[axis] for t in leaves(inputs, Tensor) if t.ndim > axis), None)


def row_contents(inputs: Any, axis: int) -> np.ndarray | None:
    """Return a hash of each row of a call's arguments, uint64 of shape (rows,), equal for equal rows.

    It is None if there are no rows, or one of the tensors has no plain memory. Arguments of another length
    along ``axis`` are the same for all rows.

    Example:
        >>> one, other, same = row_contents(torch.tensor([[1, 2], [3, 4], [1, 2]]), 0)
        >>> bool(one == same), bool(one == other)
        (True, False)
    """
    rows = first_rows(inputs, axis)
    own = [one.detach() for one in leaves(inputs, Tensor) if one.ndim > axis and one.shape[axis] == rows]
    if not rows or any(one.layout != torch.strided or one.is_meta for one in own):
        return None
    mixed = np.zeros(rows, np.uint64)
    try:
        for one in own:
            flat = one.movedim(axis, 0).reshape(rows, -1).contiguous()
            if flat.numel():
                mixed = hashed(mixed) + row_hashes(shared_array(flat.cpu().view(torch.uint8)))
    except (RuntimeError, TypeError, BufferError):  # a tensor without plain memory
        return None
    return mixed


def first_batch(inputs: Any) -> bytes | str:
    """Return a hash of the first tensor of a call's arguments, which is equal for equal data.

    With several processes, return the reason why there is none: each gets a part of the data that only its
    sampler knows.
    """
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        return "several processes train it, each on a part of the rows"
    digest = hashlib.blake2b(digest_size=16)
    for tensor in [one for one in leaves(inputs, Tensor) if one.ndim][:1]:
        flat = tensor.detach().reshape(-1)[:_SAMPLE].cpu()
        digest.update(str((tensor.shape, tensor.dtype)).encode())
        digest.update(shared_array(flat.contiguous().view(torch.uint8)).tobytes())
    return digest.digest()
