"""Bound the cost of monitoring: which passes are recorded, and how many of their rows.

Monitoring earns a share of the elapsed time and pays for the time it took, so that its share of a long
training is bounded for every model. Two accounts bound the wall-clock time and the processor time, which
differ if the machine is shared. The accounts start with a loan, so that a short training is recorded
completely; a long one repays it from a part of what it earns.

Monitoring also takes time that none of its clocks sees: in the threads of a framework, and in training steps
that find their data pushed out of the processor's caches. It is the difference between steps that were
recorded and their neighbors that were not. Until there are such neighbors it is guessed.

This module is pure; callers read the clocks.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

from ..core.errors import InputError

SHARE = 0.02
#: Seconds of monitoring that are lent at the start, and the most that an account saves. Of the wall-clock
#: time it is WALL times as much, for on a busy machine it is mostly spent waiting. With a second,
#: repaid from half of what is earned, a training of a minute would have 2.8 % taken.
FREE_S, WALL = 0.85, 2.0
#: The part of the earned time that repays the loan.
REPAID = 0.6
#: The part of the loan that is kept for the first passes of periods, such as epochs.
RESERVED = 0.25
#: At least every EVERY-th pass should be recorded; if that costs too much, fewer of its rows are.
EVERY = 20
#: The most passes in a row that are skipped without a look at the clocks.
UNCLOCKED = 32
#: The most bytes that one pass should send, and the smallest number of rows chosen for cost alone.
PASS_BYTES, ROWS = 64 << 20, 16
#: The numbers of neighboring steps, and of differences to them, that the unseen cost is estimated from.
NEIGHBORS, DIFFERENCES, LEAST_DIFFERENCES = 16, 31, 8
#: The cost that no clock sees, as long as it is not known: relative to the cost that one sees, but at least
#: this part of the step. So it becomes known.
GUESS, LEAST_GUESS = 1.0, 0.05


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

    Args:
        lent: Seconds that are lent at the start, and the most that are saved.
        guesses: Whether the unseen cost is guessed as long as it is unknown.

    Attributes:
        at: The time of the last update; NaN before the first.
        paid: Seconds paid for the last recorded pass.
        saved: Seconds saved; negative if in debt.
        loan: Seconds still to be repaid.
        step: The recent minimum of the time between two passes; NaN if unknown.
        spent: Seconds paid since the start, unseen ones included.
        unseen: The seconds of a recorded pass that nobody pays for, estimated; NaN if unknown.
    """

    __slots__ = (
        *("at", "loan", "paid", "saved", "spent", "step", "unseen"),
        *("_differences", "_guessed", "_guesses", "_lent", "_neighbors", "_paid_since", "_unpaid_passes"),
    )

    def __init__(self, lent: float, *, guesses: bool) -> None:
        self.saved = self.loan = self._lent = lent
        self._guesses = guesses
        self.at = self.step = self.unseen = math.nan
        self.paid = self.spent = self._paid_since = 0.0
        self._guessed = 0.0  # subtracted for the unseen cost before it was known
        self._unpaid_passes = 0  # recorded before then
        self._neighbors: dict[Any, deque[float]] = {}  # times of steps that were not recorded, by mode
        self._differences: deque[float] = deque(maxlen=DIFFERENCES)

    def pay(self, seconds: float) -> None:
        """Subtract time that monitoring took in the present step."""
        if self._guesses and self.unseen != self.unseen:
            self.saved -= GUESS * seconds
            self._guessed += GUESS * seconds
        self.saved -= seconds
        self.spent += seconds
        self.paid += seconds
        self._paid_since += seconds

    def steps_end(
        self, steps: int, now: float, share: float, mode: Any, *, recorded: bool, comparable: bool
    ) -> None:
        """Earn the share of the time of the steps since the last update, which end now.

        Args:
            steps: Their number; several only if none was recorded.
            now: The current time.
            share: The share of the time.
            mode: The mode of their passes; steps are compared with those of the same mode.
            recorded: Whether the pass was recorded, so that its unseen cost is charged.
            comparable: Whether the time since the last update is that of these steps alone.
        """
        elapsed, self.at = now - self.at, now
        seen, self._paid_since = self._paid_since, 0.0
        rest, step = (elapsed - seen) / steps, elapsed / steps
        if step < self.step * 1.1 or self.step != self.step:
            self.step = step
        else:
            self.step *= 1.1
        earned = elapsed * share
        if self.loan > 0:
            repaid = min(self.loan, earned * REPAID)
            self.loan -= repaid
            earned -= repaid
        self.saved += earned
        if recorded:
            self._charge_unseen(seen, rest, self._neighbors.get(mode, ()) if comparable else ())
        elif comparable:
            neighbors = self._neighbors.get(mode)
            if neighbors is None:
                neighbors = self._neighbors[mode] = deque(maxlen=NEIGHBORS)
            neighbors.append(rest)
        if self.saved > self._lent:
            self.saved = self._lent

    def _charge_unseen(self, seen: float, rest: float, neighbors: Sequence[float]) -> None:
        """Charge what nobody has paid for of a recorded step.

        Args:
            seen: The seconds that were paid for.
            rest: The remaining seconds of the step.
            neighbors: Those of steps that were not recorded.
        """
        self._unpaid_passes += 1
        if len(neighbors) == NEIGHBORS:
            usual = _typical(neighbors, median(neighbors))
            self._differences.append(rest - usual)
            if len(self._differences) >= LEAST_DIFFERENCES:
                self.unseen = max(_typical(self._differences, usual), 0.0)
        if self.unseen == self.unseen:
            charged = self.unseen * self._unpaid_passes
            self.spent += charged
            self._charge_late(charged - self.unseen - self._guessed)  # of passes before it was known
            self.saved -= self.unseen
            self._unpaid_passes, self._guessed = 0, 0.0
        elif self._guesses:
            guess = max(LEAST_GUESS * rest - GUESS * seen, 0.0)
            self.saved -= guess
            self._guessed += guess

    def steps_until(self, saved: float, share: float) -> int:
        """Return a number of steps that are too short to save as much as ``saved``.

        It is half of the estimate, for steps may become longer, and at most ``UNCLOCKED``.
        """
        if not self.step > 0.0:
            return 0
        return int(min((saved - self.saved) / (self.step * share) / 2, UNCLOCKED))

    def seconds_until(self, now: float, share: float) -> float:
        """Return the seconds from now on until there is no debt."""
        if not self.saved < 0.0:
            return 0.0
        repaying = self.loan / (share * REPAID)  # seconds in which only the rest is saved
        saved_then = share * (1 - REPAID) * repaying
        if -self.saved <= saved_then:
            seconds = -self.saved / (share * (1 - REPAID))
        else:
            seconds = repaying + (-self.saved - saved_then) / share
        return max(seconds - (now - self.at), 0.0)

    def pay_once(self, seconds: float) -> None:
        """Subtract time that monitoring took once, such as for a compilation; lend what is not there."""
        self._charge_late(seconds)
        self.spent += seconds
        self._paid_since += seconds

    def _charge_late(self, seconds: float) -> None:
        """Subtract what is owed at once, or give back what was too much; lend what is not there.

        A debt would end all recording until it is earned, which in a training of short epochs are many.
        """
        taken = min(seconds, max(self.saved, 0.0))
        self.saved -= taken
        self.loan += seconds - taken

    def affordable_fraction(self, share: float) -> float:
        """Return the fraction of the last pass's cost that is affordable if every EVERY-th pass is recorded.

        It is at most 1.
        """
        earned = EVERY * share * self.step
        is_short = self.saved < RESERVED * FREE_S
        cost = self.paid + (self.unseen if self.unseen == self.unseen else 0.0)
        return earned / cost if is_short and cost > earned else 1.0


