"""Follow the rows of a batch through a pass: find modules whose rows are those of an earlier one, moved.

Rows are compared by their exact values, so only what moves rows between two modules is found: an index, a
sort or a dispatch. A module without others inside is assumed to leave its rows where they are. Behind
anything else, such as a function that is no module, the order is not known. Nothing is said of that, unless
rows have moved elsewhere in the pass, or were packed by a caller who says that they are sorted: then a layer
whose order is not known may have its rows in that order too.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor

from ...core.sketch import hashed
from .autograd_axes import AutogradAxes
from .captured_tensor import Packed
from .order import row_contents

#: How many tensors the inputs of a module are compared with, the newest first.
_RECENT = 8
#: The most bytes of a tensor that are compared.
_MOST_BYTES = 1 << 26
#: The place in the batch of a row of which it is not known.
_UNKNOWN = -1


#: Found of the rows of a module: ``"moved"`` if they are known to be in another order than in the batch,
#: ``"unproven"`` if they may be, since others are; ``"assumed"`` if their order is not known, but nothing
#: speaks for another; ``"differs"`` if it is another than one that was assumed.
Finding = Literal["moved", "unproven", "assumed", "differs"]


class _Order(NamedTuple):
    """The row of the batch that each row of a tensor is, and whether it is known, except among equal rows."""

    places: np.ndarray
    is_known: bool

    @classmethod
    def unknown(cls, rows: int) -> _Order:
        """Return the order of rows of which nothing is known."""
        return cls(np.full(rows, _UNKNOWN), is_known=False)


class _Rows(NamedTuple):
    """The rows of a tensor.

    Attributes:
        hashes: The hash of each row.
        order: Their order.
        is_batch: Whether they are known to be those of the batch.
        starts: The hashes of the first 1, 2, 3 … positions of each row, shape (rows, positions), or None.
    """

    hashes: np.ndarray
    order: _Order
    is_batch: bool
    starts: np.ndarray | None = None


class RowFollower:
    """The order of the rows in the modules of one pass.

    Args:
        inputs: The input of the model.
        axis: The axis of its rows.
        packs: Whether modules may get packed items, which are compared position by position.

    Example:
        >>> import torch
        >>> rows, order = torch.tensor([[1.0], [2.0], [3.0]]), [2, 0, 1]
        >>> follower = RowFollower(rows, 0)
        >>> follower.passes(rows, 2 * rows, 0), follower.passes(2 * rows[order], 7 * rows[order], 0)
        (None, 'moved')
        >>> follower.passes(7 * rows, 5 * rows, 0)  # in the order of the batch again
        >>> follower.passes(4 * rows, 3 * rows, 0)
        'unproven'
    """

    def __init__(self, inputs: Tensor | Packed | None, axis: int, *, packs: bool = False) -> None:
        self._recent: deque[_Rows] = deque(maxlen=_RECENT)
        self._packs, self._functions = packs, AutogradAxes()
        self._is_doubtful = False  # whether rows have moved in this pass, or may have
        self._newest = _Order.unknown(0)
        hashes = _hashes(inputs, axis)
        self._length = None if hashes is None else len(hashes)
        if hashes is not None:
            self._keep(inputs, axis, hashes, _Order(np.arange(len(hashes)), is_known=True), is_batch=True)

    def passes(
        self,
        given: Tensor | Packed | None,
        made: Tensor | Packed | None,
        axis: int,
        given_axis: int | None = None,
        *,
        is_batch: bool = False,
        keeps: bool = True,
    ) -> Finding | None:
        """Follow the rows through a module.

        Args:
            given: Its input.
            made: Its output.
            axis: The axis of the rows.
            given_axis: That of the input; None for the same.
            is_batch: Whether it is known that the axis of the output is that of the batch.
            keeps: Whether the module leaves its rows where they are, even if those inside of it move them.

        Returns:
            What is found of the rows of the output; None if they are in the order of the batch.
        """
        if is_batch and isinstance(made, Tensor):
            self._functions.add(made, axis)
        given_axis = axis if given_axis is None else given_axis
        before, hashes = _hashes(given, given_axis), _hashes(made, axis)
        self._newest = _Order.unknown(0)
        order = None if before is None else self._order(before)
        if isinstance(given, Packed):
            order = order or self._order_of_packed(given)
            self._is_doubtful = self._is_doubtful or (
                given.is_sorted and (order is None or not order.is_known)
            )
        if hashes is None:
            return "unproven" if self._is_doubtful and _is_hidden(made, axis) else None
        known = self._order(hashes)
        if known is None and order is not None and len(order.places) == len(hashes):
            known = order if keeps or not self._is_doubtful else None
        if known is None and (self._is_doubtful or len(hashes) != self._length):
            known = _Order.unknown(len(hashes))
        self._newest = known = known or _Order(np.arange(len(hashes)), is_known=False)
        self._keep(made, axis, hashes, known, is_batch=is_batch)
        seen = known.places != _UNKNOWN
        if (hashes[known.places[seen]] != hashes[seen]).any():  # equal rows may swap
            self._is_doubtful = True
            return "moved" if known.is_known else "differs"
        if known.is_known:
            return None
        return "unproven" if self._is_doubtful else "assumed"

    def passes_too(self, made: Tensor, axis: int) -> None:
        """Follow another output of the module that was followed last, with the same rows."""
        hashes = _hashes(made, axis)
        if hashes is not None and len(hashes) == len(self._newest.places):
            self._keep(made, axis, hashes, self._newest, is_batch=False)

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
        for axis in (default, *(axis for axis in range(tensor.ndim) if axis != default)):
            if axis < tensor.ndim and tensor.shape[axis] == self._length:
                hashes = _hashes(tensor, axis)
                if hashes is not None and self._match(hashes, of_batch=True) is not None:
                    return axis
        found = self._functions.of(tensor) if kept is None else kept
        return None if found is None or tensor.shape[found] != self._length else found

    def _keep(
        self, tensor: Tensor | Packed | None, axis: int, hashes: np.ndarray, order: _Order, *, is_batch: bool
    ) -> None:
        starts = _starts(tensor, axis) if self._packs and isinstance(tensor, Tensor) else None
        self._recent.append(_Rows(hashes, order, is_batch, starts))

    def _order(self, hashes: np.ndarray) -> _Order | None:
        """Return which row of the batch each row is, as far as known; None if no earlier tensor has these."""
        known = self._match(hashes)
        if known is None:
            return None
        found: np.ndarray = np.empty_like(known.order.places)
        found[np.argsort(hashes, kind="stable")] = known.order.places[np.argsort(known.hashes, kind="stable")]
        _, groups, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        found[counts[groups] > 1] = _UNKNOWN  # which of equal rows is which, nobody sees
        return _Order(found, known.order.is_known)

    def _order_of_packed(self, packed: Packed) -> _Order | None:
        """Return which row of the batch each packed item is, by its positions; None if one is not found."""
        items = _starts(packed.rows, 0)
        if items is None:
            return None
        lengths = packed.lengths.numpy()
        able = (one for one in reversed(self._recent) if one.starts is not None)
        for one in able:
            found = _items_among(items, lengths, one.starts)
            if found is not None:
                places = np.where(found == _UNKNOWN, _UNKNOWN, one.order.places[found])
                return _Order(places, one.order.is_known)
        return None

    def _match(self, hashes: np.ndarray, *, of_batch: bool = False) -> _Rows | None:
        """Return the newest tensor that has these rows, in any order, or None."""
        here = np.sort(hashes)
        able = (one for one in reversed(self._recent) if one.is_batch or not of_batch)
        return next((one for one in able if np.array_equal(np.sort(one.hashes), here)), None)


def _hashes(tensor: Tensor | Packed | None, axis: int) -> np.ndarray | None:
    """Return the hashes of the rows of a tensor; None if it has none, or they are all alike."""
    tensor, axis = (tensor.rows, 0) if isinstance(tensor, Packed) else (tensor, axis)
    if tensor is None or tensor.ndim <= axis or tensor.nbytes > _MOST_BYTES:
        return None
    hashes = row_contents(tensor, axis)
    return None if hashes is None or len(np.unique(hashes)) < 2 else hashes


def _is_hidden(tensor: Tensor | Packed | None, axis: int) -> bool:
    """Return whether a tensor has rows that cannot be compared, so that they are perhaps not alike."""
    tensor, axis = (tensor.rows, 0) if isinstance(tensor, Packed) else (tensor, axis)
    if tensor is None or tensor.ndim <= axis or not tensor.numel():
        return False
    return tensor.nbytes > _MOST_BYTES or row_contents(tensor, axis) is None


def _starts(tensor: Tensor, axis: int) -> np.ndarray | None:
    """Return a hash of the first 1, 2, 3 … positions of each row of a sequence, or None."""
    if tensor.ndim < 3 or tensor.nbytes > _MOST_BYTES or not tensor.numel():
        return None
    rows = tensor.detach().movedim(axis, 0)
    each = row_contents(rows.reshape(-1, *rows.shape[2:]), 0)
    if each is None:
        return None
    starts = each.reshape(rows.shape[:2]).copy()
    for position in range(1, starts.shape[1]):
        starts[:, position] += hashed(starts[:, position - 1])
    return starts


def _items_among(items: np.ndarray, lengths: np.ndarray, starts: np.ndarray) -> np.ndarray | None:
    """Return which row begins with each of some items, each row being of one; ``_UNKNOWN`` among equal ones.

    The longest items come first, so that no shorter one takes the row of a longer that begins like it.

    Args:
        items: The hashes of the starts of each item.
        lengths: The lengths of the items.
        starts: The hashes of the starts of each row.

    Returns:
        The numbers of the rows; None if an item is the start of none.
    """
    if len(items) != len(starts) or lengths.max() > starts.shape[1]:
        return None
    found, free = np.empty(len(items), np.int64), np.ones(len(items), bool)
    for item in np.argsort(-lengths, kind="stable"):
        last = lengths[item] - 1
        equal = np.flatnonzero(free & (starts[:, last] == items[item, last]))
        if not len(equal):
            return None
        is_own = item in equal
        row = item if is_own else equal[0]
        found[item], free[row] = _UNKNOWN if is_own and len(equal) > 1 else row, False
    return found
