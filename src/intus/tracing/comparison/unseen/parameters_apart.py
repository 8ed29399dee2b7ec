"""Find parameters and constants that only one of two passes uses, although what follows agrees.

A softmax hides the bias of the keys of an attention, and subtracting a mean one that was added before it.
Operations that one side lacks may be another way to compute the same, but not those that compute with a
parameter of their own: so between tensors that correspond, each needs one of the other side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from ....core.analysis.walks import descendants
from ....core.vocabularies.families import MOVES
from ....viewing.repr_text import listed
from ..parameters.parameters import UsedParameters
from .passes import NEUTRAL, Both, Pass

#: Operations that may leave out elements without a constant of their own.
_MAY_MASK = frozenset(
    {"where", "masked_fill", "scaled_dot_product_attention", "tril", "triu", "dot_product_attention"}
)

_SUMS = frozenset({"add", "sub", "subtract", "rsub"})


class _Part(NamedTuple):
    """The operations of one pass that compute a tensor from others which correspond.

    Attributes:
        side: The pass.
        rows: The rows of the operations.
        end: The row of the tensor.
        paired: The rows that correspond to one of the other pass.
    """

    side: Pass
    rows: list[int]
    end: int
    paired: Collection[int]

    def is_shown(self, row: int) -> bool:
        """Return whether the values show an operation: it leaves what it is given, or its result is compared.

        What is compared may also be its result in another shape or order, or its sum with a tensor that does
        not follow from it.
        """
        waiting = [] if self.side.leaves(row) else [row]
        after = {row, *descendants(self.side.graph, [row])}
        while waiting:
            one = waiting.pop()
            if one == self.end:
                continue
            following = [child for child in self.side.graph.children(one) if child in self.rows]
            if not following or not all(
                self.side.kind(child) in MOVES or self._adds_another(child, after) for child in following
            ):
                return False
            waiting += following
        return True

    def _adds_another(self, row: int, after: Collection[int]) -> bool:
        """Return whether an operation adds one of some tensors to one of the inputs that is none of them."""
        given = self.side.operands(row)
        return self.side.kind(row) in _SUMS and len(given) == 2 and len(set(given).difference(after)) == 1

    def hidden(self, addresses: Collection[str]) -> dict[str, int]:
        """Return those of some parameters whose effect no value shows, with the operation that uses each."""
        found: dict[str, int] = {}
        for row in self.rows:
            numbers = self.side.graph.row_params.get(row, ())
            used = {self.side.graph.params[number].address for number in numbers}.intersection(addresses)
            if used and not self.is_shown(row):
                found |= dict.fromkeys(sorted(used), row)
        return found

    def is_of_inputs_alone(self) -> bool:
        """Return whether nothing but what corresponds or depends on an input goes into the tensor.

        No choice and no fused attention either, which may have a mask of its own.
        """
        return not any(
            self.side.kind(row) in _MAY_MASK
            or self.side.graph.row_params.get(row)
            or not self.side.operands(row)
            or not {*self.side.graph.parents(row)}.difference(self.side.operands(row)) <= {*self.paired}
            or self.side.has_constant_tensor(row, self.paired)
            for row in self.rows
        )

    def constants(self) -> Iterator[int]:
        """Yield the arithmetic with a constant tensor that no value shows."""
        for row in self.rows:
            is_step = self.side.kind(row) in NEUTRAL and self.side.has_constant_tensor(row, self.paired)
            if is_step and not self.is_shown(row):
                yield row


def parameters_of_one_side(both: Both, names: tuple[str, str]) -> Iterator[str]:
    """Yield what is said of parameters and constant tensors that one pass uses, and the other has none for.

    Those are left out whose effect the values show to be the same, and those in a file, which may have
    combined them with others. A constant may be a mask: it is told if the other side has none in its place.

    Args:
        both: The passes.
        names: Their names.
    """
    if any("format" in trace.graph.facts for trace in (both.a, both.b)):
        return
    paired = both.partner.keys(), {*both.partner.values()}
    for i, j, region in both.regions:
        left = UsedParameters(both.a, region.rows, both.b, region.others).without_counterpart()
        parts = _Part(both.one, region.rows, i, paired[0]), _Part(both.two, region.others, j, paired[1])
        for part, other, addresses, name in (
            (parts[0], parts[1], left[0], names[0]),
            (parts[1], parts[0], left[1], names[1]),
        ):
            if hidden := part.hidden(addresses):
                noun, verb = ("parameter", "is") if len(hidden) == 1 else ("parameters", "are")
                where = listed([part.side.place(row) for row in dict.fromkeys(hidden.values())])
                what = f"the {noun} {listed([*hidden])} {verb} used only in {name}"
                yield f"{what}, at {where}: what follows hides it"
            for row in part.constants() if other.is_of_inputs_alone() else ():
                place = part.side.place(row)
                yield f"the constant tensor of {place} is used only in {name}: what follows hides it"
