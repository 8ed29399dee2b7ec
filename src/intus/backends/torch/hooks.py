"""The hooks: each passes tensors, or the start and end of a call, to the session."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ...core.address import Address
from ..base import Operation
from ..visit import Visit, gradient_address
from .captured_tensor import Part, main_part, parts
from .session import Session
from .unseen import has_proxies, hidden, is_check_of_tracer, is_symbolic

_NOT_SCRIPTED = (
    "torch.jit.script compiles the hooks of modules, and cannot compile those of intus.probe. Script the "
    "model before probe() or after watch.remove(), or use torch.jit.trace, which leaves hooks out."
)


class _Hook:
    """A hook that never raises into the model.

    It is pickled and copied as a hook that does nothing, which does not require intus to be loaded.
    """

    __slots__ = ("__weakref__", "session")
    __torch_unserializable__ = True  # suppresses torch's warning about tensor hooks when pickling

    def __init__(self, session: Session) -> None:
        self.session = session

    def __call__(self, *args: Any) -> None:
        if is_symbolic():
            return
        try:
            with hidden():
                self.observe(*args)
        except Exception as error:
            self.session.on_error(error)

    @property
    def __name__(self) -> str:
        """Refuse to be compiled by ``torch.jit.script``, which asks for the name first."""
        raise AttributeError(_NOT_SCRIPTED)

    def observe(self, *args: Any) -> None:
        """Do the work of the hook; exceptions are passed to the tap."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        # nullcontext().__exit__ accepts any arguments and returns None, as a hook must.
        return getattr, (nullcontext(), "__exit__")


