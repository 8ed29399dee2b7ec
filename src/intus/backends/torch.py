"""PyTorch: forward hooks on the modules, tensor hooks for gradients, nothing left behind.

Rules that the field taught (tests hold each): a hook returns None, for a value would replace the output;
gradients are heard on the tensor, since full backward hooks break in-place operations; hooks are picklable
objects that come back as nothing, so a probed model can be saved and copied; arrays are copies, for the next
operation may write in place; a module that runs outside a call of the model (activation checkpointing runs
it again inside ``backward``) is not seen.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.address import Address
from ..core.nested import leaves
from .base import Handle, Operation, Seen, Tap, check_kinds
from .first_call import after_first_call
from .loaders import random_loader
from .order import batch_axis, first_batch, first_rows
from .quiet import run_quietly, unwrapped, version
from .updates import UPDATE, Updates
from .wide import projected, summary

#: Real dtypes that numpy knows; any other is widened to float32.
_NUMPY = {
    torch.float64, torch.float32, torch.float16, torch.bool, torch.uint8,
    torch.int8, torch.int16, torch.int32, torch.int64,
}  # fmt: skip


class TorchBackend:
    """Watches any ``torch.nn.Module``, unmodified."""

    name = "torch"

    def owns(self, model: Any) -> bool:
        """Whether it is a module."""
        return isinstance(model, nn.Module)

    def operations(self, model: nn.Module) -> list[Operation]:
        """Every module that can be called, once, under the first of its names; ``ModuleList`` cannot."""
        return [
            Operation(str(Address(name)), type(module).__name__, module)
            for name, module in model.named_modules()
            if type(module).forward is not nn.Module.forward or "forward" in vars(module)
        ]

    def mode(self, model: nn.Module) -> str:
        """The training flag."""
        return "train" if model.training else "eval"

    def inner(self, model: nn.Module, *, compiled: bool) -> nn.Module:
        """What ``DistributedDataParallel``, ``DataParallel`` and, if asked, ``torch.compile`` hold."""
        return unwrapped(model, compiled=compiled)

    def rows(self, inputs: Any, axis: int) -> int | None:
        """Of the first tensor that has the axis."""
        return first_rows(inputs, axis)

    def order(self, inputs: Any) -> bytes | None:
        """Out of the first tensor's numbers."""
        return first_batch(inputs)

    def shuffled(self) -> str | None:
        """A DataLoader with a random sampler."""
        return random_loader()

    def version(self, model: nn.Module) -> int:
        """Out of the parameters' versions, which in-place writes raise."""
        return version(model)

    def run(self, model: nn.Module, inputs: Any) -> None:
        """In eval mode, without gradients; see ``quiet.py`` for what is put back."""
        run_quietly(model, inputs)

    def attach(
        self, model: nn.Module, operations: Iterable[Operation], kinds: Collection[str], tap: Tap
    ) -> Handle:
        """Register the hooks. ``parameter_grad`` is what ``backward`` has accumulated in ``.grad``."""
        return _Attachment(model, list(operations), check_kinds(kinds), tap)


def to_numpy(tensor: Tensor, rows: int | None = None, axis: int = 0) -> np.ndarray:
    """A numpy copy of a tensor, C-contiguous, of its first ``rows`` along ``axis`` if given.

    bfloat16 and the 8-bit floats become float32. Raises TypeError for complex numbers.
    """
    if tensor.is_complex():
        raise TypeError(f"complex tensors ({tensor.dtype}) cannot be recorded")
    part = _first(tensor.detach(), rows, axis)
    shared = part.is_cpu and part.dtype in _NUMPY
    if part.dtype not in _NUMPY:
        part = part.float()
    array: np.ndarray = part.cpu().numpy()
    return np.array(array, order="C") if shared else np.asarray(array, order="C")


