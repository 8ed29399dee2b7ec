"""Rows too wide to be sent are projected at random; what a projection would falsify is measured before.

The projection keeps distances between rows, whatever their layout, so labels are as easy to read from them
and layers rank as they did. Averaging a convolution's maps to 2 x 2 was measured beside it and does worse
(docs/probing.md has the figures).
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ...core.record import PROJECTED


def projected(rows: Tensor) -> Tensor:
    """Rows (…, features) as (…, PROJECTED): each of the new features is a sum of old ones, an equal share of
    them, with signs drawn at random (Charikar, Chen and Farach-Colton 2002). The same for every tensor of as
    many features, in every process.

    >>> projected(torch.ones(2, 5000)).shape
    torch.Size([2, 1024])
    """
    features = rows.shape[-1]
    whole = features - features % PROJECTED
    signs = _signs(features, rows.device)
    parts = rows[..., :whole].reshape(*rows.shape[:-1], -1, PROJECTED)
    out: Tensor = (parts * signs[:whole].view(-1, PROJECTED)).sum(-2)
    out[..., : features - whole] += rows[..., whole:] * signs[whole:]
    return out


def summary(rows: Tensor) -> Tensor:
    """What ``SUMMARY`` names, of each of the rows (rows, numbers)."""
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
    own = torch.Generator().manual_seed(features)  # the training's own numbers stay as they are
    return (torch.randint(0, 2, (features,), generator=own) * 2 - 1).to(device, torch.float32)
