"""Equinox: models are trees of arrays, of which tapped copies are made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax

from ..base import Operation
from . import library
from .interception import PLACE, Intercepted, Place, active, dotted, is_passed, passing
from .library import Leaves, Opened, Path, StateArray, call_model, callable_modules, elements, not_found

logger = logging.getLogger("intus.backends")
_UNITS_LAST = frozenset({"Linear", "LayerNorm", "RMSNorm", "Embedding", "MultiheadAttention"})


class Equinox:
    """Equinox; see ``Library`` for the contract of each method."""

    expected = "step(model, …)"
    parts: tuple[type, ...] = (eqx.Module,)

    def __init__(self) -> None:
        #: Which of several models it is, by the form of the arguments.
        self._chosen: dict[Any, int | None] = {}

    def owns(self, model: Any) -> bool:
        """Return whether this is an Equinox module."""
        return isinstance(model, eqx.Module)

    def operations(self, model: eqx.Module) -> list[Operation]:
        """Return the modules that have a ``__call__``, in order of declaration."""
        return callable_modules(modules(model))

    def parameters(self, operation: Operation) -> list[str]:
        """Return the names of a module's own arrays of floating-point numbers."""
        return [dotted(path) for path, _ in own_parameters(operation.module, set())]

    def unit_axis(self, module: Any, ndim: int) -> int | None:
        """Return the axis of units of a batch of outputs: Equinox has channels first, after the batch."""
        name = type(module).__name__
        if not type(module).__module__.startswith("equinox.nn") or ndim < 2:
            return None
        if name.startswith("Conv"):
            return 1
        return ndim - 1 if name in _UNITS_LAST else None

    def training(self, model: eqx.Module) -> Callable[[], bool]:
        """Return a function that returns whether any module has ``inference=False``."""
        flags = [getattr(module, "inference", None) for _, module in modules(model)]
        flags = [flag for flag in flags if isinstance(flag, bool)]
        is_training = not flags or not all(flags)
        return lambda: is_training

    def tells_mode(self, model: eqx.Module) -> bool:
        """Return False: ``inference`` is part of a value, and steps may get other values."""
        return False

    def setting(self, value: Any) -> None:
        """Return None: no value of this library tells the mode."""

    def state(self, model: eqx.Module) -> list[StateArray]:
        """Return all arrays; those of floating-point numbers are parameters."""
        return [
            StateArray(dotted(path), value, eqx.is_inexact_array(value))
            for path, value in _leaves(model, ())
            if eqx.is_array(value)
        ]

    def arrays(self, model: eqx.Module) -> tuple[list[Any], Callable[[Sequence[Any]], eqx.Module]]:
        """Return the arrays among the leaves, and a function that makes the module of others."""
        leaves, tree = jax.tree.flatten(model)
        split = Leaves.of(leaves, numbers=False)
        return split.arrays, lambda arrays: jax.tree.unflatten(tree, split.joined(arrays))

    def open(self, model: eqx.Module, args: Any, kwargs: Any, *, numbers: bool) -> Opened:
        """Return the leaves of the arguments. ``rebuild`` replaces all trees built like the model."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        occurrences = jax.tree.leaves((args, kwargs), is_leaf=lambda value: type(value) is type(model))
        occurrences = [value for value in occurrences if type(value) is type(model)]
        if not occurrences:
            raise not_found(model, self.expected)
        if tree not in self._chosen:  # later steps get other arrays
            self._chosen[tree] = self._choose(model, occurrences)
        chosen = self._chosen[tree]
        split = Leaves.of(leaves, numbers=False)

        def rebuild(arrays: Any) -> Any:
            number = -1

            def tapped(value: Any) -> Any:
                nonlocal number
                if type(value) is not type(model):
                    return value
                number += 1
                return _tapped_copy(value, (), chosen in (None, number), set())

            given = jax.tree.unflatten(tree, split.joined(arrays))
            return jax.tree.map(tapped, given, is_leaf=lambda value: type(value) is type(model))

        return Opened((tree, split.key), split.arrays, rebuild)

    def _choose(self, model: eqx.Module, occurrences: Sequence[Any]) -> int | None:
        """Return which tree is the model: that of the same arrays, else the first; None if none is whole."""
        whole = jax.tree.structure(model)
        found = [i for i, one in enumerate(occurrences) if jax.tree.structure(one) == whole]
        same = [i for i in found if all(map(_is_same, *map(jax.tree.leaves, (occurrences[i], model))))]
        if len(found) > 1 and len(same) != 1:
            logger.warning(
                "intus: the step has %s arguments that may be the probed %s, of which %s have its arrays, so "
                "the first is taken for it. Call probe with the model that goes into the first step.",
                len(found),
                type(model).__name__,
                len(same) or "none",
            )
        return next(iter(same or found), None)

    def updates(self, model: eqx.Module, args: Any, kwargs: Any) -> bool:
        """Return False: a step returns new arrays."""
        return False

    def is_leaf(self, value: Any) -> bool:
        """Return False: all values are copied."""
        return False

    def is_state(self, value: Any) -> bool:
        """Return whether a value has the state of normalizations, which each step changes."""
        return isinstance(value, eqx.nn.State)

    def tracing(self, model: eqx.Module) -> AbstractContextManager[None]:
        """Return an empty context: the copies intercept all calls."""
        return nullcontext()

    def evaluation(self, model: eqx.Module) -> eqx.Module:
        """Return a copy in inference mode."""
        copy: eqx.Module = eqx.nn.inference_mode(model)
        return copy

    def forward(self, model: Any, args: Any, kwargs: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return a function that calls its first argument."""
        return call_model, (model, args, kwargs)

    def batched(self, model: Any, args: Any, kwargs: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return a function that calls its first argument for each record: models of Equinox take one."""
        return _call_batch, (model, args, kwargs)


def _is_same(one: Any, other: Any) -> bool:
    return one is other or not eqx.is_array(one)


def _call_batch(model: Any, args: Any, kwargs: Any) -> Any:
    return jax.vmap(lambda args, kwargs: model(*args, **kwargs))(args, kwargs)


def modules(root: Any) -> Iterator[tuple[Path, eqx.Module]]:
    """Yield the modules inside a tree with their paths, itself first."""

    def search(node: Any, path: Path) -> Iterator[tuple[Path, eqx.Module]]:
        if isinstance(node, eqx.Module):
            yield path, node
        for name, part in _parts(node):
            yield from search(part, (*path, name))

    yield from search(root, ())


def _parts(node: Any) -> list[tuple[Any, Any]]:
    """Return the parts of a node with their names; static fields are none."""
    if isinstance(node, eqx.Module):
        return [
            (field.name, getattr(node, field.name))
            for field in fields(node)
            if hasattr(node, field.name) and not field.metadata.get("static", False)
        ]
    return elements(node)


own_parameters = partial(
    library.own_parameters, parts=_parts, is_parameter=eqx.is_inexact_array, kind=eqx.Module
)


def _leaves(node: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    parts = _parts(node)
    if not parts:
        yield path, node
    for name, part in parts:
        yield from _leaves(part, (*path, name))


def _tapped_copy(node: Any, path: Path, observed: bool, seen: set[int]) -> Any:
    """Return a copy of a tree whose modules have tapped classes and places."""
    if isinstance(node, list | tuple):
        parts = [_tapped_copy(part, (*path, at), observed, seen) for at, part in enumerate(node)]
        return type(node)(*parts) if hasattr(node, "_fields") else type(node)(parts)
    if isinstance(node, dict):
        return {key: _tapped_copy(part, (*path, key), observed, seen) for key, part in node.items()}
    if not isinstance(node, eqx.Module):
        return node
    cls: Any = type(node)
    cls = _tapped(cls) if callable(node) else cls
    copy = object.__new__(cls)
    names = tuple(name for name, _ in own_parameters(node, seen)) if callable(node) else ()
    for field in fields(node):
        if hasattr(node, field.name):
            part = getattr(node, field.name)
            if not field.metadata.get("static", False):
                part = _tapped_copy(part, (*path, field.name), observed, seen)
            object.__setattr__(copy, field.name, part)
    if callable(node):
        object.__setattr__(copy, PLACE, Place(dotted(path), names, observed))
    return copy


@cache
def _tapped(cls: Any) -> Any:
    """Return a subclass whose calls pass through the interceptor of the context."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        interceptor, place = active(), getattr(self, PLACE, None)
        if interceptor is None or place is None or not place.observed:
            return cls.__call__(self, *args, **kwargs)
        named = list(_places_of_parameters(self)) if interceptor.parameters else []
        if named:
            self = _parameters_passed(self, named, interceptor)
        state = None if place.address else jax.tree.leaves(self)
        run = partial(cls.__call__, self)
        with passing((address, name) for address, name, _ in named):
            return interceptor.call(Intercepted(place.address, cls, run, args, kwargs, state=state))

    names = {
        "__call__": call,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__annotations__": {PLACE: Place},
        PLACE: eqx.field(static=True),
    }
    return type(cls)(cls.__name__, (cls,), names)


def _places_of_parameters(module: Any) -> Iterator[tuple[str, str, Path]]:
    """Yield address, name and path of the parameters in a module that no call around it has passed."""
    for inner, part in modules(module):
        place: Any = getattr(part, PLACE, None)
        for own in place.parameters if place is not None and place.observed else ():
            if not is_passed(place.address, name := dotted(own)):
                yield place.address, name, (*inner, *own)


def _parameters_passed(module: Any, named: Sequence[tuple[str, str, Path]], interceptor: Any) -> Any:
    """Return a copy of a module in which parameters passed through the interceptor."""

    def values(module: Any) -> list[Any]:
        return [_at(module, path) for _, _, path in named]

    passed = [
        interceptor.parameter(address, name, value)
        for (address, name, _), value in zip(named, values(module), strict=True)
    ]
    return eqx.tree_at(values, module, passed)


def _at(node: Any, path: Path) -> Any:
    for name in path:
        node = getattr(node, name) if isinstance(node, eqx.Module) else node[name]
    return node
