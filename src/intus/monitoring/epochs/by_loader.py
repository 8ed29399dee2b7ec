"""Find the epochs of a training whose batches a DataLoader gives: by its iterations.

Iterations that begin while that of the training is under way are of other loaders and count no epochs, unless
that is only left open, which ``pair.py`` tells. Nor does a loader that takes the place of another which was
broken off. ``other_iterations.py`` tells what those over other data are.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from ...backends.feeds import Feed, Origin
from .changes import ModelChanges
from .first_batch import Order
from .joined_iterations import JoinedIterations
from .kept_batches import KeptBatches
from .log import EpochLog
from .other_iterations import OtherIterations
from .pair import Pair

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
_LEFT_OPEN = (
    "Epoch {:g} has the passes of several iterations: {} gave some batches, then others came of {}, and it "
    "was not known yet that the iterator of the former was only left open. Set watch.epoch = number before "
    "each epoch."
)
_CAME_AGAIN = (
    "Epochs are counted by {}, and the model was trained with a further batch of {}, whose iterator was "
    "taken for one that is only left open: if the loop is over that, they are no epochs. Set watch.epoch = "
    "number before each epoch."
)
_NO_LENGTH = (
    "One iteration of {} gave all passes of epoch {:g}, and it has not ended: if its data begins again "
    "inside of it, that begins no epoch. Set watch.epoch = number before each epoch to count them."
)


class _Beside(NamedTuple):
    """The iteration that began after the current one gave its last batch.

    Attributes:
        pair: Both of them.
        kept: Its batches.
        are_several: Whether the model was trained by others before, which would have begun epochs.
    """

    pair: Pair
    kept: KeptBatches
    are_several: bool = False


class EpochsByLoader:
    """The epochs of a training with a loader: one begins when it is iterated anew.

    The current iteration is that by which epochs are counted. If its dataset is made anew in each epoch, and
    not known to be the same, it moves on. Of two that are under way, the first to begin may be that of a loop
    in whose body the other is, or one that is only left open: what each of them gives tells which.

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
        self._new_kept = partial(KeptBatches, feed, order, log, changes)
        self._others, self._joined = OtherIterations(feed, log), JoinedIterations(log, changes)
        log.found(_BY_LOADER.format(origin.name))
        self._current, self._newest = origin, -1  # and the highest number of an iteration over its data
        self._under_way: dict[int, Origin] = {}  # iterations over its data, with the newest
        self._came = 0  # batches that had come at the last call
        self._outers: list[Pair] = []  # of iterations in whose body the current one may be
        self._beside: _Beside | None = None
        self._left: dict[int, int] = {}  # batches of iterations that were only left open
        self._begin(inputs, origin, self._came)
        self._others.begins(feed.given(origin.iteration))

    def epoch_of(self, inputs: Any, origin: Origin, epoch: float, since: int) -> float:
        """Return the epoch of a call with a batch of a loader.

        Args:
            inputs: The arguments of the call.
            origin: Where its batch comes from.
            epoch: The present epoch.
            since: The number of batches that had come at the last call.
        """
        feed = self._feed
        came, self._came = self._came, feed.came()
        if origin.iteration in self._left:
            if not feed.is_open(self._current.iteration):  # it is the newest, but the batch may be a kept one
                return self.epoch_within(inputs, epoch)
            self._say_came_again(origin)
            return epoch
        loop = self._loop_of(origin, came)
        if loop is origin:
            self._find_loop(origin, epoch)
        current = self._current
        self._others.count_batches(current)
        if origin.iteration == current.iteration:
            if self._beside is not None and self._beside.pair.gave(feed):
                self._beside = None
            return self._changes.next_epoch(epoch) if self.kept.begin_again(inputs) else epoch
        beside = self._beside
        if loop is origin and beside is not None and origin.iteration == beside.pair.inner.iteration:
            if self._kept_of_loop() is beside.kept:
                return self.epoch_within(inputs, epoch)
            beside.kept.calls += 1
        if loop.iteration in self._under_way:
            return epoch
        return self._epoch_at_first(inputs, loop, epoch, since, came)

    def _epoch_at_first(self, inputs: Any, origin: Origin, epoch: float, since: int, came: int) -> float:
        """Return the epoch of the first call with a batch of an iteration.

        Args:
            inputs: The arguments of the call.
            origin: The iteration.
            epoch: The present epoch.
            since: The number of batches that had come at the last call.
            came: The number of batches that had come at the last call with a batch of a loader.
        """
        feed, current = self._feed, self._current
        is_stream = origin.iteration in self._others.streams
        role = self._others.role(current, origin, epoch, since)
        if role == "aside":
            if origin.iteration in self._others.streams:
                self._say_aside(origin)
                if not is_stream and feed.is_open(current.iteration):
                    self._begin_beside(inputs, origin)
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
        if leading:
            self._say_aside(origin)
            self._current = max(leading, key=attrgetter("length"))
            self.kept.iteration = self._current.iteration
            self._begin_beside(inputs, origin)
            return epoch
        return self._epoch_after(inputs, origin, epoch, came, is_over=is_over)

    def epoch_within(self, inputs: Any, epoch: float) -> float:
        """Return the epoch of a call that no other iteration than that of the loop is known to have."""
        kept = self._kept_of_loop()
        if not kept.begin_again(inputs):
            return epoch
        if self._beside is not None and kept is self._beside.kept:
            self._take_inner(self._beside, epoch)
        return self._changes.next_epoch(epoch)

    def newest(self) -> Origin:
        """Return the current iteration, or the newest of those that followed its end."""
        beside = self._beside
        if beside is not None and beside.pair.may_be_open_only(self._feed):
            return beside.pair.inner
        return self._others.last(self._current)

    def around(self) -> list[Origin]:
        """Return iterations over other data in whose body the current one may be."""
        outers = [pair.outer for pair in self._outers]
        return [one for one in outers if not one.has_rows_of(self._current)]

    def are_kept_in_use(self) -> bool:
        """Return whether calls have batches that were kept from an iteration that is over."""
        return self._kept_of_loop().are_in_use()

    def may_end(self, iteration: int) -> bool:
        """Register that an iteration is over, and return whether the present epoch may be over with it."""
        if iteration == self._current.iteration:
            self._joined.end()
            self._changes.look()
            self._leave_open(self._outers if self._feed.given(iteration) > 1 else [])
            return not self._outers
        return iteration == self._others.last(self._current).iteration

    def doubt(self) -> str:
        """Return in words that passes over the same data may be of several epochs; "" if they are not."""
        if text := self._joined.doubt() or self._kept_of_loop().doubt():
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

    def _begin(self, inputs: Any, origin: Origin, came: int) -> None:
        """Count epochs by an iteration from now on."""
        feed = self._feed
        self._count_by(origin)
        self._stepped = feed.stepped()
        self.kept.begin(inputs, origin.iteration)
        self._joined.begin()
        self._beside = None
        self._outers = [Pair.begins(feed, one, origin) for one in feed.outers(origin, since=came)]

    def _count_by(self, origin: Origin) -> None:
        self._current, self._newest = origin, origin.iteration
        self._under_way = {origin.iteration: origin}

    # -- which of two iterations under way is that of the loop ------------------------------------------

    def _begin_beside(self, inputs: Any, origin: Origin) -> None:
        """Register the first call with a batch of an iteration that begins while the current one is open."""
        feed, before = self._feed, self._beside
        steps = feed.stepped() - self._stepped
        are_several = before is not None and (before.are_several or before.pair.inner.has_rows_of(origin))
        pair = Pair.begins(feed, self._current, origin)
        kept = self._new_kept()
        kept.begin(() if steps else inputs, origin.iteration)
        self._beside = _Beside(pair, kept, are_several or steps > 1)

    def _kept_of_loop(self) -> KeptBatches:
        """Return the batches of the iteration that is that of the loop, as far as seen."""
        beside = self._beside
        return self.kept if beside is None or not beside.pair.may_be_open_only(self._feed) else beside.kept

    def _find_loop(self, origin: Origin, epoch: float) -> None:
        """Count epochs by the other of two iterations, if their batches show that it is that of the loop."""
        feed, beside, current = self._feed, self._beside, self._current
        for pair in self._outers:
            is_first = origin.iteration == pair.outer.iteration and feed.given(current.iteration) == 1
            if is_first or pair.is_along(feed):
                self._take_outer(pair)
                return
        if not feed.is_open(current.iteration) and origin.iteration != current.iteration:
            self._leave_open(self._outers)
        if beside is None or origin.iteration <= beside.pair.inner.iteration:
            return
        is_anew = origin.has_rows_of(current) and not origin.has_rows_of(beside.pair.inner)
        if beside.pair.is_open_only(feed) and not is_anew:
            self._take_inner(beside, epoch)

    def _leave_open(self, pairs: Sequence[Pair]) -> None:
        """Register that iterations are only left open, unless they have given batches along meanwhile."""
        feed = self._feed
        left = [pair for pair in pairs if not pair.is_along(feed)]
        self._left |= {pair.outer.iteration: feed.given(pair.outer.iteration) for pair in left}
        self._outers = [pair for pair in self._outers if pair not in left]

    def _take_outer(self, pair: Pair) -> None:
        """Count epochs by the iteration within which the current one is."""
        inner, kept = self._current, copy.copy(self.kept)
        self._count_by(pair.outer)
        self.kept.iteration = pair.outer.iteration
        self._others.begins(pair.given)
        self._others.runs_along(pair.outer, inner)
        if inner.has_rows_of(pair.outer):
            self._under_way[inner.iteration], self._newest = inner, inner.iteration
        self._outers, self._beside = [], _Beside(pair, kept)
        self._say_found(pair.outer)
        self._say_aside(inner)

    def _take_inner(self, beside: _Beside, epoch: float) -> None:
        """Count epochs by the iteration beside the current one, which was only left open."""
        pair, self._beside = beside.pair, None
        outer, inner = pair.outer, pair.inner
        self._left[outer.iteration] = self._feed.given(outer.iteration)
        self._count_by(inner)
        self.kept = beside.kept
        self._others.streams.pop(inner.iteration, None)
        self._others.begins(self._feed.given(inner.iteration))
        self._say_found(inner)
        if beside.are_several and self._log.is_new(_LEFT_OPEN):
            self._log.warn(_LEFT_OPEN.format(epoch, outer.name, inner.name))

    def _say_found(self, origin: Origin) -> None:
        """Say by which iterations epochs are counted, if that is not what was said before."""
        text = _BY_LOADER.format(origin.name)
        if not self._log.how.startswith(text):
            self._log.state(text)

    def _say_came_again(self, origin: Origin) -> None:
        """Say once that an iterator that was left open gave a batch that trains the model all the same."""
        is_further = self._feed.given(origin.iteration) > self._left[origin.iteration]
        if is_further and self._log.is_new(_CAME_AGAIN):
            self._log.warn(_CAME_AGAIN.format(self._current.name, origin.name))

    def _loop_of(self, origin: Origin, came: int) -> Origin:
        """Return the iteration of the loop in whose body a call has its batch; that of the batch if none.

        If the loop begins anew, its body may take the batch of another loader first.

        Args:
            origin: That of the batch.
            came: The number of batches that had come at the last call.
        """
        current, feed = self._current, self._feed
        is_known = origin.iteration in self._under_way or origin.iteration in self._others.streams
        if feed.is_open(current.iteration) or (origin.has_rows_of(current) and not is_known):
            return origin
        for outer in feed.outers(origin, current, since=came):
            is_next = outer.dataset == current.dataset and not origin.has_rows_of(current)
            if outer.has_rows_of(current) or is_next:
                self._others.runs_along(outer, origin)
                return outer
        return origin

    def _epoch_after(self, inputs: Any, origin: Origin, epoch: float, came: int, *, is_over: bool) -> float:
        """Return the epoch of the first call of an iteration by which epochs are counted from now on.

        Args:
            inputs: The arguments of the call.
            origin: The iteration.
            epoch: The present epoch.
            came: The number of batches that had come at the last call.
            is_over: Whether the current iteration has given all its batches, or the training has moved on.
        """
        current, calls, has_gradients = self._current, self.kept.calls, self._joined.has_gradients
        self._others.move_on(current, origin)
        self._begin(inputs, origin, came)
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
