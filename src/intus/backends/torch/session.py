"""The state that the hooks of one attachment share: calls in progress, and what the tap wants of them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._C._functorch import peek_interpreter_stack
from torch.nn.utils.rnn import PackedSequence

from ...core.errors import InputError
from ..base import OVERLAPS, Operation, Tap
from ..epoch_end import show_parameter
from ..several import Several
from ..visit import Visit
from .backward import BackwardPasses
from .captured_tensor import Packed, Part, captured, main_part, parts, unpacked
from .channels import ChannelsFirst
from .eval_forward import is_capturing
from .order import batch_axis, final_states, keeps_rows, kept_axis
from .row_follower import RowFollower
from .sharding import OF_STEPS, has_gradients_of_another
from .unseen import hidden

_TRANSFORMED = (
    "The model was called inside of a transform of torch.func, such as vmap or grad, where tensors have no "
    "values to copy, so this call is not recorded. Pass a probe_set, or call the model outside of transforms."
)


class Session:
    """The state that the hooks of one attachment share. It keeps no reference to modules or tensors.

    Args:
        kinds: The kinds of tensors to capture.
        tap: The observer.
    """

    def __init__(self, kinds: tuple[str, ...], tap: Tap) -> None:
        self.kinds = frozenset(kinds)
        self.tap = tap
        #: By thread that is inside of observed calls of the model: the identities of their frames.
        self.inside: dict[int, list[int]] = {}
        self.refused: set[int] = set()  # threads whose call came meanwhile
        self.is_called = False  # a call of the model is under way, observed or not
        self.outside: set[str] = set()  # modules that ran while none was
        self.several = Several(tap)
        self.removed = False
        self.lock = threading.Lock()  # DataParallel calls replicas from threads
        self.calls: dict[str, int] = {}
        self.entered: dict[str, list[Visit | None]] = {}
        #: Of the last pass, for gradients and updates of parameters. One without gradients, as a test between
        #: a backward pass and the step, leaves those that a step is awaited for.
        self.tickets: dict[str, Any] = {}
        self.awaits_step = self._keeps_tickets = False
        self.is_copy = False  # whether another process has the gradients and updates of the last pass as well
        self.has_gradients = False  # whether this pass began with gradients enabled
        self.without_gradients: set[str] = set()  # modules that nevertheless ran without
        self.rows: RowFollower | None = None  # of this pass, if its rows are followed
        self.backward: BackwardPasses | None = None  # through this pass, if it may train without its mode
        self.assumed: list[str] = []  # modules of this pass whose rows are assumed to be in order
        self.packs = False  # whether the model has layers that may get packed items
        self.axes: dict[str, int] = {}  # batch axes of modules by their place in the model
        #: The batch axes that following the rows has shown, by address with call and "input" or "output".
        self.shown: dict[tuple[str, str], int] = {}
        self.undo_leaves: list[Callable[[], None]] = []  # remove hooks from tensors that outlive a pass
        self.channels = ChannelsFirst()  # tensors of this pass with channels along axis 1

    def capture(
        self,
        ticket: Any,
        address: str,
        kind: str,
        part: Part,
        index: int = 0,
        axis: int | None = None,
        call: str = "",
        *,
        channels_first: bool = False,
    ) -> None:
        """Pass a tensor to the tap; packed items as a tensor with their rows in the order of the batch.

        Args:
            ticket: The value that ``Tap.wants`` returned.
            address: The operation with its call, or the parameter.
            kind: One of ``core.record.KINDS``.
            part: The tensor, or the packed items.
            index: The index among several tensors.
            axis: The batch axis that the module prescribes for sequences, or None.
            call: The address of the call, if it is another one, as that of a second gradient is.
            channels_first: Whether axis 1 is that of channels, and axis 2 that of positions.
        """
        if is_capturing():  # a gradient; to copy it would break the graph
            return
        if isinstance(part, PackedSequence):
            part, axis = unpacked(part), 0
        elif part.ndim != 3 or axis is None:
            axis = self.shown.get((call or address, _side(kind)))
        tensor = captured(address, kind, index, part, axis, channels_first=channels_first)
        self.tap.on_tensor(ticket, tensor)

    def show_parameter(self, ticket: Any, address: str, get: Callable[[], Tensor | None]) -> None:
        """Pass a parameter to the tap: at the end of the epoch if that wants it then, else now.

        Args:
            ticket: The value that ``Tap.wants`` returned.
            address: The parameter.
            get: Returns the parameter, or None if it no longer exists.
        """
        show_parameter(self.tap, ticket, address, partial(_show, self.tap, ticket, address, get))

    def note(self, text: str) -> None:
        """Tell the tap a fact about what is recorded, if it wants such."""
        getattr(self.tap, "note", lambda text: None)(text)

    def prepared(self, wall: float, processor: float) -> None:
        """Tell the tap of seconds that work for a pass took, if it wants that."""
        getattr(self.tap, "prepared", lambda wall, processor: None)(wall, processor)

    def _axis_to_follow(self) -> int | None:
        """Return the axis of the rows if the tap wants those of this pass followed, else None."""
        wanted: Callable[[], int | None] | None = getattr(self.tap, "axis_to_follow", None)
        return None if wanted is None else wanted()

    def _backward_passes(self, inputs: Any) -> BackwardPasses | None:
        """Return what observes the backward passes through this pass, if the tap wants to know of them."""
        wanted: Callable[[], BackwardPasses | None] | None = getattr(self.tap, "backward_passes", None)
        passes = None if wanted is None else wanted()
        if passes is not None:
            passes.begin(inputs)
        return passes

    def follow(self, visit: Visit, module: nn.Module, given: Any, made: Any) -> None:
        """Follow the rows of the batch through a module, and report those that have moved."""
        rows = self.rows  # which another thread may release
        if rows is None or threading.get_ident() not in self.inside:
            return
        tap: Any = self.tap  # which wants this, and has what not every tap must have
        began = time.perf_counter(), time.thread_time()
        before, after = _main(given), _main(made)
        own = visit.axis if not isinstance(after, Tensor) or after.ndim == 3 else None
        given_axis = axis = own
        if isinstance(before, Tensor) and own is None:
            given_axis = rows.axis_of(before, tap.batch_axis)
        if isinstance(after, Tensor) and own is None:
            axis = rows.axis_of(after, tap.batch_axis, kept_axis(module, before, after, given_axis))
            if axis is not None:
                self.shown[visit.address, "output"] = axis
        usual = tap.batch_axis if axis is None else axis
        found = rows.passes(
            before, after, usual, given_axis, is_batch=axis is not None, keeps=keeps_rows(module)
        )
        if found == "assumed":
            self.assumed.append(visit.address)
        elif found is not None:
            tap.on_moved(visit.address, is_known=found != "unproven")
        for address in self.assumed if found == "differs" else ():
            tap.on_moved(address, is_known=False)
        for state in final_states(module, made):
            rows.passes_too(state, 0)
        tap.prepared(time.perf_counter() - began[0], time.thread_time() - began[1])

    def locate(self, visit: Visit, given: Any) -> None:
        """Find the axis of the rows of a module's input, before it is captured."""
        rows = self.rows
        if rows is None or visit.axis is not None or threading.get_ident() not in self.inside:
            return
        main = _main(given)
        if not isinstance(main, Tensor):
            return
        tap: Any = self.tap
        began = time.perf_counter(), time.thread_time()
        axis = rows.axis_of(main, tap.batch_axis)
        if axis is not None:
            self.shown[visit.address, "input"] = axis
        tap.prepared(time.perf_counter() - began[0], time.thread_time() - began[1])

    def on_error(self, error: Exception) -> None:
        """Pass an exception to the tap; it is not propagated further."""
        self.tap.on_error(error)

    @property
    def running(self) -> bool:
        """True if the call in progress is observed."""
        return bool(self.inside) and not self.removed and threading.get_ident() not in self.refused

    def begin(self, inputs: Any) -> None:
        """Handle the start of a call of the model."""
        self.is_called = True
        frame = id(_call_frame(sys._getframe()))
        if not self._enter(frame):
            self._refuse(OVERLAPS)
            return
        self.has_gradients = has_gradients = torch.is_grad_enabled()
        self._keeps_tickets = self.awaits_step and not has_gradients
        if not self._keeps_tickets:
            self.tickets.clear()
            self.awaits_step = has_gradients
            self.is_copy = has_gradients and has_gradients_of_another()
            if self.is_copy:
                getattr(self.tap, "sent_elsewhere", lambda kinds: None)(OF_STEPS)
        wanted: bool | None = False
        try:
            if peek_interpreter_stack() is not None:
                self._refuse(_TRANSFORMED)
            elif not is_capturing():  # a CUDA graph has no values yet, and its replays call no module
                wanted = None
                wanted = self.tap.on_forward_start(inputs)
        finally:
            if wanted is False:
                self._leave()
            else:
                self.release()
                self.calls = {}  # gradients of earlier passes keep theirs
                self.entered.clear()
                self.assumed.clear()
                self.channels.clear()
                self.backward = self._backward_passes(inputs)
                axis = self._axis_to_follow()
                self.rows = None if axis is None else RowFollower(_main(inputs), axis, packs=self.packs)
                self._enter(frame)  # again, if a pass that the tap made has ended in its place

    def _enter(self, frame: int) -> bool:
        """Return whether a call may be observed, because no other thread is inside of one."""
        thread = threading.get_ident()
        with self.lock:
            if self.inside:  # perhaps by calls that were interrupted
                self.inside = {
                    one: alive for one, calls in self.inside.items() if (alive := _alive(one, calls))
                }
            if self.inside.keys() - {thread}:
                self.refused.add(thread)
                return False
            self.refused.discard(thread)
            outer = self.inside.get(thread, ())  # of a pass that the tap makes as a call begins
            self.inside[thread] = [*(one for one in outer if one != frame), frame]
            return True

    def _leave(self) -> bool:
        """Return whether the call that ends is an observed one."""
        thread = threading.get_ident()
        with self.lock:
            calls = self.inside.get(thread)
            if calls is None:
                return False
            calls.pop()
            if not calls:
                del self.inside[thread]
            return True

    def _refuse(self, why: str) -> None:
        told: Callable[[Exception], None] = getattr(self.tap, "refuse_call", self.on_error)
        told(InputError(why))

    def end(self, output: Any) -> None:
        """Handle the end of a call of the model."""
        if threading.get_ident() in self.refused:
            self.refused.discard(threading.get_ident())
            return
        self.is_called = False
        self.rows = None  # which holds autograd's graph
        if self._leave():
            if self.backward is not None:
                self.backward.observe(output)
                self.backward.end()
                self.backward = None
            self.tap.on_forward_end(output)

    def on_first_call_end(self) -> None:
        """Handle the end of the first call: if ``end`` was not called, it was interrupted."""
        try:
            with hidden():
                self.end(None)
        except Exception as error:
            self.on_error(error)

    def ran_outside(self, address: str) -> None:
        """Tell the tap of a module that ran outside of a call of the model, through another method."""
        if torch._C._current_graph_task_id() != -1:  # a checkpoint runs it again in backward
            if address in self.without_gradients:  # a reentrant one, where its gradients are
                self.without_gradients.discard(address)
                getattr(self.tap, "checkpointed", lambda address: None)(address)
            return
        self.outside.add(address)
        told = getattr(self.tap, "ran_outside", None)
        if told is not None:
            told(address)

    def stop(self) -> None:
        """Stop observing, including gradients of a backward pass still to come."""
        self.removed = True
        self.kinds = frozenset()
        self.tickets.clear()
        self.release()

    def release(self) -> None:
        """Remove hooks from the tensors that outlive a pass."""
        while self.undo_leaves:
            self.undo_leaves.pop()()

    def visit(self, address: str, type_: str, module: nn.Module) -> Visit | None:
        """Count a call of a module, and return it if the tap wants it."""
        with self.lock:
            call = self.calls[address] = self.calls.get(address, 0) + 1
        ticket = self.tap.wants(Operation(address, type_, module))
        if ticket is None:
            return None
        if not self._keeps_tickets:
            self.tickets[address] = ticket
        axis = batch_axis(module)
        return Visit.of(ticket, address, call, self.axes.get(address) if axis is None else axis)


