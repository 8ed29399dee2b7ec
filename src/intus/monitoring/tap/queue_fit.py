"""Fit passes into the queue to the server: how many of their rows, and how long to wait for room."""

from __future__ import annotations

import math
import time

from ...backends.base import CapturedTensor
from ..budget import Budget
from ..schedule import Cut, Schedule
from ..sender import BLOCK_S, Sender
from ..warn_once import WarningLog

_QUEUE_CUT = (
    "intus: a pass of %s has %s bytes, but the queue to the server only %s, so only the first %s rows of its "
    "passes are recorded, of all layers alike. Pass a larger queue_mb= to probe(), or record fewer layers "
    "(which=)."
)
#: The most that a pass of a probe set waits for room in the queue, and the part of the queue for one pass.
_PROBE_SET_WAIT_S, _ROOM = 60.0, 0.9


class QueueFit:
    """The size of the passes of one model.

    Args:
        name: The name of the model.
        schedule: Cuts tensors.
        sender: Has the queue.
        budget: Bounds the rows of passes too, from the size of the last.
        wait: The maximum number of seconds to wait for room, in a pass of the training.
        troubles: Receives a warning.

    Attributes:
        rows: The number of rows of the last recorded pass; 0 once it was adapted to.
    """

    def __init__(
        self,
        name: str,
        schedule: Schedule,
        sender: Sender,
        budget: Budget,
        wait: float,
        troubles: WarningLog,
    ) -> None:
        self._name, self._schedule, self._sender = name, schedule, sender
        self._budget, self._wait, self._troubles = budget, wait, troubles
        self._most: int | None = None  # the rows of which a pass fits; None for all
        self._nbytes = self.rows = 0
        self._wait_until = math.inf  # when a pass of the probe set no longer waits

    def begin_pass(self) -> None:
        """Begin a pass that is recorded."""
        self._wait_until = time.monotonic() + _PROBE_SET_WAIT_S
        self._nbytes = self.rows = 0

    def add(self, tensor: CapturedTensor, cut: Cut, nbytes: int) -> None:
        """Count a tensor of the pass.

        Args:
            tensor: The tensor.
            cut: The part of it that is recorded.
            nbytes: The bytes that this part takes.
        """
        if cut.axis is not None:
            length = tensor.shape[cut.axis]
            self.rows = max(self.rows, length)
            self._nbytes += math.ceil(nbytes * length / (cut.rows or length or 1))

    def adapt(self) -> None:
        """Bound the rows of later passes by the size of the last recorded one."""
        nbytes, rows = self._nbytes, self.rows
        self._nbytes = self.rows = 0
        self._budget.adapt_rows(nbytes, rows)
        if not self._wait:
            affordable = min(rows, self._budget.rows or rows)
            self._bound(nbytes * affordable // rows, affordable)

    def fit(self, tensor: CapturedTensor, cut: Cut, rows: int | None) -> Cut:
        """Return the part of a tensor to copy, or less of it if the queue is smaller.

        Args:
            tensor: The tensor.
            cut: The part.
            rows: The number of rows that the part was bounded to; None for all.
        """
        if self._most is not None and (rows is None or self._most < rows):
            cut = self._schedule.cut(tensor, self._most)
        if cut.axis is not None and cut.nbytes > self._sender.capacity:
            self._bound(cut.nbytes, cut.rows or tensor.shape[cut.axis])
            cut = self._schedule.cut(tensor, self._most)
        return cut

    def cut_from(self, tensor: CapturedTensor, cut: Cut) -> int | None:
        """Return how many rows a tensor had of which the queue has room for a part; None if for all."""
        is_cut = self._most is not None and cut.rows == self._most
        return tensor.shape[cut.axis] if is_cut and cut.axis is not None else None

    def wait_s(self, *, is_of_set: bool) -> float:
        """Return the seconds to wait for room in the queue; a pass of the probe set may wait."""
        if not is_of_set:
            return self._wait
        return max(self._wait, min(BLOCK_S, self._wait_until - time.monotonic()), 0.0)

    def _bound(self, nbytes: int, rows: int) -> None:
        """Bound the rows of this and later passes, if a pass of so many bytes does not fit into the queue."""
        capacity = self._sender.capacity
        if nbytes > capacity:
            fitting = max(int(_ROOM * capacity * rows / nbytes), 1)
            self._most = min(fitting, self._most or fitting)
            self._troubles.warn_once(_QUEUE_CUT, self._name, nbytes, capacity, self._most)
