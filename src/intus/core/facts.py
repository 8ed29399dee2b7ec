"""Facts about every tensor of a pass that follow from the graph: columns over its rows, worked out once, when
someone asks. Pure functions of a Graph, so that a trace read from a file answers like a fresh one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from .flops import flops, products
from .graph import BUFFER, CREATED, INPLACE, INPUT, OP, OUTPUT, Graph
from .walks import ancestors, distances

#: Kinds of Branch that send the model one way or another; ``read`` and ``assert`` do not.
WAYS = frozenset({"if", "elif", "while", "ternary", "comprehension", "guard"})


class Facts:
    """What follows from a graph; rows are numbers of ``graph.ops``, calls of ``graph.calls``.

    >>> from intus import trace
    >>> facts = Facts(trace(lambda x: (x + 1).relu(), torch.ones(2)).graph)
    >>> facts.from_input[0].tolist(), facts.number.tolist()
    ([0, 1, 2, 3], [0, 1, 2, 2])
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    # -- where a row stands in the order ---------------------------------------------------------------

    @cached_property
    def number(self) -> np.ndarray:
        """How many operations had run when the row's had, itself included."""
        return np.cumsum(self.graph.ops.kind == OP)

    @cached_property
    def layer_rows(self) -> list[list[int]]:
        """The rows of each layer, its passes in order."""
        found: list[list[int]] = [[] for _ in range(int(self.graph.ops.layer.max(initial=-1)) + 1)]
        for row, layer in enumerate(self.graph.ops.layer.tolist()):
            found[layer].append(row)
        return found

    @cached_property
    def event_rows(self) -> dict[int, list[int]]:
        """The rows that each function call returned together, by the call's number."""
        found: dict[int, list[int]] = {}
        for row, event in enumerate(self.graph.ops.event.tolist()):
            if event >= 0:
                found.setdefault(event, []).append(row)
        return found

    @cached_property
    def keys(self) -> dict[int, list[str]]:
        """For each row, the names that find it first."""
        found: dict[int, list[str]] = {}
        for name in self.graph.names():
            for row in (self.graph.rows(name) or ())[:1]:
                found.setdefault(row, []).append(name)
        return found

    # -- from the inputs, to the outputs ---------------------------------------------------------------

    @cached_property
    def from_input(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest number of steps from an input; -1 where none leads to the row."""
        return distances(self.graph, self.graph.rows_of(INPUT))

    @cached_property
    def to_output(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest number of steps to an output; -1 where the row leads to none."""
        return distances(self.graph, self.graph.rows_of(OUTPUT), back=True)

    @cached_property
    def childless(self) -> np.ndarray:
        """Which rows nothing was computed from, outputs aside: they end inside the model."""
        found: np.ndarray = self.graph.ops.kind != OUTPUT
        found[self.graph.edges.src] = False
        return found

    def roots(self, row: int) -> list[int]:
        """The ancestors that have no parents themselves: inputs, buffers, constants, tensors made inside."""
        return [above for above in ancestors(self.graph, [row]) if not self.graph.parents(above)]

    def made_inside(self, rows: Iterable[int]) -> list[int]:
        """Those of the rows that were made out of nothing (torch.rand, torch.ones)."""
        return [row for row in rows if self.graph.ops.flags[row] & CREATED]

    # -- decisions -----------------------------------------------------------------------------------------

    @cached_property
    def terminal_bools(self) -> list[int]:
        """Rows that hold one truth, that nothing is computed from, and that Python asked for."""
        asked = sorted({branch.row for branch in self.graph.branches})
        return [row for row in asked if self.childless[row] and self._is_one_truth(row)]

    def _is_one_truth(self, row: int) -> bool:
        meta = self.graph.metas[self.graph.ops.meta[row]]
        return bool(meta.dtype == "bool") and math.prod(meta.shape) == 1

    @cached_property
    def deciding(self) -> frozenset[int]:
        """Rows that served a decision alone: from them comes what was decided on, and no output."""
        graph, leads = self.graph, self.to_output[0] >= 0
        asked = {branch.row for branch in graph.branches if branch.kind in WAYS}
        return frozenset(row for row in (*asked, *ancestors(graph, asked)) if not leads[row])

    # -- modules -----------------------------------------------------------------------------------------

    @cached_property
    def call_ops(self) -> np.ndarray:
        """How many operations ran in each module call, at any depth; a function that returned several tensors
        is one."""
        ops, calls = self.graph.ops, self.graph.calls
        first = ops.kind == OP
        first[1:] &= (ops.event[1:] != ops.event[:-1]) | (ops.event[1:] < 0)
        count = np.concatenate([[0], np.cumsum(first)])
        totals: np.ndarray = count[calls.stop] - count[calls.start]
        return totals

    @cached_property
    def module_calls(self) -> list[list[int]]:
        """The calls of each module, in order."""
        found: list[list[int]] = [[] for _ in self.graph.modules]
        for call, module in enumerate(self.graph.calls.module.tolist()):
            found[module].append(call)
        return found

    @cached_property
    def call_children(self) -> dict[int, list[int]]:
        """The calls made right inside each call, in order; those outside any under -1."""
        found: dict[int, list[int]] = {}
        for call, parent in enumerate(self.graph.calls.parent.tolist()):
            found.setdefault(parent, []).append(call)
        return found

    def entered(self, row: int) -> list[int]:
        """The module calls that the row's tensor went into from outside, in the order they began; the model's
        own call is none."""
        graph = self.graph
        inside = set(graph.enclosing_calls(row))
        into = {call for child in graph.children(row) for call in graph.enclosing_calls(child)} - inside
        for call in graph.row_exits.get(row, ()):  # one that returned what it was given (Identity)
            if not graph.calls.start[call] <= row < graph.calls.stop[call]:
                into.add(call)
        return sorted(call for call in into if graph.calls.parent[call] >= 0)

    def alone_in(self, row: int) -> list[int]:
        """The module calls of which the row is the output and its operation the only one, innermost first:
        a ReLU of a module of its own."""
        if self.graph.ops.kind[row] != OP:
            return []
        exits, chain = self.graph.row_exits.get(row, ()), set(self.graph.enclosing_calls(row))
        return [call for call in exits if call in chain and self.call_ops[call] == 1]

    # -- buffers -----------------------------------------------------------------------------------------

    def writers(self, row: int) -> list[int]:
        """The operations that later wrote into the row's tensor itself, in order: ``x.add_(1)``."""
        graph, found = self.graph, list[int]()
        while True:
            later = [row_ for row_ in graph.children(row) if self._wrote_into(row_, row)]
            if not later:
                return found
            row = later[0]
            found.append(row)

    def _wrote_into(self, row: int, target: int) -> bool:
        graph = self.graph
        if not graph.ops.flags[row] & INPLACE:
            return False
        start, stop = np.searchsorted(graph.edges.dst, [row, row + 1])
        return any(
            src == target and graph.args[arg] in ("0", "out", "input", "self")
            for src, arg in zip(
                graph.edges.src[start:stop].tolist(), graph.edges.arg[start:stop].tolist(), strict=True
            )
        )

    # -- floating point operations ---------------------------------------------------------------------

    @cached_property
    def flops(self) -> np.ndarray:
        """The floating point operations of each row's call, at the first tensor that it returned; see
        ``flops.py``."""
        return flops(self.graph)

    @cached_property
    def macs(self) -> np.ndarray:
        """Half of them where the call is a product: its multiply-adds; 0 where it is none."""
        return np.where(products(self.graph) & (self.flops > 0), self.flops // 2, np.minimum(self.flops, 0))

    # -- totals ------------------------------------------------------------------------------------------

    @cached_property
    def tensors(self) -> np.ndarray:
        """Which rows are tensors of their own: outputs are not, they were returned by an operation."""
        own: np.ndarray = self.graph.ops.kind != OUTPUT
        return own

    @cached_property
    def nbytes(self) -> np.ndarray:
        """The bytes of each row's tensor."""
        sizes = np.array([meta.nbytes for meta in self.graph.metas], dtype=np.int64)
        column: np.ndarray = sizes[self.graph.ops.meta]
        return column

    @cached_property
    def is_branching(self) -> bool:
        """Whether any tensor went into more than one operation; what is returned besides is not counted."""
        graph = self.graph
        on = graph.ops.kind[graph.edges.dst] == OP
        pairs = {
            (src, event)
            for src, event in zip(
                graph.edges.src[on].tolist(), graph.ops.event[graph.edges.dst[on]].tolist(), strict=True
            )
            if graph.ops.kind[src] in (OP, INPUT)
        }
        return len({src for src, _ in pairs}) < len(pairs)

    def buffer_address(self, row: int) -> str | None:
        """The address of the buffer that the row is, None where it is none."""
        ops = self.graph.ops
        return self.graph.types[ops.type[row]] if ops.kind[row] == BUFFER else None
