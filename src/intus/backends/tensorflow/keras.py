"""The backend of Keras 3: its layers' ``call`` is observed, in graphs and eagerly.

Rules, each covered by a test:

- Outputs and gradients pass through identities, which have the same bits.
- What is observed leaves a graph in one operation, which runs only in a call that the tap wants.
- A function that was traced while something was attached calls the host no longer after the removal.
- On JAX and PyTorch only calls of intus itself are observed: a hook in a compiled step would change it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import keras
import numpy as np

from ...core.errors import CaptureError
from ...core.traced import Traced
from ..base import GraphRecorder, Handle, Operation, Tap
from .calls import KINDS, WITHOUT_GRADIENTS, mode_of
from .function_calls import under_way
from .layers import attach_layers, layers_of, replaced, variables_of
from .running import evaluated
from .shuffling import loop_data, random_order
from .state import state_kept
from .structure import Structure
from .values import as_inputs, checksum, content_hash, first_batch, first_rows, possible_kinds


class KerasBackend:
    """Observes any Keras layer or model; see ``Backend`` for the contract of each method."""

    name = "keras"
    blind_spot = (
        "Layers inside tf.while_loop, tf.cond or another tf.function, a tf.function that was traced before "
        "probe() was called, and what XLA compiles (jit_compile=True) are not recorded. Of Keras on JAX or "
        "PyTorch only a probe_set is."
    )

    def owns(self, model: Any) -> bool:
        """Return whether the model is a layer, which models are too."""
        return isinstance(model, keras.Layer)

    def operations(self, model: Any) -> list[Operation]:
        """Return the model and its layers."""
        return layers_of(model)

    def parameters(self, operation: Operation) -> list[str]:
        """Return the names of the layer's own variables (``kernel``)."""
        return list(variables_of(operation.module))

    def unit_axis(self, operation: Operation, shape: tuple[int, ...]) -> int | None:
        """Return the axis of channels or features that a layer of Keras has; None for other layers."""
        if 1 <= len(shape) <= 2:
            return len(shape) - 1
        layer = operation.module
        if not type(layer).__module__.startswith("keras."):
            return None
        if (layout := getattr(layer, "data_format", None)) is not None:
            return 1 if layout == "channels_first" else len(shape) - 1
        axis = getattr(layer, "axis", None)
        if isinstance(layer, keras.layers.BatchNormalization | keras.layers.GroupNormalization):
            return None if axis is None else int(axis) % len(shape)
        return len(shape) - 1 if isinstance(layer, _FEATURES_LAST) else None

    def mode(self, model: Any) -> str:
        """Return ``"train"`` in a call that trains, else ``"eval"``."""
        return mode_of(model)

    def inner(self, model: Any, *, compiled: bool) -> Any:
        """Return the model: there are no wrappers."""
        return model

    def rows(self, inputs: Any, axis: int) -> int | None:
        """Return the length along ``axis`` of the first array that has that axis."""
        return first_rows(inputs, axis)

    def order(self, inputs: Any, axis: int) -> bytes | str | None:
        """Return a hash of the first array, or the reason why there is none."""
        return first_batch(inputs, axis)

    def shuffled(self) -> str | None:
        """Return a description of what shuffles the rows of a ``fit`` in progress."""
        # A step calls the host on a thread of TensorFlow.
        return random_order([loop_data(), *(one.data for one in under_way())])

    def version(self, model: Any) -> int:
        """Return a checksum of the values of all variables."""
        return checksum(_values(model))

    def state(self, model: Any) -> Any:
        """Return a hash of the configuration and all variables; None if there is code that is not Keras's."""
        layers = list(model._flatten_layers())
        custom = [one for one in layers if not type(one).__module__.startswith("keras.")]
        if custom or any(isinstance(one, keras.layers.Lambda) for one in layers):
            return None
        try:
            config = repr(model.get_config())
        except Exception:  # whatever the objects of the caller raise
            return None
        for number, one in enumerate(layers):  # Keras counts the layers of the process in their names
            config = config.replace(repr(one.name), f"layer {number}")
        versions = f"{keras.__version__} {keras.backend.backend()} {keras.config.floatx()}"
        return content_hash([versions, config, *_values(model)])

    def inputs(self, model: Any, data: Any) -> Any:
        """Return arrays with floats in the dtype in which the model computes."""
        return as_inputs(data, str(model.compute_dtype or ""))

    def evaluation(self, model: Any) -> AbstractContextManager[Callable[[Any], Any]]:
        """Return a context that yields a function that calls the model with ``training=False``."""
        return _evaluation(model)

    def graph_recorder(self, model: Any) -> GraphRecorder | None:
        """Return a recorder for the graph of the next call; None on other backends than TensorFlow."""
        if keras.backend.backend() != "tensorflow":
            return None
        from .function_graph import FunctionRecorder

        return FunctionRecorder(_structure)

    def trace(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
        """Call a model once within a function of TensorFlow; return its graph and the values.

        Raises:
            CaptureError: If Keras runs on another backend, or the call cannot be traced.
        """
        if keras.backend.backend() != "tensorflow":
            raise CaptureError(
                f"Keras on {keras.backend.backend()} cannot be traced. Set KERAS_BACKEND=tensorflow."
            )
        from .function_graph import trace_function

        if not model.built:
            with evaluated(), state_kept(model, is_built=False):
                model(*args, **{**kwargs, **_evaluation_arguments(model)})
        with self.evaluation(model):
            return trace_function(model, _structure(model), args, kwargs)

    def attach(self, model: Any, operations: Iterable[Operation], kinds: Collection[str], tap: Tap) -> Handle:
        """Pass the tensors of layers to a tap, until the handle is removed."""
        possible = KINDS if keras.backend.backend() == "tensorflow" else WITHOUT_GRADIENTS
        of = f"Keras on {keras.backend.backend()}"
        return attach_layers(model, operations, possible_kinds(kinds, possible, of), tap)


def _structure(model: Any) -> Structure:
    """Return what the tracing of a model needs to know of its layers."""
    operations = layers_of(model)
    parameters, buffers, trained = {}, {}, set()
    for one in operations:
        prefix = f"{one.address}." if one.address else ""
        own = variables_of(one.module)
        parameters.update({f"{prefix}{name}": variable._value for name, variable in own.items()})
        trained |= {f"{prefix}{name}" for name, variable in own.items() if variable.trainable}
        for variable in one.module._non_trainable_variables:
            buffers[f"{prefix}{variable.name}"] = variable._value
    return Structure(operations, parameters, buffers, trained, model, replaced)


_FEATURES_LAST = (
    *(keras.layers.Dense, keras.layers.EinsumDense, keras.layers.Embedding, keras.layers.LayerNormalization),
    *(keras.layers.RNN, keras.layers.Bidirectional, keras.layers.MultiHeadAttention),
)


def _values(model: Any) -> list[np.ndarray]:
    return [variable.numpy() for variable in model.variables]


def _evaluation_arguments(model: Any) -> dict[str, bool]:
    return {"training": False} if model._call_has_training_arg else {}


@contextmanager
def _evaluation(model: Any) -> Iterator[Callable[[Any], Any]]:
    """Yield a function that calls the model; at the end restore what the calls changed."""
    mode = _evaluation_arguments(model)
    names = set(inspect.signature(model.call).parameters)

    def run(inputs: Any) -> Any:
        if isinstance(inputs, Mapping) and set(inputs) <= names:
            return model(**inputs, **mode)
        return model(*inputs if isinstance(inputs, tuple) else (inputs,), **mode)

    with evaluated(), state_kept(model, is_built=model.built):
        yield run
