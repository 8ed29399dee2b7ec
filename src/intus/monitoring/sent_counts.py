"""Count the records sent and dropped of each epoch, so that the server knows when an epoch is complete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

#: The number of epochs of a (run, model) that are kept after the server has acknowledged their end.
REMEMBERED = 4


class EpochKey(NamedTuple):
    """One epoch of one (run, model).

    Attributes:
        run: The run.
        model: The model.
        epoch: The epoch, or None.
    """

    run: str
    model: str
    epoch: float | None


@dataclass(slots=True)
class EpochCounts:
    """The counts of one epoch so far.

    Attributes:
        sent: Records added to requests.
        dropped: Records dropped.
        ended: Whether the epoch has ended.
        left: Whether the model is no longer recorded.
        acknowledged: The last (sent, dropped, ended, left) that the server has received.
    """

    sent: int = 0
    dropped: int = 0
    ended: bool = False
    left: bool = False
    acknowledged: tuple[int, int, bool, bool] = (0, 0, False, False)

    @property
    def current(self) -> tuple[int, int, bool, bool]:
        """The current (sent, dropped, ended, left)."""
        return self.sent, self.dropped, self.ended, self.left


class SentCounts:
    """The counts of everything that a process sends to one server. It is pure.

    Example:
        >>> counts = SentCounts()
        >>> key = EpochKey("r", "m", 0)
        >>> counts.sent(key), counts.end(key)
        (None, None)
        >>> counts.unacknowledged()
        [{'run': 'r', 'model': 'm', 'epoch': 0, 'sent': 1, 'dropped': 0, 'ended': True, 'left': False}]
    """

    def __init__(self) -> None:
        self._counts: dict[EpochKey, EpochCounts] = {}

    def sent(self, key: EpochKey) -> None:
        """Count a record that was added to a request."""
        self._counts_of(key).sent += 1

    def dropped(self, key: EpochKey) -> None:
        """Count a record that was dropped."""
        self._counts_of(key).dropped += 1

    def lost(self, key: EpochKey) -> None:
        """Count a record as dropped that was added to a request but will not arrive."""
        counts = self._counts_of(key)
        counts.sent, counts.dropped = max(counts.sent - 1, 0), counts.dropped + 1

    def begin(self, key: EpochKey) -> None:
        """Register the start of an epoch.

        If it ended before, the training went back: the counts of this and later epochs restart.
        """
        counts = self._counts.get(key)
        if counts is not None and counts.ended:
            for other in [
                other for other in self._counts if other[:2] == key[:2] and not _before(other, key)
            ]:
                del self._counts[other]

    def end(self, key: EpochKey) -> None:
        """Register the end of an epoch."""
        if key in self._counts:
            self._counts[key].ended = True

    def close(self, run: str | None = None, model: str | None = None) -> None:
        """Register that a (run, model), or everything, is no longer recorded."""
        for key, counts in self._counts.items():
            if run in (None, key.run) and model in (None, key.model):
                counts.ended = counts.left = True

    def unacknowledged(self, keys: set[EpochKey] | None = None) -> list[dict[str, Any]]:
        """Return the counts to report to the server, as JSON-serializable dicts.

        Args:
            keys: Epochs to include in any case, besides those with changed counts.
        """
        return [
            key._asdict() | dict(zip(("sent", "dropped", "ended", "left"), counts.current, strict=True))
            for key, counts in self._counts.items()
            if counts.current != counts.acknowledged or (keys is not None and key in keys)
        ]

    def has_unacknowledged_close(self) -> bool:
        """Return whether the server has not yet received that a (run, model) is closed."""
        return any(counts.left and counts.current != counts.acknowledged for counts in self._counts.values())

    def acknowledge(self, reported: list[dict[str, Any]]) -> None:
        """Register that the server has received these counts."""
        for row in reported:
            key = EpochKey(row["run"], row["model"], row["epoch"])
            if key in self._counts:
                self._counts[key].acknowledged = (row["sent"], row["dropped"], row["ended"], row["left"])
        self._prune()

    def _counts_of(self, key: EpochKey) -> EpochCounts:
        if key not in self._counts:
            self._counts[key] = EpochCounts()
        return self._counts[key]

    def _prune(self) -> None:
        done: dict[tuple[str, str], list[EpochKey]] = {}
        for key, counts in self._counts.items():
            if counts.ended and counts.current == counts.acknowledged:
                done.setdefault(key[:2], []).append(key)
        for keys in done.values():
            for key in keys[:-REMEMBERED]:
                del self._counts[key]


def _before(one: EpochKey, other: EpochKey) -> bool:
    return (one.epoch or 0) < (other.epoch or 0)
