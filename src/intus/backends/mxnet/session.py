"""The state that the parts of one attachment share: the pass in progress, and what the tap wants of it."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from mxnet.ndarray import NDArray

from ...core.errors import CaptureError
from ..base import OVERLAPS, Operation, Tap
from ..epoch_end import show_parameter
from ..several import Several
from ..visit import Visit, gradient_address
from .arrays import batch_axis, captured

T = TypeVar("T")


class Gradients:
    """Counts the gradients of one call.

    Args:
        operation: The operation's address.
        calls: The number of calls of each operation in the pass of the call.
    """

    def __init__(self, operation: str, calls: dict[str, int]) -> None:
        self._operation, self._calls = operation, calls
        self._numbers: Counter[str] = Counter()  # by kind

    def next_address(self, visit: Visit, kind: str) -> str:
        """Return the address of the next gradient; see ``gradient_address``."""
        self._numbers[kind] += 1
        calls = self._calls[self._operation]
        return gradient_address(self._operation, visit.address, self._numbers[kind], calls)


#: How many of the last passes may still get gradients.
_PASSES = 8


class Session:
    """Passes the parts of a pass to a tap, whose exceptions it passes to ``Tap.on_error``.

    Args:
        kinds: The kinds of tensors to capture.
        tap: The observer.
    """

    def __init__(self, kinds: tuple[str, ...], tap: Tap) -> None:
        self.kinds = frozenset(kinds)
        self.removed = False
        self._tap = tap
        self.several = Several(tap)
        self._lock = threading.Lock()
        self._inside: set[int] = set()  # ids of threads that are inside a pass, or begin one: one at most
        self.calls: dict[str, int] = {}
        self._kept: deque[list[Any]] = deque(maxlen=_PASSES)

    def safely(self, function: Callable[..., T], *args: Any) -> T | None:
        """Call a function; return None if it raises, after passing the exception to the tap."""
        try:
            return function(*args)
        except Exception as error:
            self._tap.on_error(error)
            return None

    @property
    def running(self) -> bool:
        """True if this thread is inside a pass that is observed."""
        return threading.get_ident() in self._inside and not self.removed

    def begin(self, inputs: Any) -> None:
        """Start a pass, unless another thread is inside of one."""
        thread = threading.get_ident()
        with self._lock:
            overlaps = bool(self._inside - {thread})
            if not overlaps:
                self._inside.add(thread)
        if overlaps:
            self.safely(getattr(self._tap, "refuse_call", self._tap.on_error), CaptureError(OVERLAPS))
            return
        observed: bool | None = False
        try:
            if not self.removed:
                observed = self.safely(self._tap.on_forward_start, inputs)
        finally:
            if observed is False:
                self._inside.discard(thread)
            else:
                self._inside.add(thread)  # again, if a pass that the tap made has ended in its place
                self.calls = {}  # records of earlier passes keep theirs
                self._kept.append([])

    def end(self, output: Any) -> None:
        """End a pass; ``output`` is None if it raised."""
        if threading.get_ident() in self._inside:
            self._inside.discard(threading.get_ident())
            self.safely(self._tap.on_forward_end, output)

    def keep(self, tap: Any) -> None:
        """Keep a tap that a backward pass will call."""
        self._kept[-1].append(tap)

    def visit(self, operation: Operation) -> Visit | None:
        """Count a call of an operation, and return it if the tap wants it."""
        address = operation.address
        call = self.calls[address] = self.calls.get(address, 0) + 1
        return Visit.of(self.safely(self._tap.wants, operation), address, call, batch_axis(operation.module))

    def capture(self, visit: Visit, kind: str, array: NDArray, index: int = 0, address: str = "") -> None:
        """Pass an array of a call to the tap, unless the attachment was removed.

        Args:
            visit: The call.
            kind: One of ``core.record.KINDS``.
            array: The array.
            index: The index among several arrays.
            address: The address of a parameter. Default: that of the call.
        """
        if not self.removed:
            self.safely(self._capture, visit, kind, array, index, address or visit.address)

    def capture_gradient(
        self, visit: Visit, gradients: Gradients, kind: str, array: NDArray, index: int = 0
    ) -> None:
        """Pass the gradient of a call to the tap, under an address that says which of several it is."""
        address = self.safely(gradients.next_address, visit, kind)
        if address is not None:
            self.capture(visit, kind, array, index, address)

    def capture_parameter(self, visit: Visit, address: str, get: Callable[[], NDArray | None]) -> None:
        """Pass a parameter to the tap, at the end of the epoch if it wants it then.

        Args:
            visit: The call in which the parameter is used.
            address: The parameter.
            get: Returns the parameter as it is, or None if it no longer exists.
        """
        if not self.removed:
            show = partial(self._show_parameter, visit, address, get)
            self.safely(show_parameter, self._tap, visit.ticket, address, show)

    def _show_parameter(self, visit: Visit, address: str, get: Callable[[], NDArray | None]) -> bool:
        array = get()
        if array is not None:
            self._capture(visit, "parameter", array, 0, address)
        return array is not None

    def _capture(self, visit: Visit, kind: str, array: NDArray, index: int, address: str) -> None:
        self._tap.on_tensor(visit.ticket, captured(address, kind, array, index, visit.axis))

    def stop(self) -> None:
        """Stop observing."""
        self.removed = True
        self._kept.clear()
