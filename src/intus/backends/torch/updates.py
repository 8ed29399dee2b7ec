"""Capture parameter updates, the parameters after an optimizer's step minus before, and count the steps.

They are observed with torch's global hooks around every optimizer's ``step``, which are removed with the
attachment. A step of another model's optimizer costs a lookup of its parameters' ids.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .eval_forward import is_capturing

UPDATE = "update"

_UNKNOWN: tuple[Callable[[], Tensor | None], str, str] = (lambda: None, "", "")


class UpdateListener(Protocol):
    """The part of a ``Session`` that ``Updates`` uses."""

    tickets: dict[str, Any]

    def capture(self, ticket: Any, address: str, kind: str, tensor: Tensor) -> None:
        """Pass a tensor to the tap."""

    def on_error(self, error: Exception) -> None:
        """Pass an exception to the tap."""


class Updates:
    """Keeps copies of the parameters of an observed pass while an optimizer steps.

    Args:
        listener: Receives the updates, and has the tickets of the last pass.
    """

    def __init__(self, listener: UpdateListener) -> None:
        self._listener = listener
        self._parameters: dict[int, tuple[Callable[[], Tensor | None], str, str]] = {}
        self._copies: dict[int, tuple[Any, Tensor]] = {}

    def add(self, parameter: nn.Parameter, owner: str, address: str) -> None:
        """Observe a parameter of the operation ``owner``."""
        self._parameters[id(parameter)] = weakref.ref(parameter), owner, address

    def attach(self) -> list[Callable[[], None]]:
        """Register the hooks, and return the functions that remove them."""
        handles = (
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        )
        return [handle.remove for handle in handles]

    def _before_step(self, optimizer: torch.optim.Optimizer, *given: Any) -> None:
        self._copies.clear()
        tickets = self._listener.tickets
        if torch.compiler.is_compiling() or not tickets:
            return
        try:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    reference, owner, _ = self._parameters.get(id(parameter), _UNKNOWN)
                    alive = reference()
                    if alive is not None and alive is parameter and owner in tickets:
                        self._copies[id(alive)] = tickets[owner], alive.detach().clone()
        except Exception as error:
            self._listener.on_error(error)

    def _after_step(self, optimizer: torch.optim.Optimizer, *given: Any) -> None:
        copies, self._copies = self._copies, {}
        try:
            for key, (ticket, before) in copies.items():
                parameter, _, address = self._parameters[key]
                after = parameter()
                if after is not None:
                    self._listener.capture(ticket, address, UPDATE, after.detach() - before)
        except Exception as error:
            self._listener.on_error(error)


class StepCounter:
    """Counts the steps of optimizers that have parameters of a model, fused ones too, until ``remove``.

    Args:
        model: The model, of which no reference is kept.
        before: A method, to be called before each such step. It is referred to weakly.
    """

    def __init__(self, model: nn.Module, before: Callable[[], None]) -> None:
        self._model, self._before = weakref.ref(model), weakref.WeakMethod(before)
        self._own = {id(parameter) for parameter in model.parameters()}
        self._count = 0
        self._handles = (
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        )

    def remove(self) -> None:
        """Stop to count."""
        for handle in self._handles:
            handle.remove()

    @property
    def done(self) -> int:
        """The number of steps so far of the parameters that the model had at the last ``count``."""
        return self._count

    def count(self) -> int:
        """Return the number of steps so far."""
        model = self._model()
        if model is not None:  # its layers may have been replaced
            self._own = {id(parameter) for parameter in model.parameters()}
        return self._count

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, named: Any) -> None:
        # inside backward no call of a model is observed, and in a graph that is captured none has values
        if torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1 or is_capturing():
            return
        with suppress(Exception):  # an unusual optimizer must not fail because it is observed
            closure = any(map(callable, (*args, *named.values())))  # which makes the gradients
            if self._trains(optimizer, closure=closure) and (before := self._before()) is not None:
                before()

    def _after_step(self, optimizer: torch.optim.Optimizer, *given: Any) -> None:
        if torch.compiler.is_compiling():
            return
        with suppress(Exception):
            if self._trains(optimizer):
                self._count += 1

    def _trains(self, optimizer: torch.optim.Optimizer, *, closure: bool = False) -> bool:
        """Return whether a step changes the model: a parameter without a gradient is left alone."""
        return any(
            id(parameter) in self._own and (closure or parameter.grad is not None)
            for group in optimizer.param_groups
            for parameter in group["params"]
        )
