"""The batch axis of a module's tensors, and a hash that shows whether data comes in the same order."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from ...core.nested import leaves
from ...core.shared_array import shared_array

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
