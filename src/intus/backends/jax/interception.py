"""Intercept the calls of modules in a trace of our own. The user's modules and classes are left unchanged.

The copies of modules that take part in such a trace have a class of their own, which passes each call to the
interceptor of the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: The attribute of a copied module that has its place.
PLACE = "intus_place"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a module in the model.

    Two places of one address are equal, because JAX combines trees only if all that is no array is equal.

    Attributes:
        address: The module's address.
        parameters: The paths of its own parameters.
        observed: Whether it belongs to the model, and not to a tree that is built alike (moments of an
            optimizer, a target network).
        origin: The path of a parameter that shows which state the module was made of; None if it is known.
    """

    address: str
    parameters: tuple[tuple[Any, ...], ...] = field(default=(), compare=False)
    observed: bool = field(default=True, compare=False)
    origin: tuple[Any, ...] | None = field(default=None, compare=False)


class Intercepted(NamedTuple):
    """A call of a module.

    Attributes:
        address: The module's address.
        cls: Its class.
        run: The call.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        bound: The model with its variables, in the call of the model itself, for a library whose models have
            none.
        state: A tree with the arrays of the model in that call, if it is the model's.
        trains: Whether a dropout is active in the call, or a normalization uses its batch; None for other
            modules, and where that is not known.
    """

    address: str
    cls: type
    run: Callable[..., Any]
    args: Any
    kwargs: Any
    bound: Any = None
    state: Any = None
    trains: bool | None = None


class Interceptor:
    """Receives the calls of modules while a function is traced; this one lets them pass."""

    #: Whether ``parameter`` is called.
    parameters = False
    #: Whether ``parameter`` is called, without a name, with the parameter at ``Place.origin``.
    origins = False

    def call(self, call: Intercepted) -> Any:
        """Run a call of a module and return its result."""
        return call.run(*call.args, **call.kwargs)

    def parameter(self, address: str, name: str, value: Any) -> Any:
        """Return the value that a call of a module is to use as its parameter.

        It is called before ``call``, for each parameter of the module and of those inside of it, as it is
        before the module computes with it (``WeightNorm``).
        """
        return value


class Met(Interceptor):
    """An interceptor that notes the modules that are called.

    Attributes:
        classes: The class of each, by address, in order of their first calls.
    """

    def __init__(self) -> None:
        self.classes: dict[str, type] = {}

    def call(self, call: Intercepted) -> Any:
        """Note the module, and run the call."""
        self.classes.setdefault(call.address, call.cls)
        return super().call(call)


_active: ContextVar[Interceptor | None] = ContextVar("intus_jax_interceptor", default=None)


def active() -> Interceptor | None:
    """Return the interceptor of this context; None if there is none."""
    return _active.get()


@contextmanager
def intercepting(interceptor: Interceptor) -> Iterator[None]:
    """Pass calls of copied modules to an interceptor."""
    token = _active.set(interceptor)
    try:
        yield
    finally:
        _active.reset(token)


#: The addresses and names of the parameters that a call around the present one has passed.
_PASSED: ContextVar[frozenset[tuple[str, str]]] = ContextVar("intus_jax_passed", default=frozenset())


def is_passed(address: str, name: str) -> bool:
    """Return whether a call around this one has passed a parameter: what is there now was computed of it."""
    return (address, name) in _PASSED.get()


@contextmanager
def passing(parameters: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Hold that parameters have been passed, for the time of a call."""
    token = _PASSED.set(_PASSED.get().union(parameters))
    try:
        yield
    finally:
        _PASSED.reset(token)


def dotted(path: tuple[Any, ...]) -> str:
    """Return a path as text.

    Example:
        >>> dotted(("blocks", 0, "fc"))
        'blocks.0.fc'
    """
    return ".".join(map(str, path))
