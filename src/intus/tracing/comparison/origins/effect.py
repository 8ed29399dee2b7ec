"""Find which operations without a partner made other numbers of what they were given."""

from __future__ import annotations

from ..judging.pairs import Pairs
from ..judging.sides import returned


def with_effect(pairs: Pairs, region: list[int]) -> list[int]:
    """Return those of some pairs that have an effect on these inputs; all if none has.

    An operation has none that returned a tensor as it was given it, as a bound that is not reached or a mask
    of ones, nor has what only tells which elements to return, as the mask.

    Args:
        pairs: All pairs.
        region: The numbers of the pairs, which led to one.
    """
    inside, seen, found = {*region}, set[int](), list[int]()
    waiting = [n for n in region if inside.isdisjoint(pairs.children(pairs[n]))]
    while waiting:
        n = waiting.pop()
        if n in seen:
            continue
        seen.add(n)
        as_given = _returned(pairs, n)
        found += [] if as_given else [n]
        waiting += inside.intersection(as_given[:1] or pairs.parents(pairs[n]))
    return sorted(found) or region


def _returned(pairs: Pairs, number: int) -> list[int]:
    """Return the numbers of the pairs that a row without a partner returned as it was given them."""
    pair = pairs[number]
    if pair.has_both:
        return []
    side, row = next((side, row) for side, row in pairs.sides(pair) if row >= 0)
    number_of = pairs.number_of_a if side is pairs.a else pairs.number_of_b
    return [number_of[one] for one in returned(side.trace, row)] if side.is_op(row) else []
