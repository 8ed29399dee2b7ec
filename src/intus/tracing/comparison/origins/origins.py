"""Find the pairs at which the differences of two passes originate."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ....core.graph import OUTPUT
from ....core.vocabularies.families import MOVES
from ..judging.pairs import ONLY_A, ONLY_B, SHAPE, Pair, Pairs
from ..judging.sides import HIDING
from ..parameters.parameters import COMBINED, UsedParameters
from ..values.settings import different_constants
from .effect import with_effect
from .unpaired import Unpaired


class Origin(NamedTuple):
    """The place where a difference originates.

    Attributes:
        pair: The number of the first pair that shows it.
        region: The numbers of the pairs that led there without a partner, because the passes ran other
            operations; empty if the operation of the pair itself makes the difference.
        with_effect: The numbers of those of the region that have an effect on these inputs.
        given: The rows of ``a`` and of ``b`` that these operations are given, if they compute the same of
            them in both passes, and the two tensors do not correspond; None if not, or if that is not known.
    """

    pair: int
    region: list[int]
    with_effect: list[int]
    given: tuple[int, int] | None = None


def origins(pairs: Pairs, wrong_steps: Mapping[int, list[int]], idle: Collection[int]) -> list[Origin]:
    """Return where the differences originate that reach the outputs, in order.

    If none reaches the outputs, return those that were proven by running an operation, are those of a
    whole module, or are hidden by an operation that cannot make up for them: what follows may hide a
    difference, as a normalization does. What no output depends on is not among them.

    Args:
        pairs: The pairs, with what was found of each.
        wrong_steps: The numbers of the pairs inside of each step that is wrong, by that of its end.
        idle: The numbers of the pairs that no output depends on.
    """
    sources = _reaching(pairs) or _hidden(pairs, set(range(len(pairs))).difference(idle))
    sources |= wrong_steps.keys() - idle
    inside = {n: module.unpaired for module in pairs.modules for n in module.outputs}  # the innermost
    unpaired = Unpaired(pairs)
    regions = {
        n: _region(wrong_steps[n]) if n in wrong_steps else unpaired.before(n, inside.get(n, []))
        for n in sorted(sources)
    }
    found = [
        Origin(n, region, with_effect(pairs, region), unpaired.given_otherwise(n, region))
        for n, region in regions.items()
    ]
    return [origin for origin in found if _is_known(pairs, origin)] or found


def _region(step: list[int]) -> list[int]:
    """Return the pairs inside of a wrong step; empty if its only operation is to blame."""
    return step if len(step) > 1 else []


def _reaching(pairs: Pairs) -> set[int]:
    """Return the numbers of the pairs where the differences originate that reach the outputs."""
    kinds = pairs.a.graph.ops.kind
    ends = [n for n, pair in enumerate(pairs) if pair.has_both and kinds[pair.a] == OUTPUT]
    waiting, seen = [n for n in ends or range(len(pairs)) if not pairs[n].is_explained], set[int]()
    while waiting:
        number = waiting.pop()
        if number not in seen:
            seen.add(number)
            if not _takes_away(pairs, pairs[number]):
                waiting += [n for n in pairs.parents(pairs[number]) if not pairs[n].is_explained]
    return {n for n in seen if _may_be_source(pairs[n])} or seen


def _takes_away(pairs: Pairs, pair: Pair) -> bool:
    """Return whether both operations of a pair that differ return the same on what the other pass is given.

    So does a softmax of scores that are masked with -1e9 or -inf: if the softmax is another one, the mask is
    no reason for what follows.
    """
    a, b = pairs.a.calls, pairs.b.calls
    if not pair.proven or a is None or b is None:
        return False
    from ..judging.crossing import is_unaffected

    x, y = pairs.a.value(pair.a), pairs.b.value(pair.b)
    return (
        x is not None
        and y is not None
        and is_unaffected(a, pair.a, b, pair.b, x)
        and is_unaffected(b, pair.b, a, pair.a, y)
    )


def _may_be_source(pair: Pair) -> bool:
    """Return whether a pair differs although its paired parents, as far as known, do not."""
    return pair.is_source or (bool(pair.unpaired_parents) and not pair.is_explained)


def _hidden(pairs: Pairs, numbers: set[int]) -> set[int]:
    """Return those of some pairs where differences originate although none reaches the outputs."""
    proven = {n for n in numbers if pairs[n].proven}
    if proven:
        return proven
    of_modules = numbers.intersection(n for module in pairs.modules for n in module.outputs)
    found = {n for n in of_modules if _is_hidden(pairs, n, by_any=True)}
    return found or {n for n in numbers if _is_hidden(pairs, n, by_any=False)}


def _is_hidden(pairs: Pairs, number: int, *, by_any: bool) -> bool:
    """Return whether a difference originates here that what follows, which both have, takes away.

    A difference that an operation of one side alone takes away is none: it may compute the rest of the
    module, as the batch norm does that an export has folded into a convolution.

    Args:
        pairs: All pairs.
        number: The number of the pair.
        by_any: Whether arithmetic may take it away. Inside a module it may be another way to compute the
            same: ``x * 2 * 3`` and ``x * 3 * 2`` have other steps.
    """
    if not _may_be_source(pairs[number]) or pairs[number].verdict == SHAPE:
        return False
    around = set(pairs.a.graph.enclosing_calls(pairs[number].a))
    waiting, seen = [number], {number}
    while waiting:
        for n in pairs.children(pairs[waiting.pop()]) - seen:
            is_unpaired = pairs[n].verdict in (ONLY_A, ONLY_B)
            if is_unpaired and (n not in pairs.module_of or pairs.module_of[n] in around):
                return False
            if is_unpaired or not pairs[n].is_explained:
                seen.add(n)
                waiting.append(n)
            elif not _hides(pairs, pairs[n], by_any=by_any):
                return False
    return True


def _hides(pairs: Pairs, pair: Pair, *, by_any: bool) -> bool:
    """Return whether what both operations of a pair compute may hide a difference of what they are given.

    If one only moves elements and the other does not, that one computes alone what its side computes.
    """
    kinds = [side.kind(row) for side, row in pairs.sides(pair)]
    if len({kind in MOVES for kind in kinds}) == 2:
        return False
    return by_any or HIDING.issuperset(kinds)


def _is_known(pairs: Pairs, origin: Origin) -> bool:
    """Return whether other operations than b's make a difference, and do not only propagate one.

    They cannot be run on the same inputs. If what they were given differs already, only other parameters
    or constants tell.
    """
    pair = pairs[origin.pair]
    given_same = all(pairs[n].is_explained for n in pairs.parents(pair))
    if given_same or pair.is_source or not origin.region:
        return True
    found = [pairs[n] for n in {*origin.region, origin.pair}]
    rows_a = sorted(p.a for p in found if p.a >= 0)
    rows_b = sorted(p.b for p in found if p.b >= 0)
    parameters = UsedParameters(pairs.a.trace, rows_a, pairs.b.trace, rows_b).different()
    constants = different_constants(pairs.a.graph, rows_a, pairs.b.graph, rows_b)
    return any(not reason.startswith(COMBINED) for reason in [*parameters, *constants])
