"""Find what a file has fixed that the model takes from its inputs, which one pass of each does not show.

An exporter records what ran. An input that had no effect is read by nothing in the file, and a branch that
Python took on the value of a tensor, or a number that it read, is that of the inputs of the export.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING

from ....core.analysis.walks import ancestors
from ....core.graph import INPUT, OUTPUT, Graph

if TYPE_CHECKING:
    from ...results.trace import Conditional


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
    outputs = graph.rows_of(OUTPUT)
    return {row for row in (*outputs, *ancestors(graph, outputs)) if graph.ops.kind[row] == INPUT}


def named_inputs(graph: Graph) -> dict[str, int]:
    """Return the rows of inputs by name, or by label if they have none."""
    rows = graph.rows_of(INPUT)
    names = list(graph.facts.get("inputs", ())) or [""] * len(rows)
    return {name or graph.label(row): row for name, row in zip(names, rows, strict=True)}
