"""Follow the rows of a batch through a pass: find modules whose rows are those of an earlier one, moved.

Rows are compared by their exact values, so only what moves rows between two modules is found: an index, a
sort or a dispatch. A module itself is assumed to leave its rows where they are. Behind anything else, such as
a function that is no module, the order is not known, and nothing is said.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from torch import Tensor

from .autograd_axes import AutogradAxes
from .order import row_contents

#: How many tensors the inputs of a module are compared with, the newest first.
_RECENT = 8
#: The most bytes of a tensor that are compared.
_MOST_BYTES = 1 << 26
#: The place in the batch of a row of which it is not known.
_UNKNOWN = -1


class _Rows(NamedTuple):
    """The rows of a tensor: their hashes, the row of the batch that each is, whether they are the batch's."""

    rows: np.ndarray
    order: np.ndarray
    is_batch: bool


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
        self._recent: deque[_Rows] = deque(maxlen=_RECENT)
        rows = _rows(inputs, axis)
        self._functions = AutogradAxes()
        self._length = None if rows is None else len(rows)
        if rows is not None:
            self._recent.append(_Rows(rows, np.arange(len(rows)), is_batch=True))

    def passes(
        self,
        given: Tensor | None,
        made: Tensor | None,
        axis: int,
        given_axis: int | None = None,
        *,
        is_batch: bool = False,
    ) -> bool:
        """Follow the rows through a module.

        Args:
            given: Its input.
            made: Its output.
            axis: The axis of the rows.
            given_axis: That of the input; None for the same.
            is_batch: Whether it is known that the axis of the output is that of the batch.

        Returns:
            True if it is known that the rows of the output are in another order than in the batch.
        """
        if is_batch:
            self._functions.add(made, axis)
        before, rows = _rows(given, axis if given_axis is None else given_axis), _rows(made, axis)
        if rows is None:
            return False
        order = self._order(rows)
        if order is None and before is not None and len(before) == len(rows):
            order = self._order(before)
        if order is None:
            order = np.full(len(rows), _UNKNOWN)
        self._recent.append(_Rows(rows, order, is_batch))
        known = order != _UNKNOWN
        return bool((rows[order[known]] != rows[known]).any())  # equal rows may swap

    def axis_of(self, tensor: Tensor | None, default: int, kept: int | None = None) -> int | None:
        """Return the batch axis of a tensor, or None if it is not known.

        It is the one along which the tensor has the rows of an earlier one, or follows from the functions
        that it went through since.

        Args:
            tensor: The tensor.
            default: The axis that is tried first.
            kept: The axis that follows from the module that made it, unless its rows show another.

        Example:
            >>> import torch
            >>> words = torch.arange(6.0).reshape(2, 3, 1)
            >>> RowFollower(words, 0).axis_of(words.transpose(0, 1), 0)
            1
        """
        if tensor is None or self._length is None:
            return None
        for axis in (default, *(axis for axis in range(tensor.ndim - 1) if axis != default)):
            if axis < tensor.ndim and tensor.shape[axis] == self._length:
                rows = _rows(tensor, axis)
                if rows is not None and self._match(rows, of_batch=True) is not None:
                    return axis
        found = self._functions.of(tensor) if kept is None else kept
        return None if found is None or tensor.shape[found] != self._length else found

    def _order(self, rows: np.ndarray) -> np.ndarray | None:
        """Return which row of the batch each row is, as far as known; None if no earlier tensor has these."""
        known = self._match(rows)
        if known is None:
            return None
        found: np.ndarray = np.empty_like(known.order)
        found[np.argsort(rows, kind="stable")] = known.order[np.argsort(known.rows, kind="stable")]
        _, groups, counts = np.unique(rows, return_inverse=True, return_counts=True)
        found[counts[groups] > 1] = _UNKNOWN  # which of equal rows is which, nobody sees
        return found

    def _match(self, rows: np.ndarray, *, of_batch: bool = False) -> _Rows | None:
        """Return the newest tensor that has these rows, in any order, or None."""
        here = np.sort(rows)
        able = (one for one in reversed(self._recent) if one.is_batch or not of_batch)
        return next((one for one in able if np.array_equal(np.sort(one.rows), here)), None)


def _rows(tensor: Tensor | None, axis: int) -> np.ndarray | None:
    """Return the hashes of the rows of a tensor; None if it has none, or they are all alike."""
    if tensor is None or tensor.ndim <= axis or tensor.nbytes > _MOST_BYTES:
        return None
    rows = row_contents(tensor, axis)
    return None if rows is None or len(np.unique(rows)) < 2 else rows
