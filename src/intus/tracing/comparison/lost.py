"""Say where rounding explains a difference only because it takes much of a tensor, or for lack of a judge.

A step that was run on the tensors of the other pass is judged by what its own rounding loses. Where that is
more than half of the digits, a fault may hide behind it. Where a step could not be run, only the rounding
that may have added up with depth tells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ...core.analysis.walks import ancestors
from ...core.graph import OUTPUT, Graph
from ...viewing.repr_text import listed
from .unseen.passes import placed
from .values.differences import half_of_digits
from .values.elements import eps_of

if TYPE_CHECKING:
    from .judging.pairs import Pair


def lost_in_rounding(
    a: Graph,
    b: Graph,
    pairs: Sequence[Pair],
    idle: Collection[int],
    drawn: Sequence[int],
    otherwise: Collection[int] = (),
) -> Iterator[str]:
    """Yield what is not shown to be the same because rounding takes too much of it.

    Args:
        a: The first graph.
        b: The second graph.
        pairs: The pairs, with what was found.
        idle: The numbers of those that no output depends on.
        drawn: What ``drawn_at_random`` returns of them.
        otherwise: The rows of the first graph that the second is known to compute by another formula, which
            may be what is amplified.
    """
    taken, most, half = list[str](), 0.0, half_of(a, b)
    for pair in _explained(pairs, idle):
        place, step = placed(a, pair.a), pair.step
        if step is not None and step.draws >= 0:
            continue
        if step is not None and step.lost and step.by_cancelling:
            lost = f"Rounding takes up to {step.lost:.2g} where large numbers cancel there"
            yield f"{place} differs by {step.error:.2g} of its norm. {lost}, which hides other differences"
        elif step is not None and step.lost:
            taken.append(place)
            most = max(most, step.lost)
        elif pair.difference is not None and pair.difference.lopsided:
            yield f"{place} has a NaN or an infinity in one of both only, because rounding is amplified there"
        elif pair.by_depth and _relative(pair) > half:
            yield f"{place} differs by {_relative(pair):.2g} of its norm, and could not be run by itself"
        elif pair.by_depth and pair.smaller > half:
            norm = f"{pair.smaller:.2g} of the norm of its smaller numbers"
            yield f"{place} differs by {norm}, and could not be run by itself"
    if taken:
        yield f"rounding takes up to {most:.2g} of the norm of {listed(taken)}, which hides other differences"
    if drawn:
        names = listed([placed(a, row) for row in drawn])
        yield f"{names} {'draws' if len(drawn) == 1 else 'draw'} random numbers, which are others in each run"
    apart = [] if drawn else [pair for pair in _explained(pairs, idle) if _relative(pair) > half]
    for pair in apart:
        if a.ops.kind[pair.a] == OUTPUT:
            by = f"by {_relative(pair):.2g} of its norm"
            before = sorted({pair.a, *ancestors(a, [pair.a])}.intersection(otherwise))
            at = f"amplified at {placed(a, apart[0].a)}"
            if before:
                why = f"because {placed(a, before[0])} is computed otherwise"
                yield f"{a.label(pair.a)} differs {by}, {at}: not proven to be rounding, {why}"
            else:
                yield f"{a.label(pair.a)} differs {by}: rounding, {at}"


def drawn_at_random(pairs: Sequence[Pair], idle: Collection[int]) -> list[int]:
    """Return the rows of the first pass that draw random numbers by which the passes differ.

    Args:
        pairs: The pairs, with what was found.
        idle: The numbers of those that no output depends on.
    """
    steps = [pair.step for pair in _explained(pairs, idle) if pair.step is not None]
    return sorted({step.draws for step in steps} - {-1})


def judged_by_depth(a: Graph, pairs: Sequence[Pair], idle: Collection[int]) -> Iterator[str]:
    """Yield which tensors only the rounding that may add up with depth explains.

    Args:
        a: The first graph.
        pairs: The pairs, with what was found.
        idle: The numbers of those that no output depends on.
    """
    found = [placed(a, pair.a) for pair in _explained(pairs, idle) if pair.by_depth]
    if found:
        how = "by the rounding that may add up with depth, and where large numbers cancel, alone"
        why = "because the operations of one side could not be run on the tensors of the other"
        yield f"Judged {how}, {why}: {listed(found)}."


def _explained(pairs: Sequence[Pair], idle: Collection[int]) -> Iterator[Pair]:
    """Yield the pairs whose values differ by what rounding explains."""
    for number, pair in enumerate(pairs):
        if pair.verdict == "close" and number not in idle:
            yield pair


def _relative(pair: Pair) -> float:
    return 0.0 if pair.difference is None else pair.difference.relative


def half_of(*graphs: Graph) -> float:
    """Return the relative difference that half of the digits of the coarsest dtype of some graphs tell."""
    return half_of_digits(max((eps_of(meta.dtype) for graph in graphs for meta in graph.metas), default=0.0))
