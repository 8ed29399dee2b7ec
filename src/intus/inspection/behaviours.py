"""Extract behaviors: the outputs of chosen layers and operations, block by block, through the protocol."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..backends.base import Backend, CapturedTensor, GraphRecorder, Operation
from ..core.address import Address
from ..core.errors import CaptureError, InputError
from ..core.graph import Graph
from ..core.probes_disabled import probes_disabled
from .reading import Behavior, GradientReader, Output, TracedRows
from .reading.data import Inputs, Items, Rows, as_records

_log = logging.getLogger(__name__)


class Records:
    """The data: one record at a time for hypotheses, and one block at a time for the model.

    Args:
        data: An array, a tensor, a sequence of records, a DataLoader or Dataset of torch (of an item
            ``(x, y)`` the first is the record, in the order of the dataset), or a DataFrame of pandas.
        inputs: Turns a list of records into the model's input: a tensor, a tuple of positional arguments, or
            a mapping of keyword arguments. Default: records are stacked.

    Raises:
        InputError: If ``data`` is not of that kind, or empty.
    """

    def __init__(self, data: Any, inputs: Inputs | None = None) -> None:
        self.data, self.inputs = as_records(data, inputs)
        if not len(self.data):
            raise InputError("data is empty. Pass at least one record.")

    def __len__(self) -> int:
        return len(self.data)

    def block(self, numbers: np.ndarray) -> list[Any]:
        """Return records for hypotheses: tensors and arrays as numpy copies, anything else unchanged."""
        return [_as_numpy(self.data[i]) for i in numbers.tolist()]

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        """Return the lengths of records that are texts, lists or arrays; -1 where a record has none.

        Records of one array have one length, and those of a Dataset or table are not read for it.
        """
        if hasattr(self.data, "dtype") or isinstance(self.data, Items | Rows):
            return np.full(len(numbers), -1)
        return np.array([_length(self.data[i]) for i in numbers.tolist()])

    def images(self, number: int) -> list[tuple[int, ...]]:
        """Return what may be the height and width of a record: the lengths of each two adjacent axes.

        If the record is no array, the axes are those of the arrays that the model receives.
        """
        record = _as_numpy(self.data[number])
        shapes = [record.shape] if isinstance(record, np.ndarray) else self._shapes_of_input(number)
        return [pair for shape in shapes for pair in itertools.pairwise(shape) if min(pair)]

    def _shapes_of_input(self, number: int) -> list[tuple[int, ...]]:
        given = self.model_input(np.array([number]))
        parts = (
            given.values() if isinstance(given, Mapping) else given if isinstance(given, tuple) else [given]
        )
        return [tuple(part.shape[1:]) for part in parts if hasattr(part, "shape")]

    def model_input(self, numbers: np.ndarray) -> Any:
        """Return the same records as the model's input."""
        if self.inputs is not None:
            item = self.data.item if isinstance(self.data, Items) else self.data.__getitem__
            return self.inputs([item(i) for i in numbers.tolist()])
        if isinstance(self.data, Rows):
            return self.data.matrix(numbers)
        if hasattr(self.data, "shape") and hasattr(self.data, "dtype"):
            start, stop = int(numbers[0]), int(numbers[-1]) + 1
            in_order = stop - start == len(numbers) and bool((np.diff(numbers) == 1).all())
            part = self.data[start:stop] if in_order else self.data[numbers]
            return _for_frameworks(part) if isinstance(part, np.ndarray) else part
        try:
            stacked = np.stack([np.asarray(_as_numpy(self.data[i])) for i in numbers.tolist()])
        except ValueError as error:
            raise InputError(_how_to_stack(self.data[int(numbers[0])])) from error
        if stacked.dtype.kind not in "fiub":
            raise InputError(_how_to_stack(self.data[int(numbers[0])]))
        return stacked


def _length(record: Any) -> int:
    if isinstance(record, str | bytes | list):
        return len(record)
    shape: tuple[int, ...] = tuple(getattr(record, "shape", ()))
    return int(shape[0]) if len(shape) in (1, 2) else -1


def _how_to_stack(record: Any) -> str:
    return (
        f"Records of type {type(record).__name__} cannot be stacked into the model's input. Pass inputs=, a "
        "function that turns a list of records into it."
    )


def _for_frameworks(array: np.ndarray) -> np.ndarray:
    """Return an array that frameworks can read: in the byte order of the machine, with positive strides."""
    if array.dtype.kind not in "fiub":
        raise InputError(
            f"data is an array of {array.dtype}, which is no model's input. Pass numbers, or inputs=, a "
            "function that turns a list of records into the input."
        )
    reversed_axis = any(stride < 0 for stride in array.strides)
    return np.array(array, array.dtype.newbyteorder("="), order="C", copy=reversed_axis or None)


