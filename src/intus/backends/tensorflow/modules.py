"""The modules of a ``tf.Module``, and how a function is put in the place of their ``__call__``.

Python looks up ``__call__`` in the class, so that a module gets a subclass of its own while it is observed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

from ...core.address import Address
from ..base import Operation, Tap
from .calls import Attachment, CallObserver, ObservedCall
from .gate import TensorFlowGate
from .running import evaluated, randomness_kept
from .structure import Structure

_OBSERVED = "_intus_observed"


def modules_of(model: Any) -> list[Operation]:
    """Return the modules that can be called by their attributes' path, the model itself first."""
    found = [Operation("", type(model).__name__, model)]
    seen = {id(model)}
    parts = model._flatten(recursive=True, predicate=lambda one: isinstance(one, tf.Module), with_path=True)
    for path, module in parts:
        if id(module) not in seen and callable(module):
            seen.add(id(module))
            address = str(Address(".".join(map(str, path))))
            found.append(Operation(address, type(module).__name__, module))
    return found


def variables_of(module: Any) -> dict[str, Any]:
    """Return a module's own trainable variables by the names of its attributes."""
    return {name: one for name, one in _variables(module).items() if one.trainable}


def _variables(module: Any) -> dict[str, Any]:
    parts = module._flatten(
        recursive=False, predicate=lambda one: isinstance(one, tf.Variable), with_path=True
    )
    return {".".join(map(str, path)): one for path, one in parts}


def is_function(module: Any) -> bool:
    """Return whether the ``__call__`` of a module is a ``tf.function``."""
    return isinstance(type(module).__call__, Function)


def structure_of(model: Any) -> Structure:
    """Return what the tracing of a module needs to know."""
    operations = modules_of(model)
    parameters: dict[str, Any] = {}
    buffers: dict[str, Any] = {}
    for one in operations:
        for name, variable in _variables(one.module).items():
            address = f"{one.address}.{name}" if one.address else name
            (parameters if variable.trainable else buffers)[address] = variable
    own: Any = type(model).__call__
    call = partial(own.python_function if is_function(model) else own, model)
    return Structure(
        operations, parameters, buffers, set(parameters), call, replaced, _evaluation_arguments(model)
    )


def _evaluation_arguments(model: Any) -> dict[str, Any]:
    own: Any = type(model).__call__
    names = inspect.signature(own.python_function if is_function(model) else own).parameters
    return {name: False for name in ("training", "is_training") if name in names}


def replaced(module: Any, function: Callable[..., Any]) -> Callable[[], None]:
    """Put a function in the place of a module's ``__call__``, and return a function that undoes it.

    Args:
        module: The module.
        function: Called with what calls the module, and with the arguments.
    """
    own: Any = type(module).__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        inner = own.__get__(self) if isinstance(own, Function) else partial(_converted(own), self)
        return function(inner, *args, **kwargs)

    return _swap(module, call)


def _swap(module: Any, call: Any, **attributes: Any) -> Callable[[], None]:
    """Give a module a class with another ``__call__``, and return a function that undoes it."""
    before = type(module)
    module.__class__ = type(
        before.__name__,
        (before,),
        {
            "__call__": call,
            "__module__": before.__module__,
            "__qualname__": before.__qualname__,
            "__doc__": before.__doc__,
            "autograph_info__": None,  # TensorFlow would rewrite the source of our function, see _converted
            **attributes,
        },
    )

    def undo() -> None:
        module.__class__ = before

    return undo


def _converted(function: Callable[..., Any]) -> Any:
    """Return a function with its control flow rewritten, if the caller's is."""
    internal = tf.__internal__.autograph
    return internal.tf_convert(function, internal.control_status_ctx())


def attach_modules(
    model: Any, operations: Iterable[Operation], kinds: tuple[str, ...], tap: Tap
) -> Attachment:
    """Attach to the modules of a model; see ``Backend.attach``."""
    return Attachment(
        model, operations, CallObserver(model, TensorFlowGate(), variables_of, kinds, tap), _observe
    )


def _observe(module: Any, is_model: bool) -> ObservedCall:
    """Return the observed call of a module's class, which it is given if it has none.

    Args:
        module: The module.
        is_model: If it is a ``tf.function``, whether to observe what runs inside of it.
    """
    if _OBSERVED in vars(type(module)):
        observed: ObservedCall = getattr(type(module), _OBSERVED)
        return observed
    own: Any = type(module).__call__
    within = is_model and isinstance(own, Function)
    body = own.python_function if within else own
    observed = ObservedCall(lambda self, *args, **kwargs: _called(body, self, args, kwargs))

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return observed.run(partial(observed.own, self), args, kwargs)

    call.autograph_info__ = None  # type: ignore[attr-defined]
    observed.undo = _swap(module, own._clone(call) if within else call, **{_OBSERVED: observed})
    return observed


def _called(function: Any, module: Any, args: Any, kwargs: Any) -> Any:
    if isinstance(function, Function):
        return function.__get__(module)(*args, **kwargs)
    return _converted(function)(module, *args, **kwargs)


@contextmanager
def module_evaluation(model: Any) -> Iterator[Callable[[Any], Any]]:
    """Yield a function that calls a module; at the end restore what the calls changed."""
    mode = _evaluation_arguments(model)

    def run(inputs: Any) -> Any:
        if isinstance(inputs, Mapping):
            return model(**inputs, **mode)
        return model(*inputs if isinstance(inputs, tuple) else (inputs,), **mode)

    before = [(one, one.numpy()) for one in model.variables if not one.trainable]
    with evaluated(), randomness_kept():
        try:
            yield run
        finally:
            for variable, value in before:
                if variable.numpy().tobytes() != value.tobytes():
                    variable.assign(value)
