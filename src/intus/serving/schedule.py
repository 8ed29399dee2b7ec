"""The order in which waiting data points are scored: by their worth to somebody who watches the trainings.

Runs take turns. A turn is an epoch of a run, or a part of a large one. Three of four turns of a run go to an
epoch that is newer than all before, if there is one, and the others to older ones, of which those on a coarse
grid come first, so that the curves are evenly covered while scoring is behind. Nothing is left out: what was
passed over is scored when there is time.

While several runs wait, a turn begins with a look at the newest epochs of others: their first scores, which
take a small part of the time, so that each run shows its newest epoch long before its turn.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

#: Most data points of a turn.
TURN = 64
#: Of so many turns of a run, the last goes to the epoch that has waited longest.
CYCLE = 8
#: Most data points of layers on show that are scored ahead of their turn, in each turn of their run.
EARLY = 8
#: Data points of other runs' newest epochs that are looked at for each one of a turn, in about as much time.
LOOKS = 6


class Moment(NamedTuple):
    """An epoch, or a step of one: the data points of a run that are scored in one turn.

    Attributes:
        attempt: How often the training was started again under the same name.
        epoch: The epoch, -inf if it is unknown.
        step: The step, -1 for a whole epoch.
    """

    attempt: int
    epoch: float
    step: int = -1


class Place(NamedTuple):
    """The place of a data point.

    Attributes:
        run: The run.
        model: The model.
        moment: The epoch.
        address: The layer.
    """

    run: str
    model: str
    moment: Moment
    address: str = ""


#: A run and a model, and a layer that a page has on show, None if no layer is chosen.
Shown = tuple[str, str, str | None]
_RunKey = tuple[str, str]


def grid_level(moment: Moment) -> float:
    """Return how coarse a grid an epoch is on: the number of times that 2 divides it.

    >>> [grid_level(Moment(0, epoch)) for epoch in (0, 1, 2, 12, 2.5)]
    [inf, 0, 1, 2, -1]
    """
    number = moment.epoch if moment.step < 0 else moment.step
    if not float(number).is_integer():  # also if it is unknown
        return -1
    whole = int(number)
    return (whole & -whole).bit_length() - 1 if whole else math.inf


def next_moment(waiting: Sequence[Moment], turn: int, newest: Moment | None) -> Moment:
    """Return the epoch that a run's turn goes to.

    Args:
        waiting: The epochs with data points that wait, in the order in which they began to wait.
        turn: The number of the turn, from 0.
        newest: The newest epoch that had a turn; None for none.

    >>> epochs = [Moment(0, epoch) for epoch in (1, 2, 3, 4, 5)]
    >>> [next_moment(epochs, turn, Moment(0, 3)).epoch for turn in (0, 3, 7)]
    [5, 4, 1]
    >>> next_moment(epochs[:3], 0, Moment(0, 3)).epoch
    2
    """
    if turn % CYCLE == CYCLE - 1:
        return waiting[0]
    last = max(waiting)
    is_new = newest is None or last > newest
    return last if is_new and turn % CYCLE != CYCLE // 2 - 1 else max(waiting, key=_worth)


def _worth(moment: Moment) -> tuple[int, float, Moment]:
    return moment.attempt, grid_level(moment), moment


@dataclass(slots=True)
class _Waiting(Generic[T]):
    """The waiting items of one run.

    Attributes:
        epochs: The items of each epoch with their layers, in order of arrival.
        turns: The number of turns it had.
        served: When it had the last one, by the number of all turns.
        rest: How many items are left of the epoch that was begun, which is finished first.
        begun: That epoch.
        newest: The newest epoch that had a turn; None for none.
        seen: The newest epoch that had a turn or a look; None for none.
        unseen: Whether there may be a newer one.
    """

    epochs: dict[Moment, deque[tuple[str, T]]] = field(default_factory=dict)
    turns: int = 0
    served: int = -1
    rest: int = 0
    begun: Moment | None = None
    newest: Moment | None = None
    seen: Moment | None = None
    unseen: bool = False

    def append(self, moment: Moment, address: str, item: T) -> None:
        """Add an item."""
        self.epochs.setdefault(moment, deque()).append((address, item))
        self.unseen |= self.seen is None or moment > self.seen

    def look(self) -> list[T]:
        """Return items of the newest epoch, as many as a turn has, if it had no turn and no look yet."""
        last = max(self._oldest_attempt())
        self.unseen = False
        if self.seen is not None and last <= self.seen:
            return []
        self.seen = last
        return [item for _, item in islice(self.epochs[last], TURN)]

    def _oldest_attempt(self) -> list[Moment]:
        """Return the epochs of the oldest attempt, whose scores those of a later one replace."""
        oldest = min(each.attempt for each in self.epochs)
        return [each for each in self.epochs if each.attempt == oldest]

    def next(self) -> Moment:
        """Return the epoch that the next turn goes to."""
        if self.rest and self.begun in self.epochs:
            return self.begun
        waiting = self._oldest_attempt()
        self.begun = next_moment(waiting, self.turns, self.newest)
        self.newest = self.begun if self.newest is None else max(self.newest, self.begun)
        self.seen = self.newest if self.seen is None else max(self.seen, self.newest)
        self.rest = len(self.epochs[self.begun])
        return self.begun


class Schedule(Generic[T]):
    """A queue of items, most of which are data points. Not thread-safe.

    Items without a place come first, in order of arrival. Data points of one epoch of a run keep the order of
    arrival.

    Args:
        place: Returns the place of an item; None if it is no data point.
        on_show: Returns what pages have on show. These runs get every other turn.
        early: Returns what to do for a data point of a layer on show ahead of its turn, which it still gets;
            None if nothing is to be done for it.
        look: Returns what to do for data points of one epoch ahead of their turns, in little time; None if
            nothing is to be done.

    >>> queue = Schedule[int](lambda item: None if item < 0 else Place("run", "model", Moment(0, item)))
    >>> queue.extend([1, 2, 3, -1])
    >>> [queue.popleft() for _ in range(4)]
    [-1, 3, 2, 1]
    """

    def __init__(
        self,
        place: Callable[[T], Place | None] = lambda item: None,
        on_show: Callable[[], Collection[Shown]] = tuple,
        early: Callable[[T], T | None] = lambda item: None,
        look: Callable[[Sequence[T]], T | None] = lambda items: None,
    ) -> None:
        self._place, self._on_show, self._early, self._look = place, on_show, early, look
        self._first: deque[T] = deque()
        self._runs: OrderedDict[_RunKey, _Waiting[T]] = OrderedDict()  # the last served is the last
        self._ahead: deque[T] = deque()  # what is done early in this turn
        self._now: tuple[_RunKey, Moment] | None = None  # whose turn it is
        self._left = 0  # of this turn
        self._looks_left = 0
        self._turns = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        yield from self._first
        for run in self._runs.values():
            for items in run.epochs.values():
                yield from (item for _, item in items)

    def append(self, item: T) -> None:
        """Add an item."""
        self._size += 1
        place = self._place(item)
        if place is None:
            self._first.append(item)
            return
        run = self._runs.setdefault((place.run, place.model), _Waiting())
        run.append(place.moment, place.address, item)

    def extend(self, items: Iterable[T]) -> None:
        """Add items."""
        for item in items:
            self.append(item)

    def place_of(self, item: T) -> Place | None:
        """Return the place of an item, which need not be in the queue; None if it is no data point."""
        return self._place(item)

    def earliest(self, run: str, model: str) -> Moment | None:
        """Return the earliest epoch of a run with data points that wait; None if none waits."""
        waiting = self._runs.get((run, model))
        return None if waiting is None else min(waiting.epochs)

    def popleft(self) -> T:
        """Remove the next item and return it. What is done early is returned and stays."""
        if self._first:
            self._size -= 1
            return self._first.popleft()
        if self._now is None and not self._ahead:
            self._begin_turn()
        if self._ahead:
            return self._ahead.popleft()
        assert self._now is not None
        run_key, moment = self._now
        run = self._runs[run_key]
        items = run.epochs[moment]
        _, item = items.popleft()
        self._size, self._left, run.rest = self._size - 1, self._left - 1, run.rest - 1
        if not items:
            del run.epochs[moment]
        if not run.epochs:
            del self._runs[run_key]
        if not items or not self._left or not run.rest:
            self._now = None
        return item

    def remove(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Remove the unwanted items and return them."""
        removed = [item for item in self if unwanted(item)]
        self._first = deque(item for item in self._first if not unwanted(item))
        self._ahead = deque(item for item in self._ahead if not unwanted(item))
        for run_key, run in list(self._runs.items()):
            kept = {
                moment: deque(pair for pair in items if not unwanted(pair[1]))
                for moment, items in run.epochs.items()
            }
            run.epochs, run.rest = {moment: items for moment, items in kept.items() if items}, 0
            if not run.epochs:
                del self._runs[run_key]
        self._now = None
        self._size -= len(removed)
        return removed

    # -- turns ---------------------------------------------------------------------------------------

    def _begin_turn(self) -> None:
        on_show = self._on_show()
        run_key = self._next_run(on_show)
        run = self._runs[run_key]
        self._runs.move_to_end(run_key)
        moment = run.next()
        self._now, self._left, run.served = (run_key, moment), TURN, self._turns
        layers = {layer for *of_run, layer in on_show if (*of_run,) == run_key and layer is not None}
        if layers:
            self._ahead.extend(self._to_do_early(run, layers, moment))
        self._looks_left = min(self._looks_left, 0) + LOOKS * min(len(run.epochs[moment]), TURN)
        self._ahead.extend(self._looks(run_key))
        self._turns += 1
        run.turns += 1

    def _next_run(self, on_show: Collection[Shown]) -> _RunKey:
        """Return the run that was not served for longest; every other time of those on show."""
        shown = {(run, model) for run, model, _ in on_show if (run, model) in self._runs}
        if shown and self._turns % 2 == 0:
            return min(shown, key=lambda run_key: (self._runs[run_key].served, run_key))
        return next(iter(self._runs))

    def _to_do_early(self, run: _Waiting[T], layers: Collection[str], moment: Moment) -> list[T]:
        """Return what to do early for the layers on show, of this turn's epoch first, then by worth."""
        out: list[T] = []
        for each in sorted(run.epochs, key=lambda each: (each == moment, _worth(each)), reverse=True):
            if each.attempt > moment.attempt:
                continue  # the scores of the earlier training must not replace its own
            if each == moment and len(run.epochs[each]) <= TURN:
                continue  # its turn has come
            for address, item in run.epochs[each]:
                found = self._early(item) if address in layers else None
                if found is not None:
                    out.append(found)
                if len(out) == EARLY:
                    return out
        return out

    def _looks(self, but: _RunKey) -> Iterator[T]:
        """Yield the looks at the newest epochs of other runs, first of those that had no turn for longest."""
        for run_key, run in self._runs.items():
            if self._looks_left <= 0:
                return
            if not run.unseen or run_key == but:
                continue
            items = run.look()
            look = self._look(items) if items else None
            if look is not None:
                self._looks_left -= len(items)
                yield look
