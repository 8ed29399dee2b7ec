"""Find what a file has fixed that the model takes from its inputs, which one pass of each does not show.

An exporter records what ran. An input that had no effect is read by nothing in the file, and a branch that
Python took on the value of a tensor, or a number that it read, is that of the inputs of the export.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ....core.analysis.walks import ancestors
from ....core.graph import INPUT, OUTPUT, Graph
from ..pairing.regions import of_inputs

if TYPE_CHECKING:
    from ...results.trace import Trace


def ignored_inputs(a: Graph, b: Graph, partner: Mapping[int, int], names: tuple[str, str]) -> Iterator[str]:
    """Yield what is said of inputs that the outputs of only one of two passes depend on.

    Args:
        a: The first graph.
        b: The second graph.
        partner: The inputs of ``b`` by those of ``a`` that they are given the values of; -1 for none.
        names: The names of the passes.
    """
    read = _read(a), _read(b)
    for row, other in partner.items():
        ways = row in read[0], other in read[1]
        if ways[0] != ways[1]:
            reads, ignores = names if ways[0] else names[::-1]
            does = "does not have" if other < 0 else "does not read"
            yield f"{_name(a, row)} is an input that {reads} computes with and {ignores} {does}"


def decided_by_values(model: Trace) -> Iterator[str]:
    """Yield what Python code of the model took from the values of its inputs, which a file may have fixed.

    Args:
        model: The trace of the model.
    """
    varies, found = of_inputs(model.graph), dict[str, None]()
    for one in model.conditionals:
        if one.op.row in varies and one.kind != "assert":
            source = one.op.source
            where = f" ({Path(source.file).name}, line {source.line})" if source else ""
            what = (
                f"reads the value of {one.op.label} in Python"
                if one.kind == "read"
                else (f"decides by the value of {one.op.label} in Python")
            )
            found[f"The model {what}{where}, which a file may have fixed to that of other inputs"] = None
    yield from found


def _read(graph: Graph) -> set[int]:
    """Return the inputs that outputs depend on."""
    outputs = graph.rows_of(OUTPUT)
    return {row for row in ancestors(graph, outputs) if graph.ops.kind[row] == INPUT} | (
        {row for row in outputs if graph.ops.kind[row] == INPUT}
    )


def _name(graph: Graph, row: int) -> str:
    names = list(graph.facts.get("inputs", ()))
    name = dict(zip(graph.rows_of(INPUT), names, strict=False)).get(row, "")
    return f"{name} ({graph.label(row)})" if name else graph.label(row)
