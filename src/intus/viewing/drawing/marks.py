"""What a picture says beside shapes: which argument an edge is, where a branch starts, in which passes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...core import walks
from ...core.graph import OUTPUT, Graph

#: Functions whose tensors may change places: their edges need no argument's name.
COMMUTATIVE = frozenset(
    {
        *("add", "iadd", "radd", "mul", "imul", "rmul", "multiply", "eq", "ne", "maximum", "minimum"),
        *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
        *("and", "or", "xor", "iand", "ior", "ixor", "hypot", "logaddexp", "dot", "inner"),
    }
)
_UNTOLD = ("read", "")


class Marks(NamedTuple):
    """``arguments``: by edge, the argument it is, of functions in which that matters; ``decisions``: by row,
    what Python decided on it; ``starts``: the edges by which a decision's own operations branch off."""

    arguments: dict[int, str]
    decisions: dict[int, str]
    starts: frozenset[int]


def marks(graph: Graph) -> Marks:
    """The marks of a graph, by rows of its ``edges`` and ``ops``."""
    decisions: dict[int, str] = {}
    for branch in graph.branches:
        if branch.kind not in _UNTOLD:
            way = "" if branch.way is None else f" {branch.way}".lower()
            decisions.setdefault(branch.row, f"{branch.kind}{way}")
    return Marks(_arguments(graph), decisions, frozenset(_starts(graph, decisions)))


def _arguments(graph: Graph) -> dict[int, str]:
    edges = graph.edges
    into: dict[int, list[int]] = {}
    for edge, dst in enumerate(edges.dst.tolist()):
        into.setdefault(dst, []).append(edge)
    found: dict[int, str] = {}
    for dst, group in into.items():
        names = [graph.args[edges.arg[edge]] for edge in group]
        if len(set(names)) > 1 and graph.types[graph.ops.type[dst]].strip("_") not in COMMUTATIVE:
            found |= {edge: name for edge, name in zip(group, names, strict=True) if name}
    return found


def _starts(graph: Graph, decisions: Iterable[int]) -> Iterable[int]:
    """Edges from what leads to an output into what serves a decision alone."""
    decided = list(decisions)
    if not decided:
        return
    ends = graph.rows_of(OUTPUT)
    leads = {*ends, *walks.ancestors(graph, ends)}
    involved = {*decided, *walks.ancestors(graph, decided)} - leads
    for edge, (src, dst) in enumerate(zip(graph.edges.src.tolist(), graph.edges.dst.tolist(), strict=True)):
        if dst in involved and src not in involved:
            yield edge


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in few characters.

    >>> ranges([1, 2, 3, 5, 7, 8])
    '1-3,5,7-8'
    """
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
