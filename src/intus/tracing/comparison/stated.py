"""Find what two passes state that their values do not show: other constants, and a lower precision.

In half precision an ``eps`` of 1e-5 and one of 1e-4, or the two formulas of GELU, have results that rounding
explains. The values cannot tell them apart, but the operations state them. If only one pass casts to a lower
precision, its rounding explains differences that the other pass alone would not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...core.analysis.flops import MOVES
from ...core.analysis.walks import ancestors
from ...core.graph import OP, OUTPUT, Graph
from ...viewing.repr_text import listed
from .settings import stated_apart

#: Dtypes of floats, the finest first.
_FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def different_constants_stated(
    a: Graph, b: Graph, pairs: Iterable[tuple[int, int]], names: tuple[str, str]
) -> Iterator[str]:
    """Yield what is said of constants that both passes state, and that differ.

    Args:
        a: The first graph.
        b: The second graph.
        pairs: The pairs of rows whose values differ by no more than rounding explains.
        names: The names of the passes.
    """
    found: dict[str, list[str]] = {}
    for i, j in pairs:
        if not (a.ops.kind[i] == b.ops.kind[j] == OP) or a.type_of(i) in MOVES:
            continue
        for name, x, y in stated_apart(a, i, b, j):
            module = _module_of(a, i)
            where = f"{a.label(i)} in {module}" if module else a.label(i)
            found.setdefault(f"{name} is {x} in {names[0]}, {y} in {names[1]}", []).append(where)
    for text, places in found.items():
        yield f"{text}, at {listed(places)}, which rounding hides on these inputs"


def lower_precisions(a: Graph, b: Graph, names: tuple[str, str]) -> dict[str, str]:
    """Return what is said of the precisions that only one of two passes rounds to, by the dtype.

    A precision counts if the other pass has none as low, or has a finer one in a module of the same address.

    Args:
        a: The first graph.
        b: The second graph.
        names: The names of the passes.
    """
    sides = _dtypes(a), _dtypes(b)
    found: dict[str, str] = {}
    for one, two, name, other in ((*sides, *names), (*sides[::-1], *names[::-1])):
        everywhere = set().union(*two.values())
        for dtype in _FLOATS[1:]:
            modules = [
                address
                for address, own in one.items()
                if dtype in own and _is_finer(two.get(address, everywhere) or everywhere, dtype)
            ]
            if modules:
                inside = [address for address in modules if address]
                where = f" in {listed(inside)}" if inside and set(modules) != set(one) else ""
                found[dtype] = (
                    f"{name[0].upper()}{name[1:]} computes in {dtype}{where}, {other} in a higher precision: "
                    f"a difference that the rounding of {dtype} explains is not seen."
                )
    return found


def _is_finer(dtypes: set[str], dtype: str) -> bool:
    """Return whether all of some dtypes of floats are finer than another."""
    return bool(dtypes) and max(map(_FLOATS.index, dtypes)) < _FLOATS.index(dtype)


def _dtypes(graph: Graph) -> dict[str, set[str]]:
    """Return the dtypes of the floats that the operations of each module compute for the outputs."""
    found: dict[str, set[str]] = {}
    outputs = graph.rows_of(OUTPUT)
    for row in sorted({*outputs, *ancestors(graph, outputs)}):
        dtype = graph.metas[int(graph.ops.meta[row])].dtype
        if graph.ops.kind[row] == OP and dtype in _FLOATS:
            found.setdefault(_module_of(graph, row), set()).add(dtype)
    return found


def _module_of(graph: Graph, row: int) -> str:
    """Return the address of the innermost module around a row, without the number of its call."""
    calls = graph.enclosing_calls(row)
    return graph.modules[int(graph.calls.module[calls[-1]])].address if calls else ""
