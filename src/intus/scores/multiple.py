"""Multiple comparisons: the false discovery rate of many p-values."""

from __future__ import annotations

import numpy as np


def false_discovery_rates(p: np.ndarray) -> np.ndarray:
    """Return the adjusted p-values of Benjamini and Hochberg (1995), often called q-values.

    If all tests with q at most .05 count as findings, at most 5 % of these are expected to be false.

    Args:
        p: The p-values, shape (tests,). NaN is no test.

    Example:
        >>> false_discovery_rates(np.array([0.01, 0.5, np.nan, 0.03])).tolist()
        [0.03, 0.5, nan, 0.045]
    """
    out = np.full(len(p), np.nan)
    tests = np.flatnonzero(np.isfinite(p))
    order = tests[np.argsort(p[tests], kind="stable")]
    adjusted = p[order] * len(order) / np.arange(1, len(order) + 1)
    out[order] = np.minimum(np.minimum.accumulate(adjusted[::-1])[::-1], 1)
    return out
