"""The hooks themselves: each looks at what passes by and shows it to the tap."""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...core.address import Address
from ..base import Operation
from .captured_tensor import main_tensor
from .session import Session, Visit


class _Hook:
    """A hook that keeps its exceptions from the model, and that pickles and copies as a hook that does
    nothing and needs no intus to be loaded."""

    __slots__ = ("__weakref__", "session")
    __torch_unserializable__ = True  # torch warns about tensor hooks that pickling leaves behind

    def __init__(self, session: Session) -> None:
        self.session = session

    def __call__(self, *args: Any) -> None:
        if torch.compiler.is_compiling():
            return
        try:
            with torch._C.DisableTorchFunction():  # a recorder of operations must not see ours
                self.look(*args)
        except Exception as error:
            self.session.on_error(error)

    def look(self, *args: Any) -> None:
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        # nullcontext().__exit__ takes anything and returns None: just what a hook may do.
        return getattr, (nullcontext(), "__exit__")


class OnBegin(_Hook):
    """The model is called."""

    __slots__ = ()

    def look(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if torch._C._current_graph_task_id() == -1:  # else a checkpoint runs the model again in backward
            self.session.begin((args, kwargs))


class OnEnd(_Hook):
    """The model has returned."""

    __slots__ = ()

    def look(self, module: nn.Module, args: Any, output: Any) -> None:
        self.session.end(output)


class OnModule(_Hook):
    """Costs nothing to speak of in a call that is not looked at."""

    __slots__ = ("address", "type")

    def __init__(self, session: Session, operation: Operation) -> None:
        super().__init__(session)
        self.address, self.type = operation.address, operation.type

    def __call__(self, *args: Any) -> None:
        if not torch.compiler.is_compiling() and self.session.inside:
            super().__call__(*args)

    def offer(self, visit: Visit, kind: str, value: Any) -> None:
        """Show the tap the main tensor of what went in or came out, and later its gradient."""
        session, gradient = self.session, f"grad_{kind}"
        if kind not in session.kinds and gradient not in session.kinds:
            return
        found = main_tensor(value)
        if found is None:
            return
        index, tensor = found
        if kind in session.kinds:
            session.show(visit.ticket, visit.address, kind, tensor, index, visit.axis)
        if gradient in session.kinds and tensor.requires_grad:
            _listen(tensor, OnGradient(session, visit, gradient, index))


class OnEnter(OnModule):
    """Inputs are read before the module runs, which may write into them."""

    __slots__ = ()

    def look(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        session = self.session
        if session.running:
            visit = session.visit(self.address, self.type, module)
            session.entered.setdefault(self.address, []).append(visit)
            if visit is not None:
                self.offer(visit, "input", (args, kwargs))


class OnExit(OnModule):
    """Outputs, and the module's own parameters (those that no module before it has)."""

    __slots__ = ("parameters",)

    def __init__(self, session: Session, operation: Operation, parameters: list[str]) -> None:
        super().__init__(session, operation)
        self.parameters = parameters if "parameter" in session.kinds else []

    def look(self, module: nn.Module, args: Any, output: Any) -> None:
        session = self.session
        if not session.running:
            return
        entered = session.entered.get(self.address)
        visit = entered.pop() if entered else session.visit(self.address, self.type, module)
        if visit is None:
            return
        self.offer(visit, "output", output)
        for name in self.parameters if visit.first else ():
            parameter = module._parameters.get(name)
            if parameter is not None:
                session.show(visit.ticket, parameter_address(self.address, name), "parameter", parameter)


class OnGradient(_Hook):
    """The gradient of a tensor that went into a module or came out of it."""

    __slots__ = ("address", "axis", "index", "kind", "ticket")

    def __init__(self, session: Session, visit: Visit, kind: str, index: int) -> None:
        super().__init__(session)
        self.ticket, self.address, self.kind, self.index = visit.ticket, visit.address, kind, index
        self.axis = visit.axis

    def look(self, gradient: Tensor) -> None:
        if self.session.kinds:
            self.session.show(self.ticket, self.address, self.kind, gradient, self.index, self.axis)


class OnParameterGradient(_Hook):
    """What ``backward`` has accumulated of a parameter's gradient."""

    __slots__ = ("address", "owner")

    def __init__(self, session: Session, owner: str, address: str) -> None:
        super().__init__(session)
        self.owner, self.address = owner, address

    def look(self, parameter: Tensor) -> None:
        ticket = self.session.tickets.get(self.owner)
        if ticket is not None and parameter.grad is not None:
            self.session.show(ticket, self.address, "parameter_grad", parameter.grad)


def _listen(tensor: Tensor, hook: OnGradient) -> None:
    had = tensor._backward_hooks is not None
    handle = tensor.register_hook(hook)  # type: ignore[no-untyped-call]
    if tensor.is_leaf:  # it may live on, and would gather a hook in every pass
        leave = partial(unhook, handle, "_backward_hooks", had, weakref.ref(tensor))
        hook.session.leaves.append(leave)


def unhook(handle: Any, slot: str, had: bool, ref: weakref.ref[Tensor]) -> None:
    """Remove a hook from a tensor, and the empty dict that torch would leave in its place."""
    handle.remove()
    tensor = ref()
    if tensor is not None and not had and not getattr(tensor, slot):
        setattr(tensor, slot, None)


def parameter_address(address: str, name: str) -> str:
    """Address of a parameter of a module."""
    own = str(Address(name))
    return f"{address}.{own}" if address else own
