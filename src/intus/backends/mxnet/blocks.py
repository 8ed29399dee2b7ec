"""Observe Gluon blocks: a ``forward`` on each instance reports its calls to the attachments that listen."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from mxnet import autograd, nd
from mxnet.gluon import Block
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from ...core.nested import leaves
from ..base import Operation, Tap
from .arrays import main_array, replaced
from .hybrid import Twin, inside
from .session import Session, Visit

FORWARD = "forward"


class Attachment:
    """The listeners of one ``attach`` to a block and the blocks inside of it.

    Args:
        model: The outermost block.
        operations: The blocks to observe.
        kinds: The kinds of tensors to capture.
        tap: The observer.
    """

    def __init__(self, model: Block, operations: list[Operation], kinds: tuple[str, ...], tap: Tap) -> None:
        self._session = Session(kinds, tap)
        self._undo: list[Callable[[], None]] = []
        chosen = {id(operation.module): operation for operation in operations}
        owners: set[int] = set()
        for block in [model, *inside(model)]:
            own = {name: p for name, p in block._reg_params.items() if id(p) not in owners}
            owners.update(map(id, own.values()))
            listener = Listener(self._session, chosen.get(id(block)), list(own), is_model=block is model)
            self._undo.append(listen(block, listener))

    def remove(self) -> None:
        """Remove the listeners. Calling it again has no effect."""
        if not self._session.removed:
            nd.waitall()  # gradients arrive on a thread of MXNet
        self._session.stop()
        while self._undo:
            self._undo.pop()()


class Listener:
    """Reports the calls of one block to a session.

    Args:
        session: The session.
        operation: The block with its address; None if only the start and end of the pass are of interest.
        parameters: The names of parameters that no earlier block has.
        is_model: Whether the calls of this block are the passes.
    """

    def __init__(
        self, session: Session, operation: Operation | None, parameters: list[str], *, is_model: bool
    ) -> None:
        self.session, self.operation, self._parameters = session, operation, parameters
        self.is_model = is_model

    def begin(self, args: tuple[Any, ...]) -> None:
        """Start a pass, if the block is the model."""
        if self.is_model:
            self.session.begin((args, {}))

    def end(self, output: Any) -> None:
        """End a pass, if the block is the model."""
        if self.is_model:
            self.session.end(output)

    def visit(self, block: Block) -> Visit | None:
        """Count a call, and capture the parameters in the first one of a pass."""
        if self.operation is None or not self.session.running:
            return None
        visit = self.session.visit(self.operation)
        if visit is not None and visit.first and "parameter" in self.session.kinds:
            for name in self._parameters:
                address = parameter_address(self.operation.address, name)
                array = self.session.safely(block._reg_params[name].data)
                if array is not None:
                    self.session.capture(visit, "parameter", array, 0, address)
        return visit

    def offer(self, visit: Visit | None, end: str, value: Any) -> Any:
        """Capture the main array of a call's inputs or outputs, and prepare for its gradient.

        Args:
            visit: The call, or None if it is not observed.
            end: ``"input"`` or ``"output"``.
            value: The inputs or outputs.

        Returns:
            The value to use instead, of which the gradient will be captured.
        """
        if visit is None or self.session.kinds.isdisjoint({end, f"grad_{end}"}):
            return value
        main = main_array(value)
        if main is None:
            return value
        index, array = main
        if end in self.session.kinds:
            self.session.capture(visit, end, array, index)
        if f"grad_{end}" in self.session.kinds and autograd.is_recording():
            report = partial(self.session.capture, visit, f"grad_{end}", index=index)
            tapped = self.session.safely(_with_gradient, array, report)
            return value if tapped is None else replaced(value, array, tapped)
        return value


class _ReportGradient(autograd.Function):  # type: ignore[misc]
    """An identity, of the same memory, that reports the gradient that passes through it."""

    def __init__(self, report: Callable[[NDArray], None]) -> None:
        super().__init__()
        self._report = report

    def forward(self, x: NDArray) -> NDArray:
        return x.detach()

    def backward(self, dy: NDArray) -> NDArray:
        self._report(dy)
        return dy


def _with_gradient(array: NDArray, report: Callable[[NDArray], None]) -> NDArray:
    """Return an equal array, whose gradient is reported.

    A function of autograd cannot add to a gradient as ``grad_req="add"`` demands, so that an array with a
    gradient of its own is copied first.
    """
    return _ReportGradient(report)(array if array.grad is None else array.copy())


class Forward:
    """The ``forward`` of one block while it has listeners.

    It does nothing with symbols, of which MXNet builds the graph of a hybridized block. It is pickled and
    copied as the block's own ``forward``.

    Args:
        block: The block.
    """

    def __init__(self, block: Block) -> None:
        self._block = weakref.ref(block)
        self.own = vars(block).get(FORWARD)
        self.listeners: list[Listener] = []
        self.twin: Twin | None = None  # of a hybridized block

    def __call__(self, *args: Any) -> Any:
        """Call the block's own ``forward``, and report the call."""
        block: Any = self._block()
        own = self.own or partial(type(block).forward, block)
        if leaves(args, Symbol):
            return own(*args)
        listeners, output = list(self.listeners), None
        for listener in listeners:
            listener.begin(args)
        try:
            visits = [(listener, listener.visit(block)) for listener in listeners]
            for listener, visit in visits:
                args = listener.offer(visit, "input", args)
            with ExitStack() as stack:
                running = [one for one in listeners if one.session.running]
                if running and getattr(block, "_active", False):
                    running[0].session.safely(self._use_twin, block, args, stack)
                value = own(*args)
            for listener, visit in visits:
                value = listener.offer(visit, "output", value)
            output = value
        finally:
            for listener in listeners:
                listener.end(output)
        return output

    def _use_twin(self, block: Block, args: tuple[Any, ...], stack: ExitStack) -> None:
        """Run the hybridized block's twin instead of its own graph until the stack is closed."""
        if self.twin is None or not self.twin.fits(block):
            self.twin = None
            self.twin = Twin(block, args)
        stack.enter_context(self.twin.in_use())

    def remove(self, listener: Listener) -> None:
        """Remove a listener, and after the last one this ``forward``."""
        if listener in self.listeners:
            self.listeners.remove(listener)
        self.twin = None
        block = self._block()
        if block is not None and not self.listeners and vars(block).get(FORWARD) is self:
            if self.own is None:
                del vars(block)[FORWARD]
            else:
                vars(block)[FORWARD] = self.own

    def __reduce__(self) -> tuple[Any, ...]:
        block: Any = self._block()
        return types.MethodType, (type(block).forward, block)


def listen(block: Block, listener: Listener) -> Callable[[], None]:
    """Add a listener to a block, and return the function that removes it."""
    forward = vars(block).get(FORWARD)
    if not isinstance(forward, Forward):
        forward = Forward(block)
        vars(block)[FORWARD] = forward
    forward.listeners.append(listener)
    return partial(forward.remove, listener)


def parameter_address(address: str, name: str) -> str:
    """Return the address of a block's parameter."""
    return f"{address}.{name}" if address else name
