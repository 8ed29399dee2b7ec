"""The random projection of ``core.projection`` for tensors, on their device."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ...core.projection import PROJECTED, signs


def projected(rows: Tensor) -> Tensor:
    """Project rows of shape (..., features) to (..., PROJECTED), as ``core.projection.project`` does.

    Example:
        >>> projected(torch.ones(2, 5000)).shape
        torch.Size([2, 1024])
    """
    features = rows.shape[-1]
    whole = features - features % PROJECTED
    sign = _signs(features, rows.device)
    parts = rows[..., :whole].reshape(*rows.shape[:-1], -1, PROJECTED)
    out: Tensor = (parts * sign[:whole].view(-1, PROJECTED)).sum(-2)
    out[..., : features - whole] += rows[..., whole:] * sign[whole:]
    return out


def summary(rows: Tensor, *, counts: bool = True) -> Tensor:
    """Compute the statistics of ``SUMMARY`` for each row of a tensor of shape (rows, numbers).

    Args:
        rows: The rows.
        counts: Whether to count what is not finite, for which the device is waited for; otherwise 0.
    """
    size = rows.shape[1]
    mean, norm = rows.mean(1), torch.linalg.vector_norm(rows, dim=1)
    variance = torch.linalg.vector_norm(rows - mean[:, None], dim=1) ** 2 / size
    magnitudes = rows.abs()
    mean_abs = magnitudes.mean(1)
    zeros = 1 - magnitudes.sign_().mean(1)
    nonfinite = torch.zeros_like(mean)
    affected = ~torch.isfinite(norm)  # few or none, and counting in all rows would take most of the time
    if counts and affected.any():
        nonfinite[affected] = (~torch.isfinite(rows[affected])).sum(1).to(nonfinite.dtype)
    return torch.stack([mean, mean_abs, variance, norm, zeros, rows.amin(1), rows.amax(1), nonfinite], 1)


@lru_cache(maxsize=32)
def _signs(features: int, device: torch.device) -> Tensor:
    return torch.from_numpy(signs(features).copy()).to(device)
