"""Tell of which data the rows of a pass are, and leave out a second dataset of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, NamedTuple

from ..backends.feeds import Feed, Origin
from .epochs.pair import Pair
from .warn_once import WarningLog

_TWO_DATASETS = (
    "Passes of mode {} with rows of {}{} are not recorded in epoch {:g}, nor in later epochs that are like "
    "it: the epoch has passes of this mode with rows of another dataset before, those of {}, and one score "
    "cannot be of both. To record both, set watch.mode to a name of its own for each, such as "
    "watch.mode = 'test'."
)
_COMPUTED = " (as far as can be seen: their input was computed, and the newest batch is of it)"
_FEW = 8  # iterations
_MOST, _UNNAMED = 120, "a DataLoader"  # characters of the words for one


class Data(NamedTuple):
    """The data that rows are of.

    Attributes:
        number: A number for each dataset, or part of one; 0 if unknown.
        words: Its loader in words.
        is_unsure: Whether the words name several, of which the rows may be.
    """

    number: int
    words: str
    is_unsure: bool = False


UNKNOWN = Data(0, "")


class _Start(NamedTuple):
    """The first call that trains with a batch of an iteration.

    Attributes:
        stepped: The number of steps of optimizers before.
        given: The number of batches that the iteration had given.
    """

    stepped: int
    given: int


class _Stop(NamedTuple):
    """An epoch that ended before the iteration of its loop had given all batches.

    Attributes:
        epoch: The epoch.
        loop: The iteration.
        given: The number of batches that it had given.
    """

    epoch: float
    loop: Origin
    given: int


class PassData:
    """The data of the passes of one model, as far as its batches tell.

    A pass whose input is no batch, nor a view or a copy of one, is taken to be computed from the newest ones:
    those that came after the last call before which any came. If it has another number of rows, or an
    evaluation follows batches of the training alone, its data are unknown.

    Attributes:
        training: The newest iterations that train the model, by number.

    Args:
        feed: What gives the batches.
        troubles: Gets the sentences for the page.
    """

    def __init__(self, feed: Feed, troubles: WarningLog) -> None:
        self._feed, self._troubles = feed, troubles
        self.training: dict[int, Origin] = {}
        self._known: set[Hashable] = set()  # data whose batches came along with others of the training
        # Of data that began while others were under way: iterations over both, by that of the others.
        self._within: dict[Hashable, dict[int, Pair]] = {}
        self._trained = 0  # batches that had come at the last call that trains
        self._broken_off: set[Hashable] = set()  # data of iterations that were, before the newest
        self._starts: dict[int, _Start] = {}  # of the newest iterations that train
        self._looks: set[int] = set()  # those of them that no step followed before the next one began
        self._whole: set[Hashable] = set()  # data of which an iteration gave all batches
        self._stops: list[_Stop] = []  # of which it is not known yet whether the epochs are parts
        self._ended: tuple[int, int] | None = None  # the iteration of the last loop, and what it had given
        self._numbers: dict[Hashable, int] = {}
        self._before = self._came = feed.came()  # batches that had come at the calls before and now
        self._first: dict[str, tuple[float, Data]] = {}  # that of an evaluation and its epoch, by mode
        self._left_out: set[str] = set()  # modes of which it was said that a second dataset is not recorded

    def call_begins(self, came: int) -> None:
        """Register that the model is called, and how many batches have come."""
        if came != self._came:
            self._before, self._came = self._came, came

    def trains(self, origin: Origin) -> None:
        """Register an iteration whose batches train the model."""
        feed = self._feed
        since, self._trained = self._trained, feed.came()
        if origin.iteration in self.training:  # this is all: it runs before each step
            return
        key = _key(origin)
        for outer in self._outers(origin, since):
            pair = Pair.begins(feed, outer, origin)
            self._within.setdefault(key, {}).setdefault(outer.iteration, pair)
        if self.training and self._starts[newest := next(reversed(self.training))].stepped == feed.stepped():
            self._looks.add(newest)
        self.training[origin.iteration] = origin
        self._starts[origin.iteration] = _Start(feed.stepped(), feed.given(origin.iteration))
        while len(self.training) > _FEW:
            oldest = self.training[next(iter(self.training))]
            if feed.is_over(oldest.iteration):
                self._whole.add(_key(oldest))
            elif not feed.is_open(oldest.iteration) and not self._is_look(oldest):
                self._broken_off.add(_key(oldest))
            del self.training[oldest.iteration], self._starts[oldest.iteration]
            self._looks.discard(oldest.iteration)
        self._number(key)

    # -- whether the training stopped inside of an epoch -------------------------------------------------

    def is_stopped_inside(self, newest: Origin | None) -> bool:
        """Return whether the training has stopped inside of its newest loop.

        Args:
            newest: The iteration of the loop; None if it is the newest that trains, and inside of no other.
        """
        loop = self._loop_not_over(newest)
        return loop is not None and (self._was_whole(loop) or self._is_first_broken_off(loop))

    def stopped_epochs(self, epoch: float, newest: Origin | None, *, is_last: bool) -> list[float]:
        """Register the end of an epoch, and return those of which it is known now that they are parts.

        The training stopped inside of them, where it did not inside of others. If all loops over some data
        are broken off, as after some steps each, their epochs are no parts.

        Args:
            epoch: The epoch.
            newest: As for ``is_stopped_inside``.
            is_last: Whether no iteration goes on after it.
        """
        feed, loop = self._feed, self._loop_not_over(newest)
        if loop is not None:
            ended, self._ended = self._ended, (loop.iteration, feed.given(loop.iteration))
            if ended != self._ended:  # otherwise nothing came of it since the end of the epoch before
                self._stops.append(_Stop(epoch, loop, self._ended[1]))
        waiting, found = list[_Stop](), list[float]()
        for stop in self._stops:
            number = stop.loop.iteration
            if feed.given(number) > stop.given or feed.is_over(number):
                continue  # it went on in the epoch after
            is_part = (is_last or not feed.is_open(number)) and self._was_whole(stop.loop)
            is_alone = is_last and stop.epoch == epoch and self._is_first_broken_off(stop.loop)
            if is_part or is_alone:
                found.append(stop.epoch)
            else:
                waiting.append(stop)
        self._stops = waiting
        return found

    def _loop_not_over(self, newest: Origin | None) -> Origin | None:
        """Return the iteration of the newest loop if it has not given all batches; else None.

        If batches of others came along with its own, and these ended, so did the loop, as of ``zip``.
        """
        feed, inside = self._feed, self._inside()
        if newest is None or self._gave_no_more(newest):
            since = -1 if newest is None else newest.iteration
            loops = [
                one
                for one in self.training.values()
                if one.iteration > since and _key(one) not in inside and not self._is_look(one)
            ]
            newest = loops[-1] if loops else newest
        if newest is None or feed.is_over(newest.iteration) or not math.isfinite(newest.length):
            return None
        latest = {_key(one): one.iteration for one in self.training.values()}
        others = [number for key, number in latest.items() if key in inside - {_key(newest)}]
        return None if any(feed.batches(number) is not None for number in others) else newest

    def _was_whole(self, loop: Origin) -> bool:
        """Return whether an iteration over the data of a loop has given all batches."""
        newest = (one for one in self.training.values() if self._feed.is_over(one.iteration))
        return _key(loop) in self._whole | set(map(_key, newest))

    def _is_first_broken_off(self, loop: Origin) -> bool:
        """Return whether no other iteration over the data of a loop was broken off."""
        feed, key = self._feed, _key(loop)
        others = [
            one for one in self.training.values() if _key(one) == key and one.iteration != loop.iteration
        ]
        broken_off = [
            one
            for one in others
            if not feed.is_over(one.iteration) and not feed.is_open(one.iteration) and not self._is_look(one)
        ]
        return not broken_off and key not in self._broken_off

    def _is_look(self, one: Origin) -> bool:
        """Return whether an iteration gave the model a batch that no step of an optimizer followed."""
        if not self._gave_no_more(one):
            return False
        if one.iteration != next(reversed(self.training)):
            return one.iteration in self._looks
        return 0 < self._feed.stepped() == self._starts[one.iteration].stepped

    def _gave_no_more(self, one: Origin) -> bool:
        """Return whether an iteration gave no batches after the first call with one of them."""
        start = self._starts.get(one.iteration)
        return start is not None and self._feed.given(one.iteration) == start.given

    def of(self, inputs: Any, *, trains: bool, is_followed: bool) -> tuple[Data, bool]:
        """Return the data of a call, and whether a batch of them was recognized.

        Args:
            inputs: The arguments of the call.
            trains: Whether it trains the model.
            is_followed: Whether each call was registered, so that it is known which batches are the newest.
        """
        origins, is_recognized = self._feed.source(inputs, self._before if is_followed else None)
        is_of_training = any(one.iteration in self.training for one in origins)
        may_be = (is_of_training or not is_followed) if trains else (is_followed and not is_of_training)
        if not is_recognized and not may_be:
            return UNKNOWN, False
        names = {_key(one): one.name[:_MOST] if one.name.isprintable() else _UNNAMED for one in origins}
        if not names or (len(names) > 1 and not is_followed):
            return UNKNOWN, False
        if len(names) == 1:
            ((key, name),) = names.items()
            return Data(self._number(key), name), is_recognized
        return Data(self._number(frozenset(names)), " or ".join([*names.values()][:_FEW]), True), False

    def is_of_second(self, inputs: Any, epoch: float, mode: str, *, is_followed: bool) -> bool:
        """Return whether a call that trains nothing has rows of a second dataset in its epoch and mode.

        Args:
            inputs: The arguments of the call.
            epoch: The epoch.
            mode: The mode of the call.
            is_followed: As for ``of``.
        """
        data, is_recognized = self.of(inputs, trains=False, is_followed=is_followed)
        if data.is_unsure or not data.number:
            return False
        began, first = self._first.get(mode, (None, data))
        if began != epoch:
            self._first[mode] = epoch, data
            return False
        if first.number == data.number:
            return False
        if mode not in self._left_out:
            self._left_out.add(mode)
            guess = "" if is_recognized else _COMPUTED
            text = _TWO_DATASETS.format(mode, data.words, guess, epoch, first.words)
            self._troubles.inform("epochs", text, "warning")
        return True

    def _inside(self) -> set[Hashable]:
        """Return the data whose batches came along with others of the training.

        Of an iteration that is over it is known from then on.
        """
        feed, found = self._feed, set(self._known)
        for key, pairs in self._within.items():
            for number, pair in list(pairs.items()):
                is_closed = not feed.is_open(pair.inner.iteration)
                if pair.is_along(feed):
                    found.add(key)
                    self._known |= {key} if is_closed else set()
                if is_closed:
                    del pairs[number]
        return found

    def _outers(self, origin: Origin, since: int) -> list[Origin]:
        """Return the iterations that are under way when another begins, perhaps in the body of their loop."""
        feed, inside = self._feed, self._inside()
        if _key(origin) in inside:
            return []
        others = [
            one
            for one in self.training.values()
            if _key(one) not in inside | {_key(origin)} and feed.is_open(one.iteration)
        ]
        others = [one for one in others if origin.iteration not in self._within.get(_key(one), ())]
        return [*feed.outers(origin, since=since), *others]

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers) + 1)


def _key(origin: Origin) -> Hashable:
    """Return what datasets, and parts of one, are told apart by."""
    return origin.dataset, origin.part