def _as_numpy(value: Any) -> Any:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value  # numpy has no such type
        return value.numpy().copy()
    return value.copy() if isinstance(value, np.ndarray) else value


class _GraphTap:
    """A tap that records the graph of one call and no tensors."""

    def __init__(self, model: Any, recorder: GraphRecorder) -> None:
        self._model, self._recorder = model, recorder
        self.graph: Graph | None = None

    def on_forward_start(self, inputs: Any) -> None:
        self._recorder.begin(self._model, inputs)

    def wants(self, operation: Operation) -> None:
        return None

    def on_tensor(self, ticket: Any, tensor: CapturedTensor) -> None:
        raise NotImplementedError

    def on_forward_end(self, output: Any) -> None:
        self.graph = self._recorder.end(output)

    def on_error(self, error: Exception) -> None:
        name = type(self._model).__name__
        _log.warning("The graph of %s could not be recorded: %s", name, error)


class _OutputTap:
    """A tap that keeps the outputs of the requested addresses in one forward pass."""

    def __init__(self, requested: Collection[str]) -> None:
        self.requested = frozenset(requested)
        self.operations = {str(Address(Address.parse(address).name)) for address in requested}
        self.found: dict[str, Output] = {}
        self.error: Exception | None = None

    def on_forward_start(self, inputs: Any) -> None:
        self.found.clear()

    def wants(self, operation: Operation) -> Any | None:
        return operation if operation.address in self.operations else None

    def on_tensor(self, ticket: Operation, tensor: CapturedTensor) -> None:
        if tensor.address in self.requested:
            self.found[tensor.address] = Output(tensor.copy(None, 0), tensor.batch_axis, ticket)

    def on_forward_end(self, output: Any) -> None:
        pass

    def on_error(self, error: Exception) -> None:
        self.error = error


def record_graph(model: Any, backend: Backend, inputs: Callable[[], Any]) -> Graph | None:
    """Run the model once and return the graph of that pass.

    Args:
        model: The model.
        backend: Its backend.
        inputs: Returns the model's input for one record. What it draws at random is undone.

    Returns:
        The graph; None if the backend cannot record one.
    """
    recorder = backend.graph_recorder(model)
    if recorder is None:
        return None
    tap = _GraphTap(model, recorder)
    with probes_disabled(), backend.evaluation(model) as run:
        handle = backend.attach(model, [], ("output",), tap)
        try:
            run(backend.inputs(model, inputs()))
        finally:
            handle.remove()
    return tap.graph


@contextmanager
def reader(
    model: Any,
    backend: Backend,
    addresses: Sequence[str],
    *,
    operations: Mapping[str, int] | None = None,
    graph: Graph | None = None,
    rows: Mapping[str, int] | None = None,
    behavior: Behavior | None = None,
) -> Iterator[Callable[..., dict[str, Output]]]:
    """Return a context in which the outputs of layers and operations can be read.

    The model runs in evaluation mode without gradients, and is restored at the end, also after an exception.

    Args:
        model: The model.
        backend: Its backend.
        addresses: The layers to read, with their calls, and the operations.
        operations: The addresses that are operations which no module returns, with their rows in ``graph``.
            Default: none.
        graph: The graph of the first record's pass. Default: None, if there are no operations.
        rows: The rows of all addresses in ``graph``, which gradients need. Default: none.
        behavior: What to read. Default: activations.

    Yields:
        A function of the model's input and, for gradients, of the numbers of its records. It runs the model
        and returns the output of every address that was reached. It raises CaptureError if an output cannot
        be read, or if the pass ran other operations before an operation than the pass of the first record.
    """
    extra = dict(operations or {})
    if behavior is not None and behavior.name != "activation":
        with probes_disabled(), backend.evaluation(model):
            gradients = GradientReader(backend, model, graph, rows or {}, extra, behavior)
            yield lambda inputs, numbers: gradients.read(backend.inputs(model, inputs), numbers)
        return
    traced = None if graph is None or not extra else TracedRows(backend, model, graph, extra)
    tap = _OutputTap([address for address in addresses if address not in extra])

    with probes_disabled(), backend.evaluation(model) as run:
        handle = backend.attach(model, backend.operations(model), ("output",), tap)

        def read(inputs: Any, numbers: np.ndarray | None = None) -> dict[str, Output]:
            given, values = backend.inputs(model, inputs), dict[str, Output]()
            if traced is None:
                run(given)
            else:
                values = traced.read(given)
            if tap.error is not None:
                raise CaptureError(f"An output could not be read: {tap.error}") from tap.error
            return {**tap.found, **values}

        try:
            yield read
        finally:
            handle.remove()