def to_projected(tensor: Tensor, rows: int | None = None, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Those rows projected, and their summary; see ``wide.py``."""
    if tensor.is_complex():
        raise TypeError(f"complex tensors ({tensor.dtype}) cannot be recorded")
    with torch.no_grad():
        part = _first(tensor.detach(), rows, axis).float()
        own = part if part.ndim == 3 else part.flatten(1)
        return to_numpy(projected(own)), to_numpy(summary(part.movedim(axis, 0).flatten(1)))


def _first(tensor: Tensor, rows: int | None, axis: int) -> Tensor:
    if rows is not None and tensor.ndim > axis and tensor.shape[axis] > rows:
        return tensor.narrow(axis, 0, rows)
    return tensor


def main_tensor(value: Any) -> tuple[int, Tensor] | None:
    """The first tensor that has rows, with its index among all; a scalar where there is no other.

    A model called with labels returns its loss first: the logits are what it says.
    """
    found = list(enumerate(leaves(value, Tensor)))
    return next((pair for pair in found if pair[1].ndim), found[0] if found else None)


def _seen(address: str, kind: str, index: int, tensor: Tensor, axis: int | None = None) -> Seen:
    size = tensor.element_size() if tensor.dtype in _NUMPY else 4
    copy, shape = partial(to_numpy, tensor), tuple(tensor.shape)
    axis = axis if len(shape) == 3 else None
    return Seen(address, kind, index, shape, tensor.numel() * size, copy, axis, partial(to_projected, tensor))


class _Session:
    """What the hooks of one attachment share. Holds no module and no tensor."""

    def __init__(self, kinds: tuple[str, ...], tap: Tap) -> None:
        self.kinds = frozenset(kinds)
        self.tap = tap
        self.inside: set[int] = set()  # threads that are inside a call of the model
        self.removed = False
        self.lock = threading.Lock()  # DataParallel calls replicas from threads
        self.calls: dict[str, int] = {}
        self.entered: dict[str, list[_Visit | None]] = {}
        self.tickets: dict[str, Any] = {}  # of the last pass, for gradients of parameters
        self.leaves: list[Callable[[], None]] = []  # take our hooks off tensors that outlive a pass

    def show(self, ticket: Any, address: str, kind: str, tensor: Tensor) -> None:
        """Show the tap what is neither input nor output."""
        self.tap.take(ticket, _seen(address, kind, 0, tensor))

    def fails(self, error: Exception) -> None:
        """Tell the tap of an exception, which goes no further."""
        self.tap.fails(error)

    @property
    def running(self) -> bool:
        """Whether what runs now is looked at."""
        return bool(self.inside) and not self.removed

    def begin(self, inputs: Any) -> None:
        self.inside.discard(threading.get_ident())  # of a call that was interrupted
        self.tickets.clear()
        wanted: bool | None = None
        try:
            wanted = self.tap.begins(inputs)
        finally:
            if wanted is not False:
                self.release()
                self.calls.clear()
                self.entered.clear()
                self.inside.add(threading.get_ident())

    def end(self, output: Any) -> None:
        thread = threading.get_ident()
        if thread in self.inside:
            self.inside.discard(thread)
            self.tap.ends(output)

    def left(self) -> None:
        """The first call is over; where ``end`` did not hear of it, it was interrupted."""
        try:
            with torch._C.DisableTorchFunction():
                self.end(None)
        except Exception as error:
            self.tap.fails(error)

    def release(self) -> None:
        while self.leaves:
            self.leaves.pop()()

    def visit(self, address: str, type_: str, module: nn.Module) -> _Visit | None:
        """Count one call of a module and ask the tap about it."""
        with self.lock:
            call = self.calls[address] = self.calls.get(address, 0) + 1
        ticket = self.tap.wants(Operation(address, type_, module))
        if ticket is None:
            return None
        self.tickets[address] = ticket
        place = address if call == 1 else f"{address}:{call}"
        return _Visit(ticket, place, call == 1, batch_axis(module))

    def offer(self, visit: _Visit, kind: str, value: Any) -> None:
        """Show the tap the main tensor of what went in or came out, and later its gradient."""
        gradient = f"grad_{kind}"
        if kind not in self.kinds and gradient not in self.kinds:
            return
        found = main_tensor(value)
        if found is None:
            return
        index, tensor = found
        if kind in self.kinds:
            self.tap.take(visit.ticket, _seen(visit.address, kind, index, tensor, visit.axis))
        if gradient in self.kinds and tensor.requires_grad:
            self._listen(tensor, _OnGradient(self, visit, gradient, index))

    def _listen(self, tensor: Tensor, hook: _OnGradient) -> None:
        had = tensor._backward_hooks is not None
        handle = tensor.register_hook(hook)  # type: ignore[no-untyped-call]
        if tensor.is_leaf:  # it may live on, and would gather a hook in every pass
            self.leaves.append(partial(_unhook, handle, "_backward_hooks", had, weakref.ref(tensor)))


class _Visit:
    """One call of one module that the tap wants."""

    __slots__ = ("address", "axis", "first", "ticket")

    def __init__(self, ticket: Any, address: str, first: bool, axis: int | None) -> None:
        self.ticket, self.address, self.first, self.axis = ticket, address, first, axis


class _Hook:
    """A hook that keeps its exceptions from the model, and that pickles and copies as a hook that does
    nothing and needs no intus to be loaded."""

    __slots__ = ("__weakref__", "session")
    __torch_unserializable__ = True  # torch warns about tensor hooks that pickling leaves behind

    def __init__(self, session: _Session) -> None:
        self.session = session

    def __call__(self, *args: Any) -> None:
        if torch.compiler.is_compiling():
            return
        try:
            with torch._C.DisableTorchFunction():  # a recorder of operations must not see ours
                self.look(*args)
        except Exception as error:
            self.session.tap.fails(error)

    def look(self, *args: Any) -> None:
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        # nullcontext().__exit__ takes anything and returns None: just what a hook may do.
        return getattr, (nullcontext(), "__exit__")


class _OnBegin(_Hook):
    __slots__ = ()

    def look(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if torch._C._current_graph_task_id() == -1:  # else a checkpoint runs the model again in backward
            self.session.begin((args, kwargs))


class _OnEnd(_Hook):
    __slots__ = ()

    def look(self, module: nn.Module, args: Any, output: Any) -> None:
        self.session.end(output)


class _OnModule(_Hook):
    """Costs nothing to speak of in a call that is not looked at."""

    __slots__ = ("address", "type")

    def __call__(self, *args: Any) -> None:
        if not torch.compiler.is_compiling() and self.session.inside:
            super().__call__(*args)

    def __init__(self, session: _Session, operation: Operation) -> None:
        super().__init__(session)
        self.address, self.type = operation.address, operation.type


class _OnEnter(_OnModule):
    """Inputs are read before the module runs, which may write into them."""

    __slots__ = ()

    def look(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        session = self.session
        if session.running:
            visit = session.visit(self.address, self.type, module)
            session.entered.setdefault(self.address, []).append(visit)
            if visit is not None:
                session.offer(visit, "input", (args, kwargs))


class _OnExit(_OnModule):
    """Outputs, and the module's own parameters (those that no module before it has)."""

    __slots__ = ("parameters",)

    def __init__(self, session: _Session, operation: Operation, parameters: list[str]) -> None:
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
        session.offer(visit, "output", output)
        for name in self.parameters if visit.first else ():
            parameter = module._parameters.get(name)
            if parameter is not None:
                seen = _seen(_inside(self.address, name), "parameter", 0, parameter)
                session.tap.take(visit.ticket, seen)


class _OnGradient(_Hook):
    __slots__ = ("address", "axis", "index", "kind", "ticket")

    def __init__(self, session: _Session, visit: _Visit, kind: str, index: int) -> None:
        super().__init__(session)
        self.ticket, self.address, self.kind, self.index = visit.ticket, visit.address, kind, index
        self.axis = visit.axis

    def look(self, gradient: Tensor) -> None:
        if self.session.kinds:
            seen = _seen(self.address, self.kind, self.index, gradient, self.axis)
            self.session.tap.take(self.ticket, seen)


class _OnParameterGradient(_Hook):
    __slots__ = ("address", "owner")

    def __init__(self, session: _Session, owner: str, address: str) -> None:
        super().__init__(session)
        self.owner, self.address = owner, address

    def look(self, parameter: Tensor) -> None:
        ticket = self.session.tickets.get(self.owner)
        if ticket is not None and parameter.grad is not None:
            self.session.tap.take(ticket, _seen(self.address, "parameter_grad", 0, parameter.grad))


class _Attachment:
    """The hooks of one ``attach``; holds the model only through them."""

    def __init__(
        self, model: nn.Module, operations: list[Operation], kinds: tuple[str, ...], tap: Tap
    ) -> None:
        self._session = _Session(kinds, tap)
        self._updates = Updates(self._session)
        self._undo: list[Callable[[], None]] = []
        try:
            begin = _OnBegin(self._session)
            self._add(model.register_forward_pre_hook(begin, prepend=True, with_kwargs=True))
            owners: set[int] = set()
            for operation in operations:
                self._watch(operation, owners)
            if UPDATE in self._session.kinds:
                self._undo += self._updates.attach()
            self._add(model.register_forward_hook(_OnEnd(self._session), always_call=True))
            self._undo.append(after_first_call(model, self._session.left))
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        self._session.removed = True
        self._session.kinds = frozenset()  # gradients still to come in a backward pass are not looked at
        self._session.tickets.clear()
        self._session.release()
        while self._undo:
            self._undo.pop()()

    def _watch(self, operation: Operation, owners: set[int]) -> None:
        """Hook one module; ``owners`` holds the ids of parameters that a module before it has."""
        module, session = operation.module, self._session
        own = {name: p for name, p in module._parameters.items() if p is not None and id(p) not in owners}
        owners.update(map(id, own.values()))
        if not session.kinds.isdisjoint({"input", "grad_input"}):
            self._add(module.register_forward_pre_hook(_OnEnter(session, operation), with_kwargs=True))
        self._add(module.register_forward_hook(_OnExit(session, operation, list(own))))
        for name, parameter in own.items():
            self._updates.add(parameter, operation.address, _inside(operation.address, name))
            if "parameter_grad" in session.kinds and parameter.requires_grad:
                self._watch_gradient(operation, name, parameter)

    def _add(self, handle: Any) -> None:
        self._undo.append(handle.remove)

    def _watch_gradient(self, operation: Operation, name: str, parameter: Tensor) -> None:
        had = parameter._post_accumulate_grad_hooks is not None
        hook = _OnParameterGradient(self._session, operation.address, _inside(operation.address, name))
        handle = parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        slot = "_post_accumulate_grad_hooks"
        self._undo.append(partial(_unhook, handle, slot, had, weakref.ref(parameter)))


def _unhook(handle: Any, slot: str, had: bool, ref: weakref.ref[Tensor]) -> None:
    """Remove a hook from a tensor, and the empty dict that torch would leave in its place."""
    handle.remove()
    tensor = ref()
    if tensor is not None and not had and not getattr(tensor, slot):
        setattr(tensor, slot, None)


def _inside(address: str, name: str) -> str:
    """Address of a parameter of a module."""
    own = str(Address(name))
    return f"{address}.{own}" if address else own
