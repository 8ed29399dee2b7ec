"""What watching may cost: which passes are watched, and how many of their rows. Pure: callers have clocks.

Watching earns ``share`` of the time that goes by and pays what it took, so its part of a long training is
bounded whatever the model: of the time on the wall and of the processors' time, for where others use the
machine too, these are not the same. A small account is full at the start: a short training is watched whole.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..core.errors import InputError

SHARE = 0.02
#: Seconds of watching that are free at the start, and the most that is ever saved up.
FREE_S = 1.0
#: Passes should be watched at least this often; where that is too dear, fewer of their rows are.
EVERY = 20
#: The most bytes that one pass should send, and the fewest rows that are taken for cost alone.
PASS_BYTES, ROWS = 64 << 20, 16


class Seconds(NamedTuple):
    """On the wall, and of the processors: of one thread, or of the process with all its threads."""

    wall: float
    processor: float


class _Account:
    """Of one clock."""

    __slots__ = ("at", "paid", "saved", "step")

    def __init__(self) -> None:
        self.saved, self.at = FREE_S, math.nan
        self.paid = 0.0  # for the pass watched last
        self.step = math.nan  # between two passes, the shortest of late

    def earn(self, now: float, share: float, *, timed: bool) -> None:
        gone = now - self.at if self.at == self.at else 0.0
        if timed:
            self.step = min(gone, self.step * 1.1) if self.step == self.step else gone
        self.at, self.saved = now, min(self.saved + gone * share, FREE_S)

    def part(self, share: float) -> float:
        """How much of what was paid may be paid as often as passes should be watched; 1 where all."""
        earned = EVERY * share * self.step
        return earned / self.paid if self.saved < 0 and self.paid > earned else 1.0


class Budget:
    """The accounts of one probe. ``rows`` is how many rows of a batch are within it, None for all;
    ``skipped`` counts the passes that were not watched.

    >>> budget = Budget(0.05)
    >>> budget.allows(Seconds(0, 0), "epoch 0"), budget.pay(Seconds(2, 2))
    (True, None)
    >>> budget.allows(Seconds(1, 1), "epoch 0"), budget.allows(Seconds(30, 5), "epoch 0")
    (False, False)
    >>> budget.allows(Seconds(60, 30), "epoch 0")  # 29 s later on either clock, 1.45 s have been earned
    True
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.rows: int | None = None
        self.skipped = 0
        self._accounts = _Account(), _Account()
        self._part: Any = None
        self._apart = 0  # passes since the one watched last

    def allows(self, now: Seconds, part: Any) -> bool:
        """Whether the pass that begins at ``now`` is watched. The first of each ``part``, an epoch say, may
        be watched on credit, so that none stays empty."""
        fresh, self._part = part != self._part, part
        for account, at in zip(self._accounts, now, strict=True):
            account.earn(at, self.share, timed=self._apart > 0)
        if min(account.saved for account in self._accounts) < (-FREE_S if fresh else 0.0):
            self.skipped += 1
            self._apart += 1
            return False
        self._apart = 1
        for account in self._accounts:
            account.paid = 0.0
        return True

    def pay(self, taken: Seconds) -> None:
        """Watching took so long."""
        if self.share < math.inf:
            for account, seconds in zip(self._accounts, taken, strict=True):
                account.saved -= seconds
                account.paid += seconds

    def passed(self, nbytes: int, rows: int) -> None:
        """The pass that was watched held ``nbytes`` in ``rows`` rows: how many will do for the next?"""
        if self.share == math.inf or not rows or not nbytes:
            return
        fit = PASS_BYTES * rows // nbytes
        part = min(account.part(self.share) for account in self._accounts)
        if part < 1:
            fit = min(fit, max(int(rows * part), ROWS))
        elif self.rows is not None:
            fit = min(fit, 2 * self.rows)
        self.rows = max(fit, 1)


def check_share(value: Any, *, block: bool) -> float:
    """The share of the time that the caller wrote; None is the default, with ``block`` no bound.

    >>> check_share(None, block=False), check_share(0.01, block=False), check_share(None, block=True)
    (0.02, 0.01, inf)
    """
    if value is None:
        return math.inf if block else SHARE
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InputError(
            f"budget={value!r} is not a share of the time. Write 0.05 for 5 %, or math.inf for no bound."
        )
    return float(value)
