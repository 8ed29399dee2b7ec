"""Deciding what is looked at: which operations once, when at every call, and how many rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from ..backends.base import Operation, Seen
from ..core.errors import InputError
from .trouble import Troubles

Choice = Callable[[Any, Operation], Any]


class Schedule:
    """The caller's wishes. A ``which`` or ``when`` that raises means no, and is said once.

    ``rows`` caps how many rows of a batch are copied: the first ones. ``batch_axis`` says where they lie.
    """

    def __init__(
        self,
        which: Choice | None,
        when: Choice | None,
        rows: int | None,
        batch_axis: int,
        troubles: Troubles,
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
        self._which, self._when, self._troubles = which, when, troubles
        self.rows, self.batch_axis = rows, batch_axis

    def chosen(self, model: Any, operations: Iterable[Operation]) -> list[Operation]:
        """The operations to attach to, asked once."""
        return [op for op in operations if self._ask("which", self._which, model, op)]

    def wants(self, model: Any, operation: Operation) -> bool:
        """Whether this call is looked at, asked each time before any work on tensors."""
        return self._ask("when", self._when, model, operation)

    def cut(self, seen: Seen, most: int | None) -> tuple[int | None, int | None, int]:
        """(batch axis, rows to copy, bytes that they take) of a tensor, of ``most`` rows; no axis where it
        has no batch."""
        axis = self.batch_axis if seen.batch_axis is None else seen.batch_axis
        if not seen.has_batch or axis >= len(seen.shape):
            return None, None, seen.nbytes
        length = seen.shape[axis]
        rows = min((bound for bound in (self.rows, most) if bound is not None), default=length)
        if length <= rows:
            return axis, None, seen.nbytes
        return axis, rows, math.ceil(seen.nbytes * rows / length)

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
