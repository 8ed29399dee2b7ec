"""Pair the module calls of two passes whose tensors are paired, and find what ran only inside of them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ....core.analysis.alignment import in_order
from ....core.graph import INPLACE, OP, Graph
from ....core.vocabularies import common_type
from ....core.vocabularies.families import MOVES

#: The relative difference up to which the sums of two tensors are those of the same elements.
EQUAL_SUMS = 1e-6


class ModulePair(NamedTuple):
    """A module call of each pass that correspond to each other.

    Attributes:
        a: The call of ``a``.
        b: The call of ``b``.
        outputs: The numbers of the pairs of rows that both returned.
        unpaired: The numbers of the rows without a partner that ran inside, in no paired call further inside.
    """

    a: int
    b: int
    outputs: list[int]
    unpaired: list[int]


def pair_modules(a: Graph, b: Graph, pairs: Sequence[tuple[int, int]]) -> list[ModulePair]:
    """Pair the module calls of two graphs that returned paired rows.

    Several calls may return one row, such as a block and its last layer. Those with the same address
    are paired; the others from the outermost on if both graphs have equally many, and else not.

    Args:
        a: The first graph.
        b: The second graph.
        pairs: Pairs of rows, as ``align`` returns them.

    Returns:
        The paired calls, in the order in which those of ``a`` began.
    """
    partner: dict[int, int] = {}
    taken: set[int] = set()
    for i, j in pairs:
        if i < 0 or j < 0:
            continue
        free_a = [call for call in a.row_exits.get(i, ()) if call not in partner]
        free_b = [call for call in b.row_exits.get(j, ()) if call not in taken]
        for call, other in _matches(a, free_a, b, free_b):
            partner[call] = other
            taken.add(other)
    outputs: dict[int, list[int]] = {call: [] for call in partner}
    unpaired: dict[int, list[int]] = {call: [] for call in partner}
    call_of = {other: call for call, other in partner.items()}
    for number, (i, j) in enumerate(pairs):
        if i >= 0 and j >= 0:
            returned = set(b.row_exits.get(j, ()))
            for call in a.row_exits.get(i, ()):
                if partner.get(call) in returned:
                    outputs[call].append(number)
            continue
        around = a.enclosing_calls(i) if i >= 0 else [call_of.get(c, -1) for c in b.enclosing_calls(j)]
        inside = [call for call in around if call in partner]
        if inside:
            unpaired[inside[-1]].append(number)
    return [ModulePair(call, partner[call], outputs[call], unpaired[call]) for call in sorted(partner)]


def with_folded_norms(a: Graph, b: Graph, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return pairs in which a batch norm that only one side has is paired with what it was folded into.

    An export folds a batch norm into the convolution before it, whose result is then that of the batch norm.

    Args:
        a: The first graph.
        b: The second graph.
        pairs: Pairs of rows, as ``align`` returns them.
    """
    partner = {i: j for i, j in pairs if i >= 0 and j >= 0}
    folded: dict[int, int] = {}  # the batch norm to the convolution before it
    for norm in range(len(a.ops)):
        if a.type_of(norm) == "batch_norm" and norm not in partner and (before := a.parents(norm)):
            into = before[0]
            other = partner.get(into, -1)
            if other >= 0 and len(a.children(into)) == 1 and not b.type_of(other).startswith("batch_norm"):
                folded[norm] = into
    for norm, into in folded.items():
        partner[norm], partner[into] = partner[into], -1
    return [(i, partner.get(i, j)) for i, j in pairs]


