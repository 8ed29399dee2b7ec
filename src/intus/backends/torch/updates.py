"""Capture what an optimizer's step gets and does: gradients and updates of parameters; and count the steps.

A gradient is that which the optimizer applies, of all backward passes that accumulated in it, and after it
was clipped or unscaled. An update is the parameter after the step minus before.

They are observed with torch's global hooks around every optimizer's ``step``, which are removed with the
attachment. A step of another model's optimizer costs a lookup of its parameters' ids.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from ...core.collecting import is_collecting
from .eval_forward import is_capturing
from .loaders import is_trained
from .unseen import hidden, is_symbolic

UPDATE, GRADIENT = "update", "parameter_grad"

_UNKNOWN: tuple[Callable[[], Tensor | None], str, str] = (lambda: None, "", "")
_NO_OPTIMIZER = (
    "No optimizer of torch has the parameters of this {}, so that its steps are not seen. A row of "
    "parameter_grad is .grad after a backward pass, with all that has accumulated in it, and n is the number "
    "of these passes."
)


_left: deque[RemovableHandle] = deque()  # of hooks that do nothing any more


def _remove(handles: Iterable[RemovableHandle]) -> None:
    """Remove global hooks of torch, or leave it to the next call if the garbage collector runs.

    It may run in the middle of a step, in which torch goes through its hooks.
    """
    _left.extend(handles)
    while _left and not is_collecting():
        _left.popleft().remove()


class StepListener(Protocol):
    """The part of a ``Session`` that ``Steps`` uses."""

    kinds: frozenset[str]
    tickets: dict[str, Any]
    awaits_step: bool
    is_copy: bool

    def capture(self, ticket: Any, address: str, kind: str, tensor: Tensor) -> None:
        """Pass a tensor to the tap."""

    def on_error(self, error: Exception) -> None:
        """Pass an exception to the tap."""

    def note(self, text: str) -> None:
        """Tell the tap a fact about what is recorded."""

    def prepared(self, wall: float, processor: float) -> None:
        """Tell the tap of seconds of the two clocks that work for a pass took."""


class Steps:
    """Captures the gradients and updates of the parameters of an observed pass while an optimizer steps.

    Args:
        listener: Receives the gradients and updates, and has the tickets of the last pass.
        model: The model, of which no reference is kept.
    """

    def __init__(self, listener: StepListener, model: nn.Module) -> None:
        self._listener, self._model = listener, weakref.ref(model)
        self._parameters: dict[int, tuple[Callable[[], Tensor | None], str, str]] = {}
        self._copies: dict[int, Tensor] = {}
        self._given: dict[int, Any] = {}  # tickets of gradients of the steps that are under way
        self._are_visible: bool | None = None  # None if that is not known

    def add(self, parameter: nn.Parameter, owner: str, address: str) -> None:
        """Observe a parameter of the operation ``owner``."""
        self._parameters[id(parameter)] = weakref.ref(parameter), owner, address

    def clear(self) -> None:
        """Observe no parameter any more."""
        self._parameters.clear()

    def attach(self) -> list[Callable[[], None]]:
        """Register the hooks until the model's end, and return the functions that remove them before."""
        handles = (
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        )
        remove = weakref.finalize(self._model(), _remove, handles)
        remove.atexit = False
        return [remove]

    def are_visible(self) -> bool:
        """Return whether an optimizer steps the model, as far as known; if not, say so once."""
        if self._are_visible is None:
            began = time.perf_counter(), time.thread_time()
            model = self._model()
            self._are_visible = model is None or is_trained(model)
            if not self._are_visible:
                self._listener.note(_NO_OPTIMIZER.format(type(model).__name__))
            self._pay(began)
        return self._are_visible

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, named: Any) -> None:
        self._copies.clear()
        has_closure = _has_closure(args, named)
        if is_symbolic() or not (self._listener.tickets or has_closure):
            return
        try:
            began = time.perf_counter(), time.thread_time()
            with hidden():
                self._observe_before(optimizer, has_closure=has_closure)
            self._pay(began)
        except Exception as error:
            self._listener.on_error(error)

    def _observe_before(self, optimizer: torch.optim.Optimizer, *, has_closure: bool) -> None:
        if _is_skipped(optimizer) or self._listener.is_copy:
            return
        for parameter, owner, address in self._own(optimizer):
            if not (has_closure or owner in self._listener.tickets):
                continue
            if UPDATE in self._listener.kinds:
                self._copies[id(parameter)] = parameter.detach().clone()
            if not has_closure:  # which makes the gradients
                scale = getattr(optimizer, "grad_scale", None)
                self._capture_gradient(parameter, owner, address, scale)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, named: Any) -> None:
        copies, self._copies = self._copies, {}
        if is_symbolic():
            return
        try:
            with hidden():
                self._observe_after(optimizer, copies, has_closure=_has_closure(args, named))
            self._given.clear()
        except Exception as error:
            self._listener.on_error(error)

    def _observe_after(
        self, optimizer: torch.optim.Optimizer, copies: dict[int, Tensor], *, has_closure: bool
    ) -> None:
        for parameter, owner, address in self._own(optimizer):
            self._are_visible, self._listener.awaits_step = True, False
            if owner not in self._listener.tickets or self._listener.is_copy:
                continue
            if (before := copies.get(id(parameter))) is not None:
                change = parameter.detach() - before
                self._listener.capture(self._listener.tickets[owner], address, UPDATE, change)
            if has_closure:
                self._capture_gradient(parameter, owner, address)

    def _capture_gradient(
        self, parameter: Tensor, owner: str, address: str, scale: Tensor | None = None
    ) -> None:
        """Capture a gradient; ``scale`` is the factor that the step itself takes out of it."""
        gradient, ticket = parameter.grad, self._listener.tickets[owner]
        is_inside = self._given.get(id(parameter)) is ticket  # of the step of an optimizer that has this one
        if gradient is not None and GRADIENT in self._listener.kinds and not is_inside:
            self._given[id(parameter)] = ticket
            gradient = gradient if scale is None else gradient / scale
            self._listener.capture(ticket, address, GRADIENT, gradient)

    def _own(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[Tensor, str, str]]:
        """Yield the observed parameters of an optimizer, each with its operation and its address."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                reference, owner, address = self._parameters.get(id(parameter), _UNKNOWN)
                alive = reference()
                if alive is not None and alive is parameter:
                    yield alive, owner, address

    def _pay(self, began: tuple[float, float]) -> None:
        self._listener.prepared(time.perf_counter() - began[0], time.thread_time() - began[1])


class StepCounter:
    """Counts the steps of optimizers that have parameters of a model, fused ones too, until ``remove``.

    Args:
        model: The model, of which no reference is kept.
        before: A method, to be called before each such step with whether a closure makes its gradients. It is
            referred to weakly.
        after: A method, to be called after each such step with a closure. It is referred to weakly.
    """

    def __init__(self, model: nn.Module, before: Callable[[bool], None], after: Callable[[], None]) -> None:
        self._model = weakref.ref(model)
        self._before, self._after = weakref.WeakMethod(before), weakref.WeakMethod(after)
        self._own = {id(parameter) for parameter in model.parameters()}
        self._count = 0
        self._numbers: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()
        self._last: Callable[[], torch.optim.Optimizer | None] = lambda: None
        _remove(())
        self._handles = (
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        )

    def remove(self) -> None:
        """Stop counting."""
        self._own = set()
        _remove(self._handles)

    @property
    def done(self) -> int:
        """The number of steps so far of the parameters that the model had at the last ``count``."""
        return self._count

    def by(self) -> int:
        """Return a number of the optimizer that made the last step, of those that still exist; or 0."""
        optimizer = self._last()
        return 0 if optimizer is None else self._numbers[optimizer]

    def count(self) -> int:
        """Return the number of steps so far."""
        model = self._model()
        if model is not None:  # its layers may have been replaced
            self._own = {id(parameter) for parameter in model.parameters()}
        return self._count

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, named: Any) -> None:
        # inside backward no call of a model is observed, and in a graph that is captured none has values
        if is_symbolic() or torch._C._current_graph_task_id() != -1 or is_capturing():
            return
        with suppress(Exception):  # an unusual optimizer must not fail because it is observed
            closure = _has_closure(args, named)  # which makes the gradients
            if self._trains(optimizer, closure=closure) and (before := self._before()) is not None:
                with hidden():
                    before(closure)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, named: Any) -> None:
        if is_symbolic():
            return
        with suppress(Exception):
            if self._trains(optimizer):
                self._count += 1
                if self._last() is not optimizer:
                    self._numbers.setdefault(optimizer, self._count)
                    self._last = weakref.ref(optimizer)
                if _has_closure(args, named) and (after := self._after()) is not None:
                    with hidden():
                        after()

    def _trains(self, optimizer: torch.optim.Optimizer, *, closure: bool = False) -> bool:
        """Return whether a step changes the model: a parameter without a gradient is left alone."""
        return any(
            id(parameter) in self._own and (closure or parameter.grad is not None)
            for group in optimizer.param_groups
            for parameter in group["params"]
        )


def _has_closure(args: Any, named: Any) -> bool:
    """Return whether a step gets a function that computes the loss and its gradients."""
    return any(map(callable, (*args, *named.values())))


def _is_skipped(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a fused step does nothing, since ``GradScaler`` found gradients that overflowed."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)
