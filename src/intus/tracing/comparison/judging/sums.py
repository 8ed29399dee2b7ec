"""Find by how much what sums and products compute differs between two passes.

``(x + a) + b`` and ``x + (a + b)`` are one polynomial, so that their steps need not correspond.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ..values.elements import eps_of
from .pairs import Pair
from .polynomials import MOST_MONOMIALS, Monomial, Polynomial, Polynomials, monomial_of
from .sides import Side

#: The largest number of tensors that an operation is given, for which it is looked whether they correspond.
_MOST_GIVEN = 8
#: The largest number of operations whose polynomials are put into one.
_MOST_STEPS = 400
#: The relative difference up to which two factors are one.
_SAME_FACTOR = 1e-6
#: The part of the largest factor that is what rounding leaves of 0, as of 0.3 - 0.2 - 0.1.
_NOTHING = 1e-12

#: The factors of a term in two sums.
Factors = tuple[np.ndarray, np.ndarray]


class Apart(NamedTuple):
    """By how much the polynomials of two rows differ.

    Attributes:
        factors: The factors of ``a`` and ``b``, 0 for none, of each monomial whose factors differ: a product
            of powers of tensors, by twice the numbers of their pairs, and one more for a tensor of ``b`` that
            may not correspond to the other one.
        leaves: The numbers of all pairs that both are polynomials of.
        terms: The number of monomials of both.
    """

    factors: dict[Monomial, Factors]
    leaves: frozenset[int]
    terms: int

    @property
    def is_in_part(self) -> bool:
        """True if there are monomials of which both have one, with the same factors or others."""
        return self.terms > len(self.factors) or not self.have_other_terms

    @property
    def is_of_tensors(self) -> bool:
        """True if both have the same monomials, of which constant tensors that are factors differ."""
        are_tensors = all(max(one.size, other.size) > 1 for one, other in self.factors.values())
        return are_tensors and not self.have_other_terms

    @property
    def have_other_terms(self) -> bool:
        """True if a monomial is one of one side alone."""
        return any((one == 0).all() != (other == 0).all() for one, other in self.factors.values())


class Sums:
    """Finds what sums and products of two passes compute.

    Args:
        a: The first pass.
        b: The second pass.
        pairs: The pairs of their rows, whose values need not agree.
    """

    def __init__(self, a: Side, b: Side, pairs: Iterable[Pair]) -> None:
        self._sides, self._pairs = (a, b), [*pairs]
        self._own = Polynomials(a), Polynomials(b)
        self._number = [
            {row: n for n, pair in enumerate(self._pairs) if (row := (pair.a, pair.b)[side]) >= 0}
            for side in (0, 1)
        ]

    def are_steps(self, i: int, j: int) -> bool:
        """Return whether a row of ``a`` and one of ``b`` are sums or products."""
        return all(own.computes(row) for own, row in zip(self._own, (i, j), strict=True))

    def ends(self, i: int, j: int) -> tuple[set[int], set[int]]:
        """Return the first sums and products with each of two rows that are used otherwise too."""
        return self._own[0].ends(i), self._own[1].ends(j)

    def are_ends(self, i: int, j: int) -> bool:
        """Return whether two rows are sums or products that no other one is all that is made of."""
        return self.are_steps(i, j) and not any(self.ends(i, j))

    def given(self, i: int, j: int) -> list[tuple[int, int]]:
        """Return the operands in the same place of two operations, of those that depend on the inputs.

        What one pass alone computes of a sum before, as the product in a linear layer, is of the operation.
        """
        graphs = self._sides[0].graph, self._sides[1].graph
        one, other = (self._before(side, row) for side, row in enumerate((i, j)))
        if len(one) == len(other) == 1:
            return [(one.pop(), other.pop())]
        names = [dict(graph.parents_by_argument(row)) for graph, row in zip(graphs, (i, j), strict=True)]
        both = ((names[0][name], names[1][name]) for name in names[0] if name in names[1])
        return [(x, y) for x, y in both if x in one and y in other]

    def _before(self, side: int, row: int) -> set[int]:
        """Return the sums, and rows that both passes have, that an operation is given."""
        own, found, waiting = self._sides[side], set[int](), [row]
        while waiting and len(found) < _MOST_GIVEN:
            for parent in set(own.graph.parents(waiting.pop())) - found:
                if self._own[side].computes(parent) or self._pairs[self._number[side][parent]].has_both:
                    found |= {parent} if own.depends_on_inputs(parent) else set()
                else:
                    waiting.append(parent)
        return found

    def are_same(self, i: int, j: int) -> bool:
        """Return whether a row of ``a`` and one of ``b`` are sums of one polynomial, of whatever numbers."""
        apart = self.apart(i, j) if self.are_steps(i, j) else None
        return apart is not None and not apart.factors

    def apart(self, i: int, j: int) -> Apart | None:
        """Return by how much the polynomials of a row of ``a`` and one of ``b`` differ; None if not known.

        What differs is put in terms of what is computed last, of which the fewest factors differ.
        """
        found: list[Polynomial] = []
        for side, row in enumerate((i, j)):
            own = self._own[side].of(row)
            found.append({((row, 1),): np.ones(())} if own is None else own)
        eps = max(eps_of(side.graph.dtype_of(row)) for side, row in zip(self._sides, (i, j), strict=True))
        near, best = max(_SAME_FACTOR, eps), None
        for _ in range(_MOST_STEPS):
            apart = self._factors(found[0], found[1], near)
            if best is None or len(apart.factors) < len(best.factors):
                best = apart
            if not apart.factors:
                return apart
            steps = [
                (n, side, row) for side in (0, 1) for n, row in self._steps(side, found[side], apart.factors)
            ]
            last = max(steps, default=(0, 0, 0))[0]
            if not steps:
                return best
            for _, side, row in (one for one in steps if one[0] == last):
                found[side] = self._own[side].put(found[side], row)
            if max(map(len, found)) > MOST_MONOMIALS:
                return None
        return None

    def _factors(self, one: Polynomial, other: Polynomial, near: float) -> Apart:
        """Return by how much two polynomials differ, one of each pass.

        Args:
            one: That of ``a``.
            other: That of ``b``.
            near: The relative difference up to which two factors are one.
        """
        both = [self._of_tensors(side, some) for side, some in enumerate((one, other))]
        leaves = frozenset(tensor // 2 for some in both for monomial in some for tensor, _ in monomial)
        none, least = np.zeros(()), _NOTHING * _largest(factor for some in both for factor in some.values())
        factors = {
            monomial: (x, y)
            for monomial in dict.fromkeys((*both[0], *both[1]))
            for x, y in [(both[0].get(monomial, none), both[1].get(monomial, none))]
            if not _is_one(x, y, near, least)
        }
        return Apart(factors, leaves, len(both[0].keys() | both[1].keys()))

    def _of_tensors(self, side: int, polynomial: Polynomial) -> Polynomial:
        """Return a polynomial of rows as one of the numbers of tensors, which correspond in both passes."""
        return {
            monomial_of((self._tensor(side, row), power) for row, power in monomial): factor
            for monomial, factor in polynomial.items()
        }

    def _tensor(self, side: int, row: int) -> int:
        """Return the number of a tensor: an even one if both passes have it.

        Two sums that differ are not taken for one tensor, because they may not correspond.
        """
        number = self._number[side][row]
        pair = self._pairs[number]
        is_one = pair.is_explained or not pair.has_both or not self.are_steps(pair.a, pair.b)
        return 2 * number + (0 if is_one else side)

    def _steps(
        self, side: int, polynomial: Polynomial, apart: Collection[Monomial]
    ) -> Iterator[tuple[int, int]]:
        """Yield the sums and products in what differs, with the numbers of their pairs."""
        tensors = self._of_tensors(side, polynomial)
        for monomial, of_tensors in zip(polynomial, tensors, strict=True):
            if of_tensors in apart:
                for row, power in monomial:
                    if power > 0 and self._own[side].of(row) is not None:
                        yield self._number[side][row], row


def _is_one(x: np.ndarray, y: np.ndarray, near: float, least: float) -> bool:
    """Return whether two factors are the same, by a relative difference or the absolute one of 0."""
    try:
        return bool((np.abs(x - y) <= near * np.maximum(np.abs(x), np.abs(y)) + least).all())
    except ValueError:  # arrays of other shapes
        return False


def _largest(factors: Iterable[np.ndarray]) -> float:
    return max((float(np.max(np.abs(factor), initial=0.0)) for factor in factors), default=0.0)
