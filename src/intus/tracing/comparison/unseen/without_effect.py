"""Find operations that only one of two passes ran, and that changed nothing on these inputs.

A ReLU on numbers that are positive, bounds that are not reached and a mask that masks nothing return what
they are given. The values of two passes cannot tell that one has such an operation and the other has not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....core.analysis.walks import ancestors
from ....core.graph import OP, OUTPUT, Graph
from ....core.vocabularies.families import DROPOUTS, ELEMENTWISE, MOVES, NOT_NEGATIVE
from ..judging.polynomials import Polynomials
from ..judging.sides import Side
from ..values.differences import difference, rounding
from ..values.elements import Elements
from ..values.ranges import Ranges
from ..values.settings import arguments, bounds, common, number_of
from .passes import NEUTRAL, Pass, placed

if TYPE_CHECKING:
    from ...results.trace import Trace

#: Operations that leave every input as it is, if their other operands are constants for which they do.
_BY_OPERANDS = NEUTRAL.keys() | {
    *("add_to_channels", "where", "masked_fill", "addcmul", "addcdiv"),
    *("and", "or", "logical_and", "logical_or", "bitwise_and", "bitwise_or"),
}
#: Operations that one formula defines for all numbers: they include no bound, no choice and no rounding.
FORMULAS = frozenset(
    {"acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "deg2rad", "erf"}
    | {"erfc", "exp", "exp2", "expm1", "gelu", "log", "log10", "log1p", "log2", "mish", "neg"}
    | {"negative", "rad2deg", "reciprocal", "rsqrt", "sigmoid", "silu", "sin", "sinh", "softsign"}
    | {"sqrt", "square", "squared_difference", "swish", "tan", "tanh", "tanhshrink"}
)
#: Operations on each element that may include others.
_MAY_INCLUDE = ELEMENTWISE - _BY_OPERANDS
#: Operations that return no negative number of numbers that are not.
_MEANS = frozenset({"mean", "sum", "reduce_mean", "reduce_sum", "detach"})
#: Operations on each element that have the name of a reduction in ONNX.
_LARGER = frozenset({"max", "min"})
#: Operations that return zeros whatever they are given.
_ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})


class Unseen(NamedTuple):
    """An operation that only one pass ran, without an effect on these inputs.

    Attributes:
        side: ``"a"`` or ``"b"``.
        row: Its row.
    """

    side: str
    row: int


def unseen_operations(a: Trace, b: Trace, pairs: Iterable[tuple[int, int]]) -> list[Unseen]:
    """Return the operations that one pass lacks, and whose effect the values do not show.

    Operations count that may have an effect on other inputs: not those that only move elements, a dropout in
    evaluation mode, ``x * 1``, or a bound that the numbers before it are within on all inputs. After an
    operation that was fused with an activation nothing is said: it may be that activation. Nor of a step
    beside another operation that has cases, such as ``ceil``, of which it may be a part.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The pairs of rows.
    """
    one, two = _Unchanged(a), _Unchanged(b)
    both = [(i, j) for i, j in pairs if i >= 0 and j >= 0]
    partners: tuple[dict[int, set[int]], dict[int, set[int]]] = {}, {}
    for i, j in both:
        partners[0].setdefault(one.root[i], set()).add(two.root[j])
        partners[1].setdefault(two.root[j], set()).add(one.root[i])
    paired = {i for i, _ in both}, {j for _, j in both}
    found: list[Unseen] = []
    for root, others in partners[0].items():
        if len(others) > 1 or len(partners[1][other := next(iter(others))]) > 1:
            continue
        if one.is_fused(root) or two.is_fused(other):
            continue
        steps = one.steps.get(root, []), two.steps.get(other, [])
        is_alike = _alike(one, root, two, other)
        ranges = one.ranges.of(root), two.ranges.of(other)
        # The range of both shows of either that it is within: they return the same. But if they have one
        # name, a bound before the one alone is none of the other.
        (low, other_low), (high, other_high) = zip(*ranges, strict=True)
        own = (
            (min(low, other_low), max(high, other_high))
            if is_alike
            else (max(low, other_low), min(high, other_high))
        )
        limits = one.limits(root, own), two.limits(other, own)
        if limits[0] != limits[1]:
            is_a = limits[0][0] > limits[1][0] or limits[0][1] < limits[1][1]
            name, side, at = ("a", one, root) if is_a else ("b", two, other)
            rows = side.limiting(at)
            if not rows and one.kind(root) == two.kind(other):  # a mean of abs, and of no abs
                rows = side.not_negative_by(at)
            found += [Unseen(name, row) for row in rows[-1:]]
        rest = [
            [row for row in rows if bounds(side.graph, row) is None]
            for side, rows in zip((one, two), steps, strict=True)
        ]
        linear = (one.linear_from(root), two.linear_from(other)) if is_alike else (math.inf, math.inf)
        if linear[0] == linear[1] < math.inf:
            rest = [
                [row for row in rows if side.threshold(row) is None]
                for side, rows in zip((one, two), rest, strict=True)
            ]
        elif not any(rest) and max(linear) == math.inf and is_bent(min(linear), one.eps(root)):
            found.append(Unseen("a", root) if linear[0] < linear[1] else Unseen("b", other))
        if not is_alike:  # an exporter writes one that has cases as several, of which some are without effect
            rest = [
                [] if side.has_cases(at) else rows
                for rows, side, at in zip(rest, (two, one), (other, root), strict=True)
            ]
        more = len(rest[0]) - len(rest[1])
        name, at = ("a", 0) if more > 0 else ("b", 1)
        left = [row for row in rest[at] if row not in paired[at]] if rest[1 - at] else rest[at]
        found += [Unseen(name, row) for row in (left or rest[at])[: abs(more)]]
    return sorted(found)


class _Unchanged(Pass):
    """The tensors of a pass that are the same elements as another before them.

    Attributes:
        root: The first row with the same elements, by row.
        steps: The operations that returned what they were given, but need not, by root.
        ranges: The numbers that its tensors can have.
    """

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.ranges = Ranges(trace)
        outputs = self.graph.rows_of(OUTPUT)
        live = {*outputs, *ancestors(self.graph, outputs)}
        is_torch = trace.graph.facts.get("framework") in ("torch", "torch.export")
        self._defaults = {"beta": "1", "threshold": "20"} if is_torch else {}  # of a softplus
        self.root: dict[int, int] = {}
        self.steps: dict[int, list[int]] = {}
        computed: dict[object, int] = {}  # the first row of each operation on the same tensors
        for row in range(len(self.graph.ops)):
            source = self._source(row)
            if source is None:
                first = computed.setdefault(self._how(row), row)
                self.root[row] = self.root[first] if first < row and self._equal(first, row) else row
            else:
                self.root[row] = self.root[source]
            if source is not None and row in live and self._is_step(row):
                self.steps.setdefault(self.root[row], []).append(row)

    def _how(self, row: int) -> object:
        """Return what tells how a row is computed: one call of a layer is like another on the same tensor."""
        graph, at = self.graph, int(self.graph.ops.output[row])
        if graph.ops.kind[row] != OP:
            return row
        given = tuple((name, self.root[parent]) for name, parent in graph.parents_by_argument(row))
        return graph.type_of(row), graph.setting(row), given, tuple(graph.row_params.get(row, ())), at

    def _equal(self, row: int, other: int) -> bool:
        x, y = self.value(row), self.value(other)
        return x is not None and y is not None and x.equals(y)

    def is_fused(self, row: int) -> bool:
        """Return whether an operation of an optimized file includes an activation."""
        return "activation=" in self.graph.setting(row)

    def has_cases(self, row: int) -> bool:
        """Return whether an operation on each element is no formula: it chooses, bounds or rounds."""
        is_rounded = "rounding_mode=" in self.graph.setting(row)
        return is_rounded or self.kind(row) in _MAY_INCLUDE - FORMULAS

    def limiting(self, root: int) -> list[int]:
        """Return the operations that limit the numbers of a root to bounds, with itself."""
        rows = [root, *self.steps.get(root, [])]
        return [row for row in rows if bounds(self.graph, row) is not None]

    def limits(self, root: int, own: tuple[float, float]) -> tuple[float, float]:
        """Return the bounds of a root's numbers after all of these: a ReLU after another adds none.

        Args:
            root: The root.
            own: Bounds that they have without these.
        """
        found = [limit for row in self.limiting(root) if (limit := bounds(self.graph, row)) is not None]
        # What a mean is given says more than its range.
        is_known = self.kind(root) in NOT_NEGATIVE | _MEANS and self._is_never_negative(root)
        found += [own, (0.0 if is_known else -math.inf, math.inf)]
        return max(low for low, _ in found), min(high for _, high in found)

    def not_negative_by(self, row: int) -> list[int]:
        """Return the operation by which a row is never negative, in a list; empty if there is none."""
        while self.kind(row) in _MEANS and self._is_never_negative(row):
            (row, *_) = self.operands(row)
        return [row] if self.kind(row) in NOT_NEGATIVE else []

    def _is_never_negative(self, row: int) -> bool:
        """Return whether an operation returns no negative number, whatever the inputs are."""
        operands = self.operands(row)
        if self.kind(row) in _MEANS and operands:
            return all(map(self._is_never_negative, operands))
        return self.ranges.of(row)[0] >= 0

    def linear_from(self, root: int) -> float:
        """Return the number above which a softplus of beta 1 returns what it is given, as the pass states it.

        An exporter writes ``where(x > threshold, x, softplus(x))``. Infinity for any other operation.
        """
        if self.kind(root) != "softplus":
            return math.inf
        given = {**self._defaults, **common(self.graph, root, arguments(self.graph.setting(root)))}
        own = number_of(given.get("threshold", "")) if number_of(given.get("beta", "")) == 1 else None
        found = [own, *(self.threshold(row) for row in self.steps.get(root, []))]
        return min((number for number in found if number is not None), default=math.inf)

    def threshold(self, row: int) -> float | None:
        """Return the number above which a ``where`` returns what a softplus was given; None for any other."""
        graph, parents = self.graph, self.graph.parents(row)
        softplus = [one for one in parents if self.kind(one) == "softplus"]
        if self.kind(row) != "where" or len(parents) != 3 or len(softplus) != 1:
            return None
        given = graph.parents(softplus[0])
        (above,) = [one for one in parents if one not in softplus and one not in given] or (-1,)
        if above < 0 or self.kind(above) not in ("greater", "gt") or graph.parents(above) != given:
            return None
        # In this order: the condition, what was given, the softplus.
        return number_of(graph.setting(above)) if parents == [above, *given, *softplus] else None

    def _source(self, row: int) -> int | None:
        """Return the operand whose elements an operation returned; None if it has others."""
        kind, operands = self.kind(row), self.operands(row)
        if self.graph.ops.kind[row] == OUTPUT:
            return operands[0] if operands else None
        if self.graph.ops.kind[row] != OP or kind not in ELEMENTWISE | MOVES | _LARGER | DROPOUTS:
            return None
        value = self.value(row)
        for operand in operands:
            given = None if value is None else self.value(operand)
            if value is None or given is None or given.array.size != value.array.size:
                continue
            if kind in MOVES or (given.array.shape == value.array.shape and _same(given, value)):
                return operand
        return None

    def _is_step(self, row: int) -> bool:
        kind = self.kind(row)
        if self.graph.ops.kind[row] != OP or kind in DROPOUTS:
            return False
        if kind in MOVES:
            return self._rounds(row)
        if kind == "where" and self._chooses_always(row):
            return False
        operands = self.operands(row)
        if kind == "add" and "alpha" not in arguments(self.graph.setting(row)):  # which would scale the other
            operands = [one for one in operands if self.kind(one) not in _ZEROS]
        if kind not in _BY_OPERANDS or len(operands) == 1:
            return kind not in _BY_OPERANDS or self._adds(row)
        source = self._source(row)
        return len(operands) > 1 and not (source is not None and self._polynomials.is_always(row, source))

    @cached_property
    def _polynomials(self) -> Polynomials:
        return Polynomials(Side(self._trace))

    def _chooses_always(self, row: int) -> bool:
        """Return whether the condition of a ``where`` is one constant, so that it returns one operand."""
        condition = common(self.graph, row, arguments(self.graph.setting(row))).get("condition")
        if condition in ("True", "False"):
            return True
        first = self.graph.parents(row)[0]
        value = None if first in self.operands(row) else self.value(first)
        return value is not None and value.dtype == "bool" and value.array.size == 1

    def _rounds(self, row: int) -> bool:
        """Return whether an operation makes whole numbers of fractions."""
        dtypes = [self.graph.dtype_of(n) for n in (row, *self.operands(row)[:1])]
        return len(dtypes) == 2 and "float" in dtypes[1] and dtypes[0].startswith(("int", "uint", "bool"))

    def _adds(self, row: int) -> bool:
        """Return whether an operation adds a number, or multiplies with one, that changes other numbers."""
        neutral = NEUTRAL.get(self.kind(row))
        given = common(self.graph, row, arguments(self.graph.setting(row)))
        found = [number_of(text) for name, text in given.items() if name != "alpha"]
        numbers = [number for number in found if number is not None]
        return neutral is not None and len(numbers) == 1 and numbers[0] != neutral


def _same(x: Elements, y: Elements) -> bool:
    if x.dtype == y.dtype and x.array.size and x.array.flat[0] != y.array.flat[0]:
        near = abs(float(x.array.flat[0]) - float(y.array.flat[0])) <= 1e-2 * abs(float(y.array.flat[0]))
        if not near:
            return False
    apart = difference(x, y)
    return apart.relative <= rounding(x, y) and not apart.lopsided


def is_bent(threshold: float, eps: float) -> bool:
    """Return whether a softplus differs from its input at a threshold by more than rounding explains.

    Args:
        threshold: The threshold.
        eps: The distance from 1 to the next number.
    """
    return threshold < math.inf and float(np.logaddexp(0.0, -threshold)) > eps * abs(threshold)


def _alike(a: _Unchanged, root: int, b: _Unchanged, other: int) -> bool:
    """Return whether what computed two tensors is no operation that may include one on each element."""
    kinds = a.kind(root), b.kind(other)
    if bounds(a.graph, root) is not None and bounds(b.graph, other) is not None:
        return True
    one, two = (kind.replace("_", "") for kind in kinds)  # hardswish, and hard_swish in ONNX
    return one == two or _MAY_INCLUDE.isdisjoint(kinds)


def sentences(found: Iterable[Unseen], a: Graph, b: Graph, names: tuple[str, str]) -> Iterator[str]:
    """Yield what is said of operations without an effect.

    Args:
        found: The operations.
        a: The first graph.
        b: The second graph.
        names: The names of the passes.
    """
    for one in found:
        graph, name = (a, names[0]) if one.side == "a" else (b, names[1])
        where = placed(graph, one.row)
        is_threshold = graph.type_of(one.row) == "softplus"
        what = f"the threshold of {where} is" if is_threshold else f"{where} ran"
        yield f"{what} only in {name}, and has no effect on these inputs"