class OnBegin(_Hook):
    """Reports the start of a call of the model.

    It keeps ``attachment``, which follows changes of the model, as long as the model has its hooks.
    """

    __slots__ = ("attachment",)

    def __init__(self, session: Session, attachment: object) -> None:
        super().__init__(session)
        self.attachment = attachment

    def observe(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Start observing, unless this is no call of the script: a recomputation, or a pass of a tracer."""
        if torch._C._current_graph_task_id() != -1:  # a checkpoint runs the model again in backward
            return
        if has_proxies(args, kwargs) or is_check_of_tracer():
            self.session.is_called = True
        else:
            self.session.begin((args, kwargs))


class OnEnd(_Hook):
    """Reports the end of a call of the model."""

    __slots__ = ()

    def observe(self, module: nn.Module, args: Any, output: Any) -> None:
        """Stop observing."""
        self.session.end(output)


class OnModule(_Hook):
    """Base class of hooks on modules, with negligible cost in a call that is not observed."""

    __slots__ = ("address", "type")

    def __init__(self, session: Session, operation: Operation) -> None:
        super().__init__(session)
        self.address, self.type = operation.address, operation.type

    def __call__(self, *args: Any) -> None:
        """Observe the call if the model is running."""
        if torch.compiler.is_compiling():  # first: the compiler takes it for a constant
            return
        session = self.session
        if session.inside:
            super().__call__(*args)
        elif not (
            session.is_called or self.address in session.outside or is_symbolic() or has_proxies(*args[1:])
        ):
            session.ran_outside(self.address)

    def offer(self, visit: Visit, kind: str, value: Any) -> None:
        """Capture the main tensor of a module's inputs or outputs, and later its gradient."""
        session, gradient = self.session, f"grad_{kind}"
        if kind not in session.kinds and gradient not in session.kinds:
            return
        found = parts(value)
        index = main_part(found)
        if index is None:
            return
        part = found[index][1]
        if kind in session.kinds:
            if kind == "output":
                packed = isinstance(part, PackedSequence)
                session.several.tell(self.address, [path for path, _ in found], index, packed=packed)
            session.capture(
                *(visit.ticket, visit.address, kind, part, index, visit.axis),
                channels_first=session.channels.have(part),
            )
        tensor = part.data if isinstance(part, PackedSequence) else part
        if gradient in session.kinds and tensor.requires_grad:
            _hook_gradient(tensor, OnGradient(session, self.address, visit, gradient, index, part))
        elif gradient in session.kinds and session.has_gradients and not torch.is_grad_enabled():
            session.without_gradients.add(self.address)


class OnEnter(OnModule):
    """Captures the inputs before the module runs, which may write to them."""

    __slots__ = ()

    def observe(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Count the module call, and capture its inputs if the tap wants it."""
        session = self.session
        if session.running:
            session.channels.enter(module, (args, kwargs))
            visit = session.visit(self.address, self.type, module)
            session.entered.setdefault(self.address, []).append(visit)
            if visit is not None:
                if session.rows is not None:
                    session.locate(visit, (args, kwargs))
                self.offer(visit, "input", (args, kwargs))


class OnExit(OnModule):
    """Captures the outputs, and the module's parameters except those that an earlier module has."""

    __slots__ = ("owner", "parameters")

    def __init__(self, session: Session, operation: Operation) -> None:
        super().__init__(session, operation)
        self.parameters: list[str] = []  # the names of those to capture
        self.owner = weakref.ref(operation.module)

    def observe(self, module: nn.Module, args: Any, output: Any) -> None:
        """Capture the outputs, and after the module's first call its parameters, as the tap wants them."""
        session = self.session
        if not session.running:
            return
        session.channels.leave(module, args, output)
        if session.backward is not None:
            session.backward.observe(output)
        entered = session.entered.get(self.address)
        visit = entered.pop() if entered else session.visit(self.address, self.type, module)
        if visit is None:
            return
        if session.rows is not None:
            session.follow(visit, module, args, output)
        self.offer(visit, "output", output)
        for name in self.parameters if visit.first else ():
            place = parameter_address(self.address, name)
            session.show_parameter(visit.ticket, place, partial(_parameter, self.owner, name))


class OnGradient(_Hook):
    """Captures the gradient of an input or output of a module, of packed items packed like them."""

    __slots__ = (
        "address", "axis", "calls", "channels_first", "index", "kind", "number", "operation", "packing",
        "ticket",
    )  # fmt: skip

    def __init__(
        self, session: Session, operation: str, visit: Visit, kind: str, index: int, part: Part
    ) -> None:
        super().__init__(session)
        self.operation, self.calls, self.number = operation, session.calls, 0
        self.ticket, self.address, self.kind, self.index = visit.ticket, visit.address, kind, index
        self.axis, self.channels_first = visit.axis, session.channels.have(part)
        self.packing = tuple(part)[1:] if isinstance(part, PackedSequence) else None  # all but the values

    def observe(self, gradient: Tensor) -> None:
        """Capture the gradient, unless the probe was removed."""
        if not self.session.kinds:
            return
        part = gradient if self.packing is None else PackedSequence(gradient, *self.packing)
        self.number += 1
        address = gradient_address(self.operation, self.address, self.number, self.calls[self.operation])
        self.session.capture(
            *(self.ticket, address, self.kind, part, self.index, self.axis, self.address),
            channels_first=self.channels_first,
        )


class OnParameterGradient(_Hook):
    """Captures the gradient that ``backward`` accumulated for a parameter, if no optimizer steps it."""

    __slots__ = ("address", "are_steps_visible", "owner")

    def __init__(
        self, session: Session, owner: str, address: str, are_steps_visible: Callable[[], bool]
    ) -> None:
        super().__init__(session)
        self.owner, self.address, self.are_steps_visible = owner, address, are_steps_visible

    def observe(self, parameter: Tensor) -> None:
        """Capture the gradient, if the last pass was observed."""
        ticket = None if self.session.is_copy else self.session.tickets.get(self.owner)
        if ticket is not None and parameter.grad is not None and not self.are_steps_visible():
            self.session.capture(ticket, self.address, "parameter_grad", parameter.grad)


def _parameter(owner: weakref.ref[nn.Module], name: str) -> Tensor | None:
    """Return a parameter that a module has now, also if it was replaced; None if there is none."""
    module = owner()
    return None if module is None else module._parameters.get(name)


def _hook_gradient(tensor: Tensor, hook: OnGradient) -> None:
    """Register a gradient hook on a tensor."""
    had = tensor._backward_hooks is not None
    handle = tensor.register_hook(hook)  # type: ignore[no-untyped-call]
    if tensor.is_leaf:  # it may outlive the pass, and would get another hook in each
        undo = partial(unhook, handle, "_backward_hooks", had, weakref.ref(tensor))
        hook.session.undo_leaves.append(undo)


def unhook(handle: Any, slot: str, had_hooks: bool, ref: weakref.ref[Tensor]) -> None:
    """Remove a hook from a tensor, and the empty dict that torch would leave behind."""
    handle.remove()
    tensor = ref()
    if tensor is not None and not had_hooks and not getattr(tensor, slot):
        setattr(tensor, slot, None)


def parameter_address(address: str, name: str) -> str:
    """Return the address of a module's parameter."""
    own = str(Address(name))
    return f"{address}.{own}" if address else own
