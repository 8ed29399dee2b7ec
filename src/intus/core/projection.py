"""Random projection of rows too wide to be sent or scored as they are, the same in every framework.

The projection keeps distances between rows, whatever their layout, so labels are as easy to read from them
and layers rank as they did (``docs/probing.md`` has the figures). What it would falsify is measured first.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

#: Features that a row which is too wide is projected to; a probe's ranking of layers survives down to 128.
PROJECTED = 1024
#: What is measured of each row before it is projected.
SUMMARY = ("mean", "mean_abs", "variance", "norm", "sparsity", "low", "high", "nonfinite")


@lru_cache(maxsize=32)
def signs(features: int) -> np.ndarray:
    """Return the signs of the projection of rows of so many features, float32 of shape (features,).

    They depend on the number of features alone, so every process and framework projects alike.
    """
    drawn: np.ndarray = np.random.Generator(np.random.PCG64(features)).integers(0, 2, features)
    signs = (drawn * 2 - 1).astype(np.float32)
    signs.setflags(write=False)
    return signs


def project(rows: np.ndarray) -> np.ndarray:
    """Project rows to ``PROJECTED`` features.

    Each new feature is a signed sum of an equal share of the old ones (Charikar, Chen and Farach-Colton 2002,
    "Finding frequent items in data streams").

    Args:
        rows: Shape (..., features), with at least ``PROJECTED`` features.

    Returns:
        float32 of shape (..., PROJECTED).

    Example:
        >>> project(np.ones((2, 5000), np.float32)).shape
        (2, 1024)
    """
    features = rows.shape[-1]
    whole = features - features % PROJECTED
    signed = rows.astype(np.float32) * signs(features)
    out: np.ndarray = signed[..., :whole].reshape(*rows.shape[:-1], -1, PROJECTED).sum(-2)
    out[..., : features - whole] += signed[..., whole:]
    return out


def summarize(rows: np.ndarray) -> np.ndarray:
    """Return what ``SUMMARY`` names, float32 of shape (rows, 8), of rows of shape (rows, numbers)."""
    rows = rows.astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        mean, norm = rows.mean(1), np.sqrt(np.square(rows).sum(1))
        parts = [
            mean,
            np.abs(rows).mean(1),
            np.square(rows - mean[:, None]).mean(1),
            norm,
            (rows == 0).mean(1),
            rows.min(1),
            rows.max(1),
            (~np.isfinite(rows)).sum(1),
        ]
    return np.stack(parts, 1).astype(np.float32)
