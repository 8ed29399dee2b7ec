"""What an optimizer's step does to the parameters: after minus before.

torch's own hooks around every optimizer's ``step`` tell of it. They belong to the process, and are taken off
with the attachment; a step of another model's optimizer costs a look at its parameters' ids.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

UPDATE = "update"

_NOTHING: tuple[Callable[[], Tensor | None], str, str] = (lambda: None, "", "")


class UpdateListener(Protocol):
    """What ``Updates`` asks of the attachment."""

    tickets: dict[str, Any]

    def show(self, ticket: Any, address: str, kind: str, tensor: Tensor) -> None: ...
    def on_error(self, error: Exception) -> None: ...


class Updates:
    """Keeps a copy of the parameters of a watched pass while an optimizer steps."""

    def __init__(self, watching: UpdateListener) -> None:
        self._watching = watching
        self._of: dict[int, tuple[Callable[[], Tensor | None], str, str]] = {}
        self._before: dict[int, tuple[Any, Tensor]] = {}

    def add(self, parameter: nn.Parameter, owner: str, address: str) -> None:
        """Watch a parameter of the operation ``owner``."""
        self._of[id(parameter)] = weakref.ref(parameter), owner, address

    def attach(self) -> list[Callable[[], None]]:
        """Register the hooks; returns what takes them off."""
        handles = (
            register_optimizer_step_pre_hook(self._begins),
            register_optimizer_step_post_hook(self._ends),
        )
        return [handle.remove for handle in handles]

    def _begins(self, optimizer: torch.optim.Optimizer, *given: Any) -> None:
        self._before.clear()
        tickets = self._watching.tickets
        if torch.compiler.is_compiling() or not tickets:
            return
        try:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    known, owner, _ = self._of.get(id(parameter), _NOTHING)
                    held = known()
                    if held is not None and held is parameter and owner in tickets:
                        self._before[id(held)] = tickets[owner], held.detach().clone()
        except Exception as error:
            self._watching.on_error(error)

    def _ends(self, optimizer: torch.optim.Optimizer, *given: Any) -> None:
        held, self._before = self._before, {}
        try:
            for key, (ticket, before) in held.items():
                parameter, _, address = self._of[key]
                now = parameter()
                if now is not None:
                    self._watching.show(ticket, address, UPDATE, now.detach() - before)
        except Exception as error:
            self._watching.on_error(error)
