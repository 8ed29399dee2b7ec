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

import numpy as np

from ...core.analysis.flops import ELEMENTWISE
from ...core.graph import INPUT, OP
from ...core.vocabularies import common_types
from ...viewing.repr_text import listed
from .differences import difference, rounding
from .elements import Elements, limit_of, plain
from .regions import Region, Regions, of_inputs
from .settings import arguments, common, constant_of, same_number, stated_apart
from .without_effect import NEUTRAL, placed

if TYPE_CHECKING:
    from ..results.trace import Trace

#: Numbers among the arguments of operations on each element that are no operands.
_NO_OPERANDS = frozenset({"dim", "fmod", "to", "saturate", "decimals"})
#: Comparisons, with one name for those that differ where two numbers are equal, or never.
_COMPARISONS = {
    **dict.fromkeys(("lt", "gt", "less", "greater"), "strict"),
    **dict.fromkeys(
        ("le", "ge", "less_or_equal", "less_equal", "greater_or_equal", "greater_equal"), "not strict"
    ),
    **dict.fromkeys(("eq", "equal"), "equal"),
    **dict.fromkeys(("ne", "not_equal"), "unequal"),
}
#: Operations that return the same for many numbers, whichever these are.
_COARSE = _COMPARISONS.keys() | {
    *("argmax", "argmin", "argsort", "sign", "sgn", "floor", "ceil", "round", "trunc", "any", "all"),
    *(
        "floordiv",
        "floor_divide",
        "mod",
        "remainder",
        "fmod",
        "isnan",
        "is_nan",
        "isinf",
        "is_inf",
        "isfinite",
    ),
}
#: Operations that round numbers if they return whole ones.
_CASTS = frozenset({"cast", "to", "type", "long", "int", "short", "bool", "astype", "convert_element_type"})
#: The relative difference up to which two tensors are one, behind which rounding may have added up.
_SAME = {"float16": 1e-2, "bfloat16": 3e-2}
_SAME_EXACT = 1e-3


def hidden_steps(
    a: Trace, b: Trace, pairs: Iterable[tuple[int, int]], names: tuple[str, str]
) -> Iterator[str]:
    """Yield what is said of operations of two passes that no value shows to compute the same.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The pairs of rows whose values differ by no more than rounding explains.
        names: The names of the passes.
    """
    partner = {i: j for i, j in pairs if i >= 0 and j >= 0}
    one, two, regions = _Pass(a), _Pass(b), Regions(a.graph, b.graph, partner)
    constants: dict[str, list[str]] = {}
    for i, j in partner.items():
        are_ops = a.graph.ops.kind[i] == b.graph.ops.kind[j] == OP
        region = regions.of(i, j) if are_ops and one.is_logical(i) == two.is_logical(j) else None
        if region is None:  # also that of a mask of zeros and indices that are 0
            continue
        yield from _discarded(one, two, i, j, region, partner, names)
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
    yield from _interchanged(one, two, equal_inputs(a), partner, names)


class _Pass:
    """One of two passes."""

    def __init__(self, trace: Trace) -> None:
        self.graph, self._trace = trace.graph, trace
        self._types, self._varies = common_types(trace.graph), of_inputs(trace.graph)

    def kind(self, row: int) -> str:
        """Return the common name of the type of a row."""
        return self._types[int(self.graph.ops.type[row])]

    def dtype(self, row: int) -> str:
        """Return the dtype of a row."""
        return self.graph.dtype_of(row)

    def is_logical(self, row: int) -> bool:
        """Return whether a row is true or false."""
        return self.dtype(row) == "bool"

    def place(self, row: int) -> str:
        """Return the label of a row, with the module that it ran in."""
        return placed(self.graph, row)

    def operands(self, row: int) -> list[int]:
        """Return what an operation is given that depends on an input."""
        return [one for one in dict.fromkeys(self.graph.parents(row)) if one in self._varies]

    def inputs_before(self, inputs: set[int]) -> dict[int, set[int]]:
        """Return which of some inputs each row depends on."""
        found: dict[int, set[int]] = {row: {row} for row in inputs}
        for row in sorted(self._varies - inputs):
            found[row] = set().union(*(found.get(parent, set()) for parent in self.graph.parents(row)))
        return found

    def value(self, row: int) -> Elements | None:
        """Return the value of a row; None if it was not saved."""
        value = self._trace.values.get(row)
        return None if value is None else plain(value)

    def is_coarse(self, row: int) -> bool:
        """Return whether an operation returns the same for many numbers."""
        kind, is_whole = self.kind(row), "float" not in self.dtype(row)
        if kind in _CASTS:
            return is_whole and any("float" in self.dtype(one) for one in self.graph.parents(row))
        return kind in _COARSE or (is_whole and kind in ("div", "divide"))

    def constants(self, row: int) -> Iterator[float]:
        """Yield the numbers that an operation has as operands, and that its result does not show."""
        kind = self.kind(row)
        given = common(self.graph, row, arguments(self.graph.setting(row)))
        is_norm = kind.endswith(("_norm", "normalization"))
        for name, text in given.items():
            number = constant_of(text)
            is_operand = kind in ELEMENTWISE or (name == "eps" and not is_norm)  # those of norms are compared
            if number is None or name in _NO_OPERANDS or not is_operand:
                continue
            is_shown = kind in NEUTRAL and not self.is_coarse(row) and "rounding_mode" not in given
            if not is_shown or (number != NEUTRAL[kind] and self._leaves(row)):
                yield number

    def _leaves(self, row: int) -> bool:
        """Return whether an operation returned what it was given, but for rounding."""
        given = self.operands(row)
        x, y = self.value(row), self.value(given[0]) if len(given) == 1 else None
        if x is None or y is None or x.array.shape != y.array.shape:
            return False
        apart = difference(x, y)
        return apart.relative <= rounding(x, y) and not apart.lopsided


