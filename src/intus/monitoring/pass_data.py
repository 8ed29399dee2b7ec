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
        self.training[origin.iteration] = origin
        while len(self.training) > _FEW:
            oldest = self.training.pop(next(iter(self.training)))
            if not feed.is_over(oldest.iteration) and not feed.is_open(oldest.iteration):
                self._broken_off.add(_key(oldest))
        self._number(key)

    def is_stopped_inside(self, newest: Origin | None) -> bool:
        """Return whether the newest iteration of the training was broken off, as none over its data before.

        If batches of others came along with its own, and these ended, so did the loop, as of ``zip``.

        Args:
            newest: That iteration; None if it is the newest that trains, and inside of no other.
        """
        feed = self._feed
        inside = self._inside()
        outermost = [one for one in self.training.values() if _key(one) not in inside]
        if newest is None and not outermost:
            return False
        newest = newest or outermost[-1]
        key, latest = _key(newest), {_key(one): one.iteration for one in self.training.values()}
        others = [number for each, number in latest.items() if each in inside - {key}]
        if any(feed.batches(number) is not None for number in others):
            return False
        alike = [one.iteration for one in self.training.values() if _key(one) == key]
        broken = [
            one
            for one in alike
            if not feed.is_over(one) and (one == newest.iteration or not feed.is_open(one))
        ]
        return math.isfinite(newest.length) and broken == [newest.iteration] and key not in self._broken_off

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
