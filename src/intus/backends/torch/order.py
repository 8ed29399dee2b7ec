"""The batch axis of a tensor, and a hash of the data that shows whether they come in the same order."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from ...core.nested import leaves

_SAMPLE = 1 << 16  # numbers of the first batch that are compared


def batch_axis(module: nn.Module) -> int | None:
    """Return the batch axis of a module's inputs and outputs, None if the module does not tell.

    Recurrent layers and attention are time-first unless ``batch_first``.

    >>> batch_axis(nn.LSTM(2, 3)), batch_axis(nn.GRU(2, 3, batch_first=True)), batch_axis(nn.Linear(2, 3))
    (1, 0, None)
    """
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        return 0 if module.batch_first else 1
    return None


def first_rows(inputs: Any, axis: int) -> int | None:
    """Return the length along ``axis`` of the first tensor of a call's arguments that has it."""
    return next((t.shape[axis] for t in leaves(inputs, Tensor) if t.ndim > axis), None)


def first_batch(inputs: Any) -> bytes | str:
    """Return a hash of a call's first tensor, the same if the data are.

    In one of several processes, return why there is none: what it gets is a part of the data, and only its
    sampler knows which.
    """
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        return "several processes train it, each on a part of the rows"
    digest = hashlib.blake2b(digest_size=16)
    for tensor in [one for one in leaves(inputs, Tensor) if one.ndim][:1]:
        flat = tensor.detach().reshape(-1)[:_SAMPLE].cpu()
        digest.update(str((tensor.shape, tensor.dtype)).encode())
        digest.update(flat.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.digest()
