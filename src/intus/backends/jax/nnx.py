"""Flax NNX: modules are objects, which are split into arrays and merged into tapped copies."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from inspect import signature
from typing import Any

import jax
from flax import nnx

from ..base import Operation
from . import library
from .interception import PLACE, Intercepted, Place, active, dotted, is_passed, passing
from .library import Leaves, Opened, Path, StateArray, call_model, callable_modules, elements, not_found

#: Attributes that nnx.Pytree keeps for itself.
_INTERNAL = ("_pytree__state", "_pytree__nodes")
#: The names of flags that are true in evaluation, as attributes of modules and as arguments of their calls.
_FLAGS = ("deterministic", "use_running_average")
_CHANNELS_LAST = frozenset(
    {
        "Linear",
        "LinearGeneral",
        "Einsum",
        "Conv",
        "ConvTranspose",
        "Embed",
        "BatchNorm",
        "LayerNorm",
        "RMSNorm",
        "GroupNorm",
        "InstanceNorm",
        "MultiHeadAttention",
        "LoRA",
        "LoRALinear",
    }
)


class Nnx:
    """Flax NNX; see ``Library`` for the contract of each method."""

    expected = "step(model, …), or step(graphdef, state, …) of nnx.split(model)"
    parts: tuple[type, ...] = (nnx.Pytree,)

    def __init__(self) -> None:
        #: The flags of the modules in each object, by identity.
        self._flags: dict[int, tuple[weakref.ref[Any], list[tuple[weakref.ref[Any], str]]]] = {}

    def owns(self, model: Any) -> bool:
        """Return whether this is an NNX module."""
        return isinstance(model, nnx.Module)

    def operations(self, model: nnx.Module) -> list[Operation]:
        """Return the modules that have a ``__call__``, in order of declaration."""
        return callable_modules(modules(model))

    def parameters(self, operation: Operation) -> list[str]:
        """Return the names of a module's own ``nnx.Param``."""
        return [dotted(path) for path, _ in own_parameters(operation.module, set())]

    def unit_axis(self, module: Any, ndim: int) -> int | None:
        """Return the last axis, where NNX has the features of all its layers."""
        kind = module if isinstance(module, type) else type(module)
        known = kind.__module__.startswith("flax.nnx") and kind.__name__ in _CHANNELS_LAST
        return ndim - 1 if known and ndim else None

    def training(self, model: nnx.Module) -> Callable[[], bool]:
        """Return a function that returns whether dropout is active or a normalization uses the batch."""
        flags = _flags(model)
        return lambda: not flags or any(getattr(module(), name, None) is False for module, name in flags)

    def tells_mode(self, model: nnx.Module) -> bool:
        """Return whether there is a dropout or a normalization, which ``train()`` and ``eval()`` set."""
        return bool(_flags(model))

    def setting(self, value: Any) -> Hashable:
        """Return the flags of the modules in an object, or a graph definition."""
        if isinstance(value, nnx.GraphDef):
            definition: Hashable = value
            return definition
        if not self.is_leaf(value) or isinstance(value, nnx.Variable):
            return None
        known = self._flags.get(id(value))
        if known is None or known[0]() is not value:
            known = self._flags[id(value)] = weakref.ref(value), _flags(value)
        return tuple(getattr(module(), name, None) for module, name in known[1])

    def state(self, model: nnx.Module) -> list[StateArray]:
        """Return the values of all variables, and the arrays that are none, as of ``nnx.data``."""
        return [
            StateArray(
                dotted(path),
                one.get_value() if isinstance(one, nnx.Variable) else one,
                isinstance(one, nnx.Param),
            )
            for path, one in nnx.to_flat_state(nnx.state(model))
        ]

    def arrays(self, model: nnx.Module) -> tuple[list[Any], Callable[[Sequence[Any]], nnx.Module]]:
        """Return the values of all variables, and a function that makes the module of others."""
        definition, state = nnx.split(model)
        leaves, tree = jax.tree.flatten(state)
        return leaves, lambda arrays: nnx.merge(definition, jax.tree.unflatten(tree, arrays))

    def open(self, model: nnx.Module, args: Any, kwargs: Any, *, numbers: bool) -> Opened:
        """Split all NNX objects among the arguments together, so that what they share stays shared."""
        flat, tree = jax.tree.flatten((args, kwargs), is_leaf=_is_node)
        nodes = [leaf for leaf in flat if self.is_leaf(leaf)]
        path = _find(model, nodes)
        definitions = [leaf for leaf in flat if isinstance(leaf, nnx.GraphDef)]
        if path is None and not definitions:
            raise not_found(model, self.expected)
        graphdef, state = nnx.split(nodes)
        others = [None if _is_node(leaf) else leaf for leaf in flat]
        leaves, state_tree = jax.tree.flatten((state, others))
        split = Leaves.of(leaves, numbers=numbers)
        states = [leaf for leaf in jax.tree.leaves((args, kwargs), is_leaf=_is_state) if _is_state(leaf)]

        def rebuild(arrays: Any) -> Any:
            given, rest = jax.tree.unflatten(state_tree, split.joined(arrays))
            merged = iter(nodes_of := nnx.merge(graphdef, given))
            if path is not None:
                _tap_modules(_at(nodes_of, path))
            tapped = [
                next(merged) if self.is_leaf(leaf)
                else self._tapped_definition(model, leaf, states) if isinstance(leaf, nnx.GraphDef)
                else other
                for leaf, other in zip(flat, rest, strict=True)
            ]  # fmt: skip
            if path is None and all(any(new is one for new in tapped) for one in definitions):
                raise not_found(model, self.expected)
            return jax.tree.unflatten(tree, tapped)

        key = graphdef, path, tuple(definitions), tree, state_tree, split.key
        is_same = None if path is None else _shares(_at(nodes, path), model)
        return Opened(key, split.arrays, rebuild, is_same)

    def updates(self, model: nnx.Module, args: Any, kwargs: Any) -> bool:
        """Return whether the module itself is among the arguments, and not only its state."""
        return any(module is model for _, module in modules([args, kwargs]))

    def is_leaf(self, value: Any) -> bool:
        """Return whether a value is an NNX object or variable, which must not be copied."""
        return isinstance(value, nnx.Pytree | nnx.Variable) and not isinstance(value, nnx.State)

    def is_state(self, value: Any) -> bool:
        """Return False: modules have it."""
        return False

    def tracing(self, model: nnx.Module) -> AbstractContextManager[None]:
        """Return an empty context: the copies intercept all calls."""
        return nullcontext()

    def evaluation(self, model: nnx.Module) -> nnx.Module:
        """Return a copy that shares the model's arrays, with dropout off and running averages in use.

        Its variables are others, so that what a call writes to them, such as the count of a generator, does
        not reach the model.
        """
        copy: nnx.Module = nnx.clone(model)
        copy.eval()
        return copy

    def forward(self, model: Any, args: Any, kwargs: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return a function that calls its first argument."""
        return call_model, (model, args, kwargs)

    batched = forward

    def _tapped_definition(self, model: nnx.Module, definition: Any, states: list[Any]) -> Any:
        """Return a graph definition whose model is tapped; the same one if it has no such model."""
        # One state, or several in a row (of nnx.split(model, nnx.Param, …)), among those of other objects.
        runs = (states[at : at + size] for size in range(1, len(states) + 1) for at in range(len(states)))
        merged = next((one for run in runs if (one := _merged(definition, run)) is not None), None)
        path = None if merged is None else _find(model, merged)
        if path is None:
            return definition
        _tap_modules(_at(merged, path), origins=True)
        return nnx.split(merged)[0]


def _flags(node: Any) -> list[tuple[weakref.ref[nnx.Module], str]]:
    """Return the modules in an object that have a flag of the mode, and its name."""
    return [
        (weakref.ref(module), name)
        for _, module in modules(node)
        for name in _FLAGS
        if isinstance(vars(module).get(name), bool)
    ]


def _trains(module: nnx.Module, call: Any, args: Any, kwargs: Any) -> bool | None:
    """Return whether a call of a module is of training mode by its flags; an argument goes before them."""
    try:
        given = signature(call).bind(module, *args, **kwargs).arguments
    except (TypeError, ValueError):
        given = {}
    for name in _FLAGS:
        for flag in (given.get(name), vars(module).get(name)):
            if isinstance(flag, bool):
                return not flag
    return None


def modules(root: Any) -> Iterator[tuple[Path, nnx.Module]]:
    """Yield the modules inside a tree of NNX objects with their paths, each once, itself first."""
    seen: set[int] = set()

    def search(node: Any, path: Path) -> Iterator[tuple[Path, nnx.Module]]:
        if id(node) in seen:
            return
        if isinstance(node, nnx.Module):
            yield path, node
        seen.add(id(node))
        for name, part in _parts(node):
            yield from search(part, (*path, name))

    yield from search(root, ())


def _parts(node: Any) -> list[tuple[Any, Any]]:
    """Return the parts of a node that may have modules in them, with their names."""
    if isinstance(node, nnx.Pytree):
        return [(name, part) for name, part in vars(node).items() if name not in _INTERNAL]
    return elements(node)


def _is_parameter(value: Any) -> bool:
    return isinstance(value, nnx.Param)


own_parameters = partial(library.own_parameters, parts=_parts, is_parameter=_is_parameter, kind=nnx.Module)


def _parameters_of(module: nnx.Module) -> list[Any]:
    """Return the parameters of a module and of those inside of it."""
    return [variable for _, variable in nnx.to_flat_state(nnx.state(module, nnx.Param))]


def _parameters(root: nnx.Module) -> Iterator[Path]:
    """Yield the paths of all parameters of a module and of those inside of it."""
    for path, module in modules(root):
        for name, _ in own_parameters(module, set()):
            yield *path, *name


def _at(node: Any, path: Path) -> Any:
    for name in path:
        node = dict(_parts(node))[name]
    return node


def _find(model: nnx.Module, root: Any) -> Path | None:
    """Return the path of a model inside of ``root``: of the same object, or else of one built alike."""
    found = list(modules(root))
    same = [path for path, module in found if module is model]
    if not same:
        wanted = _signature(model)
        same = [
            path for path, module in found if type(module) is type(model) and _signature(module) == wanted
        ]
    return same[0] if same else None


def _shares(one: nnx.Module, other: nnx.Module) -> bool:
    """Return whether two modules are one, or one is a view of the other, which has the same variables."""
    if one is other:
        return True
    own, others = ({id(_at(root, path)) for path in _parameters(root)} for root in (one, other))
    return bool(own) and own <= others


def _signature(model: nnx.Module) -> set[tuple[Path, type]]:
    return {(path, type(module)) for path, module in modules(model)}


def _merged(definition: Any, states: list[Any]) -> Any:
    """Return what a graph definition and states make; None if they do not fit."""
    try:
        return nnx.merge(definition, *states)
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def _is_node(value: Any) -> bool:
    return isinstance(value, nnx.Pytree | nnx.Variable | nnx.GraphDef) and not _is_state(value)


def _is_state(value: Any) -> bool:
    return isinstance(value, nnx.State)


def _tap_modules(model: nnx.Module, *, origins: bool = False) -> None:
    """Give the modules of a copied model their tapped classes and their places.

    Args:
        model: The copy.
        origins: Whether it is a graph definition, which the step may merge with any state.
    """
    seen: set[int] = set()
    for path, module in list(modules(model)):
        if callable(module):
            names = tuple(name for name, _ in own_parameters(module, seen))
            origin = next(_parameters(module), None) if origins else None
            object.__setattr__(module, PLACE, Place(dotted(path), names, origin=origin))
            cls: Any = type(module)
            module.__class__ = _tapped(cls)


@cache
def _tapped(cls: Any) -> Any:
    """Return a subclass whose calls pass through the interceptor of the context."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        interceptor, place = active(), getattr(self, PLACE, None)
        if interceptor is None or place is None:
            return cls.__call__(self, *args, **kwargs)
        with _parameters_passed(self, place, interceptor):
            state = None if place.address else [variable.get_value() for variable in _parameters_of(self)]
            run = partial(cls.__call__, self)
            trains = _trains(self, cls.__call__, args, kwargs)
            call = Intercepted(place.address, cls, run, args, kwargs, state=state, trains=trains)
            return interceptor.call(call)

    names = {"__call__": call, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return type(cls)(cls.__name__, (cls,), names)


@contextmanager
def _parameters_passed(module: nnx.Module, place: Place, interceptor: Any) -> Iterator[None]:
    """Let the parameters in a module pass through the interceptor for the time of a call."""
    changed = []
    named = list(_places_of_parameters(module)) if interceptor.parameters else []
    parameters = [(address, name) for address, name, _ in named]
    if interceptor.origins and place.origin is not None:
        named.append((place.address, "", _at(module, place.origin)))
    for address, name, variable in named:
        value = variable.get_raw_value()
        passed = interceptor.parameter(address, name, variable.get_value())
        changed.append((variable, value, passed))
        _set(variable, passed)
    try:
        with passing(parameters):
            yield
    finally:
        for variable, value, passed in reversed(changed):
            if variable.get_raw_value() is passed:
                _set(variable, value)


def _places_of_parameters(module: nnx.Module) -> Iterator[tuple[str, str, Any]]:
    """Yield address, name and variable of the parameters in a module that no call around it has passed."""
    for _, part in modules(module):
        place: Any = getattr(part, PLACE, None)
        for path in () if place is None else place.parameters:
            if not is_passed(place.address, name := dotted(path)):
                yield place.address, name, _at(part, path)


def _set(variable: nnx.Param[Any], value: Any) -> None:
    """Set a value for the time of a call, which may be inside of a transformation that the merge is not."""
    object.__setattr__(variable, "_raw_value", value)  # as flax does; set_value refuses another trace level
