"""Recognize that the batches of an iteration were kept, and are used again after its end."""

from __future__ import annotations

from typing import Any

from ...backends.feeds import Feed
from .changes import ModelChanges
from .first_batch import FirstBatch, Order
from .log import EpochLog

_USED_AGAIN = (
    "No new epoch was found since epoch {:g}, although {} passes followed the end of an iteration that gave "
    "{} batches: if these were kept and used again, their epochs cannot be told apart. Set watch.epoch = "
    "number before each epoch."
)
_AGAIN = "Its batches were kept and used again, and an epoch begins when the first of them comes again."


class KeptBatches:
    """The batches of the iteration by which epochs are counted, if they were kept, as by itertools.cycle.

    Args:
        feed: What tells of the batches.
        order: What makes a hash of a batch.
        log: Gets what is to be said.
        changes: The changes of the parameters.

    Attributes:
        iteration: The number of the iteration.
        calls: How many calls the present epoch has of the iteration.
        were_used_again: Whether an epoch was found by batches that were kept.
    """

    def __init__(self, feed: Feed, order: Order, log: EpochLog, changes: ModelChanges) -> None:
        self._feed, self._order, self._log, self._changes = feed, order, log, changes
        self._calls_before = 0  # in an epoch of batches that were kept
        self.were_used_again = False

    def begin(self, inputs: Any, iteration: int) -> None:
        """Register the first call with a batch of another iteration."""
        self.iteration, self._first = (
            iteration,
            FirstBatch(self._feed, self._order, self._changes, self._log, inputs),
        )
        self.calls, self._late_calls = 1, 0  # and those after its end

    def begin_again(self, inputs: Any) -> bool:
        """Register a further call, and return whether an epoch begins with it."""
        given = self._given()
        if given and self.calls % given == 0 and self._first.comes_again(inputs):
            self._calls_before, self.calls, self._late_calls = self.calls, 1, 0
            if not self.were_used_again:
                self.were_used_again = True
                self._log.state(f"{self._log.how} {_AGAIN}")
            return True
        self.calls += 1
        self._late_calls += given is not None
        return False

    def are_in_use(self) -> bool:
        """Return whether calls have batches that were kept, as an epoch or too many calls show."""
        return self.were_used_again or self._are_too_many()

    def are_rows_unknown(self) -> bool:
        """Return whether the rows of calls are no longer known, because their batches were kept."""
        return self.were_used_again and self._feed.batches(self.iteration) is not None

    def doubt(self) -> str:
        """Return in words that batches may have been used again without an epoch; "" if not."""
        if not self._are_too_many():
            return ""
        given = self._feed.given(self.iteration)
        return _USED_AGAIN.format(self._log.epoch, self._late_calls, given)

    def _given(self) -> int | None:
        """Return how many batches the iteration gave, if it gives no more; None if it may."""
        return None if self._feed.is_open(self.iteration) else self._feed.given(self.iteration)

    def _are_too_many(self) -> bool:
        """Return whether more calls followed the end of the iteration than it had batches."""
        given = self._given() if self._late_calls else None
        return given is not None and self._late_calls > max(given, self._calls_before)
