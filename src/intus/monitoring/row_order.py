"""Whether rows without ids may be known by their order of arrival. Never a guess: where the data do not come
in the same order in every epoch, or only some of them come, their rows get ids that no label has.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .warn_once import WarningLog

_ADVICE = (
    "Labels by order of arrival then belong to no row. Say which rows come (Probe.items = ids), or let the "
    "probe run a probe_set."
)
_MOVED = "intus: epoch %s of %s (%s) does not begin with the batch that epoch %s began with: the data are "
_MOVED += "shuffled, or changed at random. " + _ADVICE
_DRAWN = "intus: the rows of %s come in random order: %s. " + _ADVICE
_UNKNOWN = "intus: the rows of %s cannot be told by their order of arrival: %s. " + _ADVICE
_SILENT = "its framework does not tell whether epochs begin alike"


class Order:
    """What is known of the order in which one model's rows arrive."""

    def __init__(self, name: str, troubles: WarningLog) -> None:
        self._name, self._troubles = name, troubles
        self._first: dict[str, tuple[float, bytes | str | None]] = {}
        self._moved: set[str] = set()
        self._part: tuple[float, str] | None = None
        self._count = 0

    def is_new(self, epoch: float, mode: str) -> bool:
        """Whether the pass is the first of its epoch in its mode."""
        new, self._part = (epoch, mode) != self._part, (epoch, mode)
        return new

    def on_forward_start(
        self, epoch: float, mode: str, first: bytes | str | None, shuffled: Callable[[], str | None]
    ) -> None:
        """Note the batch that an epoch begins with.

        Args:
            epoch: The epoch.
            mode: The mode of its passes.
            first: What ``Backend.order`` tells of the batch.
            shuffled: ``Backend.shuffled``, asked in the first epoch; from then on the batch tells.
        """
        drawn = shuffled() if mode not in self._first else None
        began, before = self._first.setdefault(mode, (epoch, first))
        if drawn is not None:
            self._moved.add(mode)
            self._troubles.say(_DRAWN, self._name, drawn)
            return
        if not isinstance(first, bytes):
            self._moved.add(mode)
            self._troubles.say(_UNKNOWN, self._name, first or _SILENT)
        elif first != before:
            self._moved.add(mode)
            self._troubles.say(_MOVED, f"{epoch:g}", self._name, mode, f"{began:g}")

    def holds(self, mode: str) -> bool:
        """Whether rows of that mode are known by their order of arrival."""
        return mode not in self._moved

    def unknown(self, rows: int) -> np.ndarray:
        """Ids for rows that nobody knows: below zero, each once."""
        self._count += rows
        return np.arange(-self._count, rows - self._count)
