"""A few numbers of each row of an array, by which rows are recognized in another order."""

from __future__ import annotations

import numpy as np

#: The sums of a row that are compared, beside its size.
SUMS = 3
#: The numbers that stand for infinities, which no sum could be compared with.
LARGEST = 1e30
_AT_ONCE = 1 << 22  # entries that are converted to float64 at once


def fingerprints(array: np.ndarray, axis: int) -> np.ndarray:
    """Return a few numbers of each row that differ if any of its entries does, float64 (rows, SUMS + 1).

    They are sums of the entries, weighted by sines of the entry's number, and the size of the row, in units
    of which the sums are rounded. NaN counts as 0.

    Args:
        array: The array.
        axis: The axis of its rows.

    Example:
        >>> one, other, same = fingerprints(np.array([[1, 2], [2, 1], [1, 2]]), 0)
        >>> bool((one == same).all()), bool((one == other).all())
        (True, False)
    """
    rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    steps = np.outer(np.arange(1, rows.shape[1] + 1), 1 / np.arange(1, SUMS + 1) ** 0.5)
    weights, found = np.sin(steps), np.empty((len(rows), SUMS + 1))
    some = max(_AT_ONCE // max(rows.shape[1], 1), 1)
    for start in range(0, len(rows), some):
        block = np.asarray(rows[start : start + some], np.float64)
        block = np.nan_to_num(block, posinf=LARGEST, neginf=-LARGEST)
        found[start : start + some] = np.column_stack([block @ weights, np.linalg.norm(block, axis=1)])
    return found
