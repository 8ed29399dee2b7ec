"""Trace a call of a model within a function of TensorFlow: its graph, and the values of every operation."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...core.building import GraphBuilder, Scope
from ...core.errors import CaptureError
from ...core.graph import Graph
from ...core.nested import leaves, named
from ...core.traced import Traced
from ..base import Operation
from ..host_arrays import OnAccess, whole_of_numbers
from .gate import as_tensors, with_mask
from .graph import FACTS, HANDLES, Rows, meta_of, values_by_row
from .running import unobserved
from .state import assign, code_kept, values_of
from .structure import MODES, Structure
from .values import as_array

#: Operations that call Python, which does not tell the shapes that it returns before it runs.
_OF_PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
_NO_SHAPE = (
    "The shapes behind a tf.py_function or tf.numpy_function are not known while a trace is made, as in a "
    "tf.function: code that reads one (x.shape[-1]) gets None, and may take another branch than where the "
    "model runs eagerly. Call set_shape on what the function returns."
)
#: What is an output of a model: tensors and variables of TensorFlow and Keras, and arrays of numpy.
_ARRAYS: Any = (
    *(tf.__internal__.types.Tensor, tf.__internal__.CompositeTensor),
    *(np.ndarray, np.generic),
)


class FunctionRecorder:
    """Records the graph of a call; see ``backends.base.GraphRecorder``.

    The model is traced once more for it, as it is called, without running.

    Args:
        structure_of: Returns the layers of a model.
    """

    any_thread = True

    def __init__(self, structure_of: Callable[[Any], Structure]) -> None:
        self._structure_of = structure_of

    def begin(self, model: Any, inputs: Any) -> None:
        """Note the inputs."""
        self._model, self._inputs = model, inputs

    def end(self, output: Any) -> Graph | None:
        """Return the graph."""
        if output is None:
            return None
        with code_kept(self._model):
            return _Trace(self._model, self._structure_of(self._model), *self._inputs).build()[0]


def trace_function(
    model: Any, structure: Structure, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Traced:
    """Call a model as its caller does, and return the graph of the call with the values of all operations.

    A layer that is not told whether it trains decides that itself, as in any call: those of Keras that
    augment data do it, and a dropout does not. A ``training`` without a default is False.

    Args:
        model: The model.
        structure: Its layers.
        args: The positional arguments.
        kwargs: The keyword arguments.

    Raises:
        CaptureError: If the call cannot be traced.
    """
    traced = _Trace(model, structure, args, {**_missing_mode(structure.call, args, kwargs), **kwargs})
    # What a variable holds now, not a copy: to assign to it makes another tensor.
    params = {address: variable.read_value() for address, variable in structure.parameters.items()}
    buffers = {address: variable.read_value() for address, variable in structure.buffers.items()}
    names, tensors = traced.run()
    graph, rows, order = traced.build()
    values = whole_of_numbers(dict(zip(names, map(as_array, tensors), strict=True)))
    state = whole_of_numbers({address: as_array(buffers[address]) for address in rows.buffer_rows})
    by_row = values_by_row(rows.rows, values, order) | values_by_row(rows.buffer_rows, state, order)
    return Traced(graph, by_row, OnAccess(params, as_array))


class _Call(NamedTuple):
    """A call of a layer: its scopes, the range of its operations in the graph, and what it returned."""

    scopes: tuple[Scope, ...]
    start: int
    stop: int
    outputs: list[Any]


class _Trace:
    """A model's call as a graph of TensorFlow.

    Args:
        model: The model.
        structure: Its layers.
        args: The positional arguments.
        kwargs: The keyword arguments.
    """

    def __init__(self, model: Any, structure: Structure, args: Any, kwargs: Mapping[str, Any]) -> None:
        self._structure = structure
        self._name = str(getattr(model, "name", "")) or type(model).__name__
        self._type = type(model).__name__
        self._calls: list[_Call] = []
        self._called: dict[str, str] = {}
        self._stack: list[Scope] = []
        self._numbers: dict[str, int] = {}
        self._graph: Any = None
        self._fetched: list[Any] = []
        self._outputs: list[tuple[str, Any]] = []
        self._given = as_tensors((args, dict(kwargs)))
        flat = tf.nest.flatten(self._given)
        self._tensors = [one for one in flat if isinstance(one, tf.Tensor)]
        self._names = _argument_names(structure.call, self._given)

        def function(*tensors: Any) -> list[Any]:
            rest = iter(tensors)
            filled = [next(rest) if isinstance(one, tf.Tensor) else one for one in flat]
            inner_args, inner_kwargs = tf.nest.pack_sequence_as(self._given, filled)
            self._graph = tf.compat.v1.get_default_graph()
            with self._layers_recorded():
                output = structure.call(*inner_args, **inner_kwargs)
            self._outputs = [(name, _in_graph(one, self._graph)) for name, one in _returned(output)]
            self._fetched = [
                tensor
                for op in self._graph.get_operations()
                for tensor in op.outputs
                if tensor.dtype not in (*HANDLES, tf.string)
            ]
            return self._fetched

        try:
            with unobserved():
                made = tf.function(function, autograph=False)
                self._function = made.get_concrete_function(*map(_spec, self._tensors))
        except Exception as error:
            raise CaptureError(
                f"The call cannot be traced: {type(error).__name__}: {_text(error)}"
            ) from error

    def run(self) -> tuple[list[str], list[Any]]:
        """Run the graph; return the names of tensors, and their values. What it writes is restored."""
        before = values_of(self._function.graph.variables)
        try:
            return [one.name for one in self._fetched], self._function(*self._tensors)
        finally:
            assign(before)

    def build(self) -> tuple[Graph, Rows, Any]:
        """Return the graph, the rows by name of a tensor, and for each row that of the graph."""
        builder = GraphBuilder(self._name, self._type)
        for one in self._structure.operations[1:]:
            builder.module(one.address, one.type)
        parameters, buffers = self._structure.parameters, self._structure.buffers
        first: dict[int, str] = {}  # the address of each variable, which several modules may hold
        for address, variable in parameters.items():
            if (known := first.setdefault(id(variable), address)) != address:
                builder.shared_param(address, known)
            else:
                trained = address in self._structure.trained
                builder.param(address, variable.shape, variable.dtype.name, trainable=trained)
        for address, variable in buffers.items():
            if first.setdefault(id(variable), address) == address:
                builder.buffer_of(address, variable.shape, variable.dtype.name)
        operations = self._graph.get_operations()
        numbers = {op: number for number, op in enumerate(operations)}
        last = max(numbers[one.op] for one in (*self._fetched, *(tensor for _, tensor in self._outputs)))
        rows = Rows(builder, self._handles({**parameters, **buffers}), buffers, self._scope_of(numbers))
        for tensor, name in zip(self._graph.inputs, self._names, strict=False):
            rows.rows[tensor.name] = builder.input(name, tuple(tensor.shape), tensor.dtype.name)
        for _, tensor in self._graph.captures:
            if tensor.dtype not in HANDLES:  # which was made outside of the call
                rows.rows[tensor.name] = builder.constant(*meta_of(tensor))
        rows.add(operations[: last + 1])
        for call in self._calls:
            for tensor in call.outputs:
                if call.start <= numbers[tensor.op] < call.stop:
                    builder.returns(rows.returned(tensor), call.scopes)
        for address, type_ in self._called.items():
            builder.called(address, type_)
        for name, tensor in self._outputs:
            builder.output(name, rows.returned(tensor))
        unshaped = {op.type for op in operations if any(one.shape.rank is None for one in op.outputs)}
        graph, order = builder.graph(
            FACTS if _OF_PYTHON.isdisjoint(unshaped) else {**FACTS, "notes": [_NO_SHAPE]}
        )
        return graph, rows, order

    def _handles(self, variables: Mapping[str, Any]) -> dict[str, str]:
        """Return the first address of each variable by the name of its handle in the graph."""
        addresses: dict[int, str] = {}
        for address, variable in variables.items():
            addresses.setdefault(id(variable.handle), address)
        return {
            inner.name: addresses[id(outer)]
            for outer, inner in self._graph.captures
            if id(outer) in addresses
        }

    def _scope_of(self, numbers: Mapping[Any, int]) -> Callable[[Any], tuple[Scope, ...]]:
        """Return a function that returns the scopes of an operation; ``numbers`` has those of all."""
        scopes: list[tuple[Scope, ...]] = [() for _ in numbers]
        for call in sorted(self._calls, key=lambda one: len(one.scopes)):  # inner calls overwrite outer ones
            scopes[call.start : call.stop] = [call.scopes] * (call.stop - call.start)
        return lambda op: scopes[numbers[op]]

    @contextmanager
    def _layers_recorded(self) -> Iterator[None]:
        """Note which operations each call of a layer adds to the graph."""
        with ExitStack() as stack:
            for one in self._structure.operations[1:]:
                stack.callback(self._structure.replaced(one.module, partial(self._call, one)))
            yield

    def _call(self, operation: Operation, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        graph = tf.compat.v1.get_default_graph()
        self._called[operation.address] = operation.type
        if graph is not self._graph:  # within the body of a loop or a branch
            return own(*args, **kwargs)
        number = self._numbers[operation.address] = self._numbers.get(operation.address, 0) + 1
        self._stack.append(Scope(operation.address, operation.type, number))
        start = len(graph.get_operations())
        try:
            output = own(*args, **kwargs)
            # What the layer was given and returns has a place in the layer too.
            inside = set(graph.get_operations()[start:])
            flat = tf.nest.flatten(output)
            new = [_inside(one, graph, inside) for one in flat]
            if any(one is not before for one, before in zip(new, flat, strict=True)):
                output = tf.nest.pack_sequence_as(output, new)
            stop = len(graph.get_operations())
            returned = [tensor for _, tensor in _tensors(output)]
            self._calls.append(_Call(tuple(self._stack), start, stop, returned))
        finally:
            self._stack.pop()
        return output


def _text(error: Exception) -> str:
    """Return the first line of an error; of one that was wrapped, the lines that were."""
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines() if line.strip()]
    if lines and lines[0] == "in user code:":  # AutoGraph lists the lines of the source before the error
        frames = [number for number, line in enumerate(lines) if line.startswith("File ")]
        return " ".join(lines[frames[-1] + 2 :] if frames else lines[1:])
    if not lines or not lines[0].startswith("Exception encountered when calling"):
        return lines[0] if lines else ""
    return " ".join(takewhile(lambda line: not line.startswith("Arguments received by"), lines))


def _inside(value: Any, graph: Any, inside: Collection[Any]) -> Any:
    """Return a tensor of a graph that one of the operations computes; another value unchanged."""
    if not isinstance(value, tf.Tensor) or getattr(value, "graph", None) is not graph or value.op in inside:
        return value
    return with_mask(value, tf.identity(value))


def _tensors(value: Any) -> list[tuple[str, Any]]:
    """Return the tensors in what a layer returned, with their names, in the order in which it has them."""
    return named(value, [one for one in tf.nest.flatten(value) if isinstance(one, tf.Tensor)])


def _missing_mode(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, bool]:
    """Return evaluation mode for a model that cannot be called without one, if the caller has none."""
    try:
        signature = inspect.signature(getattr(model, "call", model))
        given = signature.bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):  # the call itself says what is wrong
        return {}
    required = {name for name, one in signature.parameters.items() if one.default is one.empty}
    return {name: False for name in MODES if name in required and name not in given}


def _returned(value: Any) -> list[tuple[str, Any]]:
    """Return the tensors, variables and arrays in what a model returned, with their names, in its order."""
    found: list[Any] = [one for leaf in tf.nest.flatten(value) for one in leaves(leaf, _ARRAYS)]
    return [
        (name, part)
        for name, whole in named(value, found)
        for part in tf.nest.flatten(whole, expand_composites=True)
        if not isinstance(part, np.ndarray) or part.dtype.kind not in "OMm"
    ]


def _in_graph(value: Any, graph: Any) -> Any:
    """Return a tensor, variable or array as a tensor of a graph: what it holds at this point of the call."""
    if isinstance(value, tf.Tensor):
        return graph.capture(value)
    return tf.convert_to_tensor(value)


def _spec(tensor: Any) -> Any:
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _argument_names(model: Any, given: tuple[Any, Any]) -> list[str]:
    """Return the names that the model's code gives to its tensors, one for each."""
    args, kwargs = given
    try:
        called = list(inspect.signature(getattr(model, "call", model)).parameters)
    except (TypeError, ValueError):
        called = []
    pairs = [*zip([*called, *[""] * len(args)], args, strict=False), *kwargs.items()]
    names = []
    for name, value in pairs:
        flat = tf.nest.flatten(value)
        names += [name if len(flat) == 1 else "" for one in flat if isinstance(one, tf.Tensor)]
    return names
