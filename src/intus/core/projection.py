"""Random projection of rows too wide to be sent or scored in full, identical in every framework.

The projection approximately preserves distances between rows of any layout, so labels stay as decodable and
layers keep their ranking (``docs/probing.md`` has the figures). Statistics that it would distort are
computed first (``SUMMARY``).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

#: The number of features that wide rows are projected to. A probe's ranking of layers is stable down to 128.
PROJECTED = 1024
#: The statistics computed for each row before it is projected.
SUMMARY = ("mean", "mean_abs", "variance", "norm", "sparsity", "low", "high", "nonfinite")


@lru_cache(maxsize=32)
def signs(features: int) -> np.ndarray:
    """Return the random signs used to project rows with the given number of features.

    They depend only on that number, so every process and framework projects identically.

    Args:
        features: The number of features of a row.

    Returns:
        float32 of shape (features,), each 1 or -1, read-only.
    """
    drawn: np.ndarray = np.random.Generator(np.random.PCG64(features)).integers(0, 2, features)
    values = (drawn * 2 - 1).astype(np.float32)
    values.setflags(write=False)
    return values


def project(rows: np.ndarray) -> np.ndarray:
    """Project rows to ``PROJECTED`` features.

    Each new feature is a signed sum of an equal share of the old ones (Charikar, Chen and Farach-Colton 2002,
    "Finding frequent items in data streams").

    Args:
        rows: Array of shape (..., features), with at least ``PROJECTED`` features.

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
    """Compute the statistics of ``SUMMARY`` for each row.

    Args:
        rows: Array of shape (rows, numbers).

    Returns:
        float32 of shape (rows, 8).
    """
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
