"""Facts about the tensors and module calls of a forward pass that follow from its graph.

Most are columns with one entry per row of ``graph.ops``, computed on first access. They are pure functions
of a Graph, so a trace loaded from a file has the same facts as a fresh one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from ..graph import BUFFER, CREATED, INPLACE, INPUT, OP, OUTPUT, Graph
from .flops import flops, products
from .recurrence import is_recurrent
from .walks import ancestors, distances

#: Kinds of Branch that decide which code runs next; ``read`` and ``assert`` do not.
WAYS = frozenset({"if", "elif", "while", "ternary", "comprehension", "guard"})


class Facts:
    """Facts that follow from a graph.

    Rows are indices into ``graph.ops``, calls indices into ``graph.calls``.

    Args:
        graph: The graph.

    Example:
        >>> from intus import trace
        >>> facts = Facts(trace(lambda x: (x + 1).relu(), torch.ones(2)).graph)
        >>> facts.from_input[0].tolist(), facts.number.tolist()
        ([0, 1, 2, 3], [0, 1, 2, 2])
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    # -- order and names -------------------------------------------------------------------------------

    @cached_property
    def number(self) -> np.ndarray:
        """The number of operations that had run after each row, itself included."""
        return np.cumsum(self.graph.ops.kind == OP)

    @cached_property
    def layer_rows(self) -> list[list[int]]:
        """The rows of each layer, in the order of its passes."""
        found: list[list[int]] = [[] for _ in range(int(self.graph.ops.layer.max(initial=-1)) + 1)]
        for row, layer in enumerate(self.graph.ops.layer.tolist()):
            found[layer].append(row)
        return found

    @cached_property
    def event_rows(self) -> dict[int, list[int]]:
        """The rows returned by each function call, by the number of the call."""
        found: dict[int, list[int]] = {}
        for row, event in enumerate(self.graph.ops.event.tolist()):
            if event >= 0:
                found.setdefault(event, []).append(row)
        return found

    @cached_property
    def keys(self) -> dict[int, list[str]]:
        """For each row, the names whose first row it is."""
        found: dict[int, list[str]] = {}
        for name in self.graph.names():
            for row in (self.graph.rows(name) or ())[:1]:
                found.setdefault(row, []).append(name)
        return found

    # -- from the inputs, to the outputs ---------------------------------------------------------------

    @cached_property
    def from_input(self) -> tuple[np.ndarray, np.ndarray]:
        """The shortest and longest distance of each row from an input, in steps; -1 if unreachable."""
        return distances(self.graph, self.graph.rows_of(INPUT))

    @cached_property
    def to_output(self) -> tuple[np.ndarray, np.ndarray]:
        """The shortest and longest distance of each row to an output, in steps; -1 if unreachable."""
        return distances(self.graph, self.graph.rows_of(OUTPUT), back=True)

    @cached_property
    def childless(self) -> np.ndarray:
        """A mask of rows that no operation consumed, except outputs."""
        found: np.ndarray = self.graph.ops.kind != OUTPUT
        found[self.graph.edges.src] = False
        return found

    def roots(self, row: int) -> list[int]:
        """Return the ancestors without parents: inputs, buffers, constants and factory results."""
        return [above for above in ancestors(self.graph, [row]) if not self.graph.parents(above)]

    def made_inside(self, rows: Iterable[int]) -> list[int]:
        """Return those of the rows that factory functions created (``torch.rand``, ``torch.ones``)."""
        return [row for row in rows if self.graph.ops.flags[row] & CREATED]

    # -- branches ------------------------------------------------------------------------------------------

    @cached_property
    def terminal_bools(self) -> list[int]:
        """The boolean scalars read by Python (``if t:``) that no operation consumes."""
        read = sorted({branch.row for branch in self.graph.branches})
        return [row for row in read if self.childless[row] and self._is_boolean_scalar(row)]

    def _is_boolean_scalar(self, row: int) -> bool:
        meta = self.graph.metas[self.graph.ops.meta[row]]
        return bool(meta.dtype == "bool") and math.prod(meta.shape) == 1

    @cached_property
    def deciding(self) -> frozenset[int]:
        """The rows that lead to a branch decision and to no output."""
        graph, reaches_output = self.graph, self.to_output[0] >= 0
        deciding = {branch.row for branch in graph.branches if branch.kind in WAYS}
        return frozenset(row for row in (*deciding, *ancestors(graph, deciding)) if not reaches_output[row])

    # -- modules -----------------------------------------------------------------------------------------

    @cached_property
    def call_ops(self) -> np.ndarray:
        """The number of operations that ran in each module call, at any depth.

        A function call that returned several tensors counts once.
        """
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
        """The calls made directly inside each call, in order; top-level calls under -1."""
        found: dict[int, list[int]] = {}
        for call, parent in enumerate(self.graph.calls.parent.tolist()):
            found.setdefault(parent, []).append(call)
        return found

    def entered(self, row: int) -> list[int]:
        """Return the module calls that received the row's tensor from outside, in the order they began.

        The model's own call is not included.
        """
        graph = self.graph
        inside = set(graph.enclosing_calls(row))
        into = {call for child in graph.children(row) for call in graph.enclosing_calls(child)} - inside
        for call in graph.row_exits.get(row, ()):  # a call that returned its argument (Identity)
            if not graph.calls.start[call] <= row < graph.calls.stop[call]:
                into.add(call)
        return sorted(call for call in into if graph.calls.parent[call] >= 0)

    def alone_in(self, row: int) -> list[int]:
        """Return the module calls whose only operation is the row's and whose output it is, innermost first.

        An example is the call of an ``nn.ReLU``.
        """
        if self.graph.ops.kind[row] != OP:
            return []
        exits, chain = self.graph.row_exits.get(row, ()), set(self.graph.enclosing_calls(row))
        return [call for call in exits if call in chain and self.call_ops[call] == 1]

    # -- buffers -----------------------------------------------------------------------------------------

    def writers(self, row: int) -> list[int]:
        """Return the operations that later wrote to the row's tensor in place, in order (``x.add_(1)``)."""
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
        """The floating point operations of each row's call; see ``flops.py``.

        They are counted at the first tensor that the call returned, and are 0 at the others.
        """
        return flops(self.graph)

    @cached_property
    def macs(self) -> np.ndarray:
        """The multiply-adds of each row's call.

        They are half of ``flops`` for the types in ``products.PRODUCTS``, 0 for other types, and UNKNOWN
        where ``flops`` is.
        """
        return np.where(products(self.graph) & (self.flops > 0), self.flops // 2, np.minimum(self.flops, 0))

    # -- totals ------------------------------------------------------------------------------------------

    @cached_property
    def tensors(self) -> np.ndarray:
        """A mask of rows that are distinct tensors, which outputs are not."""
        mask: np.ndarray = self.graph.ops.kind != OUTPUT
        return mask

    @cached_property
    def nbytes(self) -> np.ndarray:
        """The size of each row's tensor, in bytes."""
        sizes = np.array([meta.nbytes for meta in self.graph.metas], dtype=np.int64)
        column: np.ndarray = sizes[self.graph.ops.meta]
        return column

    @cached_property
    def is_branching(self) -> bool:
        """Return whether more than one operation takes an input, activation, buffer or constant.

        Being returned as an output does not count, nor do parameters, which are not rows.
        """
        graph = self.graph
        to_op = graph.ops.kind[graph.edges.dst] == OP
        pairs = {
            (src, event)
            for src, event in zip(
                graph.edges.src[to_op].tolist(), graph.ops.event[graph.edges.dst[to_op]].tolist(), strict=True
            )
        }
        return len({src for src, _ in pairs}) < len(pairs)

    @cached_property
    def is_recurrent(self) -> bool:
        """Return whether the model runs a part of itself again on its own results; see ``recurrence.py``."""
        return is_recurrent(self.graph)

    def buffer_address(self, row: int) -> str | None:
        """Return the address of the buffer that a row is, or None if it is not a buffer."""
        return self.graph.state_address(row) if self.graph.ops.kind[row] == BUFFER else None