def _typical(values: Sequence[float], spread: float) -> float:
    """Return the mean of values, of which none counts as farther than ``spread`` from the median.

    A pass may cost much more than most others do, which a median would not show; a step in which the training
    writes a checkpoint must not count as such.
    """
    middle = median(values)
    return fmean(min(max(value, middle - spread), middle + spread) for value in values)


class Budget:
    """The accounts of one probe.

    Attributes:
        share: The share of the time that monitoring may take; infinite for no bound.
        rows: The number of rows per batch that the budget affords; None for all.
        skipped: The number of passes that were not recorded.

    Example:
        >>> budget = Budget(0.05)
        >>> budget.allows(Seconds(0, 0), "epoch 0"), budget.pay(Seconds(1, 1))
        (True, None)
        >>> budget.allows(Seconds(2, 2), "epoch 0"), budget.allows(Seconds(40, 25), "epoch 0")
        (False, False)
        >>> budget.allows(Seconds(90, 60), "epoch 0")  # both clocks have earned more than the debt since
        True
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.rows: int | None = None
        self.skipped = 0
        self._accounts = _Account(WALL * FREE_S, guesses=False), _Account(FREE_S, guesses=True)
        self._period: Any = None
        self._mode: Any = None
        self._last_recorded = True  # whether the last pass was recorded
        self._periods: dict[Any, bool] = {}  # whether a pass of each period was recorded
        self._empty = 0  # periods without a recorded pass, the present one included
        self._waiting: list[Any] = []  # modes that had a period without any recorded pass, the earliest first
        self._began: Seconds | None = None  # the time of the first pass
        self._unclocked = 0  # how many more passes can be skipped without a look at the clocks
        self._steps = 1  # since the last look

    @property
    def spent(self) -> Seconds:
        """The time that monitoring took since the start."""
        wall, processor = (account.spent for account in self._accounts)
        return Seconds(wall, processor)

    @property
    def skipped_periods(self) -> int:
        """The number of periods without any recorded pass, the present one not included."""
        return self._empty - (not self._periods.get(self._period, True))

    @property
    def periods(self) -> int:
        """The number of periods."""
        return len(self._periods)

    def end(self) -> None:
        """End the present period."""
        self._period = None

    def skips(self, period: Any, mode: Any = None) -> bool:
        """Return whether the pass that begins now cannot be paid, whatever the clocks show.

        If not, ask ``allows``. To read the clocks of a process takes longer than all else that is done for a
        pass that is not recorded.

        Args:
            period: The period it belongs to; see ``allows``.
            mode: The mode of the pass.
        """
        return period == self._period and mode == self._mode and self.skips_again()

    def skips_again(self) -> bool:
        """Return the same for a pass of the period and the mode of the last one."""
        if not self._unclocked:
            return False
        self.skip(1)
        return True

    @property
    def foreseen(self) -> int:
        """The number of passes that are skipped next, if they are of the period and mode of the last."""
        return self._unclocked

    def skip(self, passes: int) -> None:
        """Count foreseen passes that were skipped."""
        self._unclocked = max(self._unclocked - passes, 0)
        self._steps += passes
        self.skipped += passes

    def allows(self, now: Seconds, period: Any, mode: Any = None) -> bool:
        """Return whether the pass that begins now is recorded.

        Args:
            now: The current time.
            period: The period it belongs to, such as an epoch. A reserve is kept for the first pass of each:
                every period has one if it earns enough for it; if not, every second, third, and so on.
            mode: The mode of the pass, such as training or evaluation. Periods of the modes take turns.
        """
        is_first = period != self._period
        if is_first:
            self._period = period
            if period not in self._periods:
                self._periods[period] = False
                self._empty += 1
        allowed = self.share == math.inf or self._affords(now, mode, is_first)
        self._mode, self._last_recorded = mode, allowed
        if allowed:
            self._empty -= not self._periods[period]
            self._periods[period] = True
        else:
            self.skipped += 1
        return allowed

    def _affords(self, now: Seconds, mode: Any, is_first: bool) -> bool:
        """Update the accounts at the start of a pass, and return whether it can be paid."""
        wall, processor = self._accounts
        if self._began is not None:
            last, recorded, comparable = self._mode, self._last_recorded, mode == self._mode
            for account, at in zip(self._accounts, now, strict=True):
                account.steps_end(self._steps, at, self.share, last, recorded=recorded, comparable=comparable)
        else:
            self._began = now
            wall.at, processor.at = now
        self._steps, self._unclocked = 1, 0
        has_turn = is_first and (not self._waiting or self._waiting[0] == mode)
        if min(wall.saved, processor.saved) < (0.0 if has_turn else RESERVED * FREE_S):
            if is_first and mode not in self._waiting:
                self._waiting.append(mode)
            self._unclocked = max(
                account.steps_until(RESERVED * FREE_S, self.share) for account in self._accounts
            )
            return False
        self._waiting = [one for one in self._waiting[1:] if one != mode]
        wall.paid = processor.paid = 0.0
        return True

    def seconds_until_next(self, now: Seconds) -> float:
        """Return the wall-clock seconds of the training until the first pass of a period can be paid.

        A process that waits, as for a GPU, takes less than a processor second in each, and one of several
        threads more. It is taken to go on as it has since its first pass, without what monitoring took.

        Args:
            now: The current time.
        """
        if self.share == math.inf or self._began is None:
            return 0.0
        wall, processor = (
            account.seconds_until(at, self.share) for account, at in zip(self._accounts, now, strict=True)
        )
        of_training = Seconds(
            *(at - began - spent for at, began, spent in zip(now, self._began, self.spent, strict=True))
        )
        if min(of_training) > 0.0:
            processor *= of_training.wall / of_training.processor
        return max(wall, processor)

    def pay(self, spent: Seconds) -> None:
        """Subtract time that monitoring took."""
        for account, seconds in zip(self._accounts, spent, strict=True):
            account.pay(seconds)

    def pay_once(self, spent: Seconds) -> None:
        """Subtract time that monitoring took, and will not take in each pass."""
        for account, seconds in zip(self._accounts, spent, strict=True):
            account.pay_once(seconds)

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
