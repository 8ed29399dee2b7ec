"""The ledger of a run: what became of every array that its clients sent.

Two sums hold at every moment::

    sent = under_way + unknown + refused + kept
    kept = waiting + scored + failed + lost
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: The counts of a run that its snapshots in the journal contain, so that they survive a restart.
STORED = "sent", "unknown", "refused", "kept", "scored", "failed", "lost", "dropped"
#: Seconds after which scoring counts half in the measured rate.
HALF_LIFE_S = 20.0
#: Seconds of scoring before its rate is known.
LEAST_S = 1.0


def continued(counts: Mapping[str, int], waiting: int) -> dict[str, int]:
    """Return the counts of a run that change when a server continues from its journal.

    What was kept and is not there was acknowledged and will not be scored. Older versions left arrays in
    their journals that they had refused, counted as scored, or did not count: these are scored now.

    Args:
        counts: The counts of the last snapshot and the requests after it.
        waiting: Number of arrays that the journal has.

    >>> continued({"sent": 9, "refused": 0, "kept": 9, "scored": 2, "failed": 1}, waiting=5)["lost"]
    1
    >>> continued({"sent": 9, "refused": 4, "kept": 5, "scored": 0, "failed": 0}, waiting=8)
    {'sent': 9, 'refused': 1, 'kept': 8, 'scored': 0, 'failed': 0, 'lost': 0}
    """
    sent, refused, kept, scored, failed = (
        counts[name] for name in ("sent", "refused", "kept", "scored", "failed")
    )
    excess = scored + failed + waiting - kept
    lost, excess = max(-excess, 0), max(excess, 0)
    taken = min(excess, refused)
    again = min(excess - taken, scored)
    failed_again = min(excess - taken - again, failed)
    uncounted = excess - taken - again - failed_again
    return {
        "sent": sent + uncounted,
        "refused": refused - taken,
        "kept": kept + taken + uncounted,
        "scored": scored - again,
        "failed": failed - failed_again,
        "lost": lost,
    }


@dataclass(slots=True)
class Tally:
    """Progress of the arrays of one data point, in order of arrival.

    Attributes:
        arrived: Number of arrays that arrived.
        handed: Number of the first ones that were passed on to be scored.
        scored: Number of the first ones that have scores.
        failed: Number of the first ones that could not be scored, of which some may have scores since.

    >>> tally = Tally(arrived=5, handed=5)
    >>> tally.settle(3, scored=True), tally.settle(5, scored=False)
    ((3, 0), (0, 2))
    >>> tally.settle(5, scored=True)  # scored again, with another array
    (2, -2)
    """

    arrived: int = 0
    handed: int = 0
    scored: int = 0
    failed: int = 0

    def settle(self, first: int, *, scored: bool) -> tuple[int, int]:
        """Note the outcome for the first arrays, and return by how much (scored, failed) changed."""
        before = self.outcome
        if scored:
            self.scored = max(self.scored, first)
        else:
            self.failed = max(self.failed, first)
        after = self.outcome
        return after[0] - before[0], after[1] - before[1]

    def drop(self) -> int:
        """Take back what was not passed on, and return how much that is."""
        lost, self.arrived = self.arrived - self.handed, self.handed
        return lost

    @property
    def waiting(self) -> int:
        """Number of arrays that wait to be scored."""
        return self.arrived - max(self.scored, self.failed)

    @property
    def outcome(self) -> tuple[int, int]:
        """Number of arrays that have scores, and of those that could not be scored."""
        return self.scored, max(self.failed - self.scored, 0)


class ScoringRate:
    """The rate of scoring, in data points per second of the time in which some waited.

    >>> rate = ScoringRate()
    >>> for second in range(5):
    ...     rate.note(second, waiting=10, done=3)
    >>> round(rate.per_second(4.0))
    3
    """

    def __init__(self) -> None:
        self._done = self._busy = 0.0
        self._since: float | None = None  # since when data points wait without one being done

    def note(self, now: float, *, waiting: int, done: int = 0) -> None:
        """Note that ``done`` data points were scored until ``now``, and how many still wait."""
        if self._since is not None:
            elapsed = max(now - self._since, 0.0)
            kept = 0.5 ** (elapsed / HALF_LIFE_S)
            self._done, self._busy = self._done * kept + done, self._busy * kept + elapsed
        self._since = now if waiting else None

    def per_second(self, now: float) -> float | None:
        """Return the rate; None until it is known."""
        busy = self._busy + (max(now - self._since, 0.0) if self._since is not None else 0.0)
        return self._done / busy if busy >= LEAST_S and self._done else None


def seconds_left(queued: Sequence[int], rate: float | None) -> list[float | None]:
    """Return when each run's queued data points are scored, if all runs take turns.

    Args:
        queued: The number of each run.
        rate: Data points per second; None if it is not known.

    Returns:
        Seconds for each run, rounded up; None if that is not known.

    >>> seconds_left([1, 5, 0], 2.0)
    [1.0, 3.0, 0.0]
    >>> seconds_left([1, 0], None)
    [None, 0.0]
    """
    ordered, before, after = sorted(queued), 0, {}
    for place, own in enumerate(ordered):  # runs with less are done; those with more had as many turns
        after[own] = before + own * (len(ordered) - place)
        before += own
    return [0.0 if not own else None if not rate else float(math.ceil(after[own] / rate)) for own in queued]
