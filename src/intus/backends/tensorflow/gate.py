"""Connect a call of a model to the host: directly if it runs eagerly, by gated operations within a graph.

A function of TensorFlow is traced once and then runs without Python. A call of the model within one gets an
operation that asks the tap whether the call is observed, and one that passes all tensors to it if so. After
the removal a variable keeps both from running.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.transform import FUNC_GRAPH_TRANSFORMS

from . import exporting
from .copies import copied
from .update_order import let_updates_wait

_TRACING = "tracing_options"  # the local variable of the function that traces for tf.function


class TensorFlowGate:
    """The gate of one attachment."""

    nest = tf.nest

    def __init__(self) -> None:
        with tf.init_scope():
            self._attached = tf.Variable(True, trainable=False, name="intus_attached")
            #: How many of the next calls do not ask. It is counted in the graph, which takes a tenth of the
            #: time that a call of the host takes.
            self._left_out = tf.Variable(0, trainable=False, dtype=tf.int64, name="intus_left_out")
        exporting.mark(self._attached, is_open=True)
        self._asking = threading.local()
        self._graphs: weakref.WeakSet[Any] = weakref.WeakSet()  # in which the host is asked
        #: The name of the operation that ends the last call within a graph. The next call asks after it:
        #: TensorFlow runs calls that do not depend on each other, such as d(real) and d(fake), in any order.
        self._told: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        FUNC_GRAPH_TRANSFORMS.append(self._function_traced)

    def close(self) -> None:
        """Keep functions that were already traced from calling the host."""
        FUNC_GRAPH_TRANSFORMS.remove(self._function_traced)
        self._attached.assign(False)
        exporting.mark(self._attached, is_open=False)

    def _function_traced(self, graph: Any) -> None:
        """Handle the end of the tracing of any function."""
        if graph in self._graphs:
            let_updates_wait(graph)

    def place(self) -> Any:
        """Return the graph that operations are added to now; None if they run at once."""
        return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()

    def left_out_of_export(self) -> str | None:
        """Return None unless the call is traced for an export; then what is to be said, maybe ``""``."""
        return None if self.place() is None else exporting.left_out()

    def refusal(self) -> str:
        """Return why the host cannot be called from here; ``""`` if it can be."""
        return _XLA if self.place() is not None and _is_compiled() else ""

    def is_tensor(self, value: Any) -> bool:
        """Return whether a value is a dense tensor of numbers."""
        return isinstance(value, tf.Tensor) and (
            value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_bool
        )

    def is_float(self, value: Any) -> bool:
        """Return whether a tensor can have a gradient."""
        return bool(value.dtype.is_floating)

    def value(self, variable: Any) -> Any:
        """Return the value of a variable, without a cast to the dtype of the computation."""
        return tf.convert_to_tensor(getattr(variable, "_value", variable))

    def now(self, variable: Any) -> Any:
        """Return the value of a variable as it is, also while a function is traced."""
        with tf.init_scope():
            return self.value(variable).numpy()

    def trains(self) -> bool:
        """Return whether a tape records the call."""
        from tensorflow.python.eager import record

        return bool(record.could_possibly_record())

    def ask(
        self,
        tensors: Sequence[Any],
        begin: Callable[..., int],
        leave_out: Callable[[Callable[[bool], int]], int] | None,
    ) -> Any:
        """Return the number of the call, 0 if it is not observed: in a graph a tensor.

        Args:
            tensors: The tensors to pass to the host.
            begin: Called with their values; returns the number.
            leave_out: Returns how many of the next calls need not ask; see ``ModelTap.leave_out``. None if
                every call asks.
        """
        graph = self.place()
        if graph is None:
            return begin(*tensors)
        self._graphs.add(graph)

        def host(left: np.ndarray, *arrays: np.ndarray) -> np.int64:
            self._asking.left = int(left)
            try:
                if number := begin(*arrays):
                    return np.int64(number)
                return np.int64(0 if leave_out is None else -leave_out(self._left))
            finally:
                self._asking.left = None

        nobody = partial(tf.constant, 0, tf.int64)

        def call() -> Any:
            answer = tf.numpy_function(host, [self._left_out.read_value(), *tensors], tf.int64)
            answer.set_shape(())
            with tf.control_dependencies([self._left_out.assign(tf.maximum(-answer, 0))]):
                return tf.maximum(answer, 0)

        def left_out() -> Any:
            with tf.control_dependencies([self._left_out.assign_sub(1)]):
                return nobody()

        def asked() -> Any:
            return tf.cond(self._attached, call, nobody)

        told = self._told.get(graph)
        with tf.control_dependencies([] if told is None else [graph.get_operation_by_name(told)]):
            return asked() if leave_out is None else tf.cond(self._left_out > 0, left_out, asked)

    def _left(self, end: bool) -> int:
        """Return how many of the calls that do not ask were not made yet; see ``ModelTap.leave_out``."""
        left = getattr(self._asking, "left", None)
        if left is None:
            with tf.init_scope():
                left = int(self._left_out.numpy())
                if end:
                    self._left_out.assign(0)
        return max(left, 0)

    def tell(self, go: Any, tensors: Sequence[Any], take: Callable[..., None]) -> None:
        """Pass tensors to the host if the call is observed.

        Args:
            go: The answer of ``ask``.
            tensors: The tensors.
            take: Called with the number of the call, and their values.
        """
        if self.place() is not None:
            tf.cond(go > 0, lambda: _host_call(take, [go, *tensors]), lambda: tf.constant(0))
        elif go:
            take(go, *tensors)

    def tell_copies(
        self,
        go: Any,
        ready: Sequence[Any],
        tensors: Sequence[Any],
        begin: Callable[[], None],
        take: Callable[..., None],
    ) -> Any:
        """Compute tensors of a graph once more if the call is observed, and pass them to the host.

        Args:
            go: The answer of ``ask``.
            ready: Tensors that are computed before.
            tensors: The tensors; see ``copies``.
            begin: Called before they are computed.
            take: Called with the number of the call, and their values.

        Returns:
            A tensor of the graph, which is computed after that.
        """

        def pass_on() -> Any:
            with tf.control_dependencies([_host_call(begin, [])]):
                return _host_call(take, [go, *copied(tensors)])

        with tf.control_dependencies(ready):
            told = tf.cond(go > 0, pass_on, lambda: tf.constant(0))
        self._told[told.graph] = told.op.name
        return told

    def with_gradient(self, tensor: Any, tell: Callable[[Any], None]) -> Any:
        """Return the same tensor, whose gradient ``tell`` is called with."""

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def tapped(x: Any) -> tuple[Any, Callable[[Any], Any]]:
            def gradient(dy: Any) -> Any:
                tell(dy)
                return dy

            return tf.identity(x), gradient

        return with_mask(tensor, tapped(tensor))

    def after(self, first: Any, tensor: Any) -> Any:
        """Return a tensor of a graph, but computed only after another one."""
        with tf.control_dependencies([first]):
            return with_mask(tensor, tf.identity(tensor))


def _host_call(call: Callable[..., None], tensors: Sequence[Any]) -> Any:
    """Return a tensor that is computed by a call of the host with the values of tensors."""

    def host(*arrays: np.ndarray) -> np.int32:
        call(*arrays)
        return np.int32(0)

    return tf.numpy_function(host, tensors, tf.int32)


_XLA = (
    "The call is compiled by XLA (jit_compile=True), which cannot call Python. Compile the model with "
    "jit_compile=False, or pass a probe_set to probe(), which is run outside of the training."
)


def with_mask(tensor: Any, copy: Any) -> Any:
    """Return the copy of a tensor with the mask that Keras attached to the tensor."""
    mask = getattr(tensor, "_keras_mask", None)
    if mask is not None:
        copy._keras_mask = mask
    return copy


def as_tensors(value: Any) -> Any:
    """Return nested values with all arrays as tensors."""
    return tf.nest.map_structure(
        lambda one: tf.convert_to_tensor(one) if hasattr(one, "shape") and hasattr(one, "dtype") else one,
        value,
    )


def _is_compiled() -> bool:
    """Return whether a function with ``jit_compile=True`` is being traced.

    TensorFlow tells that only to the code that traces, so it is read from there.
    """
    frame = sys._getframe()
    while frame is not None:
        options = frame.f_locals.get(_TRACING) if "tracing_compilation" in frame.f_code.co_filename else None
        attributes = getattr(options, "attributes", None) or {}
        if attributes.get("_XlaMustCompile"):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
