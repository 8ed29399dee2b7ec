"""Read operations that no module returns, in traced passes that must run what the first record's pass ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...backends.base import Backend, Operation
from ...backends.reading import Reading, ReadsOperations, Target
from ...core.address import Address
from ...core.errors import AddressError, CaptureError
from ...core.graph import OP, Graph
from ...core.selection import main_row


class Output(NamedTuple):
    """The output of a layer or operation for a block of records.

    Attributes:
        array: The output, a copy.
        batch_axis: The axis of the records, if the layer declares it; else None.
        operation: The operation, as the backend describes it.
    """

    array: np.ndarray
    batch_axis: int | None
    operation: Operation


class TracedRows:
    """Reads rows of a graph in one block after another.

    The number of an operation (``relu_2``) counts what ran before it. A block whose pass ran other
    operations before it is therefore refused: the same label may mean another operation there. What a module
    returns is found in such a pass by the address of the module.

    Args:
        backend: The backend.
        model: The model, inside ``backend.evaluation``.
        graph: The graph of the first record's pass.
        rows: The rows to read, by address.

    Raises:
        CaptureError: If the backend reads no operations.
    """

    def __init__(self, backend: Backend, model: Any, graph: Graph, rows: Mapping[str, int]) -> None:
        if not isinstance(backend, ReadsOperations):
            raise CaptureError(
                f"{next(iter(rows))!r} is an operation, but the backend {backend.name!r} reads only what "
                "modules return. Name a module."
            )
        self._backend, self._model = backend, model
        self._use(graph, rows)

    def _use(self, graph: Graph, rows: Mapping[str, int]) -> None:
        self._graph, self._rows = graph, dict(rows)
        ordinals = {row: number for number, row in enumerate(graph.rows_of(OP))}
        chosen = [ordinals.get(row, graph.label(row)) for row in rows.values()]
        self._chosen = list(dict.fromkeys(chosen))
        self._prefix = _Prefix(graph)

    def read(self, inputs: Any) -> dict[str, Output]:
        """Run the model on a block and return the values by address.

        Args:
            inputs: The inputs of the block.

        Raises:
            CaptureError: If the pass ran other operations than that of the first record.
        """
        reading = self._read(inputs, None)
        return self._outputs(reading.values)

    def gradients(
        self, inputs: Any, target: Target
    ) -> tuple[dict[str, Output], dict[str, Output], np.ndarray]:
        """Run the model on a block and return the values and gradients by address, and ``Reading.chosen``.

        Args:
            inputs: The inputs of the block.
            target: The numbers that the gradients are of.

        Raises:
            CaptureError: As ``read``, or if the numbers have no gradient at an address.
        """
        reading = self._read(inputs, target)
        for address, row in self._rows.items():
            if row not in reading.gradients:
                raise CaptureError(
                    f"The numbers that gradients are of do not depend on {address!r} through differentiable "
                    "operations: it does not reach them, or runs under torch.no_grad, or holds integers."
                )
        return self._outputs(reading.values), self._outputs(reading.gradients), reading.chosen

    def _read(self, inputs: Any, target: Target | None) -> Reading:
        try:
            reading = self._read_once(inputs, target)
        except CaptureError:  # a shorter pass, without some of the rows
            reading = self._backend.read(self._model, inputs, [], None)
            if self._rows_of_modules(reading.graph) is None:
                raise
        rows = self._rows_of_modules(reading.graph)
        if rows is None:
            self.check(reading.graph)
            return reading
        self._use(reading.graph, rows)
        reading = self._read_once(inputs, target)
        self.check(reading.graph)
        return reading

    def _rows_of_modules(self, graph: Graph) -> dict[str, int] | None:
        """Return the rows of all addresses in another graph; None if they are the same or not known there.

        The address of a module means the same in every pass, so that only its row has to be found, as where
        a block has padding, for which more operations run.
        """
        same = self._prefix.common(_Prefix(graph))
        moved = [address for address, row in self._rows.items() if row >= same]
        names = [module.address for module in graph.modules]
        rows = dict(self._rows)
        for text in moved:
            address = Address.parse(text)
            name = str(Address(address.name))
            if name not in names:
                return None
            is_call = (graph.calls.module == names.index(name)) & (graph.calls.passno == (address.call or 1))
            if not is_call.any():
                return None
            rows[text] = main_row(graph, int(np.flatnonzero(is_call)[0]))
            if rows[text] < 0:
                return None
        return rows if moved else None

    def _read_once(self, inputs: Any, target: Target | None) -> Reading:
        try:
            reading = self._backend.read(self._model, inputs, self._chosen, target)
        except AddressError as error:
            raise CaptureError(
                f"The pass of a later block of records differs from that of the first record: {error} Choose "
                "an operation that every record passes through, or the module around it."
            ) from None
        return reading

    def _outputs(self, arrays: Mapping[int, np.ndarray]) -> dict[str, Output]:
        return {
            address: Output(arrays[row], None, self._operation(address, row))
            for address, row in self._rows.items()
        }

    def check(self, graph: Graph) -> None:
        """Raise CaptureError if a row means another operation in this pass, whose graph is given."""
        same = self._prefix.common(_Prefix(graph))
        for address, row in self._rows.items():
            if row >= same:
                there = self._graph.label(same) if same < len(self._graph.ops) else "nothing"
                here = graph.label(same) if same < len(graph.ops) else "nothing"
                raise CaptureError(
                    f"{address!r} may mean another operation for other records: a block's pass runs {here!r} "
                    f"where that of the first record runs {there!r}. Name a module that returns the value, "
                    "inspect records of one kind at a time, or, if padding makes the difference, pad all "
                    "records to one length, or pass batch=1."
                )

    def _operation(self, address: str, row: int) -> Operation:
        return Operation(address, self._graph.type_of(row), None)


class _Prefix:
    """The identity of each row of a graph: its type, the module call that it ran in, and its arguments."""

    def __init__(self, graph: Graph) -> None:
        ops, edges = graph.ops, graph.edges
        types = np.array([*graph.types, ""])
        modules = np.array([*(module.address for module in graph.modules), ""])[graph.calls.module]
        calls = np.array([*zip(modules, graph.calls.passno, strict=True), ("", 0)], dtype=object)
        self.columns = (ops.kind, types[ops.type], calls[ops.call, 0], calls[ops.call, 1])
        self.edges = np.stack([edges.dst, edges.src], 1), np.array([*graph.args, ""])[edges.arg]

    def common(self, other: _Prefix) -> int:
        """Return the number of first rows that are the same in both."""
        count = min(len(self.columns[0]), len(other.columns[0]))
        differ = np.zeros(count, bool)
        for column, theirs in zip(self.columns, other.columns, strict=True):
            differ |= column[:count] != theirs[:count]
        same = int(differ.argmax()) if differ.any() else count
        (pairs, names), (others, their_names) = self.edges, other.edges
        length = min(len(pairs), len(others))
        wrong = (pairs[:length] != others[:length]).any(1) | (names[:length] != their_names[:length])
        if wrong.any():
            first = int(wrong.argmax())
            same = min(same, int(pairs[first, 0]), int(others[first, 0]))
        for longer in (pairs, others):
            if len(longer) > length:
                same = min(same, int(longer[length, 0]))
        return same
