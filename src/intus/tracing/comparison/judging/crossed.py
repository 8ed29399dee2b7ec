"""Find the pieces of a tensor that are paired crosswise, because one side joined them in another order.

Equal tensors are paired. If a file joins two halves in another order and splits them again, the first half of
one pass has the values of the second of the other, and only what is computed of them shows that they stand
in each other's place.
"""

from __future__ import annotations

from ....core.vocabularies.families import MOVES
from .pairs import Pair, Pairs
from .sides import Side


def crossed(pairs: Pairs) -> dict[int, int]:
    """Return the partners in their place, by rows of ``a``, of pieces that are paired crosswise by values.

    Every operation that takes such a piece is given another one in the other pass, and differs. The pieces
    correspond by their place if these are several operations, or if the tensors that the pieces were taken
    from differ, which is one difference in place of several.

    Args:
        pairs: The pairs, with what was found.
    """
    places, in_place = _places(pairs)
    found: dict[int, int] = {}
    for i in sorted(places):
        group = _group(pairs, i, places)
        if group is None or i in found or not in_place.isdisjoint(group):
            continue
        users = {number for row in group for number, _ in places.get(row, ())}
        if len(users) > 1 or not _have_one_origin(pairs, i, group[i]):
            found |= group
    return found


def _places(pairs: Pairs) -> tuple[dict[int, set[tuple[int, int]]], set[int]]:
    """Return the rows of ``b`` in the place of those of ``a``, with the numbers of the pairs that show it.

    And the rows of ``a`` whose partner is in their place somewhere.
    """
    places, in_place = dict[int, set[tuple[int, int]]](), set[int]()
    for number, pair in enumerate(pairs):
        if pair.has_both:
            for i, j in _operands(pairs, pair):
                if pairs[pairs.number_of_a[i]].b == j:
                    in_place.add(i)
                elif not pair.is_explained:
                    places.setdefault(i, set()).add((number, j))
    return places, in_place


def _operands(pairs: Pairs, pair: Pair) -> list[tuple[int, int]]:
    """Return the operands of two operations that are in the same place and have a partner."""
    given, others = (dict(side.graph.parents_by_argument(row)) for side, row in pairs.sides(pair))
    both = [(given[name], others[name]) for name in given if name in others]
    return [
        (i, j) for i, j in both if pairs[pairs.number_of_a[i]].agrees and pairs[pairs.number_of_b[j]].agrees
    ]


def _group(pairs: Pairs, i: int, places: dict[int, set[tuple[int, int]]]) -> dict[int, int] | None:
    """Return the new partners of a row and of those that it is paired crosswise with; None if there are none.

    The last of a cycle may be used by nothing.
    """
    group: dict[int, int] = {}
    row, origins = i, _origins(pairs, i)
    while row not in group:
        found = {j for _, j in places.get(row, ())}
        j = found.pop() if len(found) == 1 else pairs[pairs.number_of_a[i]].b if not found else -1
        if j < 0 or origins is None or _origins(pairs, row) != origins:
            return None
        group[row] = j
        row = pairs[pairs.number_of_b[j]].a
    return group if row == i and len(group) > 1 else None


def _origins(pairs: Pairs, row: int) -> tuple[int, int] | None:
    """Return the rows that a pair of rows was taken from; None if they are no pieces."""
    pair = pairs[pairs.number_of_a[row]]
    found = [_origin(side, one) for side, one in pairs.sides(pair)]
    return None if (found[0], found[1]) == (pair.a, pair.b) else (found[0], found[1])


def _origin(side: Side, row: int) -> int:
    """Return the row whose elements a row has, moved or in part."""
    while side.is_op(row) and side.kind(row) in MOVES:
        given = {parent for parent in side.graph.parents(row) if side.depends_on_inputs(parent)}
        if len(given) != 1:
            break
        (row,) = given
    return row


def _have_one_origin(pairs: Pairs, i: int, j: int) -> bool:
    """Return whether two rows were taken from tensors that correspond and do not differ."""
    rows = _origin(pairs.a, i), _origin(pairs.b, j)
    pair = pairs[pairs.number_of_a[rows[0]]]
    return pair.b == rows[1] and pair.is_explained
