"""Find the epochs of a training whose batches no DataLoader is known to give: by the first batch."""

from __future__ import annotations

from typing import Any

from ...backends.feeds import Feed, Origin
from .changes import ModelChanges
from .first_batch import FirstBatch, Order
from .log import EpochLog
from .rows_again import RowsAgain

_BY_BATCH = "Epochs are found from the first batch: one begins when it comes again."
_UNEQUAL = (
    "Epoch {:g} has {} passes, the one before {}: if batches are drawn again at random, as from a replay "
    "buffer, these are no epochs. Set watch.epoch = number before each epoch."
)
_NO_EPOCHS = (
    "All passes of {} are in epoch {:g}, because no end of an epoch was found: no DataLoader is known to "
    "have given the batches, and the first batch never came again. Set watch.epoch = number before each "
    "epoch."
)
_ROWS_AGAIN = (
    "No new epoch was found since epoch {:g}, although rows that were compared came twice on average: no "
    "DataLoader is known to have given the batches, and the first batch did not come again, as of "
    "permutations of tensors. Set watch.epoch = number before each epoch."
)


class EpochsByBatch:
    """The epochs of a training without a loader: one begins when the first batch comes again.

    Args:
        feed: What tells of the batches and steps.
        order: What makes a hash of a batch.
        log: Gets how epochs are found.
        changes: The changes of the parameters.
    """

    def __init__(self, feed: Feed, order: Order, log: EpochLog, changes: ModelChanges) -> None:
        self._feed, self._order, self._log, self._changes = feed, order, log, changes
        self._first: FirstBatch | None = None
        self._calls = 0  # since it came
        self._calls_before: int | None = None  # in the epoch before
        self._stepped: int | None = None  # steps of optimizers before the training
        self._came = 0  # batches that had come before its first step
        self._rows = RowsAgain(feed, order, changes)

    @property
    def has_first(self) -> bool:
        """True if the first batch came."""
        return self._first is not None

    def begin(self) -> None:
        """Register that the training begins."""
        self._stepped, self._came = self._feed.stepped(), self._feed.came()
        self._changes.training_begins()

    def have_trained(self) -> bool:
        """Return whether a step of an optimizer followed the first call, which was no mere look."""
        return self._stepped not in (None, self._feed.stepped())

    def came_before(self, origin: Origin) -> bool:
        """Return whether the model was trained before the loader of a batch was iterated over."""
        return self.have_trained() and not origin.was_under_way and origin.came > self._came

    def epoch_of(self, inputs: Any, epoch: float) -> float:
        """Return the epoch of a call.

        Args:
            inputs: The arguments of the call.
            epoch: The present epoch.
        """
        if self._first is None:
            self._first = FirstBatch(self._feed, self._order, self._changes, self._log, inputs)
            self._changes.advance()
            self.begin()
            self._look_for_rows(inputs, epoch)
            return epoch + 1 if epoch == 0 and self._changes.are_by_optimizer() else epoch
        self._calls += 1
        if not self.have_trained():
            self._came = self._feed.came()
        is_first = self._first.comes_again(inputs)
        self._rows.see_batch(inputs, self._first, is_first=is_first)
        if self._rows.are_mixed or not is_first:
            self._look_for_rows(inputs, epoch)
            return epoch
        self._log.found(_BY_BATCH)
        begun = self._changes.next_epoch(epoch)
        if begun > epoch:
            self._compare_lengths(epoch)
        self._calls = 0
        return begun

    def doubt(self) -> str:
        """Return in words that passes may be of several epochs; "" if nothing suggests it."""
        is_doubted = self._are_unfound() and self._rows.have_come_twice
        return _ROWS_AGAIN.format(self._log.epoch) if is_doubted else ""

    def say_no_epochs(self, name: str, epoch: float) -> None:
        """Say that no epochs were found, unless it was said already.

        Args:
            name: The name of the model.
            epoch: The present epoch.
        """
        is_said = self._log.is_found or self._rows.have_come_twice
        if not is_said and self._changes.since_epoch():
            self._log.warn(_NO_EPOCHS.format(name, epoch))

    def _are_unfound(self) -> bool:
        return not self._log.is_found or self._rows.are_mixed

    def _look_for_rows(self, inputs: Any, epoch: float) -> None:
        """Say once that epochs are not found, if each row of the training has come twice."""
        if self._are_unfound() and self._rows.see_rows(inputs):
            self._log.warn(_ROWS_AGAIN.format(epoch))

    def _compare_lengths(self, epoch: float) -> None:
        """Say once that an epoch that ends has another number of passes than the one before."""
        before, self._calls_before = self._calls_before, self._calls
        if before not in (None, self._calls_before) and self._log.is_new(_UNEQUAL):
            self._log.add(_UNEQUAL.format(epoch, self._calls_before, before), "warning")
