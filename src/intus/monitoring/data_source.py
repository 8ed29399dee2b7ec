"""Find the epochs and the ids of rows of a training that names neither.

An epoch begins when the DataLoader of the training is iterated anew, or else when the first batch comes
again, in both cases only after the parameters changed. Epoch 0 is the model before its training. Ids are the
indices that the DataLoader's sampler gave, for the dataset of the training alone: in another one, for
validation, the same indices are other items.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.feeds import Feed, Origin
from .warn_once import WarningLog

_BY_LOADER = "Epochs are found from {}: one begins when it is iterated anew."
_BY_BATCH = "Epochs are found from the first batch: one begins when it comes again."
_NO_EPOCHS = (
    "All passes of {} are in epoch {:g}, because no end of an epoch was found: no DataLoader gave the "
    "batches, and the first batch never came again. Set watch.epoch = number before each epoch."
)
_BY_SAMPLER = "Items are found from the sampler of {}: label i belongs to row i of its dataset."
_BY_ORDER = (
    "Items are not found from the sampler of {}, because {}. Set watch.items = ids, or pass a probe_set."
)
_OTHER = (
    "Rows of {} (mode {}) have no labels: they are of another dataset than the rows of {}, which labels are "
    "for. Set watch.items = ids, or pass a probe_set."
)
_ANEW = (
    "Rows of {} have no labels: its dataset was made anew, and is not known to hold the rows of the first, "
    "{}, which labels are for. Make the dataset once, before the epochs, or set watch.items = ids."
)
_SCRIPT, _NOT_FOUND = "set by the script", "not found"


class DataSource:
    """The epochs and item ids of the batches of one model, as far as they are known.

    Args:
        feed: What gives the batches; None if the framework does not tell.
        order: Returns a hash of the data in a call's arguments, or something else if there is none.
        troubles: Gets the sentences for the page.
        on_epoch_over: Called when an epoch is over, if that is known before the next one begins.

    Attributes:
        epochs: How epochs are found, in words.
        items: How the ids of rows are found, in words.
        has_ids: Whether the ids of recorded rows are found.
        checked_s: The processor seconds that it took to find out whether the parameters changed.
        is_refused: Whether labels cannot be for the rows of the last call without ids, not even in their
            order: they are of another dataset than the labels, or were reordered.
    """

    def __init__(
        self,
        feed: Feed | None,
        order: Callable[[Any], Any],
        troubles: WarningLog,
        on_epoch_over: Callable[[], None],
    ) -> None:
        self._on_epoch_over = on_epoch_over
        if feed is not None:
            feed.on_end = self._ended
        self._feed, self._order, self._troubles = feed, order, troubles
        self.epochs = self.items = _NOT_FOUND
        self._finds_epochs = self._finds_items = feed is not None
        self.checked_s = 0.0
        self.has_ids = self.is_refused = False
        self._is_loader = False
        # The stream is the dataset whose epochs are counted. If it is made anew in each epoch, and not known
        # to be the same, the stream moves on, and labels stay with the first.
        self._iteration = self._stream = self._dataset = -1
        self._name = ""  # of the loader of the dataset
        self._is_certain = False  # whether a batch of the training was found among those of the dataset
        self._said: set[str] = set()
        self._first: tuple[tuple[Any, ...] | None, Any] | None = None
        self._version: int | None = None

    def epochs_are_set(self, how: str = _SCRIPT) -> None:
        """Register that epochs are known otherwise, so that none are looked for."""
        self.epochs, self._finds_epochs = how, False

    def items_are_set(self, how: str = _SCRIPT) -> None:
        """Register that ids of rows are known otherwise, so that none are looked for."""
        self.items, self._finds_items = how, False

    @property
    def is_searching(self) -> bool:
        """True as long as epochs or ids of rows are to be found."""
        return self._feed is not None and (self._finds_epochs or self._finds_items)

    def remove(self) -> None:
        """Stop observing."""
        if self._feed is not None:
            self._feed.remove()

    def epoch_of(self, inputs: Any, epoch: float) -> float:
        """Return the epoch of a call that is about to run.

        Args:
            inputs: The arguments of the call.
            epoch: The present epoch.
        """
        feed = self._feed
        if feed is None or not self.is_searching or not feed.is_training():
            return epoch
        origin = feed.origin(inputs)
        if self._finds_epochs:
            epoch = self._epoch(feed, inputs, origin, epoch)
        if origin is not None and self._dataset == -1:
            self._dataset, self._name = origin.dataset, origin.name
        return epoch

    def items_of(self, inputs: Any, mode: str) -> np.ndarray | None:
        """Return the ids of the rows of a call that is about to be recorded; None if they are not known.

        Args:
            inputs: The arguments of the call.
            mode: The mode of the call.
        """
        self.is_refused = False
        if self._feed is None or not self._finds_items or self._dataset == -1:
            return None
        found = self._feed.items(inputs)
        if found is None:
            return None
        training = self._feed.is_training()
        if training and found.ids is not None and not self._is_certain:
            self._dataset, self._name, self._is_certain = found.dataset, found.name, True
        if found.dataset != self._dataset or (found.ids is not None and not self._is_certain):
            self.is_refused = True
            self._say_other(found.name, mode, training=training and self._feed.is_gone(self._dataset))
            return None
        if self.items == _NOT_FOUND:
            text = _BY_SAMPLER if found.ids is not None else _BY_ORDER
            self.items = text.format(found.name, found.reason)
            self._troubles.inform("items", self.items)
        self.has_ids, self.is_refused = found.ids is not None, found.is_reordered
        return found.ids

    def end(self, name: str, epoch: float) -> None:
        """Say if all passes of a training were one epoch, because nothing showed where others begin."""
        if self._feed is None or not self._finds_epochs or self.epochs != _NOT_FOUND:
            return
        if self._version not in (None, self._read_version(self._feed)):
            self._troubles.inform("epochs", _NO_EPOCHS.format(name, epoch), "warning")

    # ------------------------------------------------------------------------------------------------

    def _say_other(self, name: str, mode: str, *, training: bool) -> None:
        """Say once for each mode that rows are of another dataset."""
        if mode in self._said:
            return
        self._said.add(mode)
        if training:
            self._troubles.inform("items", _ANEW.format(name, self._name), "warning")
        else:
            self._troubles.inform("items", _OTHER.format(name, mode, self._name))

    def _ended(self, iteration: int) -> None:
        if self._finds_epochs and iteration == self._iteration:
            self._on_epoch_over()

    def _epoch(self, feed: Feed, inputs: Any, origin: Origin | None, epoch: float) -> float:
        if origin is not None:
            return self._epoch_of_loader(feed, origin, epoch)
        if self._is_loader:
            return epoch  # a batch of no loader among those of one
        if self._first is None:
            self._first = feed.first_values(inputs), self._order(inputs)
            self._version = self._read_version(feed)
            return epoch + 1 if epoch == 0 and feed.has_optimizer() else epoch
        values, digest = self._first
        if values is None or feed.first_values(inputs) != values:
            return epoch
        version = self._read_version(feed)
        if version == self._version or not isinstance(digest, bytes) or self._order(inputs) != digest:
            return epoch
        self._version = version
        self._found(_BY_BATCH)
        return epoch + 1

    def _epoch_of_loader(self, feed: Feed, origin: Origin, epoch: float) -> float:
        version = self._read_version(feed) if origin.iteration != self._iteration else self._version
        before, self._is_loader = self._is_loader, True
        if not before:
            self._found(_BY_LOADER.format(origin.name))
            self._iteration, self._stream, self._version = origin.iteration, origin.dataset, version
            return epoch + 1 if epoch == 0 else epoch
        if origin.dataset != self._stream and not feed.is_gone(self._stream):
            return epoch  # another stream of the same training
        if origin.iteration == self._iteration:
            return epoch
        trained = version != self._version
        self._iteration, self._stream, self._version = origin.iteration, origin.dataset, version
        return epoch + 1 if trained else epoch

    def _read_version(self, feed: Feed) -> int:
        began = time.thread_time()
        version = feed.version()
        self.checked_s += time.thread_time() - began
        return version

    def _found(self, how: str) -> None:
        if self.epochs == _NOT_FOUND:
            self.epochs = how
            self._troubles.inform("epochs", how)
