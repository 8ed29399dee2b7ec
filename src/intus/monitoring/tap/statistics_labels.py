"""Find the labels that statistics of a training's passes are made with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..budget import Budget
from ..clocks import process_seconds, process_seconds_since
from ..row_check import listed
from ..sender import Sender
from ..targets import RegisteredTarget, in_use
from ..warn_once import WarningLog

if TYPE_CHECKING:
    from ..statistics import Labels, PassStatistics

_NO_STATISTICS = (
    "intus: statistics=True cannot make statistics of passes of %s in mode %s whose items are not known, "
    "or have no entry in the registered labels, so the rows of these passes are sent. Read the data from a "
    "DataLoader, or set Probe.items = ids before each call."
)
_NO_LABELS = (
    "intus: statistics=True cannot make statistics of passes of %s in mode %s, because this process had "
    "registered no labels for them when the epoch began, so their rows are sent. Register labels before the "
    "first epoch."
)
_LABELS_BY_LAYER = (
    "intus: statistics=True cannot make statistics of passes of %s, because its layers have different labels "
    "of the name %r, so rows are sent. Register the labels for each layer_pattern under a name of their own."
)
_MIXED = (
    "{} of {} sent rows after statistics in one epoch, first in epoch {:g}, in mode {}. These cannot be put "
    "together, so data points with both have no scores. Rows are sent of passes whose items are not known, "
    "do not fit, or have no entry in the labels, and of a training in evaluation mode. Set Probe.items = ids "
    "before each call, call model.train() before the training, or leave statistics out."
)
_OTHER_GROUPS = (
    "intus: targets %s of %s have no scores, because statistics are made for targets with the same groups. "
    "Register all targets with the same groups=, or leave statistics out to send rows."
)


class StatisticsLabels:
    """Finds the labels of one model's passes, or says why their rows are sent instead.

    Args:
        run: The name of the training.
        name: The name of the model.
        sender: Has the registered targets.
        budget: Pays for it.
        troubles: Receives the warnings.
    """

    def __init__(self, run: str, name: str, sender: Sender, budget: Budget, troubles: WarningLog) -> None:
        self._run, self._name, self._sender = run, name, sender
        self._budget, self._troubles = budget, troubles
        self._mixed: set[str] = set()  # modes of which it was said that rows followed statistics

    def of_pass(
        self, statistics: PassStatistics, period: tuple[float, str], items: np.ndarray | None
    ) -> Labels | None:
        """Return the labels to make statistics of a pass of the training with; None if its rows are sent.

        Args:
            statistics: Makes them.
            period: The epoch and the mode.
            items: The ids of its rows.
        """
        began = process_seconds()
        mine: dict[str, RegisteredTarget] = {}
        for one in in_use(self._sender.targets.values(), self._name, self._run):
            if mine.setdefault(one.name, one) is not one:
                self._troubles.warn_once(_LABELS_BY_LAYER, self._name, one.name)
                return None
        labels = statistics.labels_in(period, mine)
        self._budget.pay_once(process_seconds_since(began))
        if labels.left_out:
            self._troubles.warn_once(_OTHER_GROUPS, ", ".join(labels.left_out), self._name)
        if items is not None and labels.exist and labels.have(items):
            return labels
        self._troubles.warn_once(_NO_STATISTICS if labels.exist else _NO_LABELS, self._name, period[1])
        return None

    def tell_mixed(self, mixed: Mapping[str, Collection[str]], epoch: float) -> None:
        """Say once for each mode of which layers rows followed statistics, as some passes had no labels."""
        for mode, layers in mixed.items():
            if mode not in self._mixed:
                self._mixed.add(mode)
                words = f"Layer{'s' * (len(layers) > 1)} {listed(layers)}"
                self._troubles.inform("statistics", _MIXED.format(words, self._name, epoch, mode), "warning")
