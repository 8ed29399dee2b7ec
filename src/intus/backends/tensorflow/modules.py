"""The modules of a ``tf.Module``, and how a function is put in the place of their ``__call__``.

Python looks up ``__call__`` in the class, so that a module gets a subclass of its own while it is observed.
"""

from __future__ import annotations

import copyreg
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MethodType
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core.ag_ctx import ControlStatusCtx, Status
from tensorflow.python.autograph.core.converter import ConversionOptions
from tensorflow.python.eager.polymorphic_function.autograph_util import py_func_from_autograph
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

from ...core.address import Address
from ..base import Operation, Tap
from .calls import Attachment, CallObserver, ObservedCall
from .gate import TensorFlowGate
from .running import evaluated
from .state import state_kept
from .structure import MODES, Structure

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
    return isinstance(_own(module), Function)


def _own(module: Any) -> Any:
    """Return the ``__call__`` of a module's class as the class has it, bound to nothing."""
    return inspect.getattr_static(type(module), "__call__")


def structure_of(model: Any) -> Structure:
    """Return what the tracing of a module needs to know."""
    operations = modules_of(model)
    parameters: dict[str, Any] = {}
    buffers: dict[str, Any] = {}
    for one in operations:
        for name, variable in _variables(one.module).items():
            address = f"{one.address}.{name}" if one.address else name
            (parameters if variable.trainable else buffers)[address] = variable
    own = _own(model)
    # Control flow becomes operations, as in a tf.function: a trace has no branch of Python to take.
    call = _body(own, model) if isinstance(own, Function) else _rewritten(model)
    return Structure(operations, parameters, buffers, set(parameters), call, replaced)


def _evaluation_arguments(model: Any) -> dict[str, Any]:
    names = inspect.signature(model.__call__).parameters
    return {name: False for name in MODES if name in names}


def replaced(module: Any, function: Callable[..., Any]) -> Callable[[], None]:
    """Put a function in the place of a module's ``__call__``, and return a function that undoes it.

    Args:
        module: The module.
        function: Called with what calls the module, and with the arguments. A ``tf.function`` is called by
            its body, unless XLA compiles it, which computes other last bits.
    """
    own = _own(module)

    def call(bound: Callable[..., Any], self: Any, args: Any, kwargs: Any) -> Any:
        inner = bound
        if not isinstance(own, Function):
            inner = _converted(bound)
        elif not own._jit_compile:
            inner = _body(own, self)
        return function(inner, *args, **kwargs)

    return _swap(module, call)


def _swap(
    module: Any, call: Callable[..., Any], made_of: Callable[[Any], Any] = lambda one: one, **attributes: Any
) -> Callable[[], None]:
    """Give a module a class with another ``__call__``, and return a function that undoes it.

    Args:
        module: The module.
        call: Called with the module's own ``__call__`` as Python binds it, whatever descriptor that is, the
            module, the arguments and the keyword arguments.
        made_of: Returns the ``__call__`` of the class, made of a function.
        attributes: Further attributes of the class.
    """
    before: Any = type(module)

    def swapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call(super(made, self).__call__, self, args, kwargs)

    def reduced(self: Any, protocol: Any) -> Any:
        """Let copies, also pickled ones, be of the module's own class: nothing observes them."""
        make, args, *rest = super(made, self).__reduce_ex__(protocol)
        if make is copyreg.__newobj__:  # type: ignore[attr-defined]  # pickle checks that its class is ours
            make = object.__new__
        return make, tuple(before if one is made else one for one in args), *rest

    swapped.autograph_info__ = None  # type: ignore[attr-defined]
    made: Any = type(
        before.__name__,
        (before,),
        {
            "__call__": made_of(swapped),
            "__reduce_ex__": reduced,
            "__module__": before.__module__,
            "__qualname__": before.__qualname__,
            "__doc__": before.__doc__,
            "autograph_info__": None,  # TensorFlow would rewrite the source of our function, see _converted
            **attributes,
        },
    )
    module.__class__ = made

    def undo() -> None:
        module.__class__ = before

    return undo


def _converted(function: Callable[..., Any]) -> Any:
    """Return a function with its control flow rewritten, if the caller's is. It is not in eager code."""
    internal = tf.__internal__.autograph
    return internal.tf_convert(function, internal.control_status_ctx(), convert_by_default=False)


def _body(function: Any, module: Any) -> Callable[..., Any]:
    """Return what a ``tf.function`` that is a method calls when it is traced."""
    body = MethodType(function.python_function, module)
    return _rewritten(body, function._experimental_autograph_options) if function._autograph else body


def _rewritten(function: Callable[..., Any], features: Any = None) -> Callable[..., Any]:
    """Return a function with its control flow rewritten, as a ``tf.function`` has it."""
    rewritten = py_func_from_autograph(function, features)

    def call(*args: Any, **kwargs: Any) -> Any:
        options = ConversionOptions(recursive=True, optional_features=features, user_requested=True)
        with ControlStatusCtx(status=Status.ENABLED, options=options):
            return rewritten(*args, **kwargs)

    call.__wrapped__ = function  # type: ignore[attr-defined]  # whose signature it has
    return call


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
    own = _own(module)
    within = is_model and isinstance(own, Function)
    observed = ObservedCall(module)

    def call(bound: Callable[..., Any], self: Any, args: Any, kwargs: Any) -> Any:
        if within:
            return observed.run(
                MethodType(own.python_function, self), args, kwargs, lambda _: _body(own, self)
            )
        return observed.run(bound, args, kwargs, None if isinstance(own, Function) else _converted)

    observed.undo = _swap(module, call, own._clone if within else lambda one: one, **{_OBSERVED: observed})
    if within:
        observed.evaluation = _own(module)._clone(None)
    return observed


def _call_of_evaluation(module: Any) -> Callable[..., Any]:
    """Return what calls a module in an evaluation.

    A function runs on any thread and is traced once. So an observed one is traced apart for evaluations, by
    which these are known from calls that other threads make meanwhile.
    """
    observed = getattr(type(module), _OBSERVED, None)
    if observed is None or observed.evaluation is None:
        return module  # type: ignore[no-any-return]
    return observed.evaluation.__get__(module, type(module))  # type: ignore[no-any-return]


@contextmanager
def module_evaluation(model: Any) -> Iterator[Callable[[Any], Any]]:
    """Yield a function that calls a module; at the end restore what the calls changed."""
    mode = _evaluation_arguments(model)

    def run(inputs: Any) -> Any:
        call = _call_of_evaluation(model)
        if isinstance(inputs, Mapping):
            return call(**inputs, **mode)
        return call(*inputs if isinstance(inputs, tuple) else (inputs,), **mode)

    with evaluated(), state_kept(model):
        yield run
