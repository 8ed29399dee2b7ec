"""What was sent and dropped of each epoch, for the server to know when it has all. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

#: Epochs of a (run, model) that are remembered once the server knows that they ended.
REMEMBERED = 4


class EpochKey(NamedTuple):
    """One epoch of one (run, model)."""

    run: str
    model: str
    epoch: float | None


@dataclass(slots=True)
class EpochCounts:
    """Of one epoch so far: records put on their way, records dropped, and whether there will be more."""

    sent: int = 0
    dropped: int = 0
    ended: bool = False
    left: bool = False
    told: tuple[int, int, bool, bool] = (0, 0, False, False)

    @property
    def now(self) -> tuple[int, int, bool, bool]:
        """What there is to tell."""
        return self.sent, self.dropped, self.ended, self.left


class SentCounts:
    """The tallies of all that a process sends to one server.

    >>> tallies = SentCounts()
    >>> span = EpochKey("r", "m", 0)
    >>> tallies.sent(span), tallies.end(span)
    (None, None)
    >>> tallies.news()
    [{'run': 'r', 'model': 'm', 'epoch': 0, 'sent': 1, 'dropped': 0, 'ended': True, 'left': False}]
    """

    def __init__(self) -> None:
        self._of: dict[EpochKey, EpochCounts] = {}

    def sent(self, span: EpochKey) -> None:
        """A record joined a batch."""
        self._at(span).sent += 1

    def dropped(self, span: EpochKey) -> None:
        """A record was dropped."""
        self._at(span).dropped += 1

    def lost(self, span: EpochKey) -> None:
        """A record that was on its way will not arrive."""
        tally = self._at(span)
        tally.sent, tally.dropped = max(tally.sent - 1, 0), tally.dropped + 1

    def begin(self, span: EpochKey) -> None:
        """An epoch begins. Where it ended before, the training goes back: all is counted anew from there."""
        tally = self._of.get(span)
        if tally is not None and tally.ended:
            for other in [other for other in self._of if other[:2] == span[:2] and not _before(other, span)]:
                del self._of[other]

    def end(self, span: EpochKey) -> None:
        """No more records of an epoch are expected."""
        if span in self._of:
            self._of[span].ended = True

    def leave(self, run: str | None = None, model: str | None = None) -> None:
        """No more records of a (run, model), or of any, are expected."""
        for span, tally in self._of.items():
            if run in (None, span.run) and model in (None, span.model):
                tally.ended = tally.left = True

    def news(self, spans: set[EpochKey] | None = None) -> list[dict[str, Any]]:
        """What to tell the server, as JSON: of these epochs, and of all where something changed."""
        return [
            span._asdict() | dict(zip(("sent", "dropped", "ended", "left"), tally.now, strict=True))
            for span, tally in self._of.items()
            if tally.now != tally.told or (spans is not None and span in spans)
        ]

    def leaving(self) -> bool:
        """Whether the server has yet to hear that a (run, model) is left."""
        return any(tally.left and tally.now != tally.told for tally in self._of.values())

    def told(self, news: list[dict[str, Any]]) -> None:
        """The server knows this now."""
        for row in news:
            span = EpochKey(row["run"], row["model"], row["epoch"])
            if span in self._of:
                self._of[span].told = (row["sent"], row["dropped"], row["ended"], row["left"])
        self._prune()

    def _at(self, span: EpochKey) -> EpochCounts:
        if span not in self._of:
            self._of[span] = EpochCounts()
        return self._of[span]

    def _prune(self) -> None:
        done: dict[tuple[str, str], list[EpochKey]] = {}
        for span, tally in self._of.items():
            if tally.ended and tally.now == tally.told:
                done.setdefault(span[:2], []).append(span)
        for spans in done.values():
            for span in spans[:-REMEMBERED]:
                del self._of[span]


def _before(one: EpochKey, other: EpochKey) -> bool:
    return (one.epoch or 0) < (other.epoch or 0)
