"""What waits on the line to a server: requests, and what became of their records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..core.record import Record
from .client import BINARY
from .sent_counts import EpochKey


@dataclass(slots=True, eq=False)
class Job:
    """One request. ``records`` counts those inside; a job without any is a message: kept until the server
    has it, or a newer one takes its place. ``answers`` counts the tries that the server answered; ``spans``
    are the epochs of its records, ``said`` what it tells of them. ``state`` becomes ``"sent"``, ``"failed"``
    or ``"dropped"``."""

    path: str
    body: Callable[[], bytes]
    content: str = BINARY
    nbytes: int = 0
    records: int = 0
    answers: int = 0
    topic: str = ""
    state: str = "waiting"
    spans: list[EpochKey] = field(default_factory=list)
    said: list[dict[str, Any]] | None = None

    def is_replaced_by(self, other: Job) -> bool:
        """Whether ``other`` says anew what this message says."""
        return not self.records and bool(other.topic) and (self.path, self.topic) == (other.path, other.topic)


@dataclass(slots=True)
class Counts:
    """Records so far: acknowledged by the server, dropped for want of room or of a server, refused by the
    server or impossible to encode, and still on their way."""

    sent: int = 0
    dropped: int = 0
    failed: int = 0
    waiting: int = 0


@dataclass(slots=True)
class OpenRequest:
    """The batch that records are joining."""

    records: list[Record] = field(default_factory=list)
    nbytes: int = 0
