"""The parts of the JAX backend that differ between Flax NNX, Flax Linen and Equinox."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from ...core.errors import InputError
from ..base import Operation
from .interception import dotted

Path = tuple[Any, ...]


class Opened(NamedTuple):
    """The arguments of a function as arrays.

    Attributes:
        key: All that is no array, and shapes and dtypes; a trace is valid for equal keys.
        arrays: The arrays, and the numbers if they may vary.
        rebuild: Returns the arguments, ``(args, kwargs)``, made of other arrays, in which calls of the
            model's modules pass through the interceptor of the context.
        is_same: Whether the model in them is the probed one, of a library whose models are objects; None if
            it is a value.
    """

    key: Hashable
    arrays: list[Any]
    rebuild: Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]
    is_same: bool | None = None


class StateArray(NamedTuple):
    """An array that a model consists of.

    Attributes:
        address: Its address.
        value: The array.
        trained: Whether it is a parameter, and not a buffer.
    """

    address: str
    value: Any
    trained: bool


class Library(Protocol):
    """A library of modules for JAX."""

    #: What the library's users pass to a step so that a model's calls are found.
    expected: str
    #: The class of its modules.
    parts: tuple[type, ...]

    def owns(self, model: Any) -> bool:
        """Return whether this is a model of the library."""

    def operations(self, model: Any) -> list[Operation]:
        """Return the modules that can be called, the model first; empty if they are known only from calls."""

    def parameters(self, operation: Operation) -> list[str]:
        """Return the names of a module's own parameters."""

    def unit_axis(self, module: Any, ndim: int) -> int | None:
        """Return the unit axis of a module's output of ``ndim`` axes if its type determines it."""

    def training(self, model: Any) -> Callable[[], bool]:
        """Return a fast function that returns whether any module is in training mode."""

    def tells_mode(self, model: Any) -> bool:
        """Return whether ``training`` of a probed model holds for each step, and is no argument or value."""

    def setting(self, value: Any) -> Hashable:
        """Return what the mode of a call depends on of an argument, such as flags of modules in it; or None.

        It must take little time, because it is called for each call of a step.
        """

    def state(self, model: Any) -> list[StateArray]:
        """Return the arrays that a model consists of."""

    def arrays(self, model: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        """Return the arrays that a model consists of, and a function that makes it of others."""

    def open(self, model: Any, args: Any, kwargs: Any, *, numbers: bool) -> Opened:
        """Return the arguments of a function as arrays.

        Args:
            model: The model, which is among the arguments.
            args: The positional arguments.
            kwargs: The keyword arguments.
            numbers: Whether numbers of Python are arrays, as under ``jax.jit``.

        Raises:
            InputError: If the model is not among the arguments.
        """

    def updates(self, model: Any, args: Any, kwargs: Any) -> bool:
        """Return whether a step with these arguments updates the model itself, and not a copy of it."""

    def is_leaf(self, value: Any) -> bool:
        """Return whether a value is an object that must not be copied on its way through a call."""

    def is_state(self, value: Any) -> bool:
        """Return whether a value among the arguments of a model's call is state of the model, and no data."""

    def tracing(self, model: Any) -> Any:
        """Return a context in which all that ``rebuild`` cannot do is intercepted."""

    def evaluation(self, model: Any) -> Any:
        """Return a copy of a model in evaluation mode."""

    def forward(self, model: Any, args: Any, kwargs: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return a function, and its arguments, that calls a model.

        Args:
            model: The model; it is among the arguments.
            args: The positional arguments of the call.
            kwargs: Its keyword arguments.
        """

    def batched(self, model: Any, args: Any, kwargs: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return a function, and its arguments, that calls a model with a batch."""


class Leaves(NamedTuple):
    """The leaves of a tree, those that vary apart from those that are part of the program.

    Attributes:
        arrays: The arrays, and the numbers if they may vary.
        fixed: The other leaves.
        positions: The positions of the arrays among all leaves.
    """

    arrays: list[Any]
    fixed: tuple[Any, ...]
    positions: tuple[int, ...]

    @classmethod
    def of(cls, leaves: Sequence[Any], *, numbers: bool) -> Leaves:
        """Separate leaves; ``numbers`` of Python vary or are fixed."""
        vary = [_varies(leaf, numbers) for leaf in leaves]
        return cls(
            [leaf for leaf, varies in zip(leaves, vary, strict=True) if varies],
            tuple(leaf for leaf, varies in zip(leaves, vary, strict=True) if not varies),
            tuple(position for position, varies in enumerate(vary) if varies),
        )

    def joined(self, arrays: Sequence[Any]) -> list[Any]:
        """Return all leaves, with other arrays."""
        fixed, varying = iter(self.fixed), dict(zip(self.positions, arrays, strict=True))
        size = len(self.fixed) + len(self.positions)
        return [varying[at] if at in varying else next(fixed) for at in range(size)]

    @property
    def key(self) -> Hashable:
        """The part of the arguments that a trace depends on."""
        return self.positions, tuple(map(_hashable, self.fixed)), tuple(map(_aval, self.arrays))


def callable_modules(modules: Iterable[tuple[Path, Any]]) -> list[Operation]:
    """Return the modules that have a ``__call__``, from pairs of a path and a module."""
    return [
        Operation(dotted(path), type(module).__name__, module) for path, module in modules if callable(module)
    ]


def elements(node: Any) -> list[tuple[Any, Any]]:
    """Return the elements of a dict, list or tuple with their keys; nothing else has any."""
    if isinstance(node, dict):
        return list(node.items())
    return list(enumerate(node)) if isinstance(node, list | tuple) else []


def own_parameters(
    module: Any,
    seen: set[int],
    *,
    parts: Callable[[Any], list[tuple[Any, Any]]],
    is_parameter: Callable[[Any], bool],
    kind: type,
) -> Iterator[tuple[Path, Any]]:
    """Yield the parameters of a module that belong to no module inside that can be called.

    Args:
        module: The module.
        seen: The ids of parameters to leave out; extended.
        parts: Returns the parts of a node with their names.
        is_parameter: Returns whether a part is a parameter.
        kind: The class of modules.
    """

    def search(node: Any, path: Path) -> Iterator[tuple[Path, Any]]:
        for name, part in parts(node):
            if is_parameter(part):
                if id(part) not in seen:
                    seen.add(id(part))
                    yield (*path, name), part
            elif not (isinstance(part, kind) and callable(part)):
                yield from search(part, (*path, name))

    yield from search(module, ())


def call_model(model: Any, args: Any, kwargs: Any) -> Any:
    """Call a model."""
    return model(*args, **kwargs)


def not_found(model: Any, expected: str) -> InputError:
    """Return the error for a model that a step does not get."""
    return InputError(
        f"The model, a {type(model).__name__}, is not among the arguments of the step. Pass it in: "
        f"{expected}."
    )


def _varies(leaf: Any, numbers: bool) -> bool:
    arrays = jax.Array, jax.ShapeDtypeStruct, np.ndarray, np.generic
    return isinstance(leaf, arrays) or (numbers and isinstance(leaf, int | float | complex))


def _aval(leaf: Any) -> Hashable:
    """Return what a compiled function depends on of an argument."""
    if not hasattr(leaf, "dtype"):
        return type(leaf).__name__
    weak, sharding = getattr(leaf, "weak_type", False), getattr(leaf, "sharding", None)
    return leaf.shape, leaf.dtype, weak, sharding


def _hashable(leaf: Any) -> Hashable:
    try:
        hash(leaf)
    except TypeError:
        return id(leaf)
    return type(leaf).__name__, leaf
