"""Count failures that must not reach the training, and log each kind once."""

from __future__ import annotations

import logging
import threading
from collections import Counter

logger = logging.getLogger("intus.monitoring")


class WarningLog:
    """Counts failures by a short code, and logs the first of each.

    Example:
        >>> troubles = WarningLog()
        >>> troubles.count("hook"), troubles.total()
        (None, 1)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._texts: set[str] = set()

    def count(self, code: str, text: str = "", *args: object) -> None:
        """Count a failure.

        Args:
            code: The kind of failure.
            text: The warning to log the first time, with ``%s`` for ``args``; ``""`` for none.
            *args: The values for ``text``.
        """
        with self._lock:
            self._counts[code] += 1
            first = self._counts[code] == 1
        if first and text:
            logger.warning(text, *args)

    def warn_once(self, text: str, *args: object) -> None:
        """Log a warning about something that is not a failure, once per text."""
        with self._lock:
            first = text not in self._texts
            self._texts.add(text)
        if first:
            logger.warning(text, *args)

    def reset(self, code: str) -> None:
        """Reset the count of a code, so that its next failure is logged again."""
        with self._lock:
            self._counts.pop(code, None)

    def total(self) -> int:
        """Return the number of failures."""
        with self._lock:
            return sum(self._counts.values())
