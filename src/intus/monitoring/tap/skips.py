"""Say which passes and epochs have no data, because the budget skipped them."""

from __future__ import annotations

from ..budget import Budget
from ..clocks import process_seconds
from ..warn_once import WarningLog

_NO_PASS = (
    "intus: epoch %s of %s has no data: all its %s passes were skipped to take at most %s of the training "
    "time. Raise the budget= of probe(), or pass it a probe_set."
)
_SOME_PASSES = (
    "Passes are skipped to take at most {} of the training time: {} of {} in the first such epoch. Scores "
    "are then of fewer rows."
)
_SKIPPED = (
    "intus: the probe of %s skips passes to take at most %s of the training time, so labels cannot be "
    "matched to rows by order of arrival. Set Probe.items = ids before each call, pass a probe_set to "
    "probe(), or raise its budget=."
)
_SKIPPED_EPOCHS = (
    "intus: epochs of %s are too short for a recorded pass in each, which would take more than %s of the "
    "training time. The first are recorded on a loan of less than a second, and until it is repaid, later "
    "ones may have no data; in a short training, all of them. The next is recorded after about %.2g s more "
    "of training. Probe.status() counts them and says when. Raise budget=, record fewer layers (which=) or "
    "rows (rows=), set Probe.epoch less often, or pass a probe_set, which runs in every epoch."
)
_SKIPPED_AT_END = (
    "{} of {} epochs of {} have no data (training and evaluation counted apart), because a recorded pass in "
    "each would have taken more than {} of the training time. The last with data is epoch {:g}."
)


class Skips:
    """The passes of one model that the budget skips, as far as the caller should know.

    Args:
        name: The name of the model.
        budget: Skips them.
        troubles: Receives the warnings, each once.

    Attributes:
        last_recorded: The epoch of the last recorded pass of the training.
    """

    def __init__(self, name: str, budget: Budget, troubles: WarningLog) -> None:
        self._name, self._budget, self._troubles = name, budget, troubles
        self.last_recorded: float = 0
        self._are_passes_known = self._is_order_known = self._are_epochs_known = False

    def skip(self, *, named: bool) -> None:
        """Register a skipped pass.

        Args:
            named: Whether the ids of rows are known, so that labels need no order of arrival.
        """
        if not named and not self._is_order_known:
            self._is_order_known = True
            self._troubles.warn_once(_SKIPPED, self._name, self._share)
        if self._budget.skipped_periods and not self._are_epochs_known:
            self._are_epochs_known = True
            wait = self._budget.seconds_until_next(process_seconds())
            self._troubles.warn_once(_SKIPPED_EPOCHS, self._name, self._share, wait)

    def end_epoch(self, epoch: float, passes: int, skipped: int, recorded: int) -> None:
        """Say what is missing in an epoch.

        Args:
            epoch: The epoch.
            passes: The number of its passes.
            skipped: How many of them were skipped.
            recorded: The number of its records.
        """
        if skipped and skipped == passes and not recorded:
            self._troubles.warn_once(_NO_PASS, f"{epoch:g}", self._name, passes, self._share)
        elif skipped and not self._are_passes_known:
            self._are_passes_known = True
            self._troubles.inform("skipped", _SOME_PASSES.format(self._share, skipped, passes))

    def end_training(self) -> None:
        """Say which epochs have no data."""
        self._budget.end()
        skipped, all_ = self._budget.skipped_periods, self._budget.periods
        if 0 < skipped < all_:
            text = _SKIPPED_AT_END.format(skipped, all_, self._name, self._share, self.last_recorded)
            self._troubles.inform("skipped", text, "warning")

    @property
    def _share(self) -> str:
        return f"{self._budget.share:.0%}"
