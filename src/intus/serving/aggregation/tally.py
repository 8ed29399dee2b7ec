"""Who sent what: which requests of a client came, and how much it says it sent of each epoch."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...core.errors import InputError
from ..checks import check_count, check_epoch, check_text

#: Ranges of sequence numbers that are remembered of a client; the gaps below count as seen.
RANGES = 500
#: Of how many (run, model) a role tells the counts, the newest.
COUNTED = 100


class Statement(NamedTuple):
    """What a client says of one epoch: records sent and dropped so far, whether it has ended the epoch, and
    whether it has left the (run, model)."""

    run: str
    model: str
    epoch: float | None
    sent: int = 0
    dropped: int = 0
    ended: bool = False
    left: bool = False


def read_statements(envelope: Mapping[str, Any]) -> list[Statement]:
    """The statements of a request's envelope; raises InputError for what is none.

    >>> read_statements({"epochs": [{"run": "r", "model": "m", "epoch": 0, "sent": 3}]})[0].sent
    3
    """
    rows = envelope.get("epochs", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError("The envelope's epochs must be a list of objects.")
    return [_statement(row) for row in rows]


def _statement(row: Mapping[str, Any]) -> Statement:
    flags = [row.get(name, False) for name in ("ended", "left")]
    if not all(isinstance(flag, bool) for flag in flags):
        raise InputError(f"The envelope's epochs have ended and left, true or false, got {flags}.")
    return Statement(
        check_text(row.get("run"), "A run in the envelope's epochs"),
        check_text(row.get("model"), "A model in the envelope's epochs"),
        check_epoch(row.get("epoch"), "The envelope's epochs"),
        check_count(row.get("sent", 0), "sent in the envelope's epochs"),
        check_count(row.get("dropped", 0), "dropped in the envelope's epochs"),
        *flags,
    )


class Seen:
    """Whole numbers, as ranges.

    >>> seen = Seen()
    >>> [seen.add(number) for number in (1, 3, 2, 3)], seen.ranges
    ([True, True, True, False], [[1, 3]])
    """

    def __init__(self, ranges: Iterable[Iterable[int]] = ()) -> None:
        self.ranges = [list(each) for each in ranges]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.ranges, number, key=lambda each: each[0]) - 1
        return at >= 0 and number <= self.ranges[at][1]

    def add(self, number: int) -> bool:
        """Whether it is new."""
        if number in self:
            return False
        at = bisect_right(self.ranges, number, key=lambda each: each[0])
        self.ranges.insert(at, [number, number])
        for left in (at, at - 1):
            if 0 <= left < len(self.ranges) - 1 and self.ranges[left][1] + 1 == self.ranges[left + 1][0]:
                self.ranges[left : left + 2] = [[self.ranges[left][0], self.ranges[left + 1][1]]]
        if len(self.ranges) > RANGES:
            self.ranges[:2] = [[self.ranges[0][0], self.ranges[1][1]]]
        return True

    @property
    def newest(self) -> int:
        """The largest of them, -1 where there is none."""
        return self.ranges[-1][1] if self.ranges else -1


@dataclass(slots=True)
class Share:
    """One client's part of an epoch: what came, and what the newest of its statements says."""

    received: int = 0
    sent: int = 0
    dropped: int = 0
    ended: bool = False
    seq: int = -1

    @property
    def missing(self) -> int:
        """Records that are still on their way, or lost there."""
        return max(self.sent - self.received, 0)

    @property
    def whole(self) -> bool:
        """Whether all has come."""
        return self.ended and not self.missing


@dataclass(slots=True)
class Member:
    """A client that sends to a (run, model): ``seqs`` are its requests that came, ``heard`` when the last
    did, ``newest`` the newest epoch it has begun, ``states`` whether it says what it sends."""

    seqs: Seen = field(default_factory=Seen)
    heard: float = 0.0
    left: bool = False
    states: bool = False
    newest: float = -math.inf
    dropped: int = 0

    def state(self) -> dict[str, Any]:
        """All of it as JSON."""
        newest = self.newest if math.isfinite(self.newest) else None
        return {
            "seqs": self.seqs.ranges,
            "left": self.left,
            "states": self.states,
            "newest": newest,
            "dropped": self.dropped,
            "heard": self.heard,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Be as ``state`` says, and know what was known before."""
        for low, high in state["seqs"]:
            self.seqs = _joined(self.seqs, low, high)
        self.left, self.states, self.dropped = state["left"], state["states"], state["dropped"]
        self.heard = state["heard"]
        self.newest = -math.inf if state["newest"] is None else state["newest"]


def _joined(seen: Seen, low: int, high: int) -> Seen:
    apart = [each for each in seen.ranges if each[1] < low - 1 or each[0] > high + 1]
    near = [each for each in seen.ranges if not (each[1] < low - 1 or each[0] > high + 1)]
    whole = [min([low, *(each[0] for each in near)]), max([high, *(each[1] for each in near)])]
    return Seen(sorted([*apart, whole]))
