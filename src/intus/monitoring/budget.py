"""Bound the cost of monitoring: which passes are recorded, and how many of their rows.

Monitoring earns a share of the elapsed time and pays for the time it took, so that its share of a long
training is bounded for every model. Two accounts bound the wall-clock time and the processor time, which
differ if the machine is shared. The accounts start with a small credit: a short training is recorded
completely. This module is pure; callers read the clocks.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..core.errors import InputError

SHARE = 0.02
#: Seconds of monitoring that are free at the start, and the most that an account can save.
FREE_S = 1.0
#: At least every EVERY-th pass should be recorded; if that costs too much, fewer of its rows are.
EVERY = 20
#: The most bytes that one pass should send, and the smallest number of rows chosen for cost alone.
PASS_BYTES, ROWS = 64 << 20, 16


class Seconds(NamedTuple):
    """A duration or a time.

    Attributes:
        wall: Wall-clock seconds.
        processor: Processor seconds, of one thread or of the whole process.
    """

    wall: float
    processor: float


class _Account:
    """The account of one clock.

    Attributes:
        at: The time of the last update; NaN before the first.
        paid: Seconds paid for the last recorded pass.
        saved: Seconds saved; negative if in debt.
        step: The recent minimum of the time between two passes; NaN if unknown.
    """

    __slots__ = ("at", "paid", "saved", "step")

    def __init__(self) -> None:
        self.saved, self.at = FREE_S, math.nan
        self.paid = 0.0
        self.step = math.nan

    def earn(self, now: float, share: float, *, timed: bool) -> None:
        """Add the share of the time since the last update; ``timed`` if that is the time of one step."""
        elapsed = now - self.at if self.at == self.at else 0.0
        if timed:
            self.step = min(elapsed, self.step * 1.1) if self.step == self.step else elapsed
        self.at, self.saved = now, min(self.saved + elapsed * share, FREE_S)

    def affordable_fraction(self, share: float) -> float:
        """Return the fraction of the last pass's cost that is affordable if every EVERY-th pass is recorded.

        It is at most 1.
        """
        earned = EVERY * share * self.step
        return earned / self.paid if self.saved < 0 and self.paid > earned else 1.0


class Budget:
    """The accounts of one probe.

    Attributes:
        share: The share of the time that monitoring may take; infinite for no bound.
        rows: The number of rows per batch that the budget affords; None for all.
        skipped: The number of passes that were not recorded.

    Example:
        >>> budget = Budget(0.05)
        >>> budget.allows(Seconds(0, 0), "epoch 0"), budget.pay(Seconds(2, 2))
        (True, None)
        >>> budget.allows(Seconds(1, 1), "epoch 0"), budget.allows(Seconds(30, 5), "epoch 0")
        (False, False)
        >>> budget.allows(Seconds(60, 30), "epoch 0")  # both clocks earned 0.05 * 29 s = 1.45 s since
        True
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.rows: int | None = None
        self.skipped = 0
        self._accounts = _Account(), _Account()
        self._period: Any = None
        self._passes_since = 0  # passes since the last recorded one, this one included

    def allows(self, now: Seconds, period: Any) -> bool:
        """Return whether the pass that begins now is recorded.

        Args:
            now: The current time.
            period: The period it belongs to, such as an epoch. The first pass of each may be recorded on
                credit, so that no period is empty.
        """
        is_first, self._period = period != self._period, period
        for account, at in zip(self._accounts, now, strict=True):
            account.earn(at, self.share, timed=self._passes_since > 0)
        if min(account.saved for account in self._accounts) < (-FREE_S if is_first else 0.0):
            self.skipped += 1
            self._passes_since += 1
            return False
        self._passes_since = 1
        for account in self._accounts:
            account.paid = 0.0
        return True

    def pay(self, spent: Seconds) -> None:
        """Subtract time that monitoring took."""
        if self.share < math.inf:
            for account, seconds in zip(self._accounts, spent, strict=True):
                account.saved -= seconds
                account.paid += seconds

    def adapt_rows(self, nbytes: int, rows: int) -> None:
        """Set ``rows`` for the next pass, from the size of the last recorded one.

        Args:
            nbytes: The bytes that all its rows would have taken.
            rows: Its number of rows.
        """
        if self.share == math.inf or not rows or not nbytes:
            return
        affordable = PASS_BYTES * rows // nbytes
        fraction = min(account.affordable_fraction(self.share) for account in self._accounts)
        if fraction < 1:
            affordable = min(affordable, max(int(rows * fraction), ROWS))
        elif self.rows is not None:
            affordable = min(affordable, 2 * self.rows)
        self.rows = max(affordable, 1)


def check_share(value: Any, *, block: bool) -> float:
    """Validate the ``budget`` of a probe.

    Args:
        value: The caller's value; None for the default.
        block: Whether the probe blocks, so that the default is no bound.

    Returns:
        The share of the time.

    Raises:
        InputError: If it is not a positive number.

    Example:
        >>> check_share(None, block=False), check_share(0.01, block=False), check_share(None, block=True)
        (0.02, 0.01, inf)
    """
    if value is None:
        return math.inf if block else SHARE
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InputError(
            f"budget must be a positive share of the training time, got {value!r}. Write 0.05 for 5 %, or "
            "math.inf for no bound."
        )
    return float(value)
