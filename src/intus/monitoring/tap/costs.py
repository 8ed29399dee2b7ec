"""Pay the budget for what passes take beside the work on each of their tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..budget import FREE_S, Budget, Seconds
from ..clocks import process_seconds, process_seconds_since
from ..sender import Sender
from ..warn_once import WarningLog

_SET_TAKES = (
    "The probe set of {} took {:.0%} of the processor time of the training up to the end of epoch {:g}. It "
    "is always run completely, in {:.2g} s each time, whatever budget= is. To take less, give it fewer rows, "
    "set watch.epoch less often, or pass every=."
)


class Costs:
    """The costs of the passes of one model.

    Args:
        name: The name of the model.
        budget: Pays for them.
        sender: Says what its thread and devices did.
        troubles: Receives a notice.
    """

    def __init__(self, name: str, budget: Budget, sender: Sender, troubles: WarningLog) -> None:
        self._name, self._budget, self._sender, self._troubles = name, budget, sender, troubles
        self._busy_before = sender.busy  # at the last payment
        self._pass_began = process_seconds(), budget.spent  # the present pass: clocks, and costs so far
        self._is_apart = False
        self._began, self._set_passes, self._is_set_cost_known = process_seconds(), 0, False

    def begin_pass(self) -> None:
        """Begin a pass that is recorded."""
        self._is_apart = False
        self._pass_began = process_seconds(), self._budget.spent

    def set_apart(self) -> None:
        """Register that the pass is run apart from the training, so that all of it is paid for."""
        self._is_apart = True

    def end_pass(self) -> None:
        """End a pass, and pay for the rest of one that was run apart from the training."""
        if self._is_apart:
            self._pay_rest(*self._pass_began)

    def pay_sender(self) -> None:
        """Pay for what the sender's thread and devices have done since the last time."""
        busy = self._sender.busy
        if busy != self._busy_before:
            since = Seconds(*(now - before for now, before in zip(busy, self._busy_before, strict=True)))
            self._busy_before = busy
            self._budget.pay(since)

    @contextmanager
    def paying_for_set(self) -> Iterator[None]:
        """Pay for a pass of the probe set: its forward, and what the sender does meanwhile and after it."""
        self.pay_sender()
        began, spent = process_seconds(), self._budget.spent
        try:
            yield
        finally:
            self._pay_rest(began, spent)
            self._busy_before = self._sender.busy
            self._set_passes += 1

    def tell_of_set(self, epoch: float) -> None:
        """Say once if the passes of the probe set take more of the training than a budget would allow."""
        spent = self._budget.spent.processor
        if self._set_passes < 2 or spent < FREE_S or self._is_set_cost_known:
            return
        share = min(spent / max(process_seconds_since(self._began).processor, spent), 1.0)
        if share > self._budget.share:
            self._is_set_cost_known = True
            text = _SET_TAKES.format(self._name, share, epoch, spent / self._set_passes)
            self._troubles.inform("cost", text)

    def _pay_rest(self, began: Seconds, spent: Seconds) -> None:
        """Pay for the rest of a pass apart from the training, such as a compilation.

        Args:
            began: When the pass began.
            spent: What had been spent by then.
        """
        self._is_apart = False
        rest = zip(process_seconds_since(began), self._budget.spent, spent, strict=True)
        self._budget.pay_once(Seconds(*(max(all_ - now + before, 0.0) for all_, now, before in rest)))
