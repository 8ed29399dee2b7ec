"""Judge two passes in one order, whichever the caller names first.

The operations of one pass may be run on the tensors of another, a file may be judged step by step, and equal
tensors are paired from the first on. If all that depended on the order of the arguments, so would the place
where two passes diverge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ...core.analysis.alignment import in_order
from .pairing.modules import ModulePair

if TYPE_CHECKING:
    from ..results.trace import Trace
    from .judging.pairs import Pair
    from .origins.origins import Origin

_TURNED = {"only in a": "only in b", "only in b": "only in a"}


def is_second_first(a: Trace, b: Trace) -> bool:
    """Return whether two passes are judged from the second to the first.

    First comes the one whose operations can be run, then the one that is no file, then the one of fewer
    operations. Of two whose operations can be run, the first is the caller's.
    """
    one, two = _rank(a), _rank(b)
    can_both_run = not (one[0] or two[0])
    return two < one and not can_both_run


def _rank(trace: Trace) -> tuple[bool, bool, int]:
    facts = trace.graph.facts
    cannot_run = trace._replays is None or "form" in facts
    return cannot_run, "format" in facts, len(trace.graph.ops)


class Judged(NamedTuple):
    """The results of judging two passes.

    Attributes:
        pairs: The pairs of rows, with what was found.
        origins: Where differences originate.
        modules: The module calls that correspond to each other.
        idle: The numbers of the pairs that no output depends on.
        names: The address in the first pass of modules of the second that correspond and have another.
    """

    pairs: list[Pair]
    origins: list[Origin]
    modules: list[ModulePair]
    idle: set[int]
    names: Mapping[str, str]

    def turned(self) -> Judged:
        """Return the same with the second pass as the first, in its order."""
        found = {(pair.b, pair.a): old for old, pair in enumerate(self.pairs)}
        partner = [i for j, i in sorted(found) if j >= 0]
        order = [found[rows] for rows in in_order(partner, 1 + max(i for _, i in found))]
        number = {old: new for new, old in enumerate(order)}

        def numbered(some: Iterable[int]) -> list[int]:
            return sorted(number[old] for old in some)

        origins = [
            one._replace(
                pair=number[one.pair],
                region=numbered(one.region),
                with_effect=numbered(one.with_effect),
                given=None if one.given is None else one.given[::-1],
            )
            for one in self.origins
        ]
        modules = [ModulePair(b, a, numbered(out), numbered(inside)) for a, b, out, inside in self.modules]
        return Judged(
            [self._turned(self.pairs[old], numbered) for old in order],
            sorted(origins),
            sorted(modules),
            {*numbered(self.idle)},
            {one: other for other, one in self.names.items()},
        )

    def _turned(self, pair: Pair, numbered: Callable[[Iterable[int]], list[int]]) -> Pair:
        apart, step = pair.difference, pair.step
        if apart is not None:
            apart = apart._replace(nan=apart.other_nan, other_nan=apart.nan)
        if step is not None and step.draws >= 0:  # where the other pass draws, or what it computes of that
            partner = next(one.b for one in self.pairs if one.a == step.draws)
            step = step._replace(draws=partner if partner >= 0 else pair.b)
        parents = numbered(pair.unpaired_parents)
        return replace(
            pair,
            a=pair.b,
            b=pair.a,
            verdict=_TURNED.get(pair.verdict, pair.verdict),
            difference=apart,
            step=step,
            unpaired_parents=parents,
        )
