"""Register hooks on a model, keep them on its modules as these change, and remove them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from torch import nn

from ..base import Operation, Tap
from .first_call import after_first_call
from .hooks import OnBegin, OnEnd, OnEnter, OnExit, OnParameterGradient, parameter_address, unhook
from .layout import Layout
from .order import batch_axes, has_recurrent
from .session import Session
from .sharding import OF_PARAMETERS, address_of
from .updates import GRADIENT, UPDATE, Steps

#: Returns the operations of a model to observe, of all that it has now. It is told which of them are the same
#: modules at the same addresses as before.
Choose = Callable[[Callable[[Operation], bool]], list[Operation]]


class _Watched(NamedTuple):
    """The hooks on one module."""

    module: weakref.ref[nn.Module]
    on_exit: OnExit
    undo: list[Callable[[], None]]


class Attachment:
    """The hooks of one ``attach``. It keeps no reference to the model except through them."""

    def __init__(
        self, model: nn.Module, operations: list[Operation], kinds: tuple[str, ...], tap: Tap
    ) -> None:
        self._session = Session(kinds, tap)
        self._has_parameters = not self._session.kinds.isdisjoint(OF_PARAMETERS)
        self._steps = Steps(self._session, model)
        self._undo: list[Callable[[], None]] = []
        self._watched: dict[str, _Watched] = {}  # by address
        #: The parameters whose gradients are observed where backward makes them, and what removes the hooks.
        self._gradients: dict[str, tuple[weakref.ref[nn.Parameter], Callable[[], None]]] = {}
        #: The module that has what is recorded, by the address of the module or of a parameter.
        self.places: dict[str, weakref.ref[nn.Module]] = {}
        try:
            begin = OnBegin(self._session, self)
            self._add(model.register_forward_pre_hook(begin, prepend=True, with_kwargs=True))
            self._observe(model, operations)
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
        while self._watched:
            _run(self._watched.popitem()[1].undo)
        while self._gradients:
            self._gradients.popitem()[1][1]()

    def follow(self, model: nn.Module, choose: Choose) -> Mapping[str, weakref.ref[nn.Module]]:
        """Observe the model as it is now, if its modules or parameters are others than before.

        It must not be called while a module of the model other than itself runs.

        Args:
            model: The model; also a twin that has its attributes.
            choose: Called if they are others.

        Returns:
            The module that has what is recorded, by address; the same object as before if nothing changed.
        """
        if not self._session.removed and not self._layout.is_of(model, parameters=self._has_parameters):
            self._observe(model, choose(partial(_is_same, self._modules)))
        return self.places

    def _observe(self, model: nn.Module, operations: list[Operation]) -> None:
        """Put hooks on the modules of these operations, and take them off others."""
        session = self._session
        self._layout = Layout(model)
        self._modules = {address_of(name): weakref.ref(one) for name, one in model.named_modules()}
        session.axes = {address_of(name): axis for name, axis in batch_axes(model).items()}
        session.packs = has_recurrent(model)
        session.shown.clear()
        wanted = {operation.address: operation.module for operation in operations}
        for address, watched in [*self._watched.items()]:
            # a twin of the model has its hooks, whose dicts may be in use by a call of it
            if watched.module() is not wanted.get(address) and wanted.get(address) is not model:
                _run(self._watched.pop(address).undo)
        gradients, self._gradients = self._gradients, {}
        self.places = {}
        self._steps.clear()
        owners: set[int] = set()
        for operation in operations:
            self._watch(operation, owners, gradients)
        for _, undo in gradients.values():
            undo()

    def _watch(
        self,
        operation: Operation,
        owners: set[int],
        gradients: dict[str, tuple[weakref.ref[nn.Parameter], Callable[[], None]]],
    ) -> None:
        """Observe one module.

        Args:
            operation: The module.
            owners: The ids of parameters of earlier modules.
            gradients: The parameters whose gradients were observed before. Those that still are, are removed.
        """
        module, session = operation.module, self._session
        own = {name: p for name, p in module._parameters.items() if p is not None and id(p) not in owners}
        owners.update(map(id, own.values()))
        watched = self._watched.get(operation.address)
        if watched is None:
            watched = _Watched(weakref.ref(module), OnExit(session, operation), [])
            self._watched[operation.address] = watched
            if not session.kinds.isdisjoint({"input", "grad_input"}):
                enter = OnEnter(session, operation)
                watched.undo.append(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
            watched.undo.append(module.register_forward_hook(watched.on_exit).remove)
        watched.on_exit.parameters = list(own) if "parameter" in session.kinds else []
        self.places[operation.address] = watched.module
        for name, parameter in own.items():
            place = parameter_address(operation.address, name)
            if self._has_parameters:
                self.places[place] = watched.module
            self._steps.add(parameter, operation.address, place)
            known = gradients.get(place)
            is_observed = GRADIENT in session.kinds and isinstance(parameter, nn.Parameter)
            if is_observed and parameter.requires_grad:
                if known is not None and known[0]() is parameter:
                    self._gradients[place] = gradients.pop(place)
                else:
                    self._gradients[place] = self._watch_gradient(operation, place, parameter)

    def _add(self, handle: Any) -> None:
        self._undo.append(handle.remove)

    def _watch_gradient(
        self, operation: Operation, place: str, parameter: nn.Parameter
    ) -> tuple[weakref.ref[nn.Parameter], Callable[[], None]]:
        had = parameter._post_accumulate_grad_hooks is not None
        hook = OnParameterGradient(self._session, operation.address, place, self._steps.are_visible)
        handle = parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        undo = partial(unhook, handle, "_post_accumulate_grad_hooks", had, weakref.ref(parameter))
        return weakref.ref(parameter), undo


def _is_same(before: Mapping[str, weakref.ref[nn.Module]], operation: Operation) -> bool:
    """Return whether an operation is the module that was at its address before."""
    known = before.get(operation.address)
    return known is not None and known() is operation.module


def _run(undo: list[Callable[[], None]]) -> None:
    while undo:
        undo.pop()()
