"""Find the epochs of a training whose batches a DataLoader gives: by its iterations.

Iterations that begin while that of the training is under way are of other loaders and count no epochs, nor
does a loader that takes the place of another which was broken off. ``other_iterations.py`` tells what those
over other data are.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

from ...backends.feeds import Feed, Origin
from .changes import ModelChanges
from .first_batch import Order
from .joined_iterations import JoinedIterations
from .kept_batches import KeptBatches
from .log import EpochLog
from .other_iterations import OtherIterations

_BY_LOADER = "Epochs are found from {}: one begins when it is iterated anew after the parameters changed."
_ASIDE = "{} was iterated over meanwhile, which counts none."
_ONE_BATCH = (
    "No new epoch was found since epoch {:g}, although {} steps of its optimizer followed a single batch of "
    "{}: epochs over parts of it cannot be told apart. Set watch.epoch = number before each epoch."
)
_ENDLESS = (
    "No new epoch was found since epoch {:g}: one iteration of {} has given as many rows as {:.3g} times "
    "its dataset, and goes on. Set watch.epoch = number before each epoch."
)
_NO_LENGTH = (
    "One iteration of {} gave all passes of epoch {:g}, and it has not ended: if its data begins again "
    "inside of it, that begins no epoch. Set watch.epoch = number before each epoch to count them."
)


class EpochsByLoader:
    """The epochs of a training with a loader: one begins when it is iterated anew.

    The current iteration is that by which epochs are counted. If its dataset is made anew in each epoch, and
    not known to be the same, it moves on.

    Args:
        feed: What tells of iterations.
        order: What makes a hash of a batch.
        log: Gets how epochs are found.
        changes: The changes of the parameters.
        inputs: The arguments of the first call.
        origin: Where its batch comes from.
    """

    def __init__(
        self, feed: Feed, order: Order, log: EpochLog, changes: ModelChanges, inputs: Any, origin: Origin
    ) -> None:
        self._feed, self._log, self._changes = feed, log, changes
        self.kept = KeptBatches(feed, order, log, changes)
        self._others, self._joined = OtherIterations(feed, log), JoinedIterations(log, changes)
        outer = feed.outer(origin)
        log.found(_BY_LOADER.format(outer.name))
        self._current, self._newest = outer, -1  # and the highest number of an iteration over its data
        self._under_way: dict[int, Origin] = {}  # iterations over its data, with the newest
        self._begin(inputs, outer)
        self._others.begins(outer)
        if outer.iteration != origin.iteration:
            self._others.runs_along(outer, origin)

    def epoch_of(self, inputs: Any, origin: Origin, epoch: float, since: int) -> float:
        """Return the epoch of a call with a batch of a loader.

        Args:
            inputs: The arguments of the call.
            origin: Where its batch comes from.
            epoch: The present epoch.
            since: The number of batches that had come at the last call.
        """
        feed, current = self._feed, self._current
        self._others.count_batches(current)
        if origin.iteration == current.iteration:
            self._others.beside = None
            return self.epoch_within(inputs, epoch)
        origin = self._loop_of(origin)
        if origin.iteration in self._under_way:
            return epoch
        role = self._others.role(current, origin, epoch, since)
        if role == "aside":
            if origin.iteration in self._others.streams:
                self._say_aside(origin)
            return epoch
        under_way = {number: one for number, one in self._under_way.items() if feed.is_open(number)}
        self._under_way = under_way | {origin.iteration: origin}
        if origin.iteration < self._newest:  # it began before, and gives its first batch now
            self._say_aside(origin)
            return epoch
        self._newest = origin.iteration
        is_over = feed.is_over(current.iteration) or role == "moved"
        if current.iteration in under_way:
            leading = [current]
        else:
            leading = [one for one in under_way.values() if not is_over or one.length > current.length]
        if leading and not self._others.is_forgotten(current):
            self._say_aside(origin)
            self._others.begins_beside(current, origin)
            self._current = max(leading, key=attrgetter("length"))
            self.kept.iteration = self._current.iteration
            return epoch
        return self._epoch_after(inputs, origin, epoch, is_over=is_over)

    def epoch_within(self, inputs: Any, epoch: float) -> float:
        """Return the epoch of a call that no other iteration than the current one is known to have."""
        return self._changes.next_epoch(epoch) if self.kept.begin_again(inputs) else epoch

    def newest(self) -> Origin:
        """Return the current iteration, or the newest of those that followed its end."""
        return self._others.last(self._current)

    def may_end(self, iteration: int) -> bool:
        """Register that an iteration is over, and return whether the present epoch may be over with it."""
        if iteration == self._current.iteration:
            self._joined.end()
            self._changes.look()
            return True
        return iteration == self.newest().iteration

    def doubt(self) -> str:
        """Return in words that passes over the same data may be of several epochs; "" if they are not."""
        if text := self._joined.doubt() or self.kept.doubt():
            return text
        feed, current, epoch = self._feed, self._current, self._log.epoch
        steps, rounds = feed.stepped() - self._stepped, feed.rounds(current.iteration)
        if feed.given(current.iteration) == 1 < steps and epoch <= 1 and not self.kept.were_used_again:
            return _ONE_BATCH.format(epoch, steps, current.name)
        if rounds is not None and rounds > 1 and not feed.is_over(current.iteration):
            return _ENDLESS.format(epoch, current.name, rounds)
        return ""

    def doubt_of_others(self) -> str:
        """Return in words that other data than the current may be epochs; "" if nothing suggests it."""
        return self._others.doubt(self._current)

    def open_end(self) -> str:
        """Return in words that data without a length may begin again inside of an iteration; "" if not."""
        current = self._current
        if current.length < math.inf or self._feed.is_over(current.iteration):
            return ""
        return _NO_LENGTH.format(current.name, self._log.epoch)

    def _begin(self, inputs: Any, origin: Origin) -> None:
        """Count epochs by an iteration from now on."""
        self._current, self._newest = origin, origin.iteration
        self._under_way = {origin.iteration: origin}
        self._stepped = self._feed.stepped()
        self.kept.begin(inputs, origin.iteration)
        self._joined.begin()

    def _loop_of(self, origin: Origin) -> Origin:
        """Return the iteration of the loop in whose body a call has its batch; that of the batch if none.

        If the loop begins anew, its body may take the batch of another loader first.
        """
        current = self._current
        outer = origin if self._feed.is_open(current.iteration) else self._feed.outer(origin, current)
        is_of_current = outer.has_rows_of(current)
        is_next = outer.dataset == current.dataset and not origin.has_rows_of(current)
        if outer.iteration == origin.iteration or not (is_of_current or is_next):
            return origin
        self._others.runs_along(outer, origin)
        return outer

    def _epoch_after(self, inputs: Any, origin: Origin, epoch: float, *, is_over: bool) -> float:
        """Return the epoch of the first call of an iteration by which epochs are counted from now on.

        Args:
            inputs: The arguments of the call.
            origin: The iteration.
            epoch: The present epoch.
            is_over: Whether the current iteration has given all its batches, or the training has moved on.
        """
        current, calls, has_gradients = self._current, self.kept.calls, self._joined.has_gradients
        self._others.move_on(current, origin)
        self._begin(inputs, origin)
        if not is_over and origin.loader != current.loader:
            return epoch  # the other was broken off, such as one that gives a batch in each step
        if not self._changes.advance():
            if is_over or calls > 1:
                self._joined.join(has_gradients=has_gradients)
            else:
                self._joined.say_peek(epoch, origin.name)
            return epoch
        self._joined.split(epoch, origin.name)
        return self._changes.next_epoch(epoch)

    def _say_aside(self, origin: Origin) -> None:
        """Say once that batches come of an iteration that counts no epochs."""
        if self._log.is_new(_ASIDE):
            name = f"{origin.name[:1].upper()}{origin.name[1:]}"
            self._log.state(f"{self._log.how} {_ASIDE.format(name)}")
