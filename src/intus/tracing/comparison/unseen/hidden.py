"""Find what two passes compute from the same tensors that their values do not show.

A mask that masks nothing hides the number that it would write, and a remainder hides its divisor where the
numbers are smaller. An ``argmax`` hides whether a ReLU ran before it. So between tensors that correspond,
the constants of the operations are compared, and what an operation is given that returns the same for many
numbers. An exporter writes other operations, with other constants where it computes in another way: a
constant counts where both sides have one that the other has not, and no value shows it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ....core.graph import INPUT
from ....core.vocabularies.families import COMPARISONS
from ....viewing.repr_text import listed
from ..pairing.regions import Region
from ..values.differences import same_elements
from ..values.elements import Elements, limit_of, plain
from ..values.settings import same_number, stated_apart
from .given import given_others
from .other_numbers import can_be_run
from .passes import NEUTRAL, Both, Pass
from .ways import bounds_of_one, epsilons_elsewhere, other_ways

if TYPE_CHECKING:
    from ...results.trace import Trace


def hidden_steps(both: Both, names: tuple[str, str]) -> Iterator[str]:
    """Yield what is said of operations of two passes that no value shows to compute the same.

    Args:
        both: The passes.
        names: Their names.
    """
    one, two, partner = both.one, both.two, both.partner
    are_run = can_be_run(both.a) and can_be_run(both.b)
    constants: dict[str, list[str]] = {}
    for i, j, region in both.regions:
        if one.is_logical(i) != two.is_logical(j):  # a mask of zeros, or indices that are 0
            continue
        yield from _discarded(one, two, i, j, region, partner, names)
        yield from other_ways(one, two, i, j, region, names)
        if not are_run:
            yield from bounds_of_one(one, two, i, j, region, names)
        is_single = len(region.rows) == len(region.others) == 1
        if is_single and _compare_otherwise(one.kind(i), two.kind(j)):
            kinds = f"{one.kind(i)} in {names[0]}, {two.kind(j)} in {names[1]}"
            yield f"{one.place(i)} is {kinds}, which has no effect on these inputs"
        if not (is_single and _is_stated(one, two, i, j)):
            only = _constants_apart(one, two, region)
            if all(only):
                text = f"the constants are {listed(only[0])} in {names[0]}, {listed(only[1])} in {names[1]}"
                constants.setdefault(text, []).append(one.place(i))
    for text, places in constants.items():
        yield f"{text}, at {listed(places)}, which has no effect on these inputs"
    if not are_run:
        yield from given_others(both, names)
    yield from epsilons_elsewhere(one, two, names)
    yield from _interchanged(one, two, equal_inputs(both.a), partner, names)


def _compare_otherwise(kind: str, other: str) -> bool:
    """Return whether two operations are comparisons that differ where two numbers are equal."""
    return kind in COMPARISONS and other in COMPARISONS and COMPARISONS[kind] != COMPARISONS[other]


def _is_stated(a: Pass, b: Pass, i: int, j: int) -> bool:
    """Return whether the constants of two operations are compared by their names."""
    is_same = a.kind(i) == b.kind(j)
    return is_same and (a.kind(i) in NEUTRAL or any(stated_apart(a.graph, i, b.graph, j)))


def _constants_apart(a: Pass, b: Pass, region: Region) -> tuple[list[str], list[str]]:
    """Return the constants of each side of a region that the other side has not, if both have such.

    Only those count that no value shows, bounds among bounds and factors among factors: what one side states
    as the slope of a LeakyReLU, the other multiplies with what it chooses by a comparison with 0. A bound may
    also be a summand before another: ``x > 0.3`` is ``x - 0.3 > 0``.
    """
    sides = [
        list(dict.fromkeys(one for row in rows for one in side.constants(row, is_end=row == rows[-1])))
        for side, rows in ((a, region.rows), (b, region.others))
    ]
    dtypes = {side.dtype(row) for side, rows in ((a, region.rows), (b, region.others)) for row in rows}
    left = [
        [
            x
            for x in some
            if not x.is_shown
            and not any(_is_one(x.number, y.number, dtypes) for y in others if x.is_bound or not y.is_shown)
        ]
        for some, others in (sides, sides[::-1])
    ]
    roles = [frozenset[str]().union(*(one.roles for one in some)) for some in left]
    one, two = (
        list(dict.fromkeys(f"{x.number:.6g}" for x in some if x.roles & roles[0] & roles[1])) for some in left
    )
    return one, two


def _is_one(x: float, y: float, dtypes: Collection[str]) -> bool:
    """Return whether two constants are one in some precisions, in which a large one may be infinite."""
    most = min(map(limit_of, dtypes)) * (1 + 1e-6)  # the text of a number is rounded
    x, y = (math.copysign(math.inf, z) if abs(z) > most else z for z in (x, y))
    return x == y or (x != x and y != y) or same_number(x, y, dtypes)


def _discarded(
    a: Pass, b: Pass, i: int, j: int, region: Region, partner: Mapping[int, int], names: tuple[str, str]
) -> Iterator[str]:
    """Yield what only one side computes and a coarse operation is given, which returns the same anyway."""
    if not a.is_coarse(i):
        return
    given = [partner[row] for row in region.given]
    yield from _only(a, i, b, {*given, *region.others, *b.graph.parents(j)}, names[0])
    if b.is_coarse(j):
        yield from _only(b, j, a, {*region.given, *region.rows, *a.graph.parents(i)}, names[1])


def _only(one: Pass, row: int, other: Pass, rows: Iterable[int], name: str) -> Iterator[str]:
    """Yield what an operation is given and the other side has in none of some rows."""
    others = [value for n in sorted(rows) if (value := other.value(n)) is not None]
    for operand in one.operands(row):
        value = one.value(operand)
        if value is not None and value.array.size and not any(same_elements(value, x) for x in others):
            yield (
                f"{one.place(operand)} is computed only in {name}, and {one.graph.label(row)} hides it on "
                "these inputs"
            )


def equal_inputs(trace: Trace) -> list[list[int]]:
    """Return the rows of inputs that have equal values, group by group.

    Args:
        trace: The trace.
    """
    groups: list[tuple[Elements, list[int]]] = []
    for row in trace.graph.rows_of(INPUT):
        value = plain(trace.values.get(row))
        if value is None:
            continue
        for first, rows in groups:
            if first.array.shape == value.array.shape and first.equals(value):
                rows.append(row)
                break
        else:
            groups.append((value, [row]))
    return [rows for _, rows in groups if len(rows) > 1]


def _interchanged(
    a: Pass, b: Pass, equal: list[list[int]], partner: Mapping[int, int], names: tuple[str, str]
) -> Iterator[str]:
    """Yield the first operation that the passes compute from other inputs, which have equal values."""
    rows = {row for group in equal for row in group if row in partner}
    if not rows:
        return
    before = a.inputs_before(rows), b.inputs_before({partner[row] for row in rows})
    label = {partner[row]: a.graph.label(row) for row in rows}
    for i, j in sorted(partner.items()):
        one, two = {partner[row] for row in before[0].get(i, ())}, before[1].get(j, set())
        if one <= two or two <= one or _is_repeated(a, i, before[0]):
            continue
        given = [listed(sorted(label[row] for row in some)) for some in (one, two)]
        sources = f"{given[0]} in {names[0]}, from {given[1]} in {names[1]}"
        yield f"{a.place(i)} is computed from {sources}, and these inputs have equal values"
        return


def _is_repeated(side: Pass, row: int, before: dict[int, set[int]]) -> bool:
    """Return whether another row, of other inputs, has the same value, so that either may correspond."""
    value = side.value(row)
    others = [n for n, inputs in before.items() if n != row and inputs != before[row]]
    others = [n for n in others if side.kind(n) == side.kind(row)]
    found = (side.value(n) for n in others)
    return value is None or any(
        x is not None and x.array.shape == value.array.shape and x.equals(value) for x in found
    )
