"""Recognize the first batch of an epoch when it comes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...backends.feeds import Feed
from .changes import ModelChanges
from .log import EpochLog

_IN_TURNS = (
    "Epochs begin when the first batch comes again, and optimizers that make their steps in turns have it in "
    "turns: epoch {:g} has steps of one of them and the epoch before of another. If these are one epoch, "
    "there are several for each. Set watch.epoch = number before each epoch."
)
#: Returns a hash of the data in a call's arguments, or something else if there is none.
Order = Callable[[Any], Any]


class FirstBatch:
    """The first batch of an epoch: if it comes again after the parameters changed, another epoch begins.

    If an optimizer has the parameters, it must have made a step: a closure that it calls several times in one
    step, and the second pass of SAM, have the same batch with other parameters, and are of the same epoch.

    Few values are compared first, then a hash of all. On a GPU it is never recognized.

    Args:
        feed: What reads the values.
        order: What makes the hash.
        changes: The changes of the parameters.
        log: Gets what is to be said.
        inputs: The arguments of the call with the batch.

    Attributes:
        digest: What ``order`` returned.
    """

    def __init__(self, feed: Feed, order: Order, changes: ModelChanges, log: EpochLog, inputs: Any) -> None:
        self._feed, self._order, self._changes, self._log = feed, order, changes, log
        self._values = feed.first_values(inputs)
        self.digest = None if self._values is None else order(inputs)
        self._stepped = feed.stepped()

    @property
    def has_one_row(self) -> bool:
        """True if it is known to have a single row."""
        return self._values is not None and self._values[0][:1] == (1,)

    def comes_again(self, inputs: Any) -> bool:
        """Return whether a call has it again, with which an epoch begins."""
        if self._values is None or self._feed.first_values(inputs) != self._values:
            return False
        version, stepped = self._changes.read(), self._feed.stepped()
        if version == self._changes.version or not isinstance(self.digest, bytes):
            return False
        if self._order(inputs) != self.digest:
            return False
        if stepped == self._stepped and self._changes.are_by_optimizer():
            return False
        self._changes.version, self._stepped = version, stepped
        if self._changes.are_in_turns() and self._log.is_new(_IN_TURNS):
            self._log.add(_IN_TURNS.format(self._log.epoch), "warning")
        return True
