"""The part that all trackers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol


class Place(NamedTuple):
    """A place to write to, as a user says it: ``"wandb"``, or ``"wandb:my project"``.

    Attributes:
        tracker: The name of the tracker.
        where: The part after the colon; ``""`` if there is none.
    """

    tracker: str
    where: str

    def __str__(self) -> str:
        return f"{self.tracker}:{self.where}" if self.where else self.tracker


class TrackedRun(NamedTuple):
    """A training, as a tracker that begins a run for it describes it.

    Attributes:
        run: The name of the training.
        model: The name of the model.
        config: Its configuration.
        tags: Words to find it by.
    """

    run: str
    model: str
    config: Mapping[str, Any]
    tags: Sequence[str]


class Point(NamedTuple):
    """A number to write.

    Attributes:
        name: Its name, with slashes between the parts.
        axis: What ``x`` counts.
        x: The step, or else the epoch.
        time: When, in seconds since 1970.
        value: The number, which may be NaN or infinite.
    """

    name: str
    axis: Literal["step", "epoch"]
    x: float
    time: float
    value: float


class Tracker(Protocol):
    """Writes to one run of a tracker. It is used by one thread at a time, and may raise anything.

    Attributes:
        run: What identifies the run, among all runs of this tracker in this process.
        has_fractions: Whether ``x`` may be a fraction. If not, it is rounded down.
        takes_log: Whether to write what the user logs with ``Probe.log``.
    """

    run: str
    has_fractions: bool
    takes_log: bool

    def write(self, points: Sequence[Point]) -> None:
        """Write numbers."""

    def tell(self, findings: Sequence[str]) -> None:
        """Write the sentences that hold now, in place of earlier ones."""

    def close(self) -> None:
        """Write what is left, and end the run if it was begun here."""
