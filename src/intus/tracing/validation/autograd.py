"""Compare the edges of a graph with those of autograd, which records dependence by itself.

Random values in place of a parent show that an edge is real, but not that none is missing. Autograd shows
both, as far as it follows: for floating-point tensors that require gradients, computed by functions that are
differentiable, while grad mode is on. So the parameters and inputs require gradients during the pass.

Both graphs are compared tensor by tensor. From the autograd node of a tensor one walks along
``next_functions`` to the nearest nodes of other tensors of the graph. Each must be an ancestor in the graph,
or an edge is missing. A parent in the graph that is reached is confirmed. One that is not need not be wrong,
because not every argument has a derivative, so it is only counted. A view counts as reached if what it is a
view of is reached: after a write, autograd computes a view anew from its base.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.nn import Module

from ...core.graph import OUTPUT, PARAMETER, Graph
from ..capture.containers import is_wrapped, named_tensors
from ..capture.context.autograd_history import Alias
from ..capture.memory import extent_of, memory_of
from ..capture.recording import ROW, Recording
from ..capture.saving.gradients import Nodes
from ..replaying.replay import Replays
from .report import FAILED, Check, Followed

#: A memory, and the first and last byte of a part of it.
Place = tuple[int | None, int, int]


@contextmanager
def requiring_gradients(params: Iterable[Tensor], values: Any) -> Iterator[None]:
    """Let autograd follow what is computed from parameters and arguments inside the ``with`` block.

    Arguments get a history, so that a model may write into them. Afterwards all are as before.

    Args:
        params: The parameters.
        values: The arguments of a pass.
    """
    changed, exchanged = list[Tensor](), list[tuple[Tensor, Tensor]]()
    with torch.inference_mode(False), torch.enable_grad():
        try:
            for p in params:
                if _can_require(p) and not p.is_inference():
                    changed.append(p.requires_grad_())
            for _, t in named_tensors(values):
                if _can_require(t):
                    leaf = t.clone() if t.is_inference() else t.detach()
                    alias = Alias.apply(leaf.requires_grad_())  # type: ignore[no-untyped-call]
                    torch._C._swap_tensor_impl(t, alias)
                    exchanged.append((t, alias))
            yield
        except RuntimeError as error:
            if "requires_grad" in str(error):
                error.add_note("With against='autograd' every input of floating point requires gradients.")
            raise
        finally:
            while exchanged:
                torch._C._swap_tensor_impl(*exchanged.pop())
            for p in changed:
                p.requires_grad_(False)


def _can_require(t: Tensor) -> bool:
    is_plain = t.layout == torch.strided and not t.is_nested and not is_wrapped(t)
    return is_plain and not t.requires_grad and (t.is_floating_point() or t.is_complex())


class Trail:
    """The facts of a pass that the comparison needs, collected while it runs.

    Attributes:
        nodes: The autograd nodes of the tensors, by offset.
        views: The offsets of tensors that are views.
        places: The memory of each tensor, by offset.
        received: The memory of each tensor that a call received, by the offset of the call.
    """

    def __init__(self) -> None:
        self.nodes = Nodes()
        self.views: set[int] = set()
        self.places: dict[int, Place] = {}
        self.received: dict[int, list[Place]] = {}

    def add(self, offset: int, t: Tensor) -> None:
        """Record where a tensor lies, and whether it is a view."""
        if t._is_view():
            self.views.add(offset)
        place = _place(t)
        if place is not None:
            self.places[offset] = place

    def add_received(self, offset: int, tensors: Iterable[Tensor]) -> None:
        """Record where the arguments of a call lie."""
        self.received[offset] = [place for place in map(_place, tensors) if place is not None]


def _place(t: Tensor) -> Place | None:
    try:
        return (memory_of(t), *extent_of(t))
    except (RuntimeError, NotImplementedError):  # sparse or nested
        return None


def _is_declared(node: Any) -> bool:
    """Return whether a custom ``autograd.Function`` made a node."""
    return isinstance(node, BackwardCFunction) and type(node).__name__ != f"{Alias.__name__}Backward"


_EDGES = ("confirmed", "no gradient", "no derivative")


class Reached(NamedTuple):
    """The nearest tensors that autograd reaches from one tensor.

    Attributes:
        rows: The groups of rows whose tensors share a node, each with whether a custom ``autograd.Function``
            lies between, which declares what it depends on instead of showing it.
        params: The numbers of the parameters.
    """

    rows: dict[frozenset[int], bool]
    params: set[int]


class AutogradJudge:
    """Compares the edges of one graph with autograd's.

    Args:
        graph: The graph.
        trail: What was collected during the pass.
        recording: The recording of the pass.
        graph_row: Returns the row in the graph of an offset, -1 if it has none.
        replays: The calls of the pass.
        leaves: The offsets of tensors that still exist, by id: autograd names leaves by the tensor.
    """

    def __init__(
        self,
        graph: Graph,
        trail: Trail,
        recording: Recording,
        graph_row: Callable[[int], int],
        replays: Replays,
        leaves: Mapping[int, int],
    ) -> None:
        self.graph, self._replays = graph, replays
        offsets = range(0, len(recording.rows), len(ROW))
        graph_rows = {offset: graph_row(offset) for offset in offsets if graph_row(offset) >= 0}
        # A parameter that a module returned is the parameter itself, which autograd reaches as a leaf.
        returned_params = set(graph.rows_of(PARAMETER))
        graph_rows = {offset: row for offset, row in graph_rows.items() if row not in returned_params}
        self._params = {id(p): number for number, (_, p) in enumerate(recording.addresses.params)}
        self._leaves = {key: graph_rows[offset] for key, offset in leaves.items() if offset in graph_rows}
        nodes = trail.nodes
        nodes.end()
        self._nodes: dict[int, tuple[Any, int]] = {}
        self._partial: set[int] = set()  # rows that wrote into a view, which share the node of its base
        self._places = {
            graph_rows[offset]: place for offset, place in trail.places.items() if offset in graph_rows
        }
        received = trail.received.items()
        self._received = {graph_rows[o]: places for o, places in received if o in graph_rows}
        self._views = {graph_rows[offset] for offset in trail.views if offset in graph_rows}
        for offset, (node, number, part) in nodes.computed.items():
            if offset in graph_rows:
                self._nodes[graph_rows[offset]] = (node, number)
                if part is not None:
                    self._partial.add(graph_rows[offset])
        self._external = {graph_rows[o]: edge for o, edge in nodes.external.items() if o in graph_rows}
        self._by_node: dict[tuple[Any, int], set[int]] = {}
        for row, edge in (*self._nodes.items(), *self._external.items()):
            if int(graph.ops.kind[row]) != OUTPUT:
                self._by_node.setdefault(edge, set()).add(row)
        self._cache: dict[int, Reached] = {}

    def judge(self, checks: Sequence[Check]) -> tuple[list[Check], Followed]:
        """Compare all edges.

        Args:
            checks: The checks of the graph's operations and outputs.

        Returns:
            The checks, failed where an edge is missing, and the counts.
        """
        rows = {self.graph.label(row): row for row in range(len(self.graph.ops))}
        counts = Counter[str]()
        result, missing = list[Check](), list[str]()
        for check in checks:
            row = rows[check.label]
            counts.update(self._edge(row, parent) for parent in self.graph.parents(row))
            reasons = [
                f"autograd computes it also from {name}, which the graph does not"
                for name in self._missing(row)
            ]
            missing += [f"{check.label}: {reason}" for reason in reasons]
            if reasons:
                earlier = check.reasons if check.status == FAILED else ()
                check = Check(check.label, FAILED, (*earlier, *reasons), check.alike)
            result.append(check)
        confirmed, no_gradient, no_derivative = (counts[kind] for kind in _EDGES)
        return result, Followed(confirmed, no_gradient, no_derivative, tuple(missing))

    def _edge(self, row: int, parent: int) -> str:
        """Return what autograd says of one edge, one of ``_EDGES``."""
        if int(self.graph.ops.kind[parent]) == PARAMETER:
            is_reached = not self._reached(row).params.isdisjoint(self.graph.row_params[parent])
            return "confirmed" if is_reached else "no gradient"
        if row not in self._nodes or (parent not in self._nodes and parent not in self._external):
            return "no gradient"
        return "confirmed" if self._follows(row, parent) else "no derivative"

    def _missing(self, row: int) -> list[str]:
        """Return the names of what autograd reaches from a row and the graph does not."""
        if int(self.graph.ops.kind[row]) == OUTPUT:  # it has the node of its parent
            return []
        reached = self._reached(row)
        names = []
        for group, is_declared in reached.rows.items():
            if row in group or is_declared or any(self._is_ancestor(row, other) for other in group):
                continue
            if any(self._is_sibling(row, other) for other in group):
                continue
            names.append(self.graph.label(max(group)))
        own = set(self.graph.row_params.get(row, ()))
        inside = self._module_as_op(row)
        for number in sorted(reached.params - own):
            if inside is not None and self.graph.params[number].address.startswith(inside):
                continue
            if not any(number in self.graph.row_params.get(one, ()) for one in self._ancestors(row)):
                names.append(self.graph.params[number].address)
        return names

    def _module_as_op(self, row: int) -> str | None:
        """Return the start of the addresses inside a module that ran as one operation; None for others."""
        call, event = int(self.graph.ops.call[row]), int(self.graph.ops.event[row])
        invocation = self._replays.call(event)
        if call < 0 or invocation is None or not isinstance(invocation.func, Module):
            return None
        address = self.graph.modules[int(self.graph.calls.module[call])].address
        return f"{address}." if address else ""

    def _reached(self, row: int) -> Reached:
        """Return the nearest tensors that autograd reaches from a row."""
        if row not in self._cache:
            node = self._nodes.get(row)
            self._cache[row] = Reached({}, set()) if node is None else self._walk(row, node[0])
        return self._cache[row]

    def _walk(self, row: int, start: Any) -> Reached:
        reached, visited = Reached({}, set()), {start}
        is_declared = _is_declared(start)
        todo = [(edge, is_declared) for edge in start.next_functions]
        while todo:
            (node, number), declared = todo.pop()
            if node is None:
                continue
            group = self._by_node.get((node, number))
            if group is not None and self._is_same_call(row, group):
                group = None  # another result of the call: what the call is computed from lies behind it
            if group is not None and not self._is_elsewhere(row, group):
                key = frozenset(group)
                reached.rows[key] = reached.rows.get(key, True) and declared
                continue
            if node in visited:
                continue
            visited.add(node)
            variable = getattr(node, "variable", None)
            if variable is not None:
                if id(variable) in self._params:
                    reached.params.add(self._params[id(variable)])
                elif id(variable) in self._leaves:
                    key = frozenset({self._leaves[id(variable)]})
                    reached.rows[key] = reached.rows.get(key, True) and declared
                continue
            declared = declared or _is_declared(node)
            # Behind a write to another part of the memory, only the memory before it matters.
            edges = node.next_functions[:1] if group is not None else node.next_functions
            todo += [(edge, declared) for edge in edges]
        return reached

    def _is_same_call(self, row: int, group: Iterable[int]) -> bool:
        """Return whether a group has only other results of the call that returned ``row``."""
        event = int(self.graph.ops.event[row])
        return event >= 0 and all(int(self.graph.ops.event[other]) == event for other in group)

    def _is_elsewhere(self, row: int, group: Iterable[int]) -> bool:
        """Return whether a group is a write to another part of a memory than the call of ``row`` reads."""
        read = [*self._received.get(self._first_row(row), ()), *self._own_place(row)]
        for other in group:
            if other not in self._partial or other not in self._places:
                return False
            memory, first, last = self._places[other]
            if any(memory == place[0] and first <= place[2] and place[1] <= last for place in read):
                return False
        return True

    def _own_place(self, row: int) -> list[Place]:
        return [self._places[row]] if row in self._partial and row in self._places else []

    def _first_row(self, row: int) -> int:
        """Return the first row that the call of ``row`` returned."""
        while (
            row and row not in self._received and self.graph.ops.event[row - 1] == self.graph.ops.event[row]
        ):
            row -= 1
        return row

    def _follows(self, row: int, parent: int) -> bool:
        """Return whether autograd reaches ``parent`` from ``row``, through other tensors or not."""
        own = self._nodes[row]
        if parent in self._by_node.get(own, ()):
            return True
        wanted = {parent}
        pending, bases = [parent], set[int]()
        while pending:  # a view stands for what it is a view of
            one = pending.pop()
            if one in self._views and one not in bases:
                bases.add(one)
                found = {other for group in self._reached(one).rows for other in group}
                wanted |= found
                pending += found
        lowest, todo, visited = min(wanted), [row], {row}
        while todo:
            for group in self._reached(todo.pop()).rows:
                if group & wanted:
                    return True
                for other in group:
                    if other >= lowest and other not in visited:
                        visited.add(other)
                        todo.append(other)
        return False

    def _is_sibling(self, row: int, other: int) -> bool:
        """Return whether two rows are results of one call, which may compute one from the other."""
        return bool(self.graph.ops.event[row] == self.graph.ops.event[other])

    def _is_ancestor(self, row: int, ancestor: int) -> bool:
        return ancestor in self._ancestors(row, ancestor)

    def _ancestors(self, row: int, lowest: int = 0) -> set[int]:
        """Return the ancestors of a row down to the row ``lowest``."""
        found, todo = set[int](), [row]
        while todo:
            for parent in self.graph.parents(todo.pop()):
                if parent >= lowest and parent not in found:
                    found.add(parent)
                    todo.append(parent)
        return found
