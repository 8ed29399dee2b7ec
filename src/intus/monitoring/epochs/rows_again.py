"""Recognize that the rows of a training without a loader come again, in another order in each epoch."""

from __future__ import annotations

from typing import Any

from ...backends.feeds import Feed
from ..contents import Repeats
from .changes import ModelChanges
from .first_batch import FirstBatch, Order

_MOST_SINGLE = 1 << 16  # batches of one row that are remembered


class RowsAgain:
    """The rows of a training without a loader, as far as they show that epochs are not found.

    Args:
        feed: What reads the rows.
        order: What makes a hash of a batch.
        changes: The changes of the parameters.

    Attributes:
        have_come_twice: Whether each row is known to have come twice on average.
        are_mixed: Whether batches of one row are known to come in another order in each epoch.
    """

    def __init__(self, feed: Feed, order: Order, changes: ModelChanges) -> None:
        self._feed, self._order, self._changes = feed, order, changes
        self.have_come_twice = self.are_mixed = False
        self._repeats, self._are_compared_whole = Repeats(), False
        self._single: set[Any] = set()  # hashes of batches of one row, since the first of them came

    def see_batch(self, inputs: Any, first: FirstBatch, *, is_first: bool) -> None:
        """Register a batch of one row, and whether it is the first of an epoch again.

        If the rows are mixed, the first comes again in the midst of another epoch, and others have before.
        """
        if not first.has_one_row or self.are_mixed:
            return
        if is_first:
            self._single.clear()
            return
        found = self._order(inputs)
        self.are_mixed = found != first.digest and found in self._single
        if len(self._single) < _MOST_SINGLE:
            self._single.add(found)

    def see_rows(self, inputs: Any) -> bool:
        """Register the rows of a call, and return whether it shows for the first time that they came twice.

        Few values of the rows are compared first. If these came again, so did the rows, or others like them.
        """
        if self.have_come_twice:
            return False
        found = self._feed.row_contents(inputs, by_all=self._are_compared_whole)
        if found is None or not self._repeats.see(found[0]):
            return False
        if not found[1]:
            self._repeats, self._are_compared_whole = Repeats(), True
        else:
            self.have_come_twice = not self._repeats.are_few and self._changes.since_epoch()
        return self.have_come_twice
