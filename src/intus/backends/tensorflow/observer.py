"""The state of one attachment on the host: the calls of a pass, and what the tap wants of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..base import Operation, Tap
from ..epoch_end import show_parameter
from ..several import Several
from ..visit import Visit
from .values import captured


class Observer:
    """Passes what happens in a model to a tap. None of its methods raises.

    Args:
        kinds: The kinds of tensors to capture.
        tap: The observer of the model.

    Attributes:
        calls: The number of calls of each operation in the current pass, by address.
    """

    def __init__(self, kinds: tuple[str, ...], tap: Tap) -> None:
        self.kinds = frozenset(kinds)
        self._tap: Tap | None = tap
        self.calls: dict[str, int] = {}
        self._inside = False
        self._noted: set[str] = set()
        self.several = Several(tap)
        self._began: tuple[float, float] | None = None  # when work apart from the training began

    def begin(self, inputs: Any) -> bool:
        """Handle the start of a call of the model; return whether it is observed."""
        self.calls = {}  # records of earlier passes keep theirs
        self._inside, self._began = False, None
        tap = self._tap
        if tap is not None:  # as in _guarded; most passes are not observed, and this is all that they take
            try:
                self._inside = tap.on_forward_start(inputs) is not False
            except Exception as error:
                self.on_error(error)
        return self._inside

    def refuse(self, error: Exception) -> None:
        """Count a call of the model that cannot be recorded, and report why."""
        self._guarded(lambda tap: getattr(tap, "refuse_call", tap.on_error)(error))

    def leave_out(self, left: Callable[[bool], int]) -> int:
        """Return how many of the next calls need not begin; see ``ModelTap.leave_out``."""
        leave_out = getattr(self._tap, "leave_out", None)
        return 0 if leave_out is None else self._guarded(lambda _: leave_out(left)) or 0

    def visit(self, operation: Operation) -> Visit | None:
        """Count a call of an operation, and return it if the tap wants it."""
        address = operation.address
        call = self.calls[address] = self.calls.get(address, 0) + 1
        return Visit.of(self._guarded(lambda tap: tap.wants(operation)), address, call)

    @contextmanager
    def prepares(self) -> Iterator[None]:
        """Charge the tap for work within, which is done once, such as adding operations to a function."""
        began = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            if (prepared := getattr(self._tap, "prepared", None)) is not None:
                taken = time.perf_counter() - began[0], time.thread_time() - began[1]
                self._guarded(lambda _: prepared(*taken))

    def note(self, text: str) -> None:
        """Tell the tap a fact about what is recorded, once."""
        note = getattr(self._tap, "note", None)
        if note is not None and text not in self._noted:
            self._noted.add(text)
            self._guarded(lambda _: note(text))

    def work_begins(self) -> None:
        """Note the time, as the work for tensors begins that the training does not need."""
        self._began = time.perf_counter(), time.process_time()

    def show(self, ticket: Any, address: str, kind: str, array: Any, index: int = 0) -> None:
        """Pass a tensor to the tap.

        Args:
            ticket: The value that ``Tap.wants`` returned.
            address: The operation with its call, or the parameter.
            kind: One of ``core.record.KINDS``.
            array: The values.
            index: The index among several tensors.
        """
        began, self._began = self._began, None  # all of that work is for the first tensor
        self._guarded(lambda tap: tap.on_tensor(ticket, captured(address, kind, index, array, began)))

    def show_parameter(self, ticket: Any, address: str, array: Any, get: Callable[[], Any]) -> None:
        """Pass a parameter to the tap, at the end of the epoch if it wants it then.

        Args:
            ticket: The value that ``Tap.wants`` returned.
            address: The parameter.
            array: Its value in this call.
            get: Returns its value as it is at any time, or None if it no longer exists.
        """

        def show(tap: Tap) -> bool:
            value = get()
            if value is not None:
                tap.on_tensor(ticket, captured(address, "parameter", 0, value))
            return value is not None

        now = partial(self.show, ticket, address, "parameter", array)
        self._guarded(lambda tap: show_parameter(tap, ticket, address, partial(show, tap), now))

    def end(self, output: Any) -> None:
        """Handle the end of a call of the model."""
        if self._inside:
            self._inside = False
            self._guarded(lambda tap: tap.on_forward_end(output))

    def never_raising(self, call: Callable[..., Any], otherwise: Any = None) -> Callable[..., Any]:
        """Return a function for a graph to call, in which an error would be one of the training.

        Args:
            call: The function.
            otherwise: What it returns instead of raising.
        """

        def guarded(*args: Any) -> Any:
            try:
                return call(*args)
            except Exception as error:
                self.on_error(error)
                return otherwise

        return guarded

    def on_error(self, error: Exception) -> None:
        """Pass an exception to the tap; it is not propagated further."""
        if self._tap is not None:
            self._tap.on_error(error)

    def stop(self) -> None:
        """Stop observing, including gradients of a backward pass still to come."""
        self._tap = None

    def _guarded(self, call: Callable[[Tap], Any]) -> Any:
        if self._tap is None:
            return None
        try:
            return call(self._tap)
        except Exception as error:
            self.on_error(error)
            return None
