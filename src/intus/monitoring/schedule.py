"""Deciding what is looked at: which operations once, when at every call, and how many rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..backends.base import CapturedTensor, Operation
from ..core.errors import InputError
from ..core.record import PROJECTED, SUMMARY
from .warn_once import WarningLog

Choice = Callable[[Any, Operation], Any]
_FLOAT = 4  # bytes


class Cut(NamedTuple):
    """What is taken of a tensor: its batch axis, None where it has none; how many rows, None for all; the
    bytes that they take; and the features that are projected, None where they stay."""

    axis: int | None
    rows: int | None
    nbytes: int
    projected_from: int | None


def width_of(shape: tuple[int, ...], axis: int) -> int:
    """How many numbers a row has that can be projected: of (rows, positions, features), a position, for
    labels may be of positions. 0 where they lie otherwise.

    >>> width_of((8, 32, 16, 16), 0), width_of((8, 512, 128), 0), width_of((9, 8, 50000), 1)
    (8192, 128, 50000)
    """
    if len(shape) == 3:
        return shape[2] if axis < 2 else 0
    return math.prod(shape[1:]) if axis == 0 and len(shape) > 1 else 0


class Schedule:
    """The caller's wishes. A ``which`` or ``when`` that raises means no, and is said once.

    ``rows`` caps how many rows of a batch are copied: the first ones. ``batch_axis`` says where they lie.
    Rows of more than ``width`` numbers are projected.
    """

    def __init__(
        self,
        which: Choice | None,
        when: Choice | None,
        rows: int | None,
        batch_axis: int,
        troubles: WarningLog,
        width: float = math.inf,
    ) -> None:
        for name, choice in (("which", which), ("when", when)):
            if choice is not None and not callable(choice):
                raise InputError(
                    f"{name}={choice!r} cannot be called. Write a function {name}(model, operation)."
                )
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
            raise InputError(f"rows={rows!r} is not a number of rows. Write 1 or more, or None for all.")
        if isinstance(batch_axis, bool) or not isinstance(batch_axis, int) or batch_axis < 0:
            raise InputError(f"batch_axis={batch_axis!r} is not an axis. Write 0 or more.")
        if isinstance(width, bool) or not isinstance(width, int | float) or not width >= PROJECTED:
            raise InputError(
                f"width={width!r} cannot be the most numbers of a row. Wider rows are projected to "
                f"{PROJECTED}: write that or more, or math.inf to send all rows as they are."
            )
        self._which, self._when, self._troubles = which, when, troubles
        self.rows, self.batch_axis, self.width = rows, batch_axis, width

    def chosen(self, model: Any, operations: Iterable[Operation]) -> list[Operation]:
        """The operations to attach to, asked once."""
        return [op for op in operations if self._ask("which", self._which, model, op)]

    def wants(self, model: Any, operation: Operation) -> bool:
        """Whether this call is looked at, asked each time before any work on tensors."""
        return self._ask("when", self._when, model, operation)

    def cut(self, seen: CapturedTensor, most: int | None) -> Cut:
        """What is taken of a tensor, of ``most`` rows."""
        axis = self.batch_axis if seen.batch_axis is None else seen.batch_axis
        if not seen.has_batch or axis >= len(seen.shape):
            return Cut(None, None, seen.nbytes, None)
        length = seen.shape[axis]
        rows = min((bound for bound in (self.rows, most) if bound is not None), default=length)
        features = width_of(seen.shape, axis) if seen.project is not None else 0
        nbytes = seen.nbytes
        if features > self.width:
            nbytes = math.prod(seen.shape) // features * (PROJECTED + len(SUMMARY)) * _FLOAT
        return Cut(
            axis,
            rows if rows < length else None,
            math.ceil(nbytes * min(rows, length) / max(length, 1)),
            features if features > self.width else None,
        )

    def _ask(self, name: str, choice: Choice | None, model: Any, operation: Operation) -> bool:
        if choice is None:
            return True
        try:
            return bool(choice(model, operation))
        except Exception as error:
            self._troubles.count(
                name,
                f"intus: {name}(model, operation) raised %s: %s at %r; that counts as no.",
                type(error).__name__,
                error,
                operation.address,
            )
            return False
