"""Observe Gluon blocks: a ``forward`` on each instance reports its calls to the attachments that listen."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any

from mxnet import autograd
from mxnet.gluon import Block
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from ...core.errors import CaptureError
from ...core.nested import leaves, paths
from ..base import Operation, Tap
from ..visit import Visit
from .arrays import main_array, replaced
from .hybrid import Twin, inside
from .session import Gradients, Session
from .taps import with_gradient

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

    def visit(self) -> Visit | None:
        """Count a call, and return it if the tap wants it."""
        if self.operation is None or not self.session.running:
            return None
        return self.session.visit(self.operation)

    def offer_parameters(self, visit: Visit | None, block: Block) -> None:
        """Capture the parameters in the first call of a pass, after which they have their shapes."""
        if visit is None or not visit.first or self.operation is None:
            return
        for name in self._parameters if "parameter" in self.session.kinds else ():
            address = parameter_address(self.operation.address, name)
            self.session.capture_parameter(visit, address, partial(_array, weakref.ref(block), name))

    def tell_several(self, value: Any, of: type, recorded: int) -> None:
        """Tell the tap if the block returned several arrays, or symbols, of which one is recorded."""
        if self.operation is not None and "output" in self.session.kinds:
            names = [path for path, _ in paths(value, of)]
            self.session.safely(self.session.several.tell, self.operation.address, names, recorded)

    def offer(self, visit: Visit | None, end: str, value: Any) -> Any:
        """Capture the main array of a call's inputs or outputs, and prepare for its gradient.

        Args:
            visit: The call, or None if it is not observed.
            end: ``"input"`` or ``"output"``.
            value: The inputs or outputs.

        Returns:
            The value to use instead, of which the gradient will be captured.
        """
        if visit is None or self.operation is None or self.session.kinds.isdisjoint({end, f"grad_{end}"}):
            return value
        main = main_array(value)
        if main is None:
            return value
        index, array = main
        if end in self.session.kinds:
            self.session.capture(visit, end, array, index)
        if end == "output":
            self.tell_several(value, NDArray, index)
        if f"grad_{end}" in self.session.kinds and autograd.is_recording():
            gradients = Gradients(self.operation.address, self.session.calls)
            tap = GradientTap(self.session, visit, gradients, f"grad_{end}", index)
            self.session.keep(tap)
            what = f"grad_{end} of {visit.address!r}"
            changed = self.session.safely(_with_gradient, value, array, tap, what)
            return value if changed is None else changed
        return value


def _with_gradient(value: Any, array: NDArray, tap: GradientTap, what: str) -> Any:
    """Return the inputs or outputs of a call with an equal array, whose gradient a tap receives.

    Raises:
        CaptureError: If that is not possible; see ``taps.with_gradient``.
    """
    tapped = with_gradient(array, tap, what)
    changed = replaced(value, array, tapped)
    if all(one is not tapped for one in leaves(changed, NDArray)):
        raise CaptureError(
            f"{what} is not recorded, because the array is part of a {type(value).__name__}. Let the block "
            "take and return arrays in lists, tuples and dicts."
        )
    return changed


class GradientTap:
    """Captures the gradient of an input or output of one call.

    Args:
        session: The session.
        visit: The call.
        gradients: Counts its gradients.
        kind: ``"grad_input"`` or ``"grad_output"``.
        index: The index among several arrays.
    """

    def __init__(self, session: Session, visit: Visit, gradients: Gradients, kind: str, index: int) -> None:
        self._session, self._visit, self._gradients = session, visit, gradients
        self._kind, self._index = kind, index

    def on_value(self, array: NDArray) -> None:
        """Ignore the value, which was captured before."""

    def on_gradient(self, array: NDArray) -> None:
        """Capture the gradient."""
        self._session.capture_gradient(self._visit, self._gradients, self._kind, array, self._index)


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
        self._lock = (
            threading.RLock()
        )  # another thread must not call the block while its twin is put in place

    def __call__(self, *args: Any) -> Any:
        """Call the block's own ``forward``, and report the call."""
        block: Any = self._block()
        own = self.own or partial(type(block).forward, block)
        listeners, output = list(self.listeners), None
        if not any(one.is_model or one.session.running for one in listeners) or leaves(args, Symbol):
            with self._alone(block):
                return own(*args)
        for listener in listeners:
            listener.begin(args)
        try:
            visits = [(listener, listener.visit()) for listener in listeners]
            for listener, visit in visits:
                args = listener.offer(visit, "input", args)
            with self._alone(block), ExitStack() as stack:
                running = [one for one in listeners if one.session.running]
                if running and getattr(block, "_active", False):
                    running[0].session.safely(self._use_twin, block, args, stack)
                value = own(*args)
            for listener, visit in visits:
                value = listener.offer(visit, "output", value)
                listener.offer_parameters(visit, block)
            output = value
        finally:
            for listener in listeners:
                listener.end(output)
        return output

    def _alone(self, block: Block) -> AbstractContextManager[Any]:
        """Return a context in which no other thread runs the block, if it is hybridized."""
        return self._lock if getattr(block, "_active", False) else nullcontext()

    def _use_twin(self, block: Block, args: tuple[Any, ...], stack: ExitStack) -> None:
        """Run the hybridized block's twin instead of its own graph until the stack is closed."""
        if self.twin is None or not self.twin.fits(block, args):
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
        return partial, (type(block).forward, block)


def listen(block: Block, listener: Listener) -> Callable[[], None]:
    """Add a listener to a block, and return the function that removes it."""
    forward = vars(block).get(FORWARD)
    if not isinstance(forward, Forward):
        forward = Forward(block)
        vars(block)[FORWARD] = forward
    forward.listeners.append(listener)
    return partial(forward.remove, listener)


def _array(block: weakref.ref[Block], name: str) -> NDArray | None:
    """Return a block's parameter as it is; None if the block no longer exists."""
    owner = block()
    return None if owner is None else owner._reg_params[name].data()


def parameter_address(address: str, name: str) -> str:
    """Return the address of a block's parameter."""
    return f"{address}.{name}" if address else name
