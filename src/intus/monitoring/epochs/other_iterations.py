"""Tell what iterations over other data are: the rest of an epoch, a stage of the training, or an aside.

Other data are another dataset, or another part of one. If they follow the end of an iteration of the
training, they may be the rest of the same epoch. What comes next shows which it is: if that is another
iteration over them, and none over the data before, they are an epoch of their own. A part that follows
several epochs over another is a stage of the training, with epochs of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ...backends.feeds import Feed, Origin
from .log import EpochLog

_SHARED = (
    "Epoch {:g} has the passes of several datasets, or parts of one: those of {} were followed by others, "
    "the last of {}, and it was not known then whether they are epochs of their own. Set watch.epoch = "
    "number before each epoch."
)
_RETURNED = (
    "Epoch {:g} may be a part of one: it has the passes of {}, which was taken for a stage of the training, "
    "and then {} came again. So perhaps both are parts of one epoch, and are counted apart. Set watch.epoch "
    "= number before each epoch."
)
_NOT_AS_BEFORE = (
    "Epoch {:g} has the passes of {} and of {} others, and the epoch before of it and of {}: these are "
    "datasets, or parts of one, that follow each other, and it is not known which of them are epochs of "
    "their own. Set watch.epoch = number before each epoch."
)
_ZIPPED = (
    "Epochs are counted by {}, and a batch of it was left out when {} began anew, as in zip(one, other): the "
    "loop may be over the latter instead. Set watch.epoch = number before each epoch, or give zip the loop's "
    "own loader first."
)
_FEW = 8  # stages


class _Came(NamedTuple):
    """The batches of the current iteration that came, as calls found them.

    Attributes:
        by_now: How many came until the last call.
        last: How many of them came since the call before; calls before which none came do not count.
        before: How many came before that, likewise.
    """

    by_now: int
    last: int
    before: int


class OtherIterations:
    """The iterations beside that by which epochs are counted, the current one, and after its end.

    Args:
        feed: What tells of iterations.
        log: Gets what is to be said.

    Attributes:
        streams: Iterations over other data that are under way along with the current one, or were before.
    """

    def __init__(self, feed: Feed, log: EpochLog) -> None:
        self._feed, self._log = feed, log
        self._came = _Came(0, 0, 0)
        self.streams: dict[int, Origin] = {}
        self._followers: list[Origin] = []  # those over other data that followed the end of the current one
        self._followers_before: list[Origin] = []  # in the epoch before, which began with the same rows
        self._rests: list[Origin] = []  # followers after which the data of the training came again
        self._in_a_row = 1  # iterations over the rows of the current one, with nothing else between
        self._stages: list[Origin] = []  # parts that others took the place of, and no epochs of these since

    def role(
        self, current: Origin, origin: Origin, epoch: float, since: int
    ) -> Literal["again", "moved", "aside"]:
        """Return what an iteration that is not known yet is to the current one.

        Args:
            current: The current iteration.
            origin: The other one.
            epoch: The present epoch.
            since: The number of batches that had come at the last call.

        Returns:
            ``"again"`` if it is over the same data, ``"moved"`` if the training goes on with other data,
            ``"aside"`` if no epochs are counted by it, as far as is known.
        """
        is_other = origin.dataset != current.dataset
        if is_other and self._feed.is_gone(current.dataset):
            return "moved"
        if is_other or self._is_other_part(current, origin, epoch, since):
            return "moved" if self._follows(current, origin) else "aside"
        self._rests += [one for one in self._followers if not self._is_known_rest(one)]
        return "again"

    def move_on(self, current: Origin, origin: Origin) -> None:
        """Register that epochs are counted by another iteration than the current one from now on."""
        before = (current, *self._followers[-1:])
        self._in_a_row = self._in_a_row + 1 if any(map(origin.has_rows_of, before)) else 1
        is_same = origin.has_rows_of(current)
        if is_same and (text := self._not_as_before(current)) and self._log.is_new(_NOT_AS_BEFORE):
            self._log.warn(text)
        self._followers, self._followers_before = [], self._followers if is_same else []
        self.begins(self._feed.given(origin.iteration))
        self.streams = {
            number: one for number, one in self.streams.items() if is_same or self._feed.is_open(number)
        }

    def begins(self, given: int) -> None:
        """Register how many batches of the current iteration had come at its first call."""
        self._came = _Came(given, given, given)

    def count_batches(self, current: Origin) -> None:
        """Register a call, and how many batches of the current iteration came since the one before."""
        given, came = self._feed.given(current.iteration), self._came
        if given != came.by_now:
            self._came = _Came(given, given - came.by_now, came.last)

    def runs_along(self, current: Origin, origin: Origin) -> None:
        """Register an iteration over other data whose batches come along with those of the current one.

        If such data begin anew, and a batch of the current iteration was left out, this is no loop over it:
        ``zip`` takes a batch of its first iterator before the second one ends.
        """
        is_left_out = self._came.last > self._came.before == 1
        if is_left_out and self._ran_along(origin) and self._log.is_new(_ZIPPED):
            self._log.warn(_ZIPPED.format(current.name, origin.name))
        for number, one in list(self.streams.items()):
            if origin.has_rows_of(one) and not self._feed.is_open(number):
                del self.streams[number]
        self.streams[origin.iteration] = origin

    def last(self, current: Origin) -> Origin:
        """Return the newest iteration that followed the end of the current one; that itself if none did."""
        return self._followers[-1] if self._followers else current

    def doubt(self, current: Origin) -> str:
        """Return in words that the present epoch has passes of data that may be epochs; "" if it has none."""
        if self._log.are_passes_recorded and not all(map(self._is_known_rest, self._followers)):
            return _SHARED.format(self._log.epoch, current.name, self._followers[-1].name)
        return self._not_as_before(current) if self._feed.is_over(current.iteration) else ""

    def _is_other_part(self, current: Origin, origin: Origin, epoch: float, since: int) -> bool:
        """Return whether an iteration over another part of a dataset is one like that of another dataset.

        It comes along with the current one, or may be the rest of an epoch. It is no stage of the training,
        as after several epochs over the current part or instead of one that is made anew in each epoch, and
        takes no other's place along with a third.
        """
        if origin.has_rows_of(current):
            return False
        feed, others = self._feed, self._feed.sources(since) - {origin.iteration}
        if feed.is_open(current.iteration):
            return True
        is_beside = not feed.is_over(current.iteration) or any(map(feed.is_open, others))
        if is_beside and not self._followers:
            return False
        has_returned = self._has_returned(current, origin, epoch)
        if self._followers or self._is_known_rest(origin) or self._ran_along(origin):
            return True
        is_stage = self._in_a_row > 1 or feed.is_gone(current.drawn_from)
        if is_stage and not has_returned:
            self._stages = [*self._stages[-_FEW:], current]
        return not (is_stage or has_returned)

    def _has_returned(self, current: Origin, origin: Origin, epoch: float) -> bool:
        """Return whether a part comes again after others that were taken for stages, and say so.

        Others that were trained on for several epochs were stages, and then it is another one.
        """
        if self._in_a_row > 1:
            self._stages = []
        places = [at for at, one in enumerate(self._stages) if origin.has_rows_of(one)]
        if not places:
            return False
        self._rests += [*self._stages[places[-1] + 1 :], current]
        self._stages = []
        if self._log.are_passes_recorded:
            self._log.warn(_RETURNED.format(epoch, current.name, origin.name))
        return True

    def _is_known_rest(self, origin: Origin) -> bool:
        """Return whether the rows of an iteration were the rest of an epoch before."""
        return any(map(origin.has_rows_of, self._rests))

    def _follows(self, current: Origin, origin: Origin) -> bool:
        """Return whether epochs are counted by an iteration over other data from now on.

        Those that follow the end of the current iteration may be the rest of the same epoch. If another of
        their data comes, and none of the current one, the training has moved on.
        """
        is_first = not self._followers
        last = self.last(current)
        if origin.iteration in self.streams or (not is_first and origin.iteration == last.iteration):
            return False
        if self._feed.is_open(last.iteration):
            self.runs_along(current, origin)
            return False
        comes_again = any(map(origin.has_rows_of, self._followers))
        if is_first or not (comes_again or self._is_made_anew(last, origin)):
            self._followers.append(origin)
            return False
        if self._log.are_passes_recorded and self._log.is_new(_SHARED):
            self._log.warn(_SHARED.format(self._log.epoch, current.name, origin.name))
        return True

    def _ran_along(self, origin: Origin) -> bool:
        """Return whether batches of the rows of an iteration came along with those of the current rows."""
        return any(map(origin.has_rows_of, self.streams.values()))

    def _is_made_anew(self, last: Origin, origin: Origin) -> bool:
        """Return whether an iteration takes the place of one over a part that no longer exists."""
        return last.dataset == origin.dataset and self._feed.is_gone(last.drawn_from)

    def _not_as_before(self, current: Origin) -> str:
        """Return in words that others follow the current data than in the epoch before; "" if not."""
        now, before = self._followers, self._followers_before
        if not before or not self._log.are_passes_recorded or _are_alike(now, before):
            return ""
        return _NOT_AS_BEFORE.format(self._log.epoch, current.name, len(now), len(before))


def _are_alike(some: Sequence[Origin], others: Sequence[Origin]) -> bool:
    """Return whether iterations are over the same rows, in any order."""
    pairs = (some, others), (others, some)
    return all(any(map(one.has_rows_of, those)) for these, those in pairs for one in these)
