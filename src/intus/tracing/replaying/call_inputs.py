"""What each call of a finished pass was given, by the graph's own edges and the values at hand."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ...core.graph import OP, OUTPUT, Graph
from ...core.walks import ancestors
from ..capture.invocation import Invocation, TensorArg
from .replay import LEFT_OUT, Replays, UnprovenError, patched


class WrongError(Exception):
    """What the graph says cannot be."""


def calls_of(graph: Graph) -> dict[int, list[int]]:
    """The rows of each call by event number, in order; what no call returned has -1 - its row."""
    found: dict[int, list[int]] = {}
    for row, (kind, event) in enumerate(zip(graph.ops.kind.tolist(), graph.ops.event.tolist(), strict=True)):
        if kind in (OP, OUTPUT):
            found.setdefault(event if event >= 0 else -1 - row, []).append(row)
    return found


class Parents:
    """Arguments by the graph's edges: ``into`` maps a row to its arguments' numbers and their parents;
    ``values`` are the tensors to take, by row."""

    def __init__(self, graph: Graph, replays: Replays, values: Mapping[int, Tensor]) -> None:
        self.graph, self.replays, self.values = graph, replays, values
        self.into: dict[int, dict[int, int]] = {}
        edges = graph.edges
        for src, dst, arg in zip(edges.src.tolist(), edges.dst.tolist(), edges.arg.tolist(), strict=True):
            self.into.setdefault(dst, {}).setdefault(arg, src)  # others wrote to parts of the same tensor

    def agree(self, call: Invocation, rows: list[int]) -> None:
        """Raise WrongError for an edge into an argument that took no tensor."""
        asked = {tensor_arg.arg for tensor_arg in call.tensor_args if tensor_arg.source >= 0}
        for row in rows:
            for arg in self.into.get(row, {}):
                if arg not in asked:
                    name = self.graph.args[arg]
                    raise WrongError(f"the graph has an edge into argument {name!r}, which took none")

    def given(self, tensor_arg: TensorArg, row: int) -> Tensor:
        """What stood in a tensor_arg of the call that returned ``row``."""
        if tensor_arg.trimmed_value is not None:
            return tensor_arg.trimmed_value
        if tensor_arg.source == LEFT_OUT:
            name = self.graph.args[tensor_arg.arg]
            raise UnprovenError(
                f"argument {name!r} came from an op that leads nowhere and is not in the graph"
            )
        parent = self.parent(tensor_arg, row)
        if parent < 0:
            return self.replays.params[-1 - parent][0]
        if tensor_arg.patch is None:
            return self.value(parent)
        base = tensor_arg.patch.base
        value = self.replays.params[-1 - base][0] if LEFT_OUT < base < 0 else self.value(base)
        return patched(value, tensor_arg.patch, self.value)

    def returned(self, row: int) -> Tensor:
        """What the pass returned as the output ``row``; WrongError for one that comes from nothing."""
        parents = list(self.into.get(row, {}).values())
        if not parents:
            raise WrongError("it has no parent")
        tensor_arg = self.replays.outputs.get(row)
        return self.value(parents[0]) if tensor_arg is None else self.given(tensor_arg, row)

    def parent(self, tensor_arg: TensorArg, row: int) -> int:
        """Where the graph says that what stood in a tensor_arg of the call that returned ``row`` came from;
        below zero a parameter, -1 - its number. Raises WrongError where it does not say."""
        name = self.graph.args[tensor_arg.arg]
        if tensor_arg.source < 0:
            number = -1 - tensor_arg.source
            if number not in self.graph.row_params.get(row, ()):
                lost = self.graph.params[number].address
                raise WrongError(f"the graph has lost parameter {lost} of argument {name!r}")
            return tensor_arg.source
        parent = self.into.get(row, {}).get(tensor_arg.arg)
        if parent is None:
            raise WrongError(f"the graph has lost the edge into argument {name!r}")
        if tensor_arg.patch is not None:
            above = {row, *ancestors(self.graph, [row])}
            for writer, _ in tensor_arg.patch.writes:
                if writer not in above:
                    raise UnprovenError(
                        f"argument {name!r} was also written to by {self.label(writer)}, no ancestor"
                    )
        return parent

    def value(self, row: int) -> Tensor:
        """The value of a row; UnprovenError where there is none."""
        value = self.values.get(row)
        if value is None:
            raise UnprovenError(f"{self.label(row)} was not saved, or ran inside a transform such as vmap")
        return value

    def label(self, row: int) -> str:
        """The row's label."""
        return self.graph.label(row) if row >= 0 else "an op that is not in the graph"
