"""Find what a file has fixed that the model takes from its inputs, which one pass of each does not show.

An exporter records what ran. An input that had no effect is read by nothing in the file, a tensor that was
taken for a constant has the value of these inputs, and a branch that Python took on the value of a tensor, or
a number that it read, is that of the inputs of the export.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

from ....core.analysis.walks import ancestors
from ....core.graph import INPLACE, INPUT, OP, OUTPUT, Graph
from ....core.vocabularies import common_types
from ....core.vocabularies.families import LIKE_FIRST, LIKE_OTHERS, OVERWRITING, RESHAPES, SHAPES, VIEWS
from ....viewing.repr_text import listed
from ..values.differences import same_elements
from ..values.elements import Elements
from .passes import Pass, placed

if TYPE_CHECKING:
    from ...results.trace import Conditional, Trace

#: Operations that may return a view of a part of a tensor, into which a later operation may write.
_PARTS = VIEWS | RESHAPES | {"getitem", "data"}
#: Operations that return each of the tensors that they are given, in their order.
_EACH = frozenset({"broadcast_tensors", "meshgrid"})


def sources(graph: Graph) -> list[frozenset[int]]:
    """Return the inputs whose values each row is computed from, not those of which it reads the shape.

    Args:
        graph: The graph.
    """
    types, found = common_types(graph), list[frozenset[int]]()
    for row in range(len(graph.ops)):
        kind, parents = types[int(graph.ops.type[row])], graph.parents(row)
        if graph.ops.kind[row] == INPUT:
            found.append(frozenset([row]))
            continue
        if kind in SHAPES:
            parents = []
        elif kind in _EACH:
            parents = _own_parent(graph, row) or parents
        elif kind in LIKE_FIRST | OVERWRITING and not _is_of_part(graph, types, row):
            parents = parents[1:]
        elif kind in LIKE_OTHERS:
            parents = parents[:1]
        found.append(frozenset[int]().union(*(found[parent] for parent in parents)))
    return found


def _own_parent(graph: Graph, row: int) -> list[int]:
    """Return the argument whose place among the arguments is that of a row among the results, in a list."""
    results = graph.results_of(row)
    given = [parent for _, parent in graph.parents_by_argument(row)]
    return [given[results.index(row)]] if len(results) == len(given) else []


def _is_of_part(graph: Graph, types: Sequence[str], row: int) -> bool:
    """Return whether an operation writes into a view of a part: what reads the whole has the rest too."""
    if not graph.ops.flags[row] & INPLACE:
        return False
    (row, *_) = graph.parents(row) or [row]
    while types[int(graph.ops.type[row])] in _PARTS and (parents := graph.parents(row)):
        (parent, *_) = parents
        if graph.ops.flags[parent] & INPLACE or _size(graph, parent) != _size(graph, row):
            return True
        row = parent
    return False


def _size(graph: Graph, row: int) -> int:
    return math.prod(graph.metas[int(graph.ops.meta[row])].shape)


def fixed_tensors(
    a: Trace, b: Trace, pairs: Iterable[tuple[int, int]], partner: Mapping[int, int], names: tuple[str, str]
) -> Iterator[str]:
    """Yield what is said of tensors that the second pass does not compute from all that the first does.

    Of tensors that depend on each other, the first is named. A value that other tensors have too may
    correspond to these.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The pairs of rows whose values differ by no more than rounding explains.
        partner: The inputs of ``b`` by those of ``a`` that they are given the values of; -1 for none.
        names: The names of the passes.
    """
    one, two = Pass(a), Pass(b)
    reach, other_reach = sources(a.graph), sources(b.graph)
    live, other_live = _live(a.graph), _live(b.graph)
    matters = {row for row, j in partner.items() if j >= 0 and _has_elements(one, row)}
    own = {j: i for i, j in partner.items()}
    found: set[int] = set()
    for i, j in sorted(pairs):
        if i not in live or j not in other_live or a.graph.ops.kind[i] not in (OP, OUTPUT):
            continue
        missing = (reach[i] & matters) - {own.get(row) for row in other_reach[j]}
        if not missing or not found.isdisjoint(ancestors(a.graph, [i])):
            continue
        needed = {partner[row] for row in reach[i] & matters}
        rows = (n for n in other_live if n != j and needed <= other_reach[n])
        others = (n for n in live if n != i and missing.isdisjoint(reach[n]))
        is_output = a.graph.ops.kind[i] == OUTPUT
        if not is_output and (_has(one.value(i), two, rows) or _has(one.value(i), one, others)):
            continue
        found.add(i)
        inputs = listed([name for name, row in named_inputs(a.graph).items() if row in missing])
        yield f"{placed(a.graph, i)} depends on {inputs} in {names[0]}, and not in {names[1]}"


def _live(graph: Graph) -> set[int]:
    """Return the outputs, and all that they depend on."""
    outputs = graph.rows_of(OUTPUT)
    return {*outputs, *ancestors(graph, outputs)}


def _has_elements(side: Pass, row: int) -> bool:
    value = side.value(row)
    return value is None or bool(value.array.size)


def _has(value: Elements | None, side: Pass, rows: Iterable[int]) -> bool:
    """Return whether some rows of a pass have a value, in any order."""
    others = (side.value(row) for row in rows)
    return value is None or any(
        other is not None and other.array.size == value.array.size and same_elements(value, other)
        for other in others
    )


def ignored_inputs(
    a: Graph, b: Graph, partner: Mapping[int, int], names: tuple[str, str], also_read: Set[int] = frozenset()
) -> Iterator[str]:
    """Yield what is said of inputs that the outputs of only one of two passes depend on.

    Args:
        a: The first graph.
        b: The second graph.
        partner: The inputs of ``b`` by those of ``a`` that they are given the values of; -1 for none.
        names: The names of the passes.
        also_read: Inputs of ``a`` that its outputs depend on in other passes, where ``b`` returns the same.
    """
    read = read_inputs(a) | also_read, read_inputs(b)
    label = {row: name for name, row in named_inputs(a).items()}
    for row, other in partner.items():
        ways = row in read[0], other in read[1]
        if ways[0] != ways[1]:
            reads, ignores = names if ways[0] else names[::-1]
            does = "does not have" if other < 0 else "does not read"
            text = a.label(row) if label[row] == a.label(row) else f"{label[row]} ({a.label(row)})"
            yield f"{text} is an input that {reads} computes with and {ignores} {does}"


def decided_by(conditional: Conditional) -> str:
    """Return what is said of a value that Python code of the model took, which a file may have fixed.

    Args:
        conditional: The tensor that it is of, with what Python did.
    """
    op = conditional.op
    where = f" ({Path(op.source.file).name}, line {op.source.line})" if op.source else ""
    does = "reads the value" if conditional.kind == "read" else "decides by the value"
    what = f"{does} of {op.label} in Python{where}"
    return f"The model {what}, which a file may have fixed to that of other inputs"


def read_inputs(graph: Graph) -> set[int]:
    """Return the inputs that outputs depend on."""
    return {row for row in _live(graph) if graph.ops.kind[row] == INPUT}


def named_inputs(graph: Graph) -> dict[str, int]:
    """Return the rows of inputs by name, or by label if they have none."""
    rows = graph.rows_of(INPUT)
    names = list(graph.facts.get("inputs", ())) or [""] * len(rows)
    return {name or graph.label(row): row for name, row in zip(names, rows, strict=True)}
