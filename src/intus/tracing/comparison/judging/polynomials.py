"""Write what sums and products compute as a polynomial of the tensors that they are given.

Each operation is checked on the recorded values: a name alone does not tell the factor of an addition, or
which of two tensors is divided.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from ....core.graph import OP
from ....core.vocabularies import KINDS
from ..values.differences import ROUNDINGS
from ..values.elements import eps_of
from ..values.settings import arguments, number_of
from .sides import Side, returned

#: Operations that are sums or products of what they are given. ONNX names a sum of several tensors ``sum``.
_SUMS = frozenset({"add", "sub", "subtract", "rsub", "sum", "add_to_channels"})
_PRODUCTS = frozenset({"mul", "multiply"})
_QUOTIENTS = frozenset({"div", "divide", "true_divide", "reciprocal"})
_POWERS = frozenset({"pow", "square"})
_NEGATIONS = frozenset({"neg", "negative"})
#: All operations that are polynomials of what they are given.
ARITHMETIC = _SUMS | _PRODUCTS | _QUOTIENTS | _POWERS | _NEGATIONS
#: The largest number of terms of a polynomial.
MOST_MONOMIALS = 64

#: A product of powers of rows, in their order; empty for a constant.
Monomial = tuple[tuple[int, int], ...]
#: Factors by monomial: numbers, or arrays that are broadcast.
Polynomial = dict[Monomial, np.ndarray]


class Polynomials:
    """Finds the polynomials that the operations of a pass compute.

    Args:
        side: The pass.
    """

    def __init__(self, side: Side) -> None:
        self._side, self._graph = side, side.graph
        self._known: dict[int, Polynomial | None] = {}

    def of(self, row: int) -> Polynomial | None:
        """Return what the operation of a row computes of what it is given; None if that is no polynomial."""
        if row not in self._known:
            self._known[row] = _of_operation(self._side, row)
        return self._known[row]

    def computes(self, row: int) -> bool:
        """Return whether a row is a sum or product, and not only what its operation is given."""
        is_same = not self._side.computes(row) or self._side.is_idle_dropout(row)
        return not is_same and self.of(row) is not None

    def put(self, polynomial: Polynomial, row: int) -> Polynomial:
        """Return a polynomial with that of a row in its place."""
        own, found = self.of(row), Polynomial()
        assert own is not None
        for monomial, factor in polynomial.items():
            power = dict(monomial).get(row, 0)
            if power <= 0:
                _add(found, {monomial: factor})
                continue
            rest: Polynomial = {tuple(one for one in monomial if one[0] != row): factor}
            for _ in range(power):
                rest = _product(rest, own)
            _add(found, rest)
        return found

    def is_always(self, row: int, other: int) -> bool:
        """Return whether a row is the same as one before it, whatever that is: ``2 * x - x`` is ``x``."""
        found = self.of(row)
        if found is None:
            return False
        found = dict(found)  # the difference of both
        _add(found, {((other, 1),): np.array(-1.0)})
        while found := {term: factor for term, factor in found.items() if factor.any()}:
            rows = (one for term in found for one, power in term if power > 0)
            last = max((one for one in rows if self.of(one) is not None), default=None)
            if last is None or len(found) > MOST_MONOMIALS:
                return False
            found = self.put(found, last)
        return True

    def ends(self, row: int) -> set[int]:
        """Return the first sums and products with a row that are used otherwise too; empty if it is one."""
        waiting, seen, found = [row], {row}, set[int]()
        while waiting:
            one = waiting.pop()
            children = self._graph.children(one)
            steps = [child for child in children if self._takes(child, one)]
            if len(steps) < len(children) or not children:
                found.add(one)
                continue
            waiting += [step for step in steps if step not in seen]
            seen.update(steps)
        return set() if row in found else found

    def _takes(self, row: int, parent: int) -> bool:
        """Return whether a row is a polynomial of one that it is given, or has it as a constant."""
        own = self.of(row)
        is_constant = not self._side.depends_on_inputs(parent)
        return own is not None and (is_constant or any(parent == one for term in own for one, _ in term))


def _of_operation(side: Side, row: int) -> Polynomial | None:
    """Return what an operation computes of what it is given; None if that is no polynomial, or not known."""
    graph = side.graph
    if graph.ops.kind[row] != OP:
        return None
    kind = KINDS.get(side.kind(row), side.kind(row))
    if not side.depends_on_inputs(row):
        return _constant(side, row) if kind in ARITHMETIC else None
    out, rows = side.value(row), [parent for _, parent in graph.parents_by_argument(row)]
    if not side.computes(row) or side.is_idle_dropout(row):
        same = [one for one in returned(side.trace, row) if side.depends_on_inputs(one)]
        return {((same[0], 1),): np.ones(())} if len(same) == 1 else None
    if not kind or out is None or not out.is_float or out.is_complex:
        return None
    values = {one: side.value(one) for one in rows}
    if any(value is None or value.is_complex for value in values.values()):
        return None
    varying = [one for one in rows if side.depends_on_inputs(one)]
    constants = [*(values[one] for one in rows if one not in varying), *side.states(row)]
    arrays = [one.array.astype(np.float64) for one in constants if one is not None]
    arrays += [np.asarray(number) for number in _numbers(graph.setting(row))]
    unknown = [graph.params[n].shape for n in graph.row_params.get(row, ())] if None in constants else []
    given = {one: values[one].array.astype(np.float64) for one in varying}  # type: ignore[union-attr]
    eps = max(out.eps, *(eps_of(values[one].dtype) for one in varying))  # type: ignore[union-attr]
    y = out.array.astype(np.float64)
    if len(unknown) == 1 and len(varying) == 1 and given[varying[0]].shape == y.shape:
        arrays += _fitting(kind, unknown[0], given[varying[0]], y)
    for polynomial in _candidates(kind, varying, arrays, given, y):
        if _is_result(polynomial, given, y, ROUNDINGS * eps):
            return polynomial
    return None


def _constant(side: Side, row: int) -> Polynomial | None:
    """Return what an operation computes that depends on no input."""
    value = side.value(row)
    is_known = value is not None and value.is_float and not value.is_complex
    return {(): value.array.astype(np.float64)} if value is not None and is_known else None


def _numbers(setting: str) -> list[float]:
    """Return the numbers among the arguments of an operation."""
    found = (number_of(text) for text in arguments(setting).values())
    return [number for number in found if number is not None]


def _candidates(
    kind: str,
    rows: list[int],
    constants: list[np.ndarray],
    given: Mapping[int, np.ndarray],
    out: np.ndarray,
) -> Iterator[Polynomial]:
    """Yield what an operation may compute, as polynomials of rows.

    Args:
        kind: The common name of its type.
        rows: The rows that it is given and that depend on the inputs.
        constants: The other numbers that it is given.
        given: The values of the rows.
        out: What it returned.
    """
    one = np.ones(())
    if kind in _SUMS and len(rows) > 1:
        yield _sum(rows, [one] * len(rows))
        if len(rows) == 2:
            for factor in (one, *constants):
                yield _sum(rows, [one, -factor])
                yield _sum(rows, [one, factor])
                yield _sum(rows, [-factor, one])
    elif kind in _SUMS and rows:
        same = given[rows[0]].shape == out.shape
        free = constants or [np.asarray(np.mean(out - sign * given[rows[0]])) for sign in (1, -1) if same]
        for sign, constant in itertools.product((one, -one), (*free, *(-c for c in free))):
            yield {((rows[0], 1),): sign, (): constant}
    elif kind in _PRODUCTS and rows:
        for factor in constants if len(rows) == 1 and constants else [one]:
            yield {monomial_of((row, 1) for row in rows): factor}
        if len(rows) == 1:
            yield {((rows[0], 1),): _factor(given[rows[0]], out)}
    elif kind in _QUOTIENTS and len(rows) == 2:
        yield {monomial_of(zip(rows, (1, -1), strict=True)): one}
    elif kind in _QUOTIENTS and rows:
        for constant in constants or [one]:
            with np.errstate(divide="ignore", invalid="ignore"):
                yield {((rows[0], 1),): 1 / constant}
            yield {((rows[0], -1),): constant}
    elif kind in _NEGATIONS and len(rows) == 1:
        yield {((rows[0], 1),): -one}
    elif kind in _POWERS and len(rows) == 1:
        yield {((rows[0], 2),): one}


def _sum(rows: list[int], factors: list[np.ndarray]) -> Polynomial:
    """Return the sum of rows, each times a factor."""
    found = Polynomial()
    for row, factor in zip(rows, factors, strict=True):
        _add(found, {((row, 1),): factor})
    return found


def _fitting(kind: str, shape: tuple[int, ...], x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Return what a parameter of a shape whose value is not known may be, by what an operation returned.

    Args:
        kind: The common name of the type of the operation.
        shape: The shape of the parameter.
        x: What the operation was given.
        y: What it returned.
    """
    sizes = (1,) * (y.ndim - len(shape)) + shape
    axes = tuple(axis for axis, size in enumerate(sizes) if size == 1)
    if kind in _SUMS:
        return [(y - sign * x).mean(axes, keepdims=True) for sign in (1, -1)]
    if kind in _PRODUCTS:
        with np.errstate(invalid="ignore"):
            return [(x * y).sum(axes, keepdims=True) / (x * x).sum(axes, keepdims=True)]
    return []


