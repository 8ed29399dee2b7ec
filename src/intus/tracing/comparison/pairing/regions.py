"""Find the operations of two passes that compute a pair of tensors from the same pairs of tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from typing import NamedTuple

from ....core.analysis.walks import descendants
from ....core.graph import INPUT, OP, Graph
from ....core.vocabularies import common_types
from ....core.vocabularies.families import SHAPES

#: The largest number of operations of a region on each side, if it is not given.
_MOST = 200


class Region(NamedTuple):
    """The operations that compute a tensor from others, in both passes.

    Attributes:
        given: The rows of the first pass that it begins at.
        rows: The rows of its operations in the first pass, in order of execution.
        others: The rows of its operations in the second.
    """

    given: list[int]
    rows: list[int]
    others: list[int]


class Regions:
    """Finds regions of two graphs.

    Args:
        a: The first graph.
        b: The second graph.
        partner: The rows of ``b`` that regions may begin at, by the rows of ``a``.
        most: The largest number of operations of a region on each side.
    """

    def __init__(self, a: Graph, b: Graph, partner: Mapping[int, int], most: int = _MOST) -> None:
        self._most = most
        self._graphs, self._partner = (a, b), partner
        self._own: tuple[dict[int, int], dict[int, int]] = (
            {i: i for i in partner},
            {j: i for i, j in partner.items()},
        )
        self._varies = of_inputs(a), of_inputs(b)
        self._left: set[int] = set()

    def also(self, i: int, j: int) -> Regions:
        """Return the same, where a row of ``a`` corresponds to this one of ``b``, and to no other."""
        other, (rows, others) = copy(self), self._own
        other._partner = {**self._partner, i: j}
        other._own = {**rows, i: i}, {row: one for row, one in others.items() if one != i} | {j: i}
        return other

    def add(self, i: int, j: int) -> None:
        """Let regions begin at another pair of rows."""
        rows, others = self._own
        rows[i], others[j] = i, i

    def partner(self, row: int) -> int:
        """Return the row of ``b`` that corresponds to one of ``a`` that regions may begin at; -1 for none."""
        return self._partner.get(row, -1)

    def leave_out(self, row: int) -> None:
        """Let no region begin at a row of ``a``."""
        self._left.add(row)

    def of(self, i: int, j: int, without: Collection[int] = ()) -> Region | None:
        """Return the smallest region of two rows that begins at the same tensors in both passes.

        Args:
            i: A row of ``a``.
            j: The row of ``b`` that corresponds to it.
            without: Rows of ``a`` that it does not begin at.

        Returns:
            The region; None if it does not depend on an input, or is too large.
        """
        left = {i, *without, *self._left}
        while True:
            found, found_other = self._before(0, i, left), self._before(1, j, left)
            if found is None or found_other is None or found[0].isdisjoint(self._varies[0]):
                return None
            (given, rows), (others, more) = found, found_other
            begins = {self._own[1][row] for row in others & self._varies[1]}
            apart = (given & self._varies[0]) ^ begins
            if not apart:
                return Region(sorted(given), sorted(rows), sorted(more))
            # A file that computes a tensor twice begins at it and before it: then only before it.
            left |= {*descendants(self._graphs[0], apart)} & (given | begins) or apart

    def _before(self, side: int, row: int, left: Collection[int]) -> tuple[set[int], set[int]] | None:
        """Return the first rows on the ways back from a row that have a partner, and the operations between.

        None if there are too many, or one of the ways begins at an input without a partner.

        Args:
            side: The pass.
            row: The row.
            left: Rows of ``a`` that are not taken to have one.
        """
        graph, own = self._graphs[side], self._own[side]
        waiting, given, rows = [row], set[int](), {row}
        while waiting:
            for parent in graph.parents(waiting.pop()):
                if parent in own and own[parent] not in left:
                    given.add(parent)
                elif graph.ops.kind[parent] == OP and parent not in rows:
                    rows.add(parent)
                    waiting.append(parent)
                elif graph.ops.kind[parent] == INPUT:
                    return None
            if len(rows) > self._most:
                return None
        return given, rows


def of_inputs(graph: Graph) -> set[int]:
    """Return the rows whose values depend on those of an input, not only on its shape."""
    types = common_types(graph)
    found = set(graph.rows_of(INPUT))
    for row in range(len(graph.ops)):
        if types[int(graph.ops.type[row])] not in SHAPES and not found.isdisjoint(graph.parents(row)):
            found.add(row)
    return found
