"""Find which of the tensors that leave a module call are what the call returned.

A file of operations often has beside each the module that it ran in, and not what the module returns. That is
then among the tensors that are made inside of the call and read outside of it, but not each of these is
returned: an exporter merges equal computations of several modules into the first, a cast to the same dtype
stands for the tensor that was cast, and a buffer is with the first module that reads it.

A tensor is ruled out for a call, as long as another is left, if

- it is not computed: a buffer, a parameter or a constant;
- it is what the call was given, unchanged: a cast to its own dtype, a view of its own shape;
- it depends on no input of the model, or on the shapes of inputs alone, and another does not;
- it ran in a call inside of this one, which does not return it.

Of the tensors that are left, one from which no other is computed is returned for certain: a step that the
call does not return is there for what it does return. If there is one such tensor, and another call of the
same class is left by one tensor alone, made by the same operation in the same place, it is the output.
Otherwise which of them the call returned is not known (``Graph.unknown_outputs``).

A call in parts, between which others ran, is one call if its parts use parameters, and none in two of them.
If the parts ran the same operations, they are calls. Otherwise what they return is not known. Nor is it of a
convolution into which an exporter has folded the norm behind it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..graph import INPUT, OP, OUTPUT, Graph
from ..vocabularies.families import CASTS, LIKE_FIRST, RESHAPES, SHAPES

#: Operations that return what they are given, if its dtype is that of the result.
_SAME = CASTS | {
    *("identity", "alias", "detach", "lift_fresh", "lift_fresh_copy", "clone", "contiguous", "positive"),
    *("_to_copy", "cast_like", "resolve_conj", "resolve_neg"),
}
#: Those that do if its shape is that of the result too.
_SAME_IN_SHAPE = RESHAPES | {"view", "view_as", "_unsafe_view", "expand", "expand_as", "broadcast_to"}
#: Operations that read no number of their first argument.
_OF_SHAPE = SHAPES | LIKE_FIRST
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")

#: One call of a module, in one or more parts: rows of ``Calls``.
_Unit = tuple[int, ...]


def with_returned(
    graph: Graph,
    stated: Collection[int],
    parts: Iterable[Sequence[int]] = (),
    merged: Iterable[int] = (),
) -> Graph:
    """Return a graph whose ``exits`` are what each call may have returned, for one with all that leave it.

    Args:
        graph: The graph.
        stated: The calls of which ``exits`` has what they returned.
        parts: The calls of a module that may be parts of one call.
        merged: The rows that have what a later module computes too.
    """
    found = _Returned(graph, stated, parts, merged)
    found.settle()
    unknown = {"unknown_outputs": found.unknown} if found.unknown else {}
    return replace(graph, exits=found.exits, facts={**graph.facts, **unknown})


class _Returned:
    """The rows that each call may have returned, of which rows are ruled out."""

    def __init__(
        self,
        graph: Graph,
        stated: Collection[int],
        parts: Iterable[Sequence[int]],
        merged: Iterable[int],
    ) -> None:
        self._graph = graph
        self.rows: dict[_Unit, list[int]] = {(call,): rows for call, rows in graph.call_outputs.items()}
        self._whole: dict[_Unit, set[int]] = {}  # the rows of each call in parts
        self._unclear: set[_Unit] = set()  # those that may be parts of another, or merged with one
        for some in parts:
            if _is_one_call(graph, some):
                leaving = [row for call in some for row in self.rows.pop((call,), ())]
                inside = _with_between(graph, some)
                self._whole[tuple(some)] = inside
                self.rows[tuple(some)] = [
                    row for row in leaving if not inside.issuperset(graph.children(row))
                ]
            elif not _are_alike(graph, some):
                self._unclear |= {(call,) for call in some}
        within = [(row, (int(graph.ops.call[row]),)) for row in merged]
        self._unclear |= {unit for row, unit in within if unit != (0,) and self.rows.get(unit) == [row]}
        self._unclear &= self.rows.keys()
        self._unit_of = {call: unit for unit in self.rows for call in unit}
        several = {unit for unit, rows in self.rows.items() if len(rows) > 1}
        self._open = {unit for unit in several if not set(unit) & set(stated)}
        if (0,) in self._open:  # the model, which the outputs of the graph state
            read = (row for end in graph.rows_of(OUTPUT) for row in graph.parents(end))
            leaving = self.rows[0,]
            self.rows[0,] = list(dict.fromkeys(row for row in read if row in leaving))
            self._open.remove((0,))
        self._varies = _varying(graph) if self._open else frozenset()

    @property
    def exits(self) -> np.ndarray:
        """The rows that each call may have returned, as ``Graph.exits``."""
        pairs = [(row, self._part(unit, row)) for unit, rows in self.rows.items() for row in rows]
        return np.array(sorted(pairs, key=lambda pair: pair[1]), np.int64).reshape(-1, 2)

    @property
    def unknown(self) -> list[int]:
        """The calls of which more than one row is left, or which may be parts of another, or are merged."""
        return sorted(
            {self._part(unit, row) for unit in self._open | self._unclear for row in self.rows[unit]}
        )

    def settle(self) -> None:
        """Rule rows out until none is left that can be."""
        before = -1
        while self._open and len(self._open) != before:
            before = len(self._open)
            for unit in sorted(self._open, reverse=True):  # inner calls before those around them
                self.rows[unit] = self._left(unit, self.rows[unit])
            self._close()
            witnesses = self._witnesses()
            for unit in self._open:
                ends = self._ends(unit)
                if len(ends) == 1 and self._place(unit, ends[0]) in witnesses:
                    self.rows[unit] = ends
            self._close()

    def _close(self) -> None:
        self._open = {unit for unit in self._open if len(self.rows[unit]) > 1}

    def _part(self, unit: _Unit, row: int) -> int:
        """Return the part of a call that a row is in; the first of a row that it was given."""
        return next((call for call in unit if row in _inside(self._graph, call)), unit[0])

    def _ran_in(self, unit: _Unit, row: int) -> bool:
        return row in (self._whole.get(unit) or _inside(self._graph, unit[0]))

    def _left(self, unit: _Unit, rows: list[int]) -> list[int]:
        """Return those of the rows that leave a call which are not ruled out."""
        sources = {row: self._source(unit, row) for row in rows}
        computed = [row for row in rows if self._graph.ops.kind[row] == OP]
        rows = [row for row in computed if self._ran_in(unit, sources[row])] or rows
        rows = [row for row in rows if row in self._varies] or rows
        rows = [row for row in rows if self._leaves(unit, sources[row])] or rows
        return sorted({sources[row]: row for row in rows}.values())  # of one tensor, the last

    def _source(self, unit: _Unit, row: int) -> int:
        """Return the row that a row has unchanged from: itself, another inside, or one from outside."""
        while self._ran_in(unit, row) and (before := _unchanged(self._graph, row)) >= 0:
            row = before
        return row

    def _leaves(self, unit: _Unit, row: int) -> bool:
        """Return whether all calls inside of a call may have returned a row."""
        chain = self._graph.enclosing_calls(row)
        within = chain[1 + max((chain.index(call) for call in unit if call in chain), default=-1) :]
        return all(row in self.rows.get(self._unit_of.get(call, ()), ()) for call in within)

    def _ends(self, unit: _Unit) -> list[int]:
        """Return the rows that a call may have returned from which no other of them is computed."""
        waiting, before = list(self.rows[unit]), set[int]()
        while waiting:
            parents = self._graph.parents(waiting.pop())
            new = {row for row in parents if self._ran_in(unit, row)} - before
            before |= new
            waiting += new
        return [row for row in self.rows[unit] if row not in before]

    def _witnesses(self) -> set[tuple[Any, ...]]:
        """Return the places of the rows that are all that a call may have returned."""
        alone = [(unit, rows[0]) for unit, rows in self.rows.items() if len(rows) == 1 and unit != (0,)]
        return {self._place(unit, row) for unit, row in alone if unit not in self._unclear}

    def _place(self, unit: _Unit, row: int) -> tuple[Any, ...]:
        """Return the class of a call, and where in a call of that class a row was made, by which operation.

        Where the file has no classes, modules whose addresses differ by numbers alone are of one.
        """
        graph, inside = self._graph, int(self._graph.ops.call[row])
        module = graph.modules[int(graph.calls.module[unit[0]])]
        inner = graph.modules[int(graph.calls.module[inside])].address if inside >= 0 else ""
        addresses = (graph.params[param].address for param in graph.row_params.get(row, ()))
        prefix = f"{module.address}."
        return (
            module.type or _NUMBER.sub("*", module.address),
            inner.removeprefix(module.address),
            graph.type_of(row),
            int(graph.ops.output[row]),
            *(one.removeprefix(prefix) for one in addresses if one.startswith(prefix)),
        )


def _inside(graph: Graph, call: int) -> range:
    return range(int(graph.calls.start[call]), int(graph.calls.stop[call]))


def _with_between(graph: Graph, parts: Sequence[int]) -> set[int]:
    """Return the rows of one call in parts, and those that are computed from some and read by others of them.

    Nothing runs outside of a call between two of its steps, so these ran in it too.
    """
    own = {row for call in parts for row in _inside(graph, call)}
    after, before = set(own), set(own)
    for row in range(min(own), max(own)):
        if not after.isdisjoint(graph.parents(row)):
            after.add(row)
    for row in range(max(own), min(own), -1):
        if not before.isdisjoint(graph.children(row)):
            before.add(row)
    return after & before


def _is_one_call(graph: Graph, parts: Sequence[int]) -> bool:
    """Return whether parts use parameters, and none in two of them."""
    used = [
        {param for row in _inside(graph, call) for param in graph.row_params.get(row, ())} for call in parts
    ]
    together = set[int]().union(*used)
    return bool(together) and len(together) == sum(map(len, used))


def _are_alike(graph: Graph, parts: Sequence[int]) -> bool:
    """Return whether parts ran the same operations in the same modules."""
    modules = graph.calls.module[graph.ops.call]
    ran = {tuple((graph.type_of(row), int(modules[row])) for row in _inside(graph, call)) for call in parts}
    return len(ran) == 1


def _unchanged(graph: Graph, row: int) -> int:
    """Return the row whose value a row has, if its operation returned what it was given; otherwise -1."""
    if graph.ops.kind[row] != OP or not (parents := graph.parents(row)):
        return -1
    given, made = (graph.metas[int(graph.ops.meta[one])] for one in (parents[0], row))
    is_same = bool(made.dtype) and made.dtype == given.dtype
    if graph.type_of(row) in _SAME_IN_SHAPE:
        is_same &= made.shape == given.shape and min(made.shape, default=0) >= 0
    elif graph.type_of(row) not in _SAME:
        is_same = False
    return parents[0] if is_same else -1


def _varying(graph: Graph) -> frozenset[int]:
    """Return the rows that depend on the numbers of an input of the model."""
    varies = np.zeros(len(graph.ops), bool)
    varies[graph.ops.kind == INPUT] = True
    of_shape = [type_ in _OF_SHAPE for type_ in graph.types]
    types = graph.ops.type.tolist()
    for src, dst in zip(graph.edges.src.tolist(), graph.edges.dst.tolist(), strict=True):  # sorted by dst
        if varies[src] and not of_shape[types[dst]]:
            varies[dst] = True
    return frozenset(np.flatnonzero(varies).tolist())
