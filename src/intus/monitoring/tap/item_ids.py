"""Give rows the ids of their items, and say where these do not fit or are missing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import numpy as np

from ...core.record import PROBE_SET_MODE
from ..warn_once import WarningLog
from .pass_tags import PassTags
from .row_order import RowOrder

_MISFIT = (
    "intus: Probe.items had %s ids for a pass of %s whose arrays have %s rows, so its rows have no ids and "
    "no labels. Give one id per row, in the order of the rows."
)
_OF_THREADS = (
    "intus: two threads set Probe.items of %s, and no call came between, so it is not known whose ids are "
    "those of the next call. Its rows have no ids and no labels. Set ids and call the model in one thread, "
    "or under one lock."
)
_MISFITS = (
    "Epoch {}: in {} of {} passes, Probe.items had another number of ids than rows. A data point with such "
    "passes (by default, an epoch in one mode) has no scores with labels."
)
_PARTLY = (
    "Epoch {:g} of {}: {} of {} recorded passes in mode {} have no item ids, and the others have. A data "
    "point with both (by default, an epoch in one mode) has no scores with labels, not even of the rows with "
    "ids. Set Probe.items = ids before each call, give passes of other rows another Probe.mode, or pass a "
    "probe_set."
)


class ItemIds:
    """The ids of the items of one model's rows.

    Args:
        name: The name of the model.
        order: The order in which rows arrive, which may stand for ids.
        patterns: Returns the patterns of the layers that have labels.
        troubles: Receives the warnings.

    Attributes:
        are_set: Whether the script ever set ids.
    """

    def __init__(
        self, name: str, order: RowOrder, patterns: Callable[[], Iterable[str]], troubles: WarningLog
    ) -> None:
        self._name, self._order, self._patterns, self._troubles = name, order, patterns, troubles
        self.are_set = False
        self._thread = 0  # that set the ids of the next call
        self._fit: bool | None = None  # whether those of this pass are as many as the rows of an array
        self._misfits = 0  # passes of this epoch whose ids do not fit
        # Of this epoch, by mode, the recorded passes without ids and those with; and modes with both in some.
        self._passes: dict[str, list[int]] = {}
        self._partly: set[str] = set()

    def receive(self, ids: np.ndarray | None, before: np.ndarray | None) -> np.ndarray | None:
        """Return the ids of the next call's rows, which the script sets.

        Args:
            ids: What it sets.
            before: What is still set, as no call came since.
        """
        self.are_set = self.are_set or ids is not None
        thread = threading.get_ident()
        if ids is not None and before is not None and self._thread != thread:
            self._troubles.warn_once(_OF_THREADS, self._name)
            self._order.refuse()
            ids = self._order.unknown_ids(len(ids))
        self._thread = thread
        return ids

    def count(self, mode: str, *, named: bool) -> None:
        """Count a recorded pass of the training, with ids or without."""
        self._passes.setdefault(mode, [0, 0])[named] += 1

    def begin_pass(self) -> None:
        """Begin a pass that is recorded."""
        self._fit = None

    def fit(self) -> None:
        """Register that the ids of the pass are those of the rows of a tensor."""
        self._fit = True

    def of_rows(
        self, tags: PassTags, length: int, rows: int, *, is_reordered: bool, is_cut: bool
    ) -> np.ndarray | None:
        """Return the ids of the rows of a tensor; None if their order of arrival stands for ids.

        Args:
            tags: The tags of the pass.
            length: The number of rows of the tensor.
            rows: The number of them that are recorded.
            is_reordered: Whether the rows are not known to be in the order of the ids of the pass.
            is_cut: Whether the others are not recorded because the queue has no room for them.
        """
        ids = tags.items
        if ids is not None and is_reordered:
            return self._order.unknown_ids(rows)
        if ids is not None and length == len(ids):
            self.fit()
            return ids[:rows]
        if ids is not None and tags.mode == PROBE_SET_MODE:
            return None  # a layer with other rows, which come in the same order each time
        if ids is not None or not tags.ordered or is_cut:
            self._fit = self._fit or False
            return self._order.unknown_ids(rows)
        return None

    def end_pass(self, ids: np.ndarray | None, rows: int) -> None:
        """Count a pass whose ids fit no tensor.

        Args:
            ids: Its ids.
            rows: The number of its rows.
        """
        if self._fit is False and ids is not None:
            self._fit = None
            self._misfits += 1
            self._troubles.count("items", _MISFIT, len(ids), self._name, rows)

    def end_epoch(self, epoch: float, passes: int) -> None:
        """Say of an epoch that ids did not fit, and once for each mode that only a part of passes had any.

        Args:
            epoch: The epoch.
            passes: The number of its passes.
        """
        if self._misfits:
            text = _MISFITS.format(f"{epoch:g}", self._misfits, passes)
            self._troubles.inform("items", text, "warning", is_logged=True)
            self._misfits = 0
        of_modes, self._passes = self._passes, {}
        has_labels = any(True for _ in self._patterns())
        for mode, (without, named) in of_modes.items():
            if without and named and has_labels and mode not in self._partly:
                self._partly.add(mode)
                counts = without, without + named
                self._troubles.inform("items", _PARTLY.format(epoch, self._name, *counts, mode), "warning")
