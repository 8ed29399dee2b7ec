"""Follow the rows of a batch through a pass: find modules whose rows are those of an earlier one, moved.

Rows are compared by their exact values, so only what moves rows between two modules is found: an index, a
sort or a dispatch. A module itself is assumed to leave its rows where they are. Behind anything else, such as
a function that is no module, the order is not known, and nothing is said.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from torch import Tensor

from .order import row_contents

#: How many tensors the inputs of a module are compared with, the newest first.
_RECENT = 8
#: The most bytes of a tensor that are compared.
_MOST_BYTES = 1 << 26
#: The place in the batch of a row of which it is not known.
_UNKNOWN = -1


class RowFollower:
    """The order of the rows in the modules of one pass.

    Args:
        inputs: The input of the model.
        axis: The axis of its rows.

    Example:
        >>> import torch
        >>> rows, order = torch.tensor([[1.0], [2.0], [3.0]]), [2, 0, 1]
        >>> follower = RowFollower(rows, 0)
        >>> follower.passes(rows, 2 * rows, 0), follower.passes(2 * rows[order], 7 * rows[order], 0)
        (False, True)
        >>> follower.passes(7 * rows, 5 * rows, 0)
        False
    """

    def __init__(self, inputs: Tensor | None, axis: int) -> None:
        self._recent: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=_RECENT)
        rows = _rows(inputs, axis)
        if rows is not None:
            self._recent.append((rows, np.arange(len(rows))))

    def passes(self, given: Tensor | None, made: Tensor | None, axis: int) -> bool:
        """Follow the rows through a module.

        Args:
            given: Its input.
            made: Its output.
            axis: The axis of the rows.

        Returns:
            True if it is known that the rows of the output are in another order than in the batch.
        """
        before, rows = _rows(given, axis), _rows(made, axis)
        if rows is None:
            return False
        order = self._order(rows)
        if order is None and before is not None and len(before) == len(rows):
            order = self._order(before)
        if order is None:
            order = np.full(len(rows), _UNKNOWN)
        self._recent.append((rows, order))
        known = order != _UNKNOWN
        return bool((rows[order[known]] != rows[known]).any())  # equal rows may swap

    def _order(self, rows: np.ndarray) -> np.ndarray | None:
        """Return which row of the batch each row is, as far as known; None if no earlier tensor has these."""
        here = np.argsort(rows, kind="stable")
        for known, order in reversed(self._recent):
            if len(known) != len(rows):
                continue
            at = np.argsort(known, kind="stable")
            if np.array_equal(known[at], rows[here]):
                found: np.ndarray = np.empty_like(order)
                found[here] = order[at]
                _, groups, counts = np.unique(rows, return_inverse=True, return_counts=True)
                found[counts[groups] > 1] = _UNKNOWN  # which of equal rows is which, nobody sees
                return found
        return None


def _rows(tensor: Tensor | None, axis: int) -> np.ndarray | None:
    """Return the hashes of the rows of a tensor; None if it has none, or they are all alike."""
    if tensor is None or tensor.ndim <= axis or tensor.nbytes > _MOST_BYTES:
        return None
    rows = row_contents(tensor, axis)
    return None if rows is None or len(np.unique(rows)) < 2 else rows
