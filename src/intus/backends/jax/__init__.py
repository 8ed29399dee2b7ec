"""The JAX backend: models of Flax NNX, Flax Linen and Equinox.

A model of JAX runs inside a step that is compiled as a whole, so there is nothing to hook. ``Probe.through``
returns the step with a shadow before it: a program of our own that computes the observed tensors from the
same arguments. The step itself is not changed.

Rules, each covered by a test:

- The user's step, modules and classes are never written to. Only copies of our own trace are tapped.
- The shadow runs before the step, because the step may donate its arguments.
- An error in the shadow is passed to the tap. The step runs in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from weakref import ref

import jax
import jax.numpy as jnp
import numpy as np

from ...core.errors import InputError
from ...core.restoring import python_kept
from ...core.sketch import hashes_of_rows
from ...core.traced import Traced
from ..base import GraphRecorder, Operation, Tap, check_kinds
from ..host_arrays import order_of_rows
from .arrays import first_rows, is_array, serial
from .attachment import Attachment, StepInputs, attached_to, latest, mode_of_call
from .graph import trace
from .interception import Met, intercepting
from .library import Library
from .recorder import StepRecorder


class JaxBackend:
    """Observes models of Flax and Equinox; see ``Backend`` for the contract of each method."""

    name = "jax"
    blind_spot = (
        "Of a JAX model, the steps that went through Probe.through are observed: step = watch.through(step). "
        "Modules inside of loops and branches (jax.lax.scan, while_loop, cond, nn.scan) are not; what a loop "
        "returns is recorded only where a module around it returns it."
    )

    def __init__(self) -> None:
        #: Of the last model, which is asked at each step.
        self._mode: tuple[ref[Any], Callable[[], bool] | None] | None = None
        self._met: tuple[ref[Any], list[Operation]] | None = (
            None  # of the last model that knows no operations
        )

    def owns(self, model: Any) -> bool:
        """Return whether the model is a module of one of the three libraries."""
        return any(library.owns(model) for library in _libraries(model))

    def operations(self, model: Any) -> list[Operation]:
        """Return every module that can be called; of Linen those that were in a call of ``evaluation``."""
        known = _library(model).operations(model)
        return known if known or self._met is None or self._met[0]() is not model else self._met[1]

    def parameters(self, operation: Operation) -> list[str]:
        """Return the names of the module's own parameters."""
        return [] if isinstance(operation.module, type) else _library(operation.module).parameters(operation)

    def unit_axis(self, operation: Operation, shape: tuple[int, ...]) -> int | None:
        """Return the unit axis of a layer of the libraries; other modules have the last of up to two axes."""
        if 1 <= len(shape) <= 2:
            return len(shape) - 1
        return _library(operation.module).unit_axis(operation.module, len(shape))

    def mode(self, model: Any) -> str:
        """Return ``"train"`` or ``"eval"``: of the step that is about to run, else from the model's flags."""
        of_call = mode_of_call(model)
        if of_call is not None:
            return of_call
        if self._mode is None or self._mode[0]() is not model:
            library = _library(model)
            told = library.training(model) if library.tells_mode(model) else None
            self._mode = ref(model), told
        is_training = self._mode[1]
        return "train" if is_training is None or is_training() else "eval"

    def inner(self, model: Any, *, compiled: bool) -> Any:
        """Return the model itself."""
        return model

    def rows(self, inputs: Any, axis: int) -> int | None:
        """Return the length along ``axis`` of the first array that has that axis; of a step, of its data."""
        return first_rows(inputs.forms() if isinstance(inputs, StepInputs) else inputs, axis)

    def is_time_first(self, model: Any) -> bool:
        """Return whether a recurrent layer of the model has time first; Linen makes its own in the call."""
        if isinstance(model, type):
            return False
        modules = [model, *(operation.module for operation in _library(model).operations(model))]
        return any(getattr(one, "time_major", False) is True for one in modules)

    def row_contents(self, inputs: Any, axis: int) -> np.ndarray | None:
        """Return a hash of each row of a call's arguments; None if they cannot be compared."""
        rows = first_rows(inputs, axis)
        arrays = [one for one in jax.tree.leaves(inputs) if is_array(one) and one.ndim > axis]
        if not rows or not all(isinstance(one, np.ndarray) or one.is_fully_addressable for one in arrays):
            return None
        own = [np.moveaxis(np.asarray(one), axis, 0) for one in arrays if one.shape[axis] == rows]
        return hashes_of_rows(rows, [one for one in own if one.size])

    def order(self, inputs: Any, axis: int) -> bytes | str | None:
        """Return a hash of what the model gets in the step, or the reason why there is none.

        The arguments of the step may be the whole dataset, of which it takes rows itself.
        """
        data = inputs.data() if isinstance(inputs, StepInputs) else inputs
        if isinstance(data, str):
            return data
        return order_of_rows([np.asarray(one) for one in jax.tree.leaves(data) if is_array(one)], axis)

    def shuffled(self) -> str | None:
        """Return None: JAX has no loader of data."""
        return None

    def version(self, model: Any) -> int:
        """Return a number that changes if an array is replaced, also by observed steps; 0 if not known."""
        try:
            return hash(tuple(serial(array.value) for array in _library(model).state(latest(model)))) or 1
        except InputError:  # a Linen module that is not bound, or a step that returned another model
            return 0

    def state(self, model: Any) -> Any:
        """Return None: the functions in a model cannot be compared."""
        return None

    def inputs(self, model: Any, data: Any) -> Any:
        """Return arrays as arrays of JAX, floats in the dtype of the model's parameters."""
        dtypes = {array.value.dtype for array in _library(model).state(model) if array.trained}
        dtype = dtypes.pop() if len(dtypes) == 1 else None

        def converted(value: Any) -> Any:
            if not is_array(value):
                return value
            floats = dtype is not None and jnp.issubdtype(value.dtype, jnp.floating)
            return jnp.asarray(value, dtype if floats else None)

        return jax.tree.map(converted, data)

    def without_probe_set(self, model: Any) -> str | None:
        """Return why a model cannot be called outside of a step: a Linen module needs its variables."""
        try:
            _library(model).arrays(model)
        except InputError as error:
            return str(error)
        return None

    def settings(self) -> Callable[[], AbstractContextManager[None]]:
        """Return a function that returns a context with the present default precision of products."""
        precision = jax.config.jax_default_matmul_precision
        return lambda: jax.default_matmul_precision(precision)

    @contextmanager
    def evaluation(self, model: Any) -> Iterator[Callable[[Any], Any]]:
        """Yield a function that calls a copy of the model, as trained by observed steps, in evaluation mode.

        NNX: dropout is off and normalizations use their running averages. Equinox: inference mode, under
        ``jax.vmap``, since models of Equinox take one record. Linen: the bound module as it is, since the
        mode is an argument of its call.

        Raises:
            InputError: If observed steps return another model, and it is not known which.
        """
        library = _library(model)
        trained = latest(model)
        copy = library.evaluation(trained)

        def run(inputs: Any) -> Any:
            args, kwargs = _arguments(inputs)
            function, given = library.batched(copy, args, kwargs)
            for attachment in attached_to(model):
                attachment.observe(function, given, {})
            if library.operations(model):
                return function(*given)
            with intercepting(met := Met()), library.tracing(model):
                output = function(*given)
            self._met = ref(model), [Operation(at, cls.__name__, cls) for at, cls in met.classes.items()]
            return output

        with python_kept(trained, library.parts):
            yield run

    def graph_recorder(self, model: Any) -> GraphRecorder:
        """Return a recorder that traces the model's call in the first step that is observed."""
        return StepRecorder()

    def trace(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
        """Run a model once; see ``backends.tracing.Traces``."""
        return trace(_library(model), model, args, kwargs)

    def attach(
        self, model: Any, operations: Iterable[Operation], kinds: Collection[str], tap: Tap
    ) -> Attachment:
        """Return an attachment whose ``through`` observes a step.

        Raises:
            InputError: If a kind of tensors cannot be observed.
        """
        kinds = check_kinds(kinds)
        if "update" in kinds:
            raise InputError(
                "kinds must be of output, input, grad_output, grad_input, parameter and parameter_grad for a "
                "JAX model, got 'update': the step returns new parameters, after it was observed."
            )
        return Attachment(_library(model), model, list(operations), kinds, tap)


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return inputs as positional and keyword arguments."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return inputs if isinstance(inputs, tuple) else (inputs,), {}


def _library(model: Any) -> Library:
    return next(library for library in _libraries(model) if library.owns(model) or isinstance(model, type))


def _libraries(model: Any) -> list[Library]:
    """Return the libraries that a model may be of; only those that defined its class are imported."""
    cls = model if isinstance(model, type) else type(model)
    modules = {base.__module__ for base in cls.__mro__}
    found: list[Library] = []
    if any(name.startswith("flax.nnx") for name in modules):
        from .nnx import Nnx

        found.append(Nnx())
    if any(name.startswith("flax.linen") for name in modules):
        from .linen import Linen

        found.append(Linen())
    if any(name.startswith("equinox") for name in modules):
        from .equinox import Equinox

        found.append(Equinox())
    return found
