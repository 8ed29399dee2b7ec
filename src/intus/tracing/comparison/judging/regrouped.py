"""Find the steps of sums and products that do not correspond, because the passes add in another order.

``(x + a) + b`` has the step ``x + a``, and ``x + (a + b)`` has another one. Both have a type and a shape, by
which they are paired, but neither has a counterpart in the other pass.
"""

from __future__ import annotations

import numpy as np

from .pairs import SHAPE, Pair, Pairs
from .polynomials import Monomial
from .sums import Apart, Factors, Sums


def regrouped(pairs: Pairs) -> dict[int, int]:
    """Return the partners, by rows of ``a``, of steps of sums that differ; -1 for none.

    A step has no counterpart if it is used by nothing but sums and products that are the same polynomials of
    the same tensors as those of the other pass. If these are others, it is not the step that is to blame for
    having other terms than its partner, but the end.

    Args:
        pairs: The pairs, with what was found.
    """
    apart = [pair for pair in pairs if _is_open(pairs, pair)]
    if not apart:
        return {}
    sums = Sums(pairs.a, pairs.b, pairs)
    if found := _ends_of_users(pairs, sums):
        return found
    steps = (pair for pair in apart if sums.are_steps(pair.a, pair.b))
    return {pair.a: -1 for pair in steps if _is_without_counterpart(pairs, pair, sums)}


def _is_open(pairs: Pairs, pair: Pair) -> bool:
    """Return whether two operations differ."""
    return pair.has_both and not pair.is_explained and all(side.is_op(row) for side, row in pairs.sides(pair))


def _ends_of_users(pairs: Pairs, sums: Sums) -> dict[int, int]:
    """Return the new partners, by rows of ``a``, of sums that differ and that two other operations are given.

    The end of one sum may have been paired with a step in the middle of the other, which has more terms.
    """
    found, places = dict[int, int](), dict[int, set[int]]()
    for pair in pairs:
        is_user = pair.has_both and not sums.are_steps(pair.a, pair.b)
        for i, j in sums.given(pair.a, pair.b) if is_user else ():
            if sums.are_ends(i, j):
                places.setdefault(i, set()).add(j)
    for i, others in places.items():
        own = pairs[pairs.number_of_a[i]]
        if len(others) == 1 and own.b not in others and not own.agrees:
            (j,) = others
            holder, apart = pairs[pairs.number_of_b[j]], sums.apart(i, j)
            is_in_part = apart is not None and apart.is_in_part
            if is_in_part and not holder.agrees and j not in found.values():
                found |= {holder.a: -1, i: j} if holder.a >= 0 else {i: j}
    return found


def _is_without_counterpart(pairs: Pairs, pair: Pair, sums: Sums) -> bool:
    """Return whether two steps that differ do not correspond."""
    ends = sums.ends(pair.a, pair.b)
    own = sums.apart(pair.a, pair.b)
    if own is not None and pair.verdict == SHAPE and not own.is_in_part:
        return _have_other_sizes(pairs, pair)  # such as a residual sum, and that of a bias
    if own is None or not own.factors or not all(ends):
        return False
    found = [pairs[pairs.number_of_a[row]] for row in ends[0]]
    found += [pairs[pairs.number_of_b[row]] for row in ends[1]]
    return all(one.has_both and _is_of_end(pairs, own, one, sums) for one in found)


def _have_other_sizes(pairs: Pairs, pair: Pair) -> bool:
    """Return whether two tensors have axes of other sizes, in whatever order."""
    values = [side.value(row) for side, row in pairs.sides(pair)]
    one, other = (None if value is None else sorted(value.array.shape) for value in values)
    return one != other


def _is_of_end(pairs: Pairs, own: Apart, end: Pair, sums: Sums) -> bool:
    """Return whether what two steps differ by is nothing that the ends differ by, or is to blame on them.

    Args:
        pairs: All pairs.
        own: By how much the steps differ.
        end: Two sums that the steps are put into.
        sums: What sums compute.
    """
    apart = sums.apart(end.a, end.b)
    if apart is None:
        return False
    if not apart.factors:
        return end.is_explained or not all(pairs[n].is_explained for n in apart.leaves)
    return not end.is_explained and not _are_to_blame(own, apart)


def _are_to_blame(own: Apart, end: Apart) -> bool:
    """Return whether two ends differ by what two steps differ by.

    Steps with other terms are to blame for all that the ends differ by, such as an operand that is another;
    else they are steps of sums that add in another order. Steps of other factors may be to blame for other
    powers of the same tensors: ``(x / 2) * (x / 2)`` and ``(x * 3) * (x * 3)``.

    Args:
        own: By how much the steps differ.
        end: By how much the ends do.
    """
    if own.have_other_terms and own.factors.keys() != end.factors.keys():
        return False
    return all(
        _is_one_change(factors, end.factors[monomial])
        if monomial in end.factors
        else any(_tensors(monomial) & _tensors(other) for other in end.factors)
        for monomial, factors in own.factors.items()
    )


def _tensors(monomial: Monomial) -> set[int]:
    """Return the numbers of the tensors of a monomial."""
    return {tensor for tensor, _ in monomial}


def _is_one_change(one: Factors, other: Factors) -> bool:
    """Return whether two numbers are changed by the same, or times the same, as two others."""
    (x, y), (u, v) = one, other
    try:
        return bool(np.allclose(y - x, v - u) or np.allclose(x * v, y * u))
    except ValueError:  # arrays of other shapes
        return False
