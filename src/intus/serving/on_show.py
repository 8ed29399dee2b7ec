"""The runs and layers that open pages have on show, as the requests that they make anyway tell."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .schedule import Shown

#: Seconds after a request in which its run and layer count as on show. While a run has something to score, an
#: open page asks for its status more often.
FRESH_S = 30.0
#: Most runs and layers that are remembered.
MOST = 100


class OnShow:
    """The runs and layers that were asked for in the last seconds.

    >>> on_show = OnShow()
    >>> on_show.note("run", "model", "fc1")
    >>> on_show.now()
    [('run', 'model', 'fc1')]
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._asked: dict[Shown, float] = {}

    def note(self, run: str, model: str, layer: str | None = None) -> None:
        """Note that a page asks for a run, or for one layer of it."""
        with self._lock:
            self._asked.pop((run, model, layer), None)
            self._asked[run, model, layer] = self._clock()
            while len(self._asked) > MOST:
                del self._asked[next(iter(self._asked))]

    def now(self) -> list[Shown]:
        """Return what is on show."""
        with self._lock:
            ends = self._clock() - FRESH_S
            return [shown for shown, asked in self._asked.items() if asked >= ends]
