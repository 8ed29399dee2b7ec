"""Judge a file step by step where nothing but depth explains a difference.

Rounding adds up with depth, and may excuse a fault late in a deep model. So the operations of the model since
the last tensors that both have are run on those of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.graph import OP, OUTPUT
from ..values.differences import ROUNDINGS
from ..values.elements import eps_of
from .pairs import CLOSE, DIFFERS, Pair, Pairs

if TYPE_CHECKING:
    from .steps import Steps


def judge_step_by_step(pairs: Pairs) -> dict[int, list[int]]:
    """Judge the pairs by themselves that depth alone excuses, if ``b`` is a file.

    The same for those that differ although the outputs do not, because what follows may make up for it. A
    pair that does not correspond differs as well, such as that of a mean with the sum of the other mean
    and an epsilon. But then what is computed from it does not, begun at what is before it.

    Args:
        pairs: The pairs, in which what is found is set.

    Returns:
        The numbers of the pairs inside of each step that is wrong, by the number of the pair where it ends.
    """
    calls, wrong = pairs.a.calls, dict[int, list[int]]()
    if not pairs.b.is_file or pairs.b.calls is not None:
        return wrong
    excused = [pair for pair in pairs if _is_excused(pairs, pair)]
    if calls is None:
        for pair in excused:
            pair.by_depth = True
        return wrong
    differing = [pair for pair in pairs if pair.is_source and pair.verdict == DIFFERS]
    sources = [pair for pair in differing if pairs.a.is_op(pair.a)] if pairs.outputs_agree() else []
    if not (excused or sources):
        return wrong
    from .steps import Steps

    close = pairs.agreeing() | {pair.a: pair.b for pair in sources}
    apart = {pair.a for pair in pairs if not pair.is_explained}
    steps = Steps(calls, pairs.b, close, apart, pairs.value_of_b)
    for pair in sorted([*excused, *sources], key=lambda pair: pair.a):
        step = steps.judge(pair.a)
        if step is None:
            pair.by_depth = pair.verdict == CLOSE
            continue
        if step.is_wrong and not _is_seen_after(pairs, pair, steps):
            steps.leave_out(pair.a)
            continue
        pair.isolated_error = step.error
        if not step.is_wrong:
            pair.step = pair.step or step
        else:
            pair.is_source = pair.proven = True
            pair.is_explained, pair.verdict = False, DIFFERS
            inside = {pairs.number_of_a[row] for row in step.region.rows}
            inside |= {pairs.number_of_b[row] for row in step.region.others}
            wrong[pairs.number_of_a[pair.a]] = sorted(inside)
    return wrong


def _is_excused(pairs: Pairs, pair: Pair) -> bool:
    """Return whether a result differs by more than the rounding of one operation explains."""
    if pair.verdict != CLOSE or pair.difference is None:
        return False
    if pairs.a.graph.ops.kind[pair.a] not in (OP, OUTPUT):
        return False
    dtypes = [side.graph.dtype_of(row) for side, row in pairs.sides(pair)]
    return max(pair.difference.relative, pair.smaller) > ROUNDINGS * max(map(eps_of, dtypes))


def _is_seen_after(pairs: Pairs, pair: Pair, steps: Steps) -> bool:
    """Return whether a wrong step also shows in what is computed from it, begun at what is before it.

    What does not agree itself shows nothing: what follows may make up for both, as a scatter does for the
    values and the indices of another order. An output shows itself.
    """
    graph = pairs.a.graph
    if graph.ops.kind[pair.a] == OUTPUT:
        return True
    results = {pairs.number_of_a[row] for row in graph.results_of(pair.a)}
    through = {n for n in results if not pairs[n].is_explained} | {pairs.number_of_a[pair.a]}
    waiting, ends = [*through], set[int]()
    while waiting:
        for n in pairs.children(pairs[waiting.pop()]) - through:
            if pairs[n].agrees:
                ends.add(n)
            else:
                through.add(n)
                waiting.append(n)
    without = {pairs[n].a for n in through}
    found = (steps.judge(pairs[n].a, without) for n in sorted(ends))
    return any(step is not None and step.is_wrong for step in found)
