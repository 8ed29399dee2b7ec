"""The sentences of the last minute, so that one of them does not fill a log."""

from __future__ import annotations

import time
from collections.abc import Hashable

_MINUTE_S = 60.0


class LastMinute:
    """Remembers what was said.

    Example:
        >>> said = LastMinute()
        >>> said.is_new("The disk is full."), said.is_new("The disk is full.")
        (True, False)
    """

    def __init__(self) -> None:
        self._said: dict[Hashable, float] = {}

    def is_new(self, what: Hashable) -> bool:
        """Return whether something was not said in the last minute, and remember it as said now."""
        now = time.monotonic()
        while self._said and now - next(iter(self._said.values())) >= _MINUTE_S:  # the oldest is the first
            del self._said[next(iter(self._said))]
        if what in self._said:
            return False
        self._said[what] = now
        return True
