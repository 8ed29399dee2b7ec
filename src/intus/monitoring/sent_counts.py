"""Count the records sent and dropped of each epoch, so that the server knows when an epoch is complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: Most reasons for dropped records that are reported of an epoch.
MOST_REASONS = 3
#: The number of epochs of a (run, model) that are kept after the server has acknowledged their end.
REMEMBERED = 4


class EpochKey(NamedTuple):
    """One epoch of one (run, model).

    Attributes:
        run: The run.
        model: The model.
        epoch: The epoch, or None.
        training: How many trainings this process began before under the same names.
    """

    run: str
    model: str
    epoch: float | None
    training: int = 0


@dataclass(slots=True)
class EpochCounts:
    """The counts of one epoch so far.

    Attributes:
        sent: Records added to requests.
        dropped: Records dropped.
        failed: Records that could not be made.
        delivered: Records that a server has accepted.
        ended: Whether the epoch has ended.
        left: Whether the model is no longer recorded.
        whole: Records of the epoch when the training last said that these are all so far; 0 before.
        idle: The layers that ``when`` declined, once the epoch has ended.
        reasons: Why records were dropped.
        notes: The notes for the page that the server has not received.
        acknowledged: The last ``current`` that the server has received.
    """

    sent: int = 0
    dropped: int = 0
    failed: int = 0
    delivered: int = 0
    ended: bool = False
    left: bool = False
    whole: int = 0
    idle: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    acknowledged: tuple[int, int, int, bool, bool, int] = (0, 0, 0, False, False, 0)

    @property
    def current(self) -> tuple[int, int, int, bool, bool, int]:
        """The current (sent, dropped, failed, ended, left, whole)."""
        return self.sent, self.dropped, self.failed, self.ended, self.left, self.whole

    @property
    def has_news(self) -> bool:
        """True if the server has not received all of it."""
        return self.current != self.acknowledged or bool(self.notes)

    def row(self) -> dict[str, Any]:
        """Return the report, as a JSON-serializable dict."""
        counts: dict[str, Any] = dict(zip(_FIELDS, self.current, strict=True))
        told = {"idle": self.idle, "reasons": list(self.reasons), "notes": list(self.notes)}
        return counts | {"delivered": self.delivered} | told


_FIELDS = "sent", "dropped", "failed", "ended", "left", "whole"


class SentCounts:
    """The counts of everything that a process sends to one server. It is pure.

    Attributes:
        jobs: The name that the processes of a training share, by (run, model).

    Example:
        >>> counts = SentCounts()
        >>> key = EpochKey("r", "m", 0)
        >>> counts.sent(key), counts.end(key)
        (None, None)
        >>> [row] = counts.unacknowledged()
        >>> row["run"], row["model"], row["epoch"], row["sent"], row["ended"]
        ('r', 'm', 0, 1, True)
    """

    def __init__(self) -> None:
        self.jobs: dict[tuple[str, str], str] = {}
        self._counts: dict[EpochKey, EpochCounts] = {}
        self._totals: Counter[tuple[str, str, int]] = Counter()  # records sent of each training, all epochs
        self._trainings: Counter[tuple[str, str]] = Counter()  # the number of the present one
        self._known: set[tuple[str, str]] = set()  # of which something was counted in the present training
        self._arrived: set[tuple[str, str]] = set()  # of which a server has accepted records

    def begin_training(self, run: str, model: str) -> bool:
        """Count anew what is recorded of a (run, model), as of another training; return whether it is one.

        It is the same training if nothing was counted yet.
        """
        begins = (run, model) in self._known
        if begins:
            self.close(run, model)
            self._known.remove((run, model))
            self._trainings[run, model] += 1
        return begins

    def current(self, key: EpochKey) -> EpochKey:
        """Return the key of an epoch in the present training."""
        return key._replace(training=self._trainings[key[:2]])

    def sent(self, key: EpochKey) -> None:
        """Count a record that was added to a request."""
        self._counts_of(self.current(key)).sent += 1
        self._totals[(*key[:2], self._trainings[key[:2]])] += 1

    def delivered(self, key: EpochKey) -> None:
        """Count a record that a server has accepted.

        Args:
            key: Its epoch, as ``current`` returned it when the record was added to a request.
        """
        self._arrived.add(key[:2])
        if key in self._counts:
            self._counts[key].delivered += 1

    def dropped(self, key: EpochKey, why: str = "") -> None:
        """Count a record that was dropped, and note why."""
        self._drop(self._counts_of(self.current(key)), why)

    @staticmethod
    def _drop(counts: EpochCounts, why: str) -> None:
        counts.dropped += 1
        if why and why not in counts.reasons and len(counts.reasons) < MOST_REASONS:
            counts.reasons.append(why[:500])

    def failed(self, key: EpochKey) -> None:
        """Count a record that could not be made."""
        self._counts_of(self.current(key)).failed += 1

    def tell(self, key: EpochKey, notes: list[dict[str, Any]]) -> None:
        """Add notes to the report of an epoch: each a dict of ``code``, ``text`` and ``level``."""
        self._counts_of(self.current(key)).notes += notes

    def lost(self, key: EpochKey, why: str = "") -> None:
        """Count a record as dropped that was added to a request but will not arrive.

        Args:
            key: Its epoch, as ``current`` returned it then.
            why: The reason.
        """
        counts = self._counts_of(key)
        counts.sent = max(counts.sent - 1, 0)
        self._drop(counts, why)
        self._totals[key.run, key.model, key.training] -= 1

    def begin(self, key: EpochKey) -> bool:
        """Register the start of an epoch; return whether it is of another training.

        If it ended before, the training went back, and another one begins.
        """
        counts = self._counts.get(self.current(key))
        return counts is not None and counts.ended and self.begin_training(key.run, key.model)

    def end(self, key: EpochKey, idle: Iterable[str] = ()) -> None:
        """Register the end of an epoch, and the layers that were not to be recorded in it."""
        if (key := self.current(key)) in self._counts:
            self._counts[key].ended, self._counts[key].idle = True, sorted(idle)

    def whole(self, key: EpochKey) -> None:
        """Register that an epoch is whole if nothing more of it is sent, although it has not ended."""
        if (key := self.current(key)) in self._counts:
            self._counts[key].whole = self._counts[key].sent

    def close(self, run: str | None = None, model: str | None = None) -> None:
        """Register that a (run, model), or everything, is no longer recorded."""
        for key, counts in self._counts.items():
            if run in (None, key.run) and model in (None, key.model):
                counts.ended = counts.left = True

    def unacknowledged(self, keys: set[EpochKey] | None = None) -> list[dict[str, Any]]:
        """Return the counts to report to the server, as JSON-serializable dicts.

        The newest training that they name of a (run, model) is that of its records in the request.

        Args:
            keys: Epochs of the request's records, to include in any case besides those with changed counts.
                A (run, model) that the server does not know yet waits for its own first records, without
                which its notes would have no place, or its end if it has none. None for the counts of all.
        """
        newest = {key[:2]: key.training for key in keys or ()}
        return [
            key._asdict() | counts.row() | {"total": self._total(key), "job": self.jobs.get(key[:2], "")}
            for key, counts in self._counts.items()
            if (counts.has_news or (keys is not None and key in keys))
            and (keys is None or key[:2] in newest or self._has_place(key, counts))
            and key.training <= newest.get(key[:2], key.training)
        ]

    def _has_place(self, key: EpochKey, counts: EpochCounts) -> bool:
        """Return whether the server knows a (run, model), or will know of no records of it."""
        return key[:2] in self._arrived or (counts.left and not self._total(key))

    def _total(self, key: EpochKey) -> int:
        """Return the number of records sent of a (run, model) up to this training."""
        return sum(self._totals[key.run, key.model, number] for number in range(key.training + 1))

    def has_notes(self) -> bool:
        """Return whether there are notes that the server has not received."""
        return any(counts.notes for counts in self._counts.values())

    def has_unacknowledged_close(self) -> bool:
        """Return whether the server has not yet received that a (run, model) is closed."""
        return any(counts.left and counts.current != counts.acknowledged for counts in self._counts.values())

    def acknowledge(self, reported: list[dict[str, Any]]) -> None:
        """Register that the server has received these counts."""
        for row in reported:
            key = EpochKey(row["run"], row["model"], row["epoch"], row["training"])
            if (counts := self._counts.get(key)) is not None:
                counts.acknowledged = tuple(row[name] for name in _FIELDS)
                del counts.notes[: len(row["notes"])]
        self._prune()

    def _counts_of(self, key: EpochKey) -> EpochCounts:
        if key not in self._counts:
            self._counts[key] = EpochCounts()
            self._known.add(key[:2])
        return self._counts[key]

    def _prune(self) -> None:
        done: dict[tuple[str, str], list[EpochKey]] = {}
        for key, counts in self._counts.items():
            if counts.ended and not counts.has_news:
                done.setdefault(key[:2], []).append(key)
        for keys in done.values():
            for key in keys[:-REMEMBERED]:
                del self._counts[key]
