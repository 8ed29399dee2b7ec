"""The requests in the queue to a server, and the counts of their records."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from ..core.record import LateRecord, Record
from .client import BINARY
from .sent_counts import EpochKey


@dataclass(slots=True, eq=False)
class Job:
    """A request. Without records it is a message, kept until the server has it or a newer one replaces it.

    Attributes:
        path: The path of the request.
        body: Returns its body.
        content: The content type.
        nbytes: The room it takes in the queue, in bytes.
        records: The number of records in it.
        answers: The number of attempts that the server answered.
        topic: Messages with the same path and topic replace each other; ``""`` for none.
        state: ``"waiting"``, then ``"sent"``, ``"failed"`` or ``"dropped"``.
        epochs: The epochs of its records.
        epoch_counts: The counts of epochs that it reports, set at the first attempt.
    """

    path: str
    body: Callable[[], bytes | memoryview]
    content: str = BINARY
    nbytes: int = 0
    records: int = 0
    answers: int = 0
    topic: str = ""
    state: str = "waiting"
    epochs: list[EpochKey] = field(default_factory=list)
    epoch_counts: list[dict[str, Any]] | None = None

    def is_replaced_by(self, other: Job) -> bool:
        """Return whether ``other`` is a newer version of this message."""
        return not self.records and bool(other.topic) and (self.path, self.topic) == (other.path, other.topic)


@dataclass(slots=True)
class Counts:
    """The number of records so far.

    Attributes:
        sent: Acknowledged by the server.
        dropped: Dropped because the queue was full or there was no server.
        failed: Refused by the server, or impossible to encode.
        waiting: In the queue.
    """

    sent: int = 0
    dropped: int = 0
    failed: int = 0
    waiting: int = 0


@dataclass(slots=True)
class OpenRequest:
    """The request that records are added to.

    Attributes:
        records: The records so far.
        nbytes: The room reserved for them, in bytes.
        by_contents: The records of tensors whose contents may come again.
    """

    records: list[Record | LateRecord] = field(default_factory=list)
    nbytes: int = 0
    by_contents: dict[Hashable, list[Record | LateRecord]] = field(default_factory=dict)
