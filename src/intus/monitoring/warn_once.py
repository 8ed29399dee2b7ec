"""Count failures that must not reach the training, log each kind once, and keep them for the page."""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from typing import Any

logger = logging.getLogger("intus.monitoring")

_LOGGED: set[str] = set()  # every sentence that this process has logged as a warning
_OF_SERVERS: set[str] = set()  # of these, what servers of this process logged
_REASONS: dict[str, str] = {}  # why servers take nothing now, by the words in which warnings have it


def log_of_server(line: str) -> None:
    """Log a warning of a server of this process, unless it or its reason was logged already."""
    if not any(line.endswith(sentence) or sentence.endswith(line) for sentence in _LOGGED.copy()):
        _OF_SERVERS.add(line)
        log_once(f"intus: {line}", line)


def log_once(line: str, sentence: str) -> None:
    """Log a warning; why a server takes nothing only if that was not logged already.

    Args:
        line: The line of the log.
        sentence: The same without the name of the package.
    """
    for words, reason in _REASONS.copy().items():
        is_said = any(words in one for one in _LOGGED.copy()) or any(
            reason in one for one in _OF_SERVERS.copy()
        )
        if words in line and is_said:
            line = line.replace(reason, "as an earlier warning says")
    _LOGGED.add(sentence)
    logger.warning("%s", line)


def note_reason(words: str, reason: str) -> None:
    """Note why a server takes nothing now.

    Args:
        words: The words in which warnings have it, with the server and the reason.
        reason: The reason.
    """
    _REASONS[words] = reason


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
        self._said: defaultdict[str, set[str]] = defaultdict(set)  # of each code
        self._texts: set[str] = set()
        self._news: list[dict[str, Any]] = []
        self._faults: list[str] = []

    def count(self, code: str, text: str = "", *args: object, once: bool = False, most: int = 1) -> None:
        """Count a failure.

        Args:
            code: The kind of failure.
            text: The warning to log the first time, with ``%s`` for ``args``; ``""`` for none.
            *args: The values for ``text``.
            once: Whether a repetition does not count, because every pass would be one.
            most: How many different sentences of this kind are logged.
        """
        with self._lock:
            if once and self._counts[code]:
                return
            self._counts[code] += 1
            said = self._said[code]
            is_new = len(said) < most and bool(text) and (sentence := _sentence(text, args)) not in said
            if is_new:
                said.add(sentence)
        if is_new:
            self._warn(text, args, code.partition(" ")[0])

    def warn_once(self, text: str, *args: object) -> None:
        """Log a warning about something that is not a failure, once per text."""
        if text in self._texts:  # the usual case, in each pass
            return
        with self._lock:
            first = text not in self._texts
            self._texts.add(text)
        if first:
            self._warn(text, args, "probe")

    def inform(self, code: str, text: str, level: str = "info", *, is_logged: bool = False) -> None:
        """Keep a sentence for the page.

        Args:
            code: What it is about.
            text: The sentence.
            level: "info" of a fact, which the log has for those who ask for such; "warning" of a fault or
                doubt of what is stored, which is logged as one.
            is_logged: Whether the log has a warning of this fault already, as of another layer.
        """
        if level == "warning" and not is_logged:
            self._warn(f"intus: {text}", (), code)
            return
        logger.info("%s", text)
        with self._lock:
            if level == "warning":
                self._faults.append(_sentence(text))
            self._news.append({"code": code, "text": _sentence(text), "level": level})

    def take_news(self) -> list[dict[str, Any]]:
        """Return what was logged since the last call, as notes for the page: code, text and level."""
        if not self._news:
            return []
        with self._lock:
            news, self._news = self._news, []
        return news

    def faults(self) -> list[str]:
        """Return every warning so far, once."""
        with self._lock:
            return list(self._faults)

    def _warn(self, text: str, args: tuple[object, ...], code: str) -> None:
        sentence = _sentence(text, args)
        log_once(text % args if args else text, sentence)
        with self._lock:
            if sentence not in self._faults:
                self._faults.append(sentence)
            self._news.append({"code": code, "text": sentence, "level": "warning"})

    def reset(self, code: str) -> None:
        """Reset the count of a code, so that its next failure is logged again."""
        with self._lock:
            self._counts.pop(code, None)
            self._said.pop(code, None)

    def total(self) -> int:
        """Return the number of failures."""
        with self._lock:
            return sum(self._counts.values())


def _sentence(text: str, args: tuple[object, ...] = ()) -> str:
    """Return a message of the log without the name of the package; a name that it begins with is kept."""
    text = text.removeprefix("intus: ")
    filled = text % args if args else text
    return filled if text.startswith("%s ") else filled[:1].upper() + filled[1:]
