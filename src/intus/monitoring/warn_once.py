"""Failures that must not reach the training: each kind is said once, all are counted."""

from __future__ import annotations

import logging
import threading
from collections import Counter

logger = logging.getLogger("intus.monitoring")


class WarningLog:
    """Counts what went wrong, by a short code, and logs the first of each.

    >>> troubles = WarningLog()
    >>> troubles.count("hook"), troubles.total()
    (None, 1)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._said: set[str] = set()

    def count(self, code: str, text: str = "", *args: object) -> None:
        """Count one failure; ``text`` (with ``%s`` for ``args``) is logged as a warning the first time."""
        with self._lock:
            self._counts[code] += 1
            first = self._counts[code] == 1
        if first and text:
            logger.warning(text, *args)

    def say(self, text: str, *args: object) -> None:
        """Log what is no failure but should be known, once."""
        with self._lock:
            first = text not in self._said
            self._said.add(text)
        if first:
            logger.warning(text, *args)

    def again(self, code: str) -> None:
        """Let the next failure of this code be logged once more."""
        with self._lock:
            self._counts.pop(code, None)

    def total(self) -> int:
        """How many failures there were."""
        with self._lock:
            return sum(self._counts.values())
