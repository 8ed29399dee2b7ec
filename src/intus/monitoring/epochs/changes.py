"""Tell whether the parameters of a model changed: without that, no epoch begins."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from ...backends.feeds import Feed
from .log import EpochLog

_UNDONE = (
    "Epoch {:g} also has the passes of a training that was undone: the parameters had the values again that "
    "they had before it, as after a search for a learning rate. To leave them out, search before probe()."
)
_UNDONE_BEFORE = (
    "Epochs up to {:g} are of a training that was undone: in epoch {:g} the parameters began with the values "
    "that they had before epoch 1, as after a search for a learning rate or in another fold of "
    "a cross-validation. Search before probe(), begin another run, or set watch.epoch = number before each "
    "epoch."
)
_UNCHANGED_IN = (
    "Epoch {:g} did not change the parameters, as far as was seen, as with a learning rate of 0: the next "
    "one begins with the values that they had before epoch 1."
)
_Read = TypeVar("_Read")


class ModelChanges:
    """The changes of a model's parameters, since an epoch began and since the training began.

    A training is undone if the parameters have the values again that they had before it, as after a search
    for a learning rate, and others were seen meanwhile.

    Args:
        feed: What tells the state of the model.
        log: Gets what is to be said.

    Attributes:
        version: ``Feed.version`` when the present epoch began; None before the first.
        epoch_over: The epoch that is known to be over before the next one begins; None before any.
        is_moved: Whether the parameters were seen to differ from those that the training began with.
        checked_s: The processor seconds that it took to read values.
    """

    def __init__(self, feed: Feed, log: EpochLog) -> None:
        self._feed, self._log = feed, log
        self.version: int | None = None
        self.epoch_over: float | None = None
        self.is_moved = False
        self.checked_s = 0.0
        self._has_optimizer: bool | None = None  # before any step; None if nobody asked
        self._by: deque[int] = deque(maxlen=2)  # the optimizers of the last steps of the newest epochs
        self._calls = 0  # that train the model
        self._since: tuple[int, int] = 0, 0  # steps of optimizers, and calls, when the training began
        self._looked: tuple[int, int] | None = None  # steps and calls since then when it was last looked at

    def read(self) -> int:
        """Return ``Feed.version`` of now."""
        return self._timed(self._feed.version)

    def gradients(self) -> int:
        """Return ``Feed.gradients`` of a training with a probe set, whose iterations are judged by it."""
        return 0 if self._log.are_passes_recorded else self._timed(self._feed.gradients)

    def advance(self) -> bool:
        """Return whether the parameters changed since the last time, and remember their version."""
        before, self.version = self.version, self.read()
        return before not in (None, self.version)

    def since_epoch(self) -> bool:
        """Return whether the parameters changed since the present epoch began.

        Those of a model that no longer exists changed if they did while it was observed.
        """
        if self.version is None:
            return False
        version = self.read()
        return version != self.version if version else self._feed.stepped() > 0 or self.is_moved

    def are_by_optimizer(self) -> bool:
        """Return whether an optimizer makes them; before its first step, as it was at the first request."""
        if self._has_optimizer is None and not self._feed.stepped():
            self._has_optimizer = self._feed.has_optimizer()  # which takes milliseconds
        return self._feed.stepped() > 0 or bool(self._has_optimizer)

    def training_begins(self) -> None:
        """Remember the parameters, with which a training that is undone begins anew."""
        self._timed(self._feed.remember)
        self._begin_to_look()

    def on_call(self) -> None:
        """Register a call that trains the model."""
        self._calls += 1
        self.look_now_and_then()

    def look_now_and_then(self) -> None:
        """Look at the parameters after 1, 2, 4, 8, … steps, or calls before any step, until they differ."""
        if self.is_moved:
            return
        steps, calls = self._feed.stepped() - self._since[0], self._calls - self._since[1]
        number = steps or calls
        if number & (number - 1) or (steps, number) == self._looked:
            return
        self._looked = steps, number
        self.look()

    def look(self) -> None:
        """Look whether the parameters differ from those that the training began with."""
        self.is_moved = self.is_moved or not self._is_restored()

    def are_in_turns(self) -> bool:
        """Return whether two optimizers made the last steps of the newest epochs in turns."""
        return len(self._by) > 1 and self._by[0] == self._feed.stepped_by() != self._by[1]

    def next_epoch(self, epoch: float) -> float:
        """Return the number of an epoch that begins after another; the same if all was undone."""
        self._by.append(self._feed.stepped_by())
        if not epoch or not self._is_restored():
            return epoch + 1
        if not self.is_moved:
            if self._log.is_new(_UNCHANGED_IN):
                self._log.say(_UNCHANGED_IN.format(epoch))
            return epoch + 1
        self._begin_to_look()
        if epoch == 1 != self.epoch_over:
            self._log.say(_UNDONE.format(epoch), "warning" if self._log.are_passes_recorded else "info")
            return epoch
        self._log.warn(_UNDONE_BEFORE.format(epoch, epoch + 1))
        return epoch + 1

    def _begin_to_look(self) -> None:
        self.is_moved, self._looked, self._since = False, None, (self._feed.stepped(), self._calls)

    def _is_restored(self) -> bool:
        return self._timed(self._feed.is_restored)

    def _timed(self, read: Callable[[], _Read]) -> _Read:
        """Return what a function that reads values returns, and count its processor seconds."""
        began = time.thread_time()
        found = read()
        self.checked_s += time.thread_time() - began
        return found
