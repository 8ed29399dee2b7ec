"""The numbers by which rows are recognized, of tensors on their device; see ``core.fingerprints``."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ...core.fingerprints import LARGEST, SUMS

#: Entries that are converted to float64 at once: on a processor those that fit into its caches.
_ON_PROCESSOR, _ON_DEVICE = 1 << 18, 1 << 24


def fingerprints(tensor: Tensor, axis: int) -> np.ndarray:
    """Return what ``core.fingerprints.fingerprints`` does, but for rounding.

    Only these numbers are copied to the host.

    Args:
        tensor: The tensor, of real numbers.
        axis: The axis of its rows.
    """
    with torch.no_grad():
        rows = tensor.detach().movedim(axis, 0)
        rows = rows.flatten(1) if rows.ndim > 1 else rows[:, None]
        weights = _weights(rows.shape[1], rows.device)
        most = _ON_PROCESSOR if rows.is_cpu else _ON_DEVICE
        some = max(most // max(rows.shape[1], 1), 1)
        blocks = [_of_block(block, weights, most // some) for block in torch.split(rows, some)]
        numbers: np.ndarray = torch.cat(blocks).cpu().numpy()
    return numbers


def _of_block(rows: Tensor, weights: Tensor, features: int) -> Tensor:
    """Return the fingerprints of some rows, which are converted so many features at a time."""
    sums = torch.zeros(len(rows), SUMS, dtype=torch.float64, device=rows.device)
    squares = torch.zeros(len(rows), 1, dtype=torch.float64, device=rows.device)
    for part, weight in zip(torch.split(rows, features, 1), torch.split(weights, features), strict=True):
        part = torch.nan_to_num(part.double(), 0.0, LARGEST, -LARGEST)
        sums += part @ weight
        squares += torch.linalg.vector_norm(part, dim=1, keepdim=True) ** 2
    return torch.cat([sums, squares.sqrt()], 1)


@lru_cache(maxsize=4)
def _weights(features: int, device: torch.device) -> Tensor:
    """Return the sines by which entries are weighted, float64 (features, SUMS)."""
    entry = torch.arange(1, features + 1, dtype=torch.float64, device=device)
    every = torch.arange(1, SUMS + 1, dtype=torch.float64, device=device) ** -0.5
    return torch.sin(torch.outer(entry, every))