def _factor(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the number that one array must be multiplied by to be nearest to another."""
    if x.shape != y.shape or not (size := float((x * x).sum())):
        return np.full((), np.nan)
    return np.asarray(float((x * y).sum()) / size)


def _is_result(polynomial: Polynomial, given: Mapping[int, np.ndarray], out: np.ndarray, near: float) -> bool:
    """Return whether an operation returned what a polynomial says, but for rounding."""
    total, size = np.zeros(()), np.zeros(())
    try:
        with np.errstate(all="ignore"):
            for monomial, factor in polynomial.items():
                term = factor
                for row, power in monomial:
                    term = term * given[row] ** power
                total, size = total + term, size + np.abs(term)
            apart = np.abs(total - out)
    except ValueError:  # shapes that are not broadcast
        return False
    return total.shape == out.shape and bool((apart <= near * size).all())


def _add(polynomial: Polynomial, other: Polynomial) -> None:
    """Add another polynomial to one."""
    for monomial, factor in other.items():
        polynomial[monomial] = polynomial[monomial] + factor if monomial in polynomial else factor


def _product(one: Polynomial, other: Polynomial) -> Polynomial:
    """Return the product of two polynomials."""
    found = Polynomial()
    for (x, factor), (y, other_factor) in itertools.product(one.items(), other.items()):
        _add(found, {monomial_of((*x, *y)): factor * other_factor})
    return found


def monomial_of(powers: Iterable[tuple[int, int]]) -> Monomial:
    """Return the product of powers of rows, of which one may occur several times."""
    total: dict[int, int] = {}
    for row, power in powers:
        total[row] = total.get(row, 0) + power
    return tuple(sorted((row, power) for row, power in total.items() if power))
