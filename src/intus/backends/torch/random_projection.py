"""The random projection of ``core.projection`` on tensors, where they lie."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ...core.projection import PROJECTED, signs


def projected(rows: Tensor) -> Tensor:
    """Project rows of shape (..., features) to (..., PROJECTED), as ``core.projection.project`` does.

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


def summary(rows: Tensor) -> Tensor:
    """Return what ``SUMMARY`` names, of each row of shape (rows, numbers)."""
    size = rows.shape[1]
    mean, norm = rows.mean(1), torch.linalg.vector_norm(rows, dim=1)
    spread = torch.linalg.vector_norm(rows - mean[:, None], dim=1) ** 2 / size
    sizes = rows.abs()
    mean_abs = sizes.mean(1)
    zeros = 1 - sizes.sign_().mean(1)
    lost = torch.zeros_like(mean)
    odd = ~torch.isfinite(norm)  # few, or none: counting takes longer than all the rest
    if odd.any():
        lost[odd] = (~torch.isfinite(rows[odd])).sum(1).to(lost.dtype)
    return torch.stack([mean, mean_abs, spread, norm, zeros, rows.amin(1), rows.amax(1), lost], 1)


@lru_cache(maxsize=32)
def _signs(features: int, device: torch.device) -> Tensor:
    return torch.from_numpy(signs(features).copy()).to(device)
