"""One thread that works a queue off, in order."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from .interfaces import AwayError

_log = logging.getLogger("intus.serving")
_T = TypeVar("_T")


#: How long a flush waits for a server that is away before it says so: longer than the pauses between tries,
#: so that one that has just come back is not called away.
AWAY_S = 4.0


def wait_for(worker: Worker[_T], trouble: Callable[[], str], timeout: float | None) -> float | None:
    """Wait until a queue is empty, and return what is left of ``timeout``.

    Raises AwayError with what ``trouble()`` says once it says so for some seconds, or when the time is over.
    """
    began, well = time.monotonic(), time.monotonic()
    while not worker.wait(0.1):
        now, why = time.monotonic(), trouble()
        well = well if why else now
        if now - well > AWAY_S or (timeout is not None and now - began > timeout):
            left = f"{worker.pending} data points wait to be scored, and are kept."
            raise AwayError(f"{why} {left}" if why else f"Not done after {timeout:.0f} s: {left}")
    return None if timeout is None else max(timeout - (time.monotonic() - began), 0.1)


class Worker(Generic[_T]):
    """Calls ``handle(item)`` for each item submitted, one after the other, in a thread of its own.

    ``size`` tells an item's bytes. ``begin(item)`` is called first, and for up to ``ahead`` items before the
    first of them is handled. An exception of either is logged and does not end the thread; ``handle`` itself
    reports what people should know.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[_T], None],
        size: Callable[[_T], int],
        begin: Callable[[_T], None] = lambda item: None,
        ahead: int = 1,
    ) -> None:
        self._handle, self._size, self._begin, self._ahead = handle, size, begin, ahead
        self._items: deque[_T] = deque()
        self._begun: deque[_T] = deque()
        self._bytes = 0
        self._busy = self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, item: _T) -> None:
        """Put an item at the queue's end; does not wait."""
        with self._changed:
            self._items.append(item)
            self._bytes += self._size(item)
            self._changed.notify_all()

    @property
    def pending(self) -> int:
        """Items not done with."""
        return len(self._items) + len(self._begun) + self._busy

    @property
    def nbytes(self) -> int:
        """Bytes of the items not begun."""
        return self._bytes

    def wait(self, timeout: float | None = None) -> bool:
        """Whether everything submitted so far, and since, is done within ``timeout`` seconds."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: not self.pending, timeout))

    def drop(self, unwanted: Callable[[_T], bool], patience: float = 30.0) -> list[_T]:
        """Take items out of the queue and return them; waits for one that is being worked on, ``patience``
        seconds at most."""
        with self._changed:
            dropped = [item for item in (*self._begun, *self._items) if unwanted(item)]
            self._begun, self._items = (
                deque(item for item in queue if not unwanted(item)) for queue in (self._begun, self._items)
            )
            self._bytes = sum(map(self._size, self._items))
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._busy, patience)
        return dropped

    def close(self) -> None:
        """Finish the queue and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._begun or self._closed)
                if not (self._items or self._begun):
                    return
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
                self._busy = True
            self._call(self._handle, item)
            del item
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _room(self) -> int:
        return min(self._ahead - len(self._begun), len(self._items))

    def _call(self, work: Callable[[_T], None], item: _T) -> None:
        try:
            work(item)
        except Exception:
            _log.exception("%s failed", self._thread.name)