def with_whole_outputs(a: Graph, b: Graph, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return pairs in which what a module returned is paired with what the same module returned.

    Rows are paired by what made them, so that an output may have gone to a step of another shape: an LSTM of
    ONNX makes one with an axis for the directions, which is transposed before the module returns it.

    Args:
        a: The first graph.
        b: The second graph.
        pairs: Pairs of rows, as ``align`` returns them.
    """
    partner = {i: j for i, j in pairs if i >= 0}
    taken = {j: i for i, j in partner.items() if j >= 0}
    returned: dict[str, list[tuple[int, int]]] = {}
    for call, rows in b.call_outputs.items():
        returned.setdefault(b.modules[int(b.calls.module[call])].address, []).extend((j, call) for j in rows)

    def fits(i: int, j: int) -> bool:
        return _shape(a, i) == _shape(b, j)

    def may_correspond(call: int, other: int) -> bool:
        """Return whether no row in a call of ``b`` is paired with one outside of a call of ``a``."""
        inside = range(int(b.calls.start[other]), int(b.calls.stop[other]))
        return all(call in a.enclosing_calls(taken[j]) for j in inside if j in taken)

    before = dict(partner)
    for i in sorted(a.row_exits):
        if partner.get(i, -1) >= 0 and fits(i, partner[i]):
            continue
        named = ((call, a.modules[int(a.calls.module[call])].address) for call in a.row_exits[i])
        free = {
            j
            for call, module in named
            if module
            for j, other in returned.get(module, ())
            if fits(i, j) and (j not in taken or not fits(taken[j], j)) and may_correspond(call, other)
        }
        if len(free) == 1:
            (j,) = free
            if j in taken:
                partner[taken[j]] = -1
            partner[i], taken[j] = j, i
    if partner == before:
        return list(pairs)
    return in_order([partner[i] for i in range(len(a.ops))], len(b.ops))


def with_returned(
    a: Graph,
    b: Graph,
    pairs: Sequence[tuple[int, int]],
    sums: tuple[np.ndarray, np.ndarray],
    *,
    any_layout: bool = False,
) -> list[tuple[int, int]]:
    """Return pairs in which what a module returned is not paired with a step inside of the same module.

    A layer without a bias returns its product, and one with a bias has that of the same values inside. What
    both return corresponds then, and differs. So it does where one pass calls the module later, and what it
    returns has no partner, or other numbers than what another module returned that it is paired with. Files
    are left out, which fold steps into others.

    Args:
        a: The first graph.
        b: The second graph.
        pairs: Pairs of rows, as ``align`` returns them.
        sums: The sums over the elements of each graph's rows, as ``align`` takes them.
        any_layout: As in ``align``.
    """
    if "format" in a.facts or "format" in b.facts:
        return list(pairs)
    partner = {i: j for i, j in pairs if i >= 0}
    taken = {j: i for i, j in partner.items() if j >= 0}
    calls = {b.call_address(call): call for call in b.call_outputs}
    before = dict(partner)
    for call, rows in a.call_outputs.items():
        address = a.call_address(call)
        others = b.call_outputs.get(calls.get(address, -1), ())
        if not address or len(rows) != 1 or len(others) != 1:
            continue
        (i,), (j,) = rows, others
        shapes = _shape(a, i), _shape(b, j)
        if not (shapes[0] == shapes[1] or (any_layout and _has_channels_moved(*shapes))):
            continue
        now, holder = partner.get(i, -1), taken.get(j, -1)
        if now == j:
            continue
        is_inside = now < 0 <= holder and int(a.ops.call[holder]) == call and holder not in a.row_exits
        if ":" not in address:  # the calls of a module may have another order
            are_apart = _are_apart(now in b.row_exits, i, now, sums)
            is_inside |= are_apart and _are_apart(holder in a.row_exits, holder, j, sums)
        is_inside |= holder < 0 <= now and int(b.ops.call[now]) == calls[address] and now not in b.row_exits
        if is_inside:
            partner[i] = j
            taken.pop(now, None)
            taken[j] = i
            if holder >= 0:
                partner[holder] = -1
    if partner == before:
        return list(pairs)
    return in_order([partner[i] for i in range(len(a.ops))], len(b.ops))


def _are_apart(is_returned: bool, i: int, j: int, sums: tuple[np.ndarray, np.ndarray]) -> bool:
    """Return whether a row has no partner, or one that another module returned, of other numbers.

    Args:
        is_returned: Whether the partner is what a module returned.
        i: The row of the first graph, or its partner; -1 if there is none.
        j: The row of the second graph, or its partner; -1 if there is none.
        sums: The sums over the elements of each graph's rows, as ``align`` takes them.
    """
    if min(i, j) < 0:
        return True
    one, other = sums[0][i], sums[1][j]
    return is_returned and not (np.abs(other - one) <= EQUAL_SUMS * one[[0, 1, 0]]).all()


def with_same_parameters(a: Graph, b: Graph, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return pairs in which operations of one type are paired that alone use a parameter of one address.

    Those have no partner yet, or one of another shape. A pass may add the positions after a norm, and the
    other before it, and the pairs keep one of both orders.

    Args:
        a: The first graph.
        b: The second graph.
        pairs: Pairs of rows, as ``align`` returns them.
    """
    if "format" in a.facts or "format" in b.facts:
        return list(pairs)
    partner = {i: j for i, j in pairs if i >= 0}
    apart = [(i, j) for i, j in pairs if min(i, j) < 0 or _shape(a, i) != _shape(b, j)]
    left = [i for i, _ in apart if i >= 0], [j for _, j in apart if j >= 0]
    users: tuple[dict[Hashable, list[int]], dict[Hashable, list[int]]] = {}, {}
    for graph, rows, found in zip((a, b), left, users, strict=True):
        for row in (row for row in rows if row in graph.row_params):
            names = tuple(graph.params[number].address for number in graph.row_params[row])
            found.setdefault((names, common_type(graph, row), _shape(graph, row)), []).append(row)
    single = [(users[0][key], users[1][key]) for key in users[0] if key in users[1]]
    found_pairs = {i[0]: j[0] for i, j in single if len(i) == len(j) == 1}
    if not found_pairs:
        return list(pairs)
    others = {*found_pairs.values()}
    partner = {i: -1 if j in others else j for i, j in partner.items()} | found_pairs
    return in_order([partner[i] for i in range(len(a.ops))], len(b.ops))


def _has_channels_moved(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether a shape is that of the other with its channels last instead of first, or so in turn."""
    is_image = len(one) == len(other) > 2
    return is_image and ((one[0], *one[2:], one[1]) == other or (other[0], *other[2:], other[1]) == one)


def with_moved_results(
    a: Graph, b: Graph, pairs: Sequence[tuple[int, int]], sums: tuple[np.ndarray, np.ndarray]
) -> list[tuple[int, int]]:
    """Return pairs in which a result that a file makes in another shape is paired with what moves it there.

    A file computes a linear layer on the rows of a matrix, and an LSTM with an axis for the directions, and
    gives the result its shape afterwards. An optimized one may leave out the last transposition, so that only
    the order of the axes is another. What the model moves such a result to has no partner then, nor has what
    it writes into a part of a tensor, if the file has the part alone.

    Args:
        a: The first graph.
        b: The second graph.
        pairs: Pairs of rows, as ``align`` returns them.
        sums: The sums over the elements of each graph's rows, as ``align`` takes them.
    """
    partner = {i: j for i, j in pairs if i >= 0}
    taken = {j: i for i, j in partner.items() if j >= 0}
    moved: set[int] = set()
    for i in sorted(partner) if "format" in b.facts else ():
        j = partner[i] if partner[i] >= 0 else _same_elements(a, i, b, taken, sums)
        if j < 0 or a.ops.kind[i] != OP or b.ops.kind[j] != OP or _shape(a, i) == _shape(b, j):
            continue
        if a.type_of(i) in MOVES:
            apart = math.prod(_shape(a, i)) != math.prod(_shape(b, j)) and b.type_of(j) in MOVES
            of_others = apart and {partner[one] for one in a.parents(i)}.isdisjoint(b.parents(j))
            if of_others or (apart and a.ops.flags[i] & INPLACE) or not moved.isdisjoint(a.parents(i)):
                partner[i] = -1
                moved.add(i)
                taken.pop(j)
            continue
        free = [n for n in _moves_of(b, j) if n not in taken or _shape(a, taken[n]) != _shape(b, n)]
        same = [n for n in free if _shape(b, n) == _shape(a, i)]
        turned = [n for n in free if sorted(_shape(b, n)) == sorted(_shape(a, i))]
        if found := (same or turned):
            taken.pop(j, None)
            if found[-1] in taken:
                partner[taken[found[-1]]] = -1
            partner[i], taken[found[-1]] = found[-1], i
            moved.add(i)
    return in_order([partner[i] for i in range(len(a.ops))], len(b.ops)) if moved else list(pairs)


def _same_elements(
    a: Graph, i: int, b: Graph, taken: Mapping[int, int], sums: tuple[np.ndarray, np.ndarray]
) -> int:
    """Return the only operation without a partner that computes the elements of a row; -1 if none does."""
    size, own = math.prod(_shape(a, i)), sums[0][i]
    if a.ops.kind[i] != OP or a.type_of(i) in MOVES or not np.isfinite(own).all() or not own[0]:
        return -1
    near = np.flatnonzero((np.abs(sums[1] - own) <= EQUAL_SUMS * own[[0, 1, 0]]).all(axis=-1)).tolist()
    found = [
        j
        for j in near
        if b.ops.kind[j] == OP and b.type_of(j) not in MOVES and math.prod(_shape(b, j)) == size
    ]
    return found[0] if len(found) == 1 and found[0] not in taken else -1


def _moves_of(graph: Graph, row: int) -> list[int]:
    """Return the rows that only move the elements of a row, all of them, in order."""
    waiting, found = [row], set[int]()
    size = math.prod(_shape(graph, row))
    while waiting:
        following = {child for child in graph.children(waiting.pop()) if graph.type_of(child) in MOVES}
        following = {child for child in following if math.prod(_shape(graph, child)) == size} - found
        found |= following
        waiting += following
    return sorted(found)


def _shape(graph: Graph, row: int) -> tuple[int, ...]:
    return graph.metas[int(graph.ops.meta[row])].shape


def _matches(a: Graph, calls: Sequence[int], b: Graph, others: Sequence[int]) -> list[tuple[int, int]]:
    """Return the pairs of two lists of calls, innermost first, that returned the same row."""
    by_address = {b.call_address(other): other for other in others}
    same = [(call, by_address[a.call_address(call)]) for call in calls if a.call_address(call) in by_address]
    paired_a, paired_b = {call for call, _ in same}, {other for _, other in same}
    left_a = [call for call in calls if call not in paired_a]
    left_b = [other for other in others if other not in paired_b]
    return [*same, *(zip(left_a, left_b, strict=True) if len(left_a) == len(left_b) else ())]