def _show(tap: Tap, ticket: Any, address: str, get: Callable[[], Tensor | None]) -> bool:
    """Pass a parameter as it is now to the tap, and return whether it exists."""
    parameter = get()
    if parameter is not None and not is_capturing():
        with hidden():
            tap.on_tensor(ticket, captured(address, "parameter", 0, parameter, None))
    return parameter is not None


def _alive(thread: int, calls: list[int]) -> list[int]:
    """Return those of the frames that a thread is still inside of, as far as that can be known.

    A thread knows its own frames. Those of another one are not read while it runs, which may end the
    process: its calls count as under way until it ends.
    """
    if thread != threading.get_ident():
        return calls if any(one.ident == thread for one in threading.enumerate()) else []
    found, frame = set[int](), cast("FrameType | None", sys._getframe())
    while frame is not None:
        found.add(id(frame))
        frame = frame.f_back
    return [call for call in calls if call in found]


def _call_frame(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the innermost call of a module that a frame is inside of."""
    while frame is not None and frame.f_code is not nn.Module._call_impl.__code__:
        frame = frame.f_back
    return frame


def _side(kind: str) -> str:
    """Return whether a kind of tensor is of the inputs or the outputs of a module."""
    return "input" if kind.endswith("input") else "output"


def _main(value: Any) -> Tensor | Packed | None:
    """Return the main tensor of a call, or its packed items; None if it has none."""
    found = parts(value)
    main = main_part(found)
    if main is None:
        return None
    part = found[main][1]
    return Packed.of(part) if isinstance(part, PackedSequence) else part
