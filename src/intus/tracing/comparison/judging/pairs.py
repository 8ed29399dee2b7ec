"""The pairs of rows of two passes, with what is found of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....core.graph import OUTPUT
from ..pairing.modules import pair_modules
from ..values.differences import Difference
from ..values.elements import Elements
from .sides import Side

if TYPE_CHECKING:
    from .steps import Step

EQUAL, CLOSE, DIFFERS, SHAPE = "equal", "close", "differs", "shape"
#: The verdicts of values that differ by no more than rounding explains.
AGREE = (EQUAL, CLOSE)
ONLY_A, ONLY_B, UNSAVED = "only in a", "only in b", "not saved"
_UNKNOWN = float("nan")


@dataclass(slots=True)
class Pair:
    """Two rows that correspond to each other, with what was found.

    Attributes:
        a: The row of ``a``; -1 if there is none.
        b: The row of ``b``; -1 if there is none.
        verdict: The verdict, as in the table.
        difference: The difference of the values; None if they were not compared.
        rounding_error: The relative difference that rounding explains so far.
        isolated_error: The relative difference that the operation makes by itself; NaN if unknown.
        is_source: Whether the operation makes more of a difference than rounding, or out of rounding a NaN or
            an infinity in one pass only.
        proven: Whether ``is_source`` was shown by running the operation.
        is_explained: Whether rounding explains the difference of the values, or, without values, those of all
            parents.
        unpaired_parents: The numbers of pairs without a partner that propagate a difference to this one.
        other_type: Whether the two operations have different types.
        step: What was found by running the operations of ``a`` that lead here; None if they were not, or do
            not show that rounding explains the difference.
        smaller: The largest relative difference of the elements that are much smaller than others, which the
            norm does not show.
        by_depth: Whether only the rounding that may have added up so far explains the difference, because
            those operations could not be run.
        amplified: Whether an operation before, or this one, made more of rounding than adds up with depth.
    """

    a: int
    b: int
    verdict: str = UNSAVED
    difference: Difference | None = None
    rounding_error: float = 0.0
    isolated_error: float = _UNKNOWN
    is_source: bool = False
    proven: bool = False
    is_explained: bool = True
    unpaired_parents: list[int] = field(default_factory=list)
    other_type: bool = False
    step: Step | None = None
    smaller: float = 0.0
    by_depth: bool = False
    amplified: bool = False

    @property
    def has_both(self) -> bool:
        """True if both passes have a row."""
        return min(self.a, self.b) >= 0

    @property
    def agrees(self) -> bool:
        """True if the values were compared, and rounding explains their difference."""
        return self.difference is not None and self.is_explained


class Pairs:
    """All pairs of two passes in order of execution, and which of them follow from which.

    A number is the place of a pair among them.

    Attributes:
        a: The first pass.
        b: The second pass.
        modules: The module calls that correspond to each other.
        number_of_a: The number of the pair of each row of ``a``.
        number_of_b: The number of the pair of each row of ``b``.
        module_of: The module call of ``a`` that each pair without a partner ran inside of, if it is paired.
        moved: Values of ``b`` in the shape of ``a``, by the row of ``a``, where they have another there.

    Args:
        a: The first pass.
        b: The second pass.
        rows: The rows of the pairs; -1 where there is none.
    """

    def __init__(self, a: Side, b: Side, rows: Sequence[tuple[int, int]]) -> None:
        self.a, self.b = a, b
        self.modules = pair_modules(a.graph, b.graph, rows)
        self.number_of_a = {i: number for number, (i, _) in enumerate(rows) if i >= 0}
        self.number_of_b = {j: number for number, (_, j) in enumerate(rows) if j >= 0}
        self.module_of = {n: module.a for module in self.modules for n in module.unpaired}
        self.moved: dict[int, Elements] = {}
        self._pairs = [Pair(i, j) for i, j in rows]

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._pairs)

    def __getitem__(self, number: int) -> Pair:
        return self._pairs[number]

    def sides(self, pair: Pair) -> tuple[tuple[Side, int], tuple[Side, int]]:
        """Return both passes, each with the row of a pair."""
        return (self.a, pair.a), (self.b, pair.b)

    def parents(self, pair: Pair) -> list[int]:
        """Return the numbers of the pairs that either of two rows was computed from."""
        parents_a = [self.number_of_a[row] for row in self.a.graph.parents(pair.a)] if pair.a >= 0 else []
        parents_b = [self.number_of_b[row] for row in self.b.graph.parents(pair.b)] if pair.b >= 0 else []
        return list(dict.fromkeys(parents_a + parents_b))

    def children(self, pair: Pair) -> set[int]:
        """Return the numbers of the pairs that either of two rows is an argument of."""
        children_a = [self.number_of_a[row] for row in self.a.graph.children(pair.a)] if pair.a >= 0 else []
        children_b = [self.number_of_b[row] for row in self.b.graph.children(pair.b)] if pair.b >= 0 else []
        return {*children_a, *children_b}

    def following(self, side: Side, row: int) -> list[Pair]:
        """Return the first pairs with both rows that follow a row of a pass."""
        number_of = self.number_of_a if side is self.a else self.number_of_b
        waiting, seen, found = [row], {row}, list[Pair]()
        while waiting:
            for child in set(side.graph.children(waiting.pop())) - seen:
                seen.add(child)
                pair = self[number_of[child]]
                if pair.has_both:
                    found.append(pair)
                else:
                    waiting.append(child)
        return found

    def is_turned_here(self, number: int, without: Collection[int] = ()) -> bool:
        """Return whether a pair has another layout in one pass although what it is computed from has not.

        Args:
            number: The number of the pair.
            without: The numbers of pairs whose layout does not count.
        """
        return self[number].a in self.moved and not self.begins_turned(number, without)

    def begins_turned(self, number: int, without: Collection[int] = ()) -> bool:
        """Return whether a pair is computed from one that has another layout in one pass than in the other.

        Args:
            number: The number of the pair.
            without: The numbers of pairs whose layout does not count.
        """
        waiting, seen = self.parents(self[number]), set[int]()
        while waiting:
            n = waiting.pop()
            if n not in seen and n not in without:
                seen.add(n)
                if self[n].a in self.moved:
                    return True
                waiting += () if self[n].has_both else self.parents(self[n])
        return False

    def outputs_agree(self) -> bool:
        """Return whether rounding explains what is known of all outputs of ``a``."""
        return all(
            pair.is_explained for pair in self if pair.a >= 0 and self.a.graph.ops.kind[pair.a] == OUTPUT
        )

    def agreeing(self) -> dict[int, int]:
        """Return the rows of ``b``, by those of ``a``, whose values differ by no more than rounding."""
        return {pair.a: pair.b for pair in self if pair.agrees}

    def value_of_b(self, row: int) -> Elements:
        """Return the value of ``b`` that corresponds to a row of ``a``, in its shape."""
        value = self.moved.get(row) or self.b.value(self[self.number_of_a[row]].b)
        assert value is not None
        return value
