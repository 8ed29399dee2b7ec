"""Register hooks on a model, and remove them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from ..base import Operation, Tap
from .first_call import after_first_call
from .hooks import OnBegin, OnEnd, OnEnter, OnExit, OnParameterGradient, parameter_address, unhook
from .order import batch_axes, has_recurrent
from .session import Session
from .sharding import address_of
from .updates import GRADIENT, UPDATE, Steps


class Attachment:
    """The hooks of one ``attach``. It keeps no reference to the model except through them."""

    def __init__(
        self, model: nn.Module, operations: list[Operation], kinds: tuple[str, ...], tap: Tap
    ) -> None:
        self._session = Session(kinds, tap)
        self._session.axes = {address_of(name): axis for name, axis in batch_axes(model).items()}
        self._session.packs = has_recurrent(model)
        self._steps = Steps(self._session, model)
        self._undo: list[Callable[[], None]] = []
        try:
            begin = OnBegin(self._session)
            self._add(model.register_forward_pre_hook(begin, prepend=True, with_kwargs=True))
            owners: set[int] = set()
            for operation in operations:
                self._watch(operation, owners)
            if not self._session.kinds.isdisjoint({UPDATE, GRADIENT}):
                self._undo += self._steps.attach()
            self._add(model.register_forward_hook(OnEnd(self._session), always_call=True))
            self._undo.append(after_first_call(model, self._session.on_first_call_end))
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove all hooks. Calling it again has no effect."""
        self._session.stop()
        while self._undo:
            self._undo.pop()()

    def _watch(self, operation: Operation, owners: set[int]) -> None:
        """Register hooks on one module; ``owners`` has the ids of parameters of earlier modules."""
        module, session = operation.module, self._session
        own = {name: p for name, p in module._parameters.items() if p is not None and id(p) not in owners}
        owners.update(map(id, own.values()))
        if not session.kinds.isdisjoint({"input", "grad_input"}):
            self._add(module.register_forward_pre_hook(OnEnter(session, operation), with_kwargs=True))
        self._add(module.register_forward_hook(OnExit(session, operation, list(own))))
        for name, parameter in own.items():
            self._steps.add(parameter, operation.address, parameter_address(operation.address, name))
            if GRADIENT in session.kinds and parameter.requires_grad:
                self._watch_gradient(operation, name, parameter)

    def _add(self, handle: Any) -> None:
        self._undo.append(handle.remove)

    def _watch_gradient(self, operation: Operation, name: str, parameter: Tensor) -> None:
        had = parameter._post_accumulate_grad_hooks is not None
        place = parameter_address(operation.address, name)
        hook = OnParameterGradient(self._session, operation.address, place, self._steps.are_visible)
        handle = parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        slot = "_post_accumulate_grad_hooks"
        self._undo.append(partial(unhook, handle, slot, had, weakref.ref(parameter)))
