"""Find the results of one operation that are paired with a tensor that another of its results is.

An LSTM returns the last hidden states and the last cells, which have one shape and one module. A file that
uses one of both alone has no tensor for the other.
"""

from __future__ import annotations

from ..values.differences import difference
from .pairs import Pair, Pairs


def other_results(pairs: Pairs) -> dict[int, int]:
    """Return the new partners, by rows of ``a``, of results that differ where another result does not.

    Both passes put that other one into operations that correspond, and it has the same values.

    Args:
        pairs: The pairs, with what was found.
    """
    for pair in pairs:
        if pair.has_both and not pair.is_explained:
            for i, j in _others(pairs, pair):
                if _are_used_alike(pairs, i, j) and _agree(pairs, pair, i, j):
                    alone = {pair.a: -1} if i != pair.a else {}
                    return {**alone, i: j}
    return {}


def _others(pairs: Pairs, pair: Pair) -> list[tuple[int, int]]:
    """Return a pair of rows with another result of one of both, if that has no partner."""
    a, b = pairs.a.graph, pairs.b.graph
    found = [(i, pair.b) for i in a.results_of(pair.a) if pairs[pairs.number_of_a[i]].b < 0]
    return found + [(pair.a, j) for j in b.results_of(pair.b) if pairs[pairs.number_of_b[j]].a < 0]


def _are_used_alike(pairs: Pairs, i: int, j: int) -> bool:
    """Return whether operations that correspond are computed from two rows."""
    users = {pair.a for pair in pairs.following(pairs.a, i)}
    return any(pair.a in users for pair in pairs.following(pairs.b, j))


def _agree(pairs: Pairs, pair: Pair, i: int, j: int) -> bool:
    """Return whether two rows have the same values, by the rounding that explains a difference of a pair."""
    x, y = pairs.a.value(i), pairs.b.value(j)
    if x is None or y is None or x.array.shape != y.array.shape:
        return False
    found = difference(x, y)
    return found.relative <= pair.rounding_error and not found.lopsided