def _compare_otherwise(kind: str, other: str) -> bool:
    """Return whether two operations are comparisons that differ where two numbers are equal."""
    return kind in _COMPARISONS and other in _COMPARISONS and _COMPARISONS[kind] != _COMPARISONS[other]


def _is_stated(a: _Pass, b: _Pass, i: int, j: int) -> bool:
    """Return whether the constants of two operations are compared by their names."""
    is_same = a.kind(i) == b.kind(j)
    return is_same and (a.kind(i) in NEUTRAL or any(stated_apart(a.graph, i, b.graph, j)))


def _constants_apart(a: _Pass, b: _Pass, region: Region) -> tuple[list[str], list[str]]:
    """Return the constants of each side of a region that the other side has not."""
    sides = [
        list(dict.fromkeys(number for row in rows for number in side.constants(row)))
        for side, rows in ((a, region.rows), (b, region.others))
    ]
    dtypes = {side.dtype(row) for side, rows in ((a, region.rows), (b, region.others)) for row in rows}
    one, two = (
        [f"{x:.6g}" for x in some if not any(_is_one(x, y, dtypes) for y in others)]
        for some, others in (sides, sides[::-1])
    )
    return one, two


def _is_one(x: float, y: float, dtypes: Collection[str]) -> bool:
    """Return whether two constants are one in some precisions, in which a large one may be infinite."""
    most = min(map(limit_of, dtypes)) * (1 + 1e-6)  # the text of a number is rounded
    x, y = (math.copysign(math.inf, z) if abs(z) > most else z for z in (x, y))
    return x == y or same_number(x, y, dtypes)


def _discarded(
    a: _Pass, b: _Pass, i: int, j: int, region: Region, partner: Mapping[int, int], names: tuple[str, str]
) -> Iterator[str]:
    """Yield what only one side computes and a coarse operation is given, which returns the same anyway."""
    if not a.is_coarse(i):
        return
    given = [partner[row] for row in region.given]
    yield from _only(a, i, b, {*given, *region.others, *b.graph.parents(j)}, names[0])
    if b.is_coarse(j):
        yield from _only(b, j, a, {*region.given, *region.rows, *a.graph.parents(i)}, names[1])


def _only(one: _Pass, row: int, other: _Pass, rows: Iterable[int], name: str) -> Iterator[str]:
    """Yield what an operation is given and the other side has in none of some rows."""
    others = [value for n in sorted(rows) if (value := other.value(n)) is not None]
    for operand in one.operands(row):
        value = one.value(operand)
        if value is not None and value.array.size and not any(_same_elements(value, x) for x in others):
            yield (
                f"{one.place(operand)} is computed only in {name}, and {one.graph.label(row)} hides it on "
                "these inputs"
            )


def _same_elements(x: Elements, y: Elements) -> bool:
    """Return whether two values have the same elements, in any order, or repeated otherwise."""
    find = np.sort if x.array.size == y.array.size else np.unique
    one, two = (t._replace(array=find(t.array, axis=None)) for t in (x, y))
    if one.array.shape != two.array.shape:
        return False
    apart = difference(one, two)
    return apart.relative <= max(_SAME.get(t.dtype, _SAME_EXACT) for t in (x, y)) and not apart.lopsided


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
    a: _Pass, b: _Pass, equal: list[list[int]], partner: Mapping[int, int], names: tuple[str, str]
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


def _is_repeated(side: _Pass, row: int, before: dict[int, set[int]]) -> bool:
    """Return whether another row, of other inputs, has the same value, so that either may correspond."""
    value = side.value(row)
    others = [n for n, inputs in before.items() if n != row and inputs != before[row]]
    others = [n for n in others if side.kind(n) == side.kind(row)]
    found = (side.value(n) for n in others)
    return value is None or any(
        x is not None and x.array.shape == value.array.shape and x.equals(value) for x in found
    )
