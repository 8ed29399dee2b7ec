"""A thread that processes a queue."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from .errors import AwayError
from .schedule import Schedule

_log = logging.getLogger("intus.serving")
_T = TypeVar("_T")


#: Seconds that a flush waits for a server that does not answer: more than the pauses between retries, so that
#: a server that has just restarted is not reported.
AWAY_S = 4.0


def wait_for(worker: Worker[_T], trouble: Callable[[], str], timeout: float | None) -> float | None:
    """Wait until a queue is empty, and return the rest of ``timeout`` in seconds.

    Args:
        worker: The worker of the queue.
        trouble: Returns the reason why the queue is blocked, "" if it is not.
        timeout: Seconds to wait at most; None for no limit.

    Raises:
        AwayError: If ``trouble()`` has returned a reason for AWAY_S seconds, or after ``timeout``.
    """
    began = untroubled = time.monotonic()
    while not worker.wait(0.1):
        now, why = time.monotonic(), trouble()
        untroubled = untroubled if why else now
        if now - untroubled > AWAY_S or (timeout is not None and now - began > timeout):
            left = f"{worker.pending} data points wait to be scored and are kept."
            raise AwayError(f"{why} {left}" if why else f"Not done after {timeout:.0f} s: {left}")
    return None if timeout is None else max(timeout - (time.monotonic() - began), 0.1)


class Worker(Generic[_T]):
    """Processes items one after the other in a thread.

    Args:
        name: The thread's name.
        handle: Called with each item. An exception is logged and does not end the thread.
        size: Returns the bytes of an item.
        begin: Called with each item before ``handle``, for up to ``ahead`` items in advance.
        ahead: Number of items that may be begun at once.
        waiting: The queue, which decides what comes next; by default the order of arrival.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[_T], None],
        size: Callable[[_T], int],
        begin: Callable[[_T], None] = lambda item: None,
        ahead: int = 1,
        waiting: Schedule[_T] | None = None,
    ) -> None:
        self._handle, self._size, self._begin, self._ahead = handle, size, begin, ahead
        self._items: Schedule[_T] = Schedule() if waiting is None else waiting
        self._begun: deque[_T] = deque()
        self._bytes = 0
        self._busy = self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, item: _T) -> None:
        """Add an item to the queue, without waiting."""
        with self._changed:
            self._items.append(item)
            self._bytes += self._size(item)
            self._changed.notify_all()

    @property
    def pending(self) -> int:
        """The number of items that are not done."""
        return len(self._items) + len(self._begun) + self._busy

    @property
    def nbytes(self) -> int:
        """The bytes of the items that are not begun."""
        return self._bytes

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds; return whether everything submitted is done."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: not self.pending, timeout))

    def drop(self, unwanted: Callable[[_T], bool], patience: float = 30.0) -> list[_T]:
        """Remove unwanted items from the queue and return them.

        If an item is being handled, wait for it, at most ``patience`` seconds.
        """
        with self._changed:
            dropped = [*filter(unwanted, self._begun), *self._items.remove(unwanted)]
            self._begun = deque(item for item in self._begun if not unwanted(item))
            self._bytes = sum(map(self._size, self._items))
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._busy, patience)
        return dropped

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
        self.drop(lambda item: True, patience=0.0)
        return False

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
