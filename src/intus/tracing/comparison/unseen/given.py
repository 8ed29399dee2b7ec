"""Find modules that two passes give other tensors, although what the modules return agrees.

A normalization returns the same of a tensor and of twice that tensor, so that no value after it shows that
one pass has a factor before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....core.graph import OP
from ..judging.layouts import layouts_like
from ..judging.sides import are_apart
from ..pairing.modules import pair_modules
from ..values.differences import difference, rounding, same_elements
from .passes import Both, Pass

#: A module hides what it is given if it returns less than this part of the difference.
_HIDDEN = 0.1


def given_others(both: Both, names: tuple[str, str]) -> Iterator[str]:
    """Yield what is said of modules with one input that one pass computes by an operation of its own.

    Args:
        both: The passes.
        names: Their names.
    """
    one, two, taken = both.one, both.two, {*both.partner.values()}
    pairs = [*both.partner.items()]
    for module in pair_modules(one.graph, two.graph, pairs):
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
        if not are_apart(x, y, rounding(x, y)) or same_elements(x, y):  # in another layout
            continue
        apart = difference(x, y).relative
        if not any(_are_apart(both, *pairs[n], _HIDDEN * apart) for n in module.outputs):
            labels = f"{one.graph.label(i)} in {names[0]}, {two.graph.label(j)} in {names[1]}"
            by = f"{apart:.2g} of their norm"
            yield f"{address} is given {labels}, which differ by {by}, and returns the same on these inputs"


def _are_apart(both: Both, i: int, j: int, most: float) -> bool:
    """Return whether two results differ by more than a part of their norm, in every layout of the second.

    Those of the rounding of another dtype do, if the module returns it as it was given it.
    """
    x, y = both.one.value(i), both.two.value(j)
    if x is None or y is None:
        return False
    found = [difference(x, one).relative for one in layouts_like(both.one.graph, x, both.two.graph, y)]
    return bool(found) and min(found) > most


def _given(side: Pass, call: int) -> set[int]:
    """Return the results of operations before a call of a module that it uses and that depend on inputs."""
    graph = side.graph
    inside = range(int(graph.calls.start[call]), int(graph.calls.stop[call]))
    found = {row for own in inside for row in side.operands(own) if row not in inside}
    return {row for row in found if graph.ops.kind[row] == OP}
