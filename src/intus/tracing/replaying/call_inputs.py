"""Find the arguments of each call of a finished pass, from the edges of the graph and the values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from ...core.analysis.walks import ancestors
from ...core.graph import OP, OUTPUT, Graph
from ..capture.invocation import Invocation, TensorArg
from .replay import NOT_IN_GRAPH, Replays, UnprovenError, apply_patch


class MismatchError(Exception):
    """The graph contradicts what was recorded or computed."""


def rows_by_call(graph: Graph) -> dict[int, list[int]]:
    """Return the rows that each function call returned, in order.

    Args:
        graph: The graph.

    Returns:
        The rows by the number of the call (``ops.event``). A row without a call, such as an output, has a key
        of its own, -1 - row.
    """
    found: dict[int, list[int]] = {}
    for row, (kind, event) in enumerate(zip(graph.ops.kind.tolist(), graph.ops.event.tolist(), strict=True)):
        if kind in (OP, OUTPUT):
            found.setdefault(event if event >= 0 else -1 - row, []).append(row)
    return found


class CallInputs:
    """Finds the arguments of calls by the edges of a graph.

    Args:
        graph: The graph.
        replays: The calls of the pass.
        values: The tensors to use as arguments, by row.
        why_missing: Returns why a row has no value, ``""`` if that is unknown.

    Attributes:
        parents_by_arg: For each row, the row of the parent by the number of the argument.
        _parents: The same with all rows that have an edge into the argument.
    """

    def __init__(
        self,
        graph: Graph,
        replays: Replays,
        values: Mapping[int, Tensor],
        why_missing: Callable[[int], str] = lambda row: "",
    ) -> None:
        self.graph, self.replays, self.values = graph, replays, values
        self._why_missing = why_missing
        self.parents_by_arg: dict[int, dict[int, int]] = {}
        self._parents: dict[int, dict[int, list[int]]] = {}
        edges = graph.edges
        for src, dst, arg in zip(edges.src.tolist(), edges.dst.tolist(), edges.arg.tolist(), strict=True):
            # The first edge of an argument is its parent; further ones are ops that wrote to parts of it.
            self.parents_by_arg.setdefault(dst, {}).setdefault(arg, src)
            self._parents.setdefault(dst, {}).setdefault(arg, []).append(src)

    def check_edges(self, call: Invocation, rows: list[int]) -> None:
        """Check that the edges into a call are those that were noted when it ran.

        This finds a wrong edge also where the argument has no effect on the result.

        Args:
            call: The call.
            rows: The rows that it returned.

        Raises:
            MismatchError: If an edge is lost, leads from elsewhere, or into what took no tensor.
            UnprovenError: If an op that is not an ancestor also wrote to the memory of an argument.
        """
        args = {tensor_arg.arg: tensor_arg for tensor_arg in call.tensor_args if tensor_arg.source >= 0}
        for row in rows:
            for arg, parents in self._parents.get(row, {}).items():
                if arg not in args:
                    name = self.graph.args[arg]
                    raise MismatchError(f"the graph has an edge into argument {name!r}, which took no tensor")
                patch = args[arg].patch
                writers = () if patch is None else (patch.base, *(writer for writer, _ in patch.writes))
                for other in parents[1:]:
                    if other not in writers:
                        raise MismatchError(f"{self._name(arg)}it did not come from {self.label(other)}")
            for tensor_arg in call.tensor_args:
                if tensor_arg.source == NOT_IN_GRAPH:
                    continue
                if self.parent(tensor_arg, row) != tensor_arg.source:
                    source = self.label(tensor_arg.source)
                    raise MismatchError(
                        f"{self._name(tensor_arg.arg)}it came from {source}, the graph has another parent"
                    )

    def _name(self, arg: int) -> str:
        return f"argument {self.graph.args[arg]!r}: "

    def argument(self, tensor_arg: TensorArg, row: int) -> Tensor:
        """Return the tensor that an argument of a call was.

        Args:
            tensor_arg: The argument.
            row: A row that the call returned.

        Raises:
            MismatchError: If the graph has lost the argument's edge or parameter.
            UnprovenError: If the tensor is not available.
        """
        if tensor_arg.trimmed_value is not None:
            return tensor_arg.trimmed_value
        if tensor_arg.source == NOT_IN_GRAPH:
            name = self.graph.args[tensor_arg.arg]
            raise UnprovenError(
                f"argument {name!r} came from an op that is not in the graph, because no output depends on it"
            )
        parent = self.parent(tensor_arg, row)
        if parent < 0:
            value, patch = self.replays.param(-1 - parent), tensor_arg.patch
            if patch is None or patch.conversion is None:
                return value
            return apply_patch(value, patch, self.value)
        if tensor_arg.patch is None:
            return self.value(parent)
        base = tensor_arg.patch.base
        value = self.replays.param(-1 - base) if NOT_IN_GRAPH < base < 0 else self.value(base)
        return apply_patch(value, tensor_arg.patch, self.value)

    def output(self, row: int) -> Tensor:
        """Return the tensor that the model returned as the output ``row``.

        Raises:
            MismatchError: If the output has no parent.
            UnprovenError: If the tensor is not available.
        """
        parents = list(self.parents_by_arg.get(row, {}).values())
        if not parents:
            raise MismatchError("it has no parent")
        tensor_arg = self.replays.outputs.get(row)
        return self.value(parents[0]) if tensor_arg is None else self.argument(tensor_arg, row)

    def parent(self, tensor_arg: TensorArg, row: int) -> int:
        """Return the parent that the graph has for an argument.

        Args:
            tensor_arg: The argument.
            row: A row that the call returned.

        Returns:
            The row of the parent; for a parameter -1 - its number.

        Raises:
            MismatchError: If the graph has no such edge or parameter.
            UnprovenError: If an op that is not an ancestor also wrote to the argument's memory.
        """
        name = self.graph.args[tensor_arg.arg]
        if tensor_arg.source < 0:
            number = -1 - tensor_arg.source
            if number not in self.graph.row_params.get(row, ()):
                lost = self.graph.params[number].address
                raise MismatchError(f"the graph has lost parameter {lost} of argument {name!r}")
            return tensor_arg.source
        parent = self.parents_by_arg.get(row, {}).get(tensor_arg.arg)
        if parent is None:
            raise MismatchError(f"the graph has lost the edge into argument {name!r}")
        if tensor_arg.patch is not None:
            upstream = {row, *ancestors(self.graph, [row])}
            for writer, _ in tensor_arg.patch.writes:
                if writer not in upstream:
                    raise UnprovenError(
                        f"argument {name!r} was also written to by {self.label(writer)}, which is no ancestor"
                    )
        return parent

    def value(self, row: int) -> Tensor:
        """Return the value of a row.

        Raises:
            UnprovenError: If there is none.
        """
        value = self.values.get(row)
        if value is None:
            why = self._why_missing(row) or "was not saved, or it ran inside a transform such as vmap"
            raise UnprovenError(f"the value of {self.label(row)} {why}")
        return value

    def label(self, row: int) -> str:
        """Return the label of a row, or a description of a row that is not in the graph."""
        return self.graph.label(row) if row >= 0 else "an op that is not in the graph"
