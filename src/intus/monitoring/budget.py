"""What watching may cost: which passes are watched, and how many of their rows. Pure: callers have the clock.

Watching earns ``share`` of the time that goes by and pays what it took, so its part of a long training is
bounded whatever the model. A small account is full at the start: a short training is watched whole.
"""

from __future__ import annotations

import math
from typing import Any

from ..core.errors import InputError

SHARE = 0.05
#: Seconds of watching that are free at the start, and the most that is ever saved up.
FREE_S = 0.5
#: Passes should be watched at least this often; where that is too dear, fewer of their rows are.
EVERY = 20
#: The most bytes that one pass should send, and the fewest rows that are taken for cost alone.
PASS_BYTES, ROWS = 64 << 20, 16


class Budget:
    """The account of one probe. ``rows`` is how many rows of a batch are within it, None for all; ``skipped``
    counts the passes that were not watched.

    >>> budget = Budget(0.05)
    >>> budget.allows(0.0, "epoch 0"), budget.pay(2.0), budget.allows(1.0, "epoch 0")
    (True, None, False)
    >>> budget.allows(30.0, "epoch 0")  # 29 s later, 1.45 s have been earned
    True
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.rows: int | None = None
        self.skipped = 0
        self._saved, self._at = FREE_S, math.nan
        self._part: Any = None
        self._paid = 0.0  # for the pass watched last
        self._apart = 0  # passes since then
        self._step = math.nan  # seconds between two passes, the shortest of late

    def allows(self, now: float, part: Any) -> bool:
        """Whether the pass that begins at ``now`` seconds is watched. The first of each ``part``, an epoch
        say, may be watched on credit, so that none stays empty."""
        gone = now - self._at if self._at == self._at else 0.0
        if self._apart:
            self._step = min(gone, self._step * 1.1) if self._step == self._step else gone
        self._at = now
        self._saved = min(self._saved + gone * self.share, FREE_S)
        fresh, self._part = part != self._part, part
        if self._saved < (-FREE_S if fresh else 0.0):
            self.skipped += 1
            self._apart += 1
            return False
        self._paid, self._apart = 0.0, 1
        return True

    def pay(self, seconds: float) -> None:
        """Watching took so long."""
        if self.share < math.inf:
            self._saved -= seconds
            self._paid += seconds

    def passed(self, nbytes: int, rows: int) -> None:
        """The pass that was watched held ``nbytes`` in ``rows`` rows: how many will do for the next?"""
        if self.share == math.inf or not rows or not nbytes:
            return
        fit = PASS_BYTES * rows // nbytes
        earned = EVERY * self.share * self._step
        if self._saved < 0 and self._paid > earned:  # false too where no step was timed
            fit = min(fit, max(int(rows * earned / self._paid), ROWS))
        elif self.rows is not None:
            fit = min(fit, 2 * self.rows)
        self.rows = max(fit, 1)


def check_share(value: Any, *, block: bool) -> float:
    """The share of the time that the caller wrote; None is the default, with ``block`` no bound.

    >>> check_share(None, block=False), check_share(0.01, block=False), check_share(None, block=True)
    (0.05, 0.01, inf)
    """
    if value is None:
        return math.inf if block else SHARE
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InputError(
            f"budget={value!r} is not a share of the time. Write 0.05 for 5 %, or math.inf for no bound."
        )
    return float(value)
