"""Find modules that two passes give other tensors, although what the modules return agrees.

A normalization returns the same of a tensor and of twice that tensor, so that no value after it shows that
one pass has a factor before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....core.graph import OP
from ..judging.sides import are_apart
from ..pairing.modules import pair_modules
from ..values.differences import difference, rounding, same_elements
from .passes import Both, Pass


def given_others(both: Both, names: tuple[str, str]) -> Iterator[str]:
    """Yield what is said of modules with one input that one pass computes by an operation of its own.

    Args:
        both: The passes.
        names: Their names.
    """
    one, two, taken = both.one, both.two, {*both.partner.values()}
    for module in pair_modules(one.graph, two.graph, [*both.partner.items()]):
        address = one.graph.call_address(module.a)
        given, others = _given(one, module.a), _given(two, module.b)
        if not address or len(given) != 1 or len(others) != 1:
            continue
        (i,), (j,) = given, others
        if i in both.partner and j in taken:
            continue  # each corresponds to a tensor of the other pass, maybe inside of the module
        x, y = one.value(i), two.value(j)
        if x is None or y is None or x.array.shape != y.array.shape:
            continue
        if are_apart(x, y, rounding(x, y)) and not same_elements(x, y):  # in another layout
            labels = f"{one.graph.label(i)} in {names[0]}, {two.graph.label(j)} in {names[1]}"
            by = f"{difference(x, y).relative:.2g} of their norm"
            yield f"{address} is given {labels}, which differ by {by}, and returns the same on these inputs"


def _given(side: Pass, call: int) -> set[int]:
    """Return the results of operations before a call of a module that it uses and that depend on inputs."""
    graph = side.graph
    inside = range(int(graph.calls.start[call]), int(graph.calls.stop[call]))
    found = {row for own in inside for row in side.operands(own) if row not in inside}
    return {row for row in found if graph.ops.kind[row] == OP}
