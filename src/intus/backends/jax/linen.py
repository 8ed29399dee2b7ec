"""Flax Linen: modules are functions of variables, whose methods Flax itself lets us intercept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen
from flax.core import Scope

from ...core.errors import InputError
from ..base import Operation
from .arrays import is_array
from .interception import Intercepted, active, dotted, is_passed, passing
from .internals import is_of_trace
from .library import Leaves, Opened, StateArray

_CHANNELS_LAST = frozenset(
    {
        "Dense",
        "DenseGeneral",
        "Einsum",
        "Conv",
        "ConvTranspose",
        "ConvLocal",
        "Embed",
        "BatchNorm",
        "LayerNorm",
        "RMSNorm",
        "GroupNorm",
        "InstanceNorm",
        "MultiHeadDotProductAttention",
        "SelfAttention",
    }
)


class Bound(NamedTuple):
    """A module with all that it needs to be called.

    Attributes:
        module: The module, unbound.
        variables: Its variables.
        rngs: Its keys of random numbers by name.
        mutable: The collections that a call may change.
    """

    module: linen.Module
    variables: Any
    rngs: dict[str, Any]
    mutable: Any

    @classmethod
    def of(cls, module: linen.Module) -> Bound:
        """Return the parts of a bound module.

        Raises:
            InputError: If it is not bound.
        """
        scope = module.scope
        if scope is None:
            raise InputError(
                f"The Linen module {type(module).__name__} has no variables. Pass "
                "module.bind(variables), as it is called."
            )
        rngs = {name: rng.as_jax_rng() for name, rng in scope.rngs.items()}
        unbound = module.clone(parent=None) if module.parent is None else module
        return cls(unbound, scope.variables(), rngs, scope.mutable)


class Linen:
    """Flax Linen; see ``Library`` for the contract of each method."""

    expected = "the step must call module.apply(variables, …)"
    #: With what a bound module has beside its attributes: parts that were made, names in use, counts of keys.
    parts: tuple[type, ...] = (linen.Module, Scope, type(linen.Dropout(0.0)._state))

    def owns(self, model: Any) -> bool:
        """Return whether this is a Linen module."""
        return isinstance(model, linen.Module)

    def operations(self, model: linen.Module) -> list[Operation]:
        """Return nothing: modules are created while the model runs."""
        return []

    def parameters(self, operation: Operation) -> list[str]:
        """Return nothing, because a class has no parameters."""
        return []

    def unit_axis(self, module: Any, ndim: int) -> int | None:
        """Return the last axis, where Linen has the features of all its layers."""
        known = module.__module__.startswith("flax.linen") and module.__name__ in _CHANNELS_LAST
        return ndim - 1 if known and ndim else None

    def training(self, model: linen.Module) -> Callable[[], bool]:
        """Return a function that returns True: the mode is an argument of the call, unknown to a module."""
        return lambda: True

    def tells_mode(self, model: linen.Module) -> bool:
        """Return False: the mode is an argument of the call."""
        return False

    def setting(self, value: Any) -> None:
        """Return None: no value of this library tells the mode."""

    def state(self, model: linen.Module | Bound) -> list[StateArray]:
        """Return the variables of a bound module."""
        bound = model if isinstance(model, Bound) else Bound.of(model)
        return [
            StateArray(dotted(tuple(key.key for key in path[1:])), value, path[0].key == "params")
            for path, value in jax.tree_util.tree_flatten_with_path(bound.variables)[0]
        ]

    def arrays(self, model: linen.Module) -> tuple[list[Any], Callable[[Sequence[Any]], linen.Module]]:
        """Return the variables of a bound module, and a function that binds it to others."""
        bound = Bound.of(model)
        leaves, tree = jax.tree.flatten(bound.variables)

        def made(arrays: Sequence[Any]) -> linen.Module:
            variables = jax.tree.unflatten(tree, arrays)
            return bound.module.bind(variables, rngs=bound.rngs, mutable=bound.mutable)

        return leaves, made

    def open(self, model: linen.Module, args: Any, kwargs: Any, *, numbers: bool) -> Opened:
        """Return the leaves of the arguments; the calls are intercepted in ``tracing``."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        split = Leaves.of(leaves, numbers=numbers)
        return Opened(
            (tree, split.key), split.arrays, lambda arrays: jax.tree.unflatten(tree, split.joined(arrays))
        )

    def updates(self, model: linen.Module, args: Any, kwargs: Any) -> bool:
        """Return False: a step returns new arrays."""
        return False

    def is_leaf(self, value: Any) -> bool:
        """Return whether a value is a module, which must not be copied."""
        return isinstance(value, linen.Module)

    def is_state(self, value: Any) -> bool:
        """Return False: the model has it."""
        return False

    def tracing(self, model: linen.Module | Bound) -> AbstractContextManager[Any]:
        """Return a context in which the calls of modules inside the model are intercepted."""
        module = model.module if isinstance(model, Bound) else model
        context: AbstractContextManager[Any] = linen.intercept_methods(_Calls(module))
        return context

    def evaluation(self, model: linen.Module) -> linen.Module:
        """Return the model itself, since the mode is an argument of its call."""
        return model

    def forward(self, model: Any, args: Any, kwargs: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return a function of the variables that applies the module."""
        bound = model if isinstance(model, Bound) else Bound.of(model)
        return _Apply(bound.module, bound.mutable), (bound.variables, bound.rngs, args, kwargs)

    batched = forward


class _Apply:
    """Applies a module to variables. Two are equal, and share a compiled program, if their modules are.

    Args:
        module: The module, unbound.
        mutable: The collections that a call may change.
    """

    def __init__(self, module: linen.Module, mutable: Any) -> None:
        self._module, self._mutable = module, mutable

    def __call__(self, variables: Any, rngs: Any, args: Any, kwargs: Any) -> Any:
        """Return the output of the module."""
        result = self._module.apply(variables, *args, rngs=rngs, mutable=self._mutable, **kwargs)
        return result[0] if self._mutable is not False else result  # the changed variables come second

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Apply) or self._mutable != other._mutable:
            return False
        return _is_copy(self._module, other._module)

    def __hash__(self) -> int:
        return hash(type(self._module))


class _Calls:
    """Passes calls of modules to the interceptor of the context, if they belong to a model.

    Args:
        model: The model.
    """

    def __init__(self, model: linen.Module) -> None:
        self._model, self._depth = model, 0
        #: The scopes whose parameters have passed, with the address and name of each.
        self._scopes: list[tuple[Any, list[tuple[str, str]]]] = []

    def __call__(self, next_call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        """Run a method of a module; ``flax.linen.intercept_methods`` calls this."""
        interceptor, module = active(), context.module
        # A lifted module (nn.remat, nn.scan) has no parent, so that a call inside of the model's counts too.
        root = _root(module)
        if interceptor is None or not (self._depth or _is_copy(root, self._model)):
            return next_call(*args, **kwargs)
        with passing(() if self._depth else self._pass_parameters(root.scope, interceptor)):
            self._depth += 1
            try:
                return self._run(next_call, args, kwargs, context, interceptor)
            finally:
                self._depth -= 1

    def _run(self, next_call: Any, args: Any, kwargs: Any, context: Any, interceptor: Any) -> Any:
        if not _is_call(context):
            return next_call(*args, **kwargs)
        module = context.module
        address = dotted(module.path)
        bound = None if module.path else Bound.of(module)
        with _own_parameters_passed(module, address, interceptor):
            state = None if bound is None else jax.tree.leaves(bound.variables)
            call = Intercepted(address, type(module), next_call, args, kwargs, bound, state)
            return interceptor.call(call)

    def _pass_parameters(self, scope: Any, interceptor: Any) -> list[tuple[str, str]]:
        """Let the parameters of a scope pass through the interceptor, once, before any method reads them.

        ``setup`` reads parameters too, and what ``nn.WeightNorm`` and ``nn.map_variables`` make of them are
        no parameters. The scope is that of one ``apply`` in the step, so that it ends with the trace.

        Returns:
            The address and name of each that passed.
        """
        if not interceptor.parameters or scope is None:
            return []
        for known, names in self._scopes:
            if known is scope:
                return names
        names = list[tuple[str, str]]()

        def passed(node: Any, path: tuple[Any, ...]) -> Any:
            if isinstance(node, Mapping):
                kind: Any = type(node)
                return kind({name: passed(part, (*path, name)) for name, part in node.items()})
            return jax.tree.map(partial(one, path), node)  # it may be in a box, such as nn.Partitioned

        def one(path: tuple[Any, ...], value: Any) -> Any:
            address, name = dotted(path[:-1]), str(path[-1])
            result = interceptor.parameter(address, name, value)
            if not is_of_trace(result, value):  # of a module that was bound outside, and outlives the trace
                return value
            names.append((address, name))
            return result

        before = scope._collection("params")  # flax has no public way to replace
        if before:
            scope._variables["params"] = passed(before, ())
        self._scopes.append((scope, names))
        return names


@contextmanager
def _own_parameters_passed(module: linen.Module, address: str, interceptor: Any) -> Iterator[None]:
    """Let parameters of a module that have not passed do so for the time of a call."""
    scope: Any = module.scope
    before = scope._collection("params") if interceptor.parameters else {}
    own = {
        name: interceptor.parameter(address, name, value)
        for name, value in before.items()
        if is_array(value) and not is_passed(address, name)
    }
    if not own:
        yield
        return
    scope._variables["params"] = {**before, **own}
    try:
        yield
    finally:
        scope._variables["params"] = before


def _is_call(context: Any) -> bool:
    """Return whether a method is a module's ``__call__``. Flax names a method as its function is named."""
    wrapped = getattr(type(context.module).__call__, "__wrapped__", None)
    return context.method_name == "__call__" or context.orig_method.func is wrapped


def _root(module: linen.Module) -> linen.Module:
    while isinstance(module.parent, linen.Module):
        module = module.parent
    return module


def _is_copy(module: linen.Module, model: linen.Module) -> bool:
    """Return whether a module was made from a model by ``apply``, which sets its parent alone."""
    if type(module) is not type(model):
        return False
    names = [field.name for field in fields(model) if field.name not in ("parent", "name")]
    return all(_are_alike(getattr(module, name, None), getattr(model, name, None)) for name in names)


def _are_alike(value: Any, other: Any) -> bool:
    """Return whether settings of two modules are equal; modules in them refer to these by their parents."""
    if isinstance(value, linen.Module):
        return _is_copy(value, other)
    if isinstance(value, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(value) == len(other) and all(map(_are_alike, value, other))
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(_are_alike(value[key], other[key]) for key in value)
    if is_array(value) or is_array(other):  # which compare element by element
        return type(value) is type(other) and np.array_equal(value, other)
    return bool(value == other)
