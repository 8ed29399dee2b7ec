"""Decide whether rows without ids can be identified by their order of arrival.

Rows count as ordered until something shows otherwise: a random sampler, several processes that share the
data, or an epoch that does not begin with the same batch. From then on they get ids that no label has. The
server marks scores of the first epoch as not verified until a second begins with the same batch.

Labels are for the rows of one mode, the training's or else the first that comes. Rows of other modes are of
another dataset, unless they begin with the same batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...core.record import TRAINING_MODE
from ..warn_once import WarningLog

_ADVICE = (
    "Labels cannot be matched to rows by order of arrival. Set Probe.items = ids before each call, or pass a "
    "probe_set to probe()."
)
_REORDERED = (
    "intus: epoch %s of %s (%s) does not begin with the same batch as %s: the data is shuffled or "
    "randomly augmented, or an input of the model is noise. " + _ADVICE
)
_DRAWN = "intus: the rows of %s (%s) do not come in the order of their dataset: %s. " + _ADVICE
_UNKNOWN = "intus: the rows of %s (%s) cannot be identified by their order of arrival: %s. " + _ADVICE
_OTHER = (
    "Rows of mode {} of {} have no labels by order of arrival: labels are for the rows of mode {}, and these "
    "are not known to be the same rows, since they do not begin with the same batch. Set watch.items = ids, "
    "or pass a probe_set."
)
_NO_HASH = "its framework cannot compare the first batches of epochs"


class RowOrder:
    """The order in which the rows of one model arrive, as far as known.

    Args:
        name: The model's name, for warnings.
        troubles: The log for warnings.

    Attributes:
        period: The epoch and mode of the last pass without ids; None before.
    """

    def __init__(self, name: str, troubles: WarningLog) -> None:
        self._name, self._troubles = name, troubles
        self._first: dict[str, tuple[float, bytes | str | None]] = {}
        self._unordered: set[str] = set()
        self._refused: set[str | None] = set()  # of which the order says nothing
        self._modes: dict[str, None] = {}  # in the order in which they came
        self._latest: dict[str, float] = {}  # the epoch of the last pass in each mode
        self._said: set[str] = set()  # modes whose rows are said to be others
        self.period: tuple[float, str] | None = None
        self._count = 0

    def is_new(self, epoch: float, mode: str) -> bool:
        """Return whether the pass is the first of its epoch in its mode, not counting other modes."""
        new, self.period = self._latest.get(mode) != epoch, (epoch, mode)
        self._latest[mode] = epoch
        return new

    def has_begun(self, mode: str) -> bool:
        """Return whether a pass of a mode came whose rows have no ids."""
        return mode in self._first

    def on_forward_start(
        self, epoch: float, mode: str, first: bytes | str | None, shuffled: Callable[[], str | None]
    ) -> None:
        """Register the batch that an epoch begins with.

        Args:
            epoch: The epoch.
            mode: The mode of its passes.
            first: The result of ``Backend.order`` for the batch.
            shuffled: ``Backend.shuffled``, called only in the first epoch of each mode; later the batches are
                compared.
        """
        self._modes[mode] = None
        if not self._refused.isdisjoint({mode, None}):
            return
        drawn = shuffled() if mode not in self._first else None
        began, before = self._first.setdefault(mode, (epoch, first))
        if drawn is not None:
            self._unordered.add(mode)
            self._troubles.warn_once(_DRAWN, self._name, mode, drawn)
            return
        if not isinstance(first, bytes):
            self._unordered.add(mode)
            self._troubles.warn_once(_UNKNOWN, self._name, mode, first or _NO_HASH)
        elif first != before:
            self._unordered.add(mode)
            other = f"epoch {began:g}" if began != epoch else "it did before"
            self._troubles.warn_once(_REORDERED, f"{epoch:g}", self._name, mode, other)
        elif mode not in self._unordered and not self._has_labels(mode):
            self._unordered.add(mode)
            if mode not in self._said:
                self._said.add(mode)
                self._troubles.inform("items", _OTHER.format(mode, self._name, self._labeled()))

    def on_named(self, mode: str) -> None:
        """Register that rows of a mode have ids, so that labels are for them."""
        self._modes[mode] = None

    def refuse(self, mode: str | None = None) -> None:
        """Register that labels cannot be for the rows of a mode, or of any, in their order of arrival."""
        self._refused.add(mode)

    def _labeled(self) -> str:
        """Return the mode that labels are for: the training's, or else the first that came."""
        return TRAINING_MODE if TRAINING_MODE in self._modes else next(iter(self._modes))

    def _has_labels(self, mode: str) -> bool:
        """Return whether labels are for the rows of a mode, or for rows that begin with the same batch."""
        labeled = self._labeled()
        if mode == labeled:
            return True
        known = labeled in self._first and self.is_known(labeled)
        return known and self._first[labeled][1] == self._first[mode][1]

    def is_known(self, mode: str) -> bool:
        """Return whether rows of that mode can be identified by their order of arrival."""
        return mode not in self._unordered and self._refused.isdisjoint({mode, None})

    def unknown_ids(self, rows: int) -> np.ndarray:
        """Return unique negative ids for rows that cannot be identified."""
        self._count += rows
        return np.arange(-self._count, rows - self._count)
