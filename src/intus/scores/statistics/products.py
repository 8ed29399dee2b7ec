"""Sums of rows weighted by labels. If most labels are 0, only the others are multiplied."""

from __future__ import annotations

import numpy as np

from ...core.errors import require

_DENSE = 0.1  # share of labels that are not 0 from which on a dense product is faster


def weighted_sums(labels: np.ndarray, x: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the sums of rows weighted by labels, over consecutive runs of rows.

    Args:
        labels: The weights, shape (rows, labels).
        x: The rows, shape (rows, features).
        starts: The first row of each run, ascending from 0, shape (runs,).

    Returns:
        The sums in the type of ``x``, shape (runs, labels, features).

    Example:
        >>> weighted_sums(np.array([[1], [0], [2]]), np.array([[1.0], [5.0], [7.0]]), np.array([0, 2]))
        array([[[ 1.]],
        <BLANKLINE>
               [[14.]]])
    """
    rows, count = labels.shape
    some = labels != 0
    number = np.count_nonzero(some)
    if number > _DENSE * some.size:
        weights = labels.T.astype(x.dtype)
        runs = zip(starts, [*starts[1:], rows], strict=True)
        return np.stack([weights[:, start:end] @ x[start:end] for start, end in runs])
    sparse = require("scipy.sparse", extra="server", why="to sum rows by label")
    flat = np.flatnonzero(some)
    row = np.repeat(np.arange(rows), some.sum(axis=1))
    run = np.searchsorted(starts, row, side="right") - 1
    place = flat + (run - row) * count  # of the sum: run * count + label
    weights = labels.ravel()[flat].astype(x.dtype)
    ends = np.searchsorted(row, np.arange(rows + 1))
    matrix = sparse.csc_array((weights, place, ends), shape=(len(starts) * count, rows))
    return np.asarray(matrix @ x).reshape(len(starts), count, x.shape[1])
