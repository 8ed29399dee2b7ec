"""The user's own values: ``Probe.log`` collects them, and they are sent within about a second."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import InputError
from ..core.names import LONGEST, is_name
from .follower import Follower
from .jobs import Job
from .sender import Sender
from .warn_once import WarningLog

PAUSE_S = 1.0  # between messages
MOST = 1000  # calls of ``log`` in a message
_REFUSED = "intus: watch.log does not record %r: it must be a number, got %s."
_NAME = (
    "intus: watch.log does not record %r: a name must be a non-empty string of at most %s characters, "
    "without NUL or half a surrogate pair."
)


class ScalarLog:
    """Collects the values that the user logs, and sends them in the order in which they came.

    It is the sender's thread that sends them. While the server is away they are collected into few large
    messages. They never raise into the training. In a forked child it starts empty.

    Args:
        sender: Sends them.
        run: The name of the training.
        model: The name of the model.
        troubles: Counts and logs what is not a number.
        follower: Also takes them; None if nothing does.
    """

    def __init__(
        self, sender: Sender, run: str, model: str, troubles: WarningLog, follower: Follower | None = None
    ) -> None:
        self._sender, self._troubles, self._follower = sender, troubles, follower
        self._facts = {"run": run, "model": model, "training": time.time()}
        self._last_time = 0.0
        self._reset()
        sender.logs.append(self)

    def _reset(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._entries: list[dict[str, Any]] = []
        self._posted = -math.inf
        self._sent: list[tuple[Job, int]] = []  # messages that are not done, with the number of their values

    def _reset_if_forked(self) -> None:
        if os.getpid() != self._pid:
            self._reset()

    def add(self, values: Mapping[str, Any], step: int, epoch: float) -> None:
        """Add values that belong together.

        Args:
            values: Numbers by name.
            step: Their step.
            epoch: Their epoch.
        """
        plain = {name: number for name, value in values.items() if (number := self._read(name, value)) != ""}
        if not plain:
            return
        self._reset_if_forked()
        with self._lock:
            # a value is stored by name, step and time, so no two calls may have the same time
            self._last_time = max(time.time(), math.nextafter(self._last_time, math.inf))
            entry = {"step": step, "epoch": epoch, "time": self._last_time, "values": plain}
            self._entries.append(entry)
            if self._follower is not None:
                self._follower.log(entry)
            count, since = len(self._entries), time.monotonic() - self._posted
        if count == 1:
            self._sender.post_logs_in(max(PAUSE_S - since, 0.0))
        elif count >= MOST:
            self.post()

    def _read(self, name: Any, value: Any) -> float | str:
        """Return a value as a number of JSON; ``""`` if it is none."""
        if not is_name(name):
            self._troubles.count(f"log {name!r}", _NAME, name, LONGEST)
            return ""
        try:
            if isinstance(value, str | bytes):
                raise TypeError
            number = float(value.item() if hasattr(value, "item") else value)
        except Exception:  # whatever an array of a framework raises
            shape = getattr(value, "shape", None)
            got = repr(value)[:80] if shape is None else f"{type(value).__name__} of shape {tuple(shape)}"
            self._troubles.count(f"log {name!r}", _REFUSED, name, got)
            return ""
        return number if math.isfinite(number) else str(number)

    def post(self) -> None:
        """Send what was collected."""
        self._reset_if_forked()
        with self._lock:
            entries, self._entries = self._entries, []
            self._posted = time.monotonic()
            if entries:
                job = self._sender.send_json("/run", self._facts | {"log": entries})
                self._sent = [*self._unfinished(), (job, _count(entries))]

    def waiting(self) -> int:
        """Return how many values the server has not received."""
        self._reset_if_forked()
        with self._lock:
            return _count(self._entries) + sum(count for _, count in self._unfinished())

    def _unfinished(self) -> list[tuple[Job, int]]:
        return [each for each in self._sent if each[0].state == "waiting"]


def _count(entries: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(entry["values"]) for entry in entries)


def check_facts(config: Any, tags: Any) -> dict[str, Any]:
    """Return the configuration and the tags of a run as JSON values, without what was not given.

    Args:
        config: A dict of JSON values, or None.
        tags: Strings, or None.

    Raises:
        InputError: If they are something else.

    Example:
        >>> check_facts({"lr": 0.1, "seed": 3}, ["baseline"])
        {'config': {'lr': 0.1, 'seed': 3}, 'tags': ['baseline']}
    """
    facts: dict[str, Any] = {}
    if config is not None:
        if not isinstance(config, Mapping):
            raise InputError(
                "config must be a dict such as {'lr': 0.1, 'seed': 3}, got a "
                f"{type(config).__name__}. Of an argparse.Namespace, write config=vars(arguments)."
            )
        for name, value in config.items():
            _check_json(name, value)
        facts["config"] = dict(config)
    if tags is not None:
        facts["tags"] = check_tags(tags)
    return facts


def check_tags(tags: Any) -> list[str]:
    """Return tags as a list; raises InputError unless they are non-empty strings."""
    is_list = isinstance(tags, Sequence) and not isinstance(tags, str)
    if not is_list or not all(map(is_name, tags)):
        raise InputError(f"tags must be a list of non-empty strings such as ['baseline'], got {tags!r}.")
    return list(tags)


def _check_json(name: Any, value: Any) -> None:
    try:
        if not isinstance(name, str):
            raise TypeError(f"its name is a {type(name).__name__}, not a string")
        json.dumps([name, value], allow_nan=False, ensure_ascii=False).encode()  # no half a surrogate pair
    except (TypeError, ValueError) as error:
        raise InputError(
            f"config must have values that JSON can hold: {name!r} is {value!r:.80}: {error}. Write a "
            "number, a string, a list or a dict."
        ) from None
