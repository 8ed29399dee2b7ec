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
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)
        self._own = {id(parameter) for parameter in model.parameters()}
        self._count = 0
        self.remove = register_optimizer_step_post_hook(self._after_step).remove

    def count(self) -> int:
        """Return the number of steps so far."""
        model = self._model()
        if model is not None:  # its layers may have been replaced
            self._own = {id(parameter) for parameter in model.parameters()}
        return self._count

    def _after_step(self, optimizer: torch.optim.Optimizer, *given: Any) -> None:
        if torch.compiler.is_compiling():
            return
        with suppress(Exception):  # an unusual optimizer must not fail because it is observed
            if any(
                id(parameter) in self._own and parameter.grad is not None  # without one, it is left alone
                for group in optimizer.param_groups
                for parameter in group["params"]
            ):
                self._count += 1
