"""What the hooks of one attachment share: the calls under way, and what the tap wants to see of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..base import Operation, Tap
from .captured_tensor import seen
from .order import batch_axis


class Visit:
    """One call of one module that the tap wants."""

    __slots__ = ("address", "axis", "first", "ticket")

    def __init__(self, ticket: Any, address: str, first: bool, axis: int | None) -> None:
        self.ticket, self.address, self.first, self.axis = ticket, address, first, axis


class Session:
    """What the hooks of one attachment share. Holds no module and no tensor."""

    def __init__(self, kinds: tuple[str, ...], tap: Tap) -> None:
        self.kinds = frozenset(kinds)
        self.tap = tap
        self.inside: set[int] = set()  # threads that are inside a call of the model
        self.removed = False
        self.lock = threading.Lock()  # DataParallel calls replicas from threads
        self.calls: dict[str, int] = {}
        self.entered: dict[str, list[Visit | None]] = {}
        self.tickets: dict[str, Any] = {}  # of the last pass, for gradients of parameters
        self.leaves: list[Callable[[], None]] = []  # what takes our hooks off tensors that outlive a pass

    def show(
        self, ticket: Any, address: str, kind: str, tensor: Tensor, index: int = 0, axis: int | None = None
    ) -> None:
        """Show the tap a tensor, the one of that index of several; ``axis`` is where its rows lie, if the
        module says so."""
        self.tap.on_tensor(ticket, seen(address, kind, index, tensor, axis))

    def on_error(self, error: Exception) -> None:
        """Tell the tap of an exception, which goes no further."""
        self.tap.on_error(error)

    @property
    def running(self) -> bool:
        """Whether what runs now is looked at."""
        return bool(self.inside) and not self.removed

    def begin(self, inputs: Any) -> None:
        """A call of the model begins."""
        self.inside.discard(threading.get_ident())  # of a call that was interrupted
        self.tickets.clear()
        wanted: bool | None = None
        try:
            wanted = self.tap.on_forward_start(inputs)
        finally:
            if wanted is not False:
                self.release()
                self.calls.clear()
                self.entered.clear()
                self.inside.add(threading.get_ident())

    def end(self, output: Any) -> None:
        """That call is over."""
        thread = threading.get_ident()
        if thread in self.inside:
            self.inside.discard(thread)
            self.tap.on_forward_end(output)

    def left(self) -> None:
        """The first call is over; where ``end`` did not hear of it, it was interrupted."""
        try:
            with torch._C.DisableTorchFunction():
                self.end(None)
        except Exception as error:
            self.on_error(error)

    def stop(self) -> None:
        """Look at nothing any more, nor at gradients still to come in a backward pass."""
        self.removed = True
        self.kinds = frozenset()
        self.tickets.clear()
        self.release()

    def release(self) -> None:
        """Take our hooks off the tensors that outlive a pass."""
        while self.leaves:
            self.leaves.pop()()

    def visit(self, address: str, type_: str, module: nn.Module) -> Visit | None:
        """Count one call of a module and ask the tap about it."""
        with self.lock:
            call = self.calls[address] = self.calls.get(address, 0) + 1
        ticket = self.tap.wants(Operation(address, type_, module))
        if ticket is None:
            return None
        self.tickets[address] = ticket
        place = address if call == 1 else f"{address}:{call}"
        return Visit(ticket, place, call == 1, batch_axis(module))
