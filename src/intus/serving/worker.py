"""One thread that works a queue off, in order."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

_log = logging.getLogger("intus.serving")
_T = TypeVar("_T")


class Worker(Generic[_T]):
    """Calls ``handle(item)`` for each item submitted, one after the other, in a thread of its own.

    ``size`` tells an item's bytes. An exception of ``handle`` is logged and does not end the thread;
    ``handle`` itself reports what people should know.
    """

    def __init__(self, name: str, handle: Callable[[_T], None], size: Callable[[_T], int]) -> None:
        self._handle, self._size = handle, size
        self._items: deque[_T] = deque()
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
        return len(self._items) + self._busy

    @property
    def nbytes(self) -> int:
        """Bytes of the items not begun."""
        return self._bytes

    def wait(self) -> None:
        """Return when everything submitted so far, and since, is done."""
        with self._changed:
            self._changed.wait_for(lambda: not self._items and not self._busy)

    def drop(self, unwanted: Callable[[_T], bool]) -> None:
        """Take items out of the queue, and wait for one that is being worked on."""
        with self._changed:
            self._items = deque(item for item in self._items if not unwanted(item))
            self._bytes = sum(map(self._size, self._items))
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._busy)

    def close(self) -> None:
        """Finish the queue and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._closed)
                if not self._items:
                    return
                item = self._items.popleft()
                self._bytes -= self._size(item)
                self._busy = True
            try:
                self._handle(item)
            except Exception:
                _log.exception("%s failed", self._thread.name)
            finally:
                del item
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
