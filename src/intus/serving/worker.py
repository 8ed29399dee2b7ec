"""A thread that processes a queue, and tries again what cannot be processed now."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from .errors import AwayError, HeldError
from .messages import counted
from .schedule import Moment, Schedule

_log = logging.getLogger("intus.serving")
#: The name of an item that is scored; others are stored.
DATA_POINT = "data point"
_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)


#: Seconds that a flush waits for a server that does not answer: more than the pauses between retries, so that
#: a server that has just restarted is not reported.
AWAY_S = 4.0
#: Seconds between tries of an item: at first, doubled after each, and at most; at most while a flush waits.
FIRST_PAUSE_S, LONGEST_PAUSE_S, FLUSH_PAUSE_S = 0.1, 10.0, 1.0


def wait_for(worker: Worker[_T], timeout: float | None) -> float | None:
    """Wait until a queue is empty, and return the rest of ``timeout`` in seconds.

    Args:
        worker: The worker of the queue.
        timeout: Seconds to wait at most; None for no limit.

    Raises:
        AwayError: If nothing could be processed for AWAY_S seconds, and no try is under way; or after
            ``timeout``.
    """
    began = untroubled = time.monotonic()
    while not worker.wait(0.1):
        worker.hurry(FLUSH_PAUSE_S)
        now, why = time.monotonic(), worker.trouble
        untroubled = untroubled if why else now
        patience = 10 * AWAY_S if worker.busy else AWAY_S  # another try is under way
        if now - untroubled > patience or (timeout is not None and now - began > timeout):
            left = _kept(worker.waiting)
            raise AwayError(f"{why} {left}" if why else f"The time ran out: {left}")
    return None if timeout is None else max(timeout - (time.monotonic() - began), 0.1)


def summary(troubles: Iterable[tuple[_K, str, str]]) -> dict[_K, str]:
    """Return how many items of each key and name wait, and why the first of them does.

    >>> summary([("a", DATA_POINT, "The disk is full."), ("b", "graph", "No memory."), ("a", DATA_POINT, "")])
    {'a': '2 data points wait. The disk is full.', 'b': '1 graph waits. No memory.'}
    """
    counts, reasons = dict[_K, Counter[str]](), dict[_K, str]()
    for key, name, why in troubles:
        counts.setdefault(key, Counter())[name] += 1
        reasons.setdefault(key, why)
    return {key: f"{_wait(counts[key])}. {why}" for key, why in reasons.items()}


def _kept(counts: Mapping[str, int]) -> str:
    """Say what waits, by name, and that it is kept.

    >>> _kept({DATA_POINT: 2})
    '2 data points wait to be scored and are kept.'
    >>> _kept({DATA_POINT: 1, "graph": 1, "target": 2})
    '1 data point waits to be scored, and 1 graph and 2 targets to be stored; all are kept.'
    >>> _kept({})
    'nothing waits any more.'
    """
    points, others = counts.get(DATA_POINT, 0), {n: k for n, k in counts.items() if n != DATA_POINT}
    if points and others:
        return (
            f"{_wait({DATA_POINT: points})} to be scored, and {_listed(others)} to be stored; all are kept."
        )
    if not counts:  # it was done meanwhile
        return "nothing waits any more."
    are = "is" if sum(counts.values()) == 1 else "are"
    return f"{_wait(counts)} to be {'scored' if points else 'stored'} and {are} kept."


def _wait(counts: Mapping[str, int]) -> str:
    return f"{_listed(counts)} {'waits' if sum(counts.values()) == 1 else 'wait'}"


def _listed(counts: Mapping[str, int]) -> str:
    *first, last = [counted(number, name) for name, number in counts.items()]
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(slots=True)
class _Failed(Generic[_T]):
    """An item that could not be processed: why, how often, and when it is tried again."""

    item: _T
    why: str = ""
    tries: int = 0
    tried: float = 0.0
    due: float = 0.0

    def again(self, error: AwayError) -> None:
        """Note another try."""
        self.why, self.tried = str(error), time.monotonic()
        self.due = self.tried + min(FIRST_PAUSE_S * 2**self.tries, LONGEST_PAUSE_S)
        self.tries = min(self.tries + 1, 30)


class Worker(Generic[_T]):
    """Processes items one after the other in a thread.

    An item for which ``handle`` raises AwayError is tried again after a growing pause, and the others wait.
    If it is HeldError, the others are processed meanwhile, except later ones about the same: the scores of
    fewer rows must not replace those of more. Other exceptions are logged.

    Args:
        name: The thread's name.
        handle: Called with each item.
        size: Returns the bytes of an item.
        begin: Called with each item before ``handle``, for up to ``ahead`` items in advance.
        ahead: Number of items that may be begun at once.
        about: Returns what an item is about; None if it is unlike every other.
        waiting: The queue, which decides what comes next; by default the order of arrival.
        name_of: Returns what an item is called in sentences on what waits; "" if it is not named there.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[_T], None],
        size: Callable[[_T], int],
        begin: Callable[[_T], None] = lambda item: None,
        ahead: int = 1,
        about: Callable[[_T], Hashable] = lambda item: None,
        waiting: Schedule[_T] | None = None,
        name_of: Callable[[_T], str] = lambda item: "",
    ) -> None:
        self._handle, self._size, self._begin, self._ahead = handle, size, begin, ahead
        self._about, self._name_of = about, name_of
        self._lines: dict[Hashable, list[_T]] = {}  # what is not done, by what it is about, in order
        self._items: Schedule[_T] = Schedule() if waiting is None else waiting
        self._begun: deque[_T] = deque()
        self._bytes = 0
        self._busy = self._closed = False
        self._failed: dict[int, _Failed[_T]] = {}  # by the id of the item, until it is done
        self._aside: dict[int, _Failed[_T]] = {}  # those of them that are not in the queue
        self._blocked: _Failed[_T] | None = None  # the one that the others wait for
        self._told: set[str] = set()  # the reasons that were logged, until all items are done
        self._current: _T | None = None  # the item that is processed, unless it was dropped meanwhile
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, item: _T) -> None:
        """Add an item to the queue, without waiting."""
        with self._changed:
            self._items.append(item)
            if (about := self._about(item)) is not None:
                self._lines.setdefault(about, []).append(item)
            self._bytes += self._size(item)
            self._changed.notify_all()

    @property
    def pending(self) -> int:
        """The number of items that are not done."""
        return len(self._items) + len(self._begun) + len(self._aside) + self._busy

    @property
    def waiting(self) -> Counter[str]:
        """The number of items that are not done, by name; several about the same count once."""
        with self._changed:
            lines = (line[0] for line in self._lines.values())
            others = (item for item in self._unfinished() if self._about(item) is None)
            names = (self._name_of(item) for item in (*lines, *others))
            return Counter(name for name in names if name)

    def earliest(self, run: str, model: str) -> Moment | None:
        """Return the earliest epoch of a run of which a data point waits, beside the one in progress."""
        with self._changed:
            places = map(self._items.place_of, (*self._begun, *self._held_items()))
            found = [each.moment for each in places if each is not None and each[:2] == (run, model)]
            queued = self._items.earliest(run, model)
            return min((*found, queued) if queued is not None else found, default=None)

    @property
    def busy(self) -> bool:
        """True while an item is processed."""
        return self._busy

    @property
    def nbytes(self) -> int:
        """The bytes of the items that are not begun, or that were set aside."""
        return self._bytes

    @property
    def trouble(self) -> str:
        """The reason why no item can be processed now; "" if one can."""
        with self._changed:
            if self._blocked is not None:
                return self._blocked.why
            stuck = self._failed and self.pending <= len(self._failed)
            return next(iter(self._failed.values())).why if stuck else ""

    def troubles(self) -> list[tuple[_T, str]]:
        """Return each item that is not done because a try failed, with the reason; if one blocks, all."""
        with self._changed:
            if self._blocked is not None:
                why = self._blocked.why
                return [(item, why) for item in self._unfinished()]
            return [(failed.item, failed.why) for failed in self._failed.values()]

    def hurry(self, pause: float) -> None:
        """Try again what failed, if the last try is ``pause`` seconds ago."""
        with self._changed:
            for failed in self._failed.values():
                failed.due = min(failed.due, failed.tried + pause)
            if self._failed:
                self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds; return whether everything submitted is done."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: not self.pending, timeout))

    def take(self, unwanted: Callable[[_T], bool]) -> list[_T]:
        """Remove unwanted items from the queue and return them, those about the same in their order."""
        with self._changed:
            held = [item for item in self._held_items() if unwanted(item)]
            taken = [*filter(unwanted, self._begun), *self._items.remove(unwanted), *held]
            place = {id(item): number for line in self._lines.values() for number, item in enumerate(line)}
            taken.sort(key=lambda item: place.get(id(item), 0))
            for item in taken:
                self._forget(item)
            self._begun = deque(item for item in self._begun if not unwanted(item))
            self._bytes = sum(map(self._size, (*self._items, *self._held_items())))
            self._changed.notify_all()
        return taken

    def drop(self, unwanted: Callable[[_T], bool]) -> tuple[list[_T], _T | None]:
        """Remove unwanted items from the queue, and return them and the one of them that is being handled.

        That one goes on, and is not tried again: ``handle`` must see to it that it does nothing any more.
        """
        with self._changed:
            taken, current = self.take(unwanted), self._current
            if current is None or not unwanted(current):
                return taken, None
            self._current = None
            return taken, current

    def wait_for_current(self, patience: float) -> None:
        """Wait until no item is being handled, at most ``patience`` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, patience)

    def close(self, patience: float | None = None) -> bool:
        """Finish the queue and end the thread; return whether the queue was finished.

        Args:
            patience: Seconds to wait at most. Then what is left of the queue is dropped, and the thread ends
                after the item that it handles.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(patience)
        if not self._thread.is_alive():
            return True
        self.drop(lambda item: True)
        return False

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._ready():
                    if self._closed and (self._blocked or not (self._items or self._begun)):
                        return
                    self._changed.wait(self._pause())
                fresh = [self._items.popleft() for _ in range(self._room())]
                self._begun.extend(fresh)
                self._bytes -= sum(map(self._size, fresh))
            for item in fresh:
                self._call(self._begin, item)
            fresh = []
            with self._changed:
                if not self._begun:  # dropped meanwhile
                    continue
                item = self._begun.popleft()
                if self._waits(item):
                    continue
                self._current = item
                self._busy = True
            failure = self._call(self._handle, item)
            with self._changed:
                self._busy = False
                if failure is None or self._current is None:
                    self._forget(item)
                else:
                    self._note(item, failure)
                self._current = None
                self._changed.notify_all()
            del item

    def _ready(self) -> bool:
        """Return whether there is an item to process now, after those that are due joined the queue again."""
        now = time.monotonic()
        if self._blocked is not None:
            return self._blocked.due <= now
        if not self._closed:
            for key in [key for key, failed in self._aside.items() if failed.due <= now]:
                self._items.append(self._aside.pop(key).item)
        return bool(self._items or self._begun)

    def _pause(self) -> float | None:
        """Return the seconds until an item is due; None if none is."""
        waits = [self._blocked] if self._blocked is not None else self._aside.values()
        return max(min(failed.due for failed in waits) - time.monotonic(), 0.0) if waits else None

    def _note(self, item: _T, error: AwayError) -> None:
        """Note that an item could not be processed, and why."""
        failed = self._failed.setdefault(id(item), _Failed(item))
        failed.again(error)
        if failed.why not in self._told:
            self._told.add(failed.why)
            _log.warning("%s: kept, and tried again: %s", self._thread.name, failed.why)
        if isinstance(error, HeldError):
            self._blocked = None
            self._aside[id(item)] = failed
            self._bytes += self._size(item)
        else:
            self._blocked = failed
            self._begun.appendleft(item)

    def _waits(self, item: _T) -> bool:
        """Set an item aside if an earlier one about the same is not done; return whether it was."""
        first = self._lines.get(self._about(item), [item])[0]
        if first is item:
            return False
        before = self._failed.get(id(first))
        self._aside[id(item)] = _Failed(item) if before is None else replace(before, item=item)
        if before is not None:
            self._failed[id(item)] = self._aside[id(item)]
        self._bytes += self._size(item)
        return True

    def _forget(self, item: _T) -> None:
        """Forget an item that is done or dropped."""
        failed = self._failed.pop(id(item), None)
        self._aside.pop(id(item), None)
        if failed is not None and failed is self._blocked:
            self._blocked = None
        if not self._failed:
            self._told.clear()
        about = self._about(item)
        if about in self._lines:
            line = self._lines[about] = [each for each in self._lines[about] if each is not item]
            if not line:
                del self._lines[about]
            elif (follower := self._failed.get(id(line[0])) or self._aside.get(id(line[0]))) is not None:
                follower.due, follower.tries = 0.0, 0  # its pause was that of the item before it

    def _unfinished(self) -> list[_T]:
        tried = [] if self._current is None else [self._current]
        return [*tried, *self._begun, *self._items, *self._held_items()]

    def _held_items(self) -> list[_T]:
        return [failed.item for failed in self._aside.values()]

    def _room(self) -> int:
        return min(self._ahead - len(self._begun), len(self._items))

    def _call(self, work: Callable[[_T], None], item: _T) -> AwayError | None:
        """Call a function with an item, and return why the item must be tried again; None if not."""
        try:
            work(item)
        except AwayError as error:
            return error
        except Exception:
            _log.exception("%s failed", self._thread.name)
        return None
