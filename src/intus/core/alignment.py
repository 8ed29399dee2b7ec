"""Which tensor of one pass is which of another: pairs of rows of two graphs.

Two passes of one architecture fall together row by row. Two implementations share what their tensors are:
type, shape, the module they ran in or are the output of, parameters, and, where values are at hand, what
they hold. Each common trait weighs, and the pairs are the heaviest common subsequence of the two (Needleman
and Wunsch, J. Mol. Biol. 1970, without a price for gaps); what ran in another order is then found as the
children of what is paired.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .graph import INPUT, OUTPUT, Graph

_NEAREST = 1e-6
_LEFT = 64
_MOST = 200_000_000  # cells of one table: a second or two, and 50 MB of bits


@dataclass(frozen=True, slots=True)
class _Traits:
    """Columns, one row per tensor. Equal numbers mean the same in both graphs, -1 that there is none;
    ``size`` is the number of elements, ``held`` what it holds (see ``align``), NaN where unknown."""

    kind: np.ndarray
    type: np.ndarray
    shape: np.ndarray
    module: np.ndarray
    inner: np.ndarray
    outer: np.ndarray
    params: np.ndarray
    taken: np.ndarray
    size: np.ndarray
    held: np.ndarray


def align(
    a: Graph, b: Graph, held: tuple[np.ndarray, np.ndarray] | None = None, *, near: float = 1e-3
) -> list[tuple[int, int]]:
    """Pairs (row of ``a``, row of ``b``); -1 stands where one has no partner. Every row stands once.

    ``held`` are two float arrays (rows, 3) with Σ|x|, Σx² and Σx of every saved tensor (NaN: not saved),
    which tell equal tensors whatever made them; ``near`` is how far apart, relatively, these may be. Pairs
    come in the order of ``a``, and what is only in ``b`` before what it led to.
    """
    numbers: dict[object, int] = {}
    if held is None:
        held = np.full((len(a.ops), 3), np.nan), np.full((len(b.ops), 3), np.nan)
    mine, theirs = _traits(a, numbers, held[0]), _traits(b, numbers, held[1])
    partner = np.full(len(a.ops), -1)
    if _same(mine, theirs):
        partner = np.arange(len(a.ops))
    else:
        for i, j in _between(mine, theirs, near):
            partner[i] = j
        _by_structure(a, b, mine, theirs, partner)
    return _in_order(partner.tolist(), len(b.ops))


def _traits(graph: Graph, numbers: dict[object, int], held: np.ndarray) -> _Traits:
    def column(values: list[object]) -> np.ndarray:
        found = [-1 if v in ("", ()) else numbers.setdefault(v, len(numbers)) for v in values]
        return np.array(found, dtype=np.int64)

    ops, rows = graph.ops, range(len(graph.ops))
    addresses = [graph.call_address(call) for call in range(len(graph.calls))]
    exits = [graph.row_exits.get(row, ()) for row in rows]
    params = [graph.row_params.get(row, ()) for row in rows]
    shapes = [graph.metas[meta].shape for meta in ops.meta.tolist()]
    return _Traits(
        kind=ops.kind.astype(np.int64),
        type=column([("type", graph.types[type_]) for type_ in ops.type.tolist()]),
        shape=column([("shape", shape) for shape in shapes]),
        module=column([("in", addresses[call]) if call >= 0 else "" for call in ops.call.tolist()]),
        inner=column([("of", addresses[calls[0]]) if calls else "" for calls in exits]),
        outer=column([("of", addresses[calls[-1]]) if calls else "" for calls in exits]),
        params=column([tuple(graph.params[p].address for p in used) for used in params]),
        taken=column([tuple(sorted(tuple(sorted(graph.params[p].shape)) for p in used)) for used in params]),
        size=np.array([int(np.prod(shape)) for shape in shapes], dtype=np.int64),
        held=held,
    )


def _same(a: _Traits, b: _Traits) -> bool:
    """Whether both are passes of one architecture on one way through it."""
    return len(a.kind) == len(b.kind) and all(
        bool((getattr(a, name) == getattr(b, name)).all()) for name in ("kind", "type", "module", "inner")
    )


def _between(a: _Traits, b: _Traits, near: float) -> list[tuple[int, int]]:
    """The heaviest common subsequence; what is wholly alike at both ends, or only once in each, is fixed."""
    columns = ("kind", "type", "shape", "module", "inner")
    keys = [list(zip(*(getattr(t, name).tolist() for name in columns), strict=True)) for t in (a, b)]
    found: list[tuple[int, int]] = []
    waiting = [(0, len(keys[0]), 0, len(keys[1]))]
    while waiting:
        low, high, first, last = waiting.pop()
        head, tail = _alike_at_both_ends(keys[0][low:high], keys[1][first:last])
        found += [(low + n, first + n) for n in range(head)]
        found += [(high - 1 - n, last - 1 - n) for n in range(tail)]
        low, first, high, last = low + head, first + head, high - tail, last - tail
        if (high - low) * (last - first) <= _MOST:
            found += _heaviest(a, b, (low, high), (first, last), near)
            continue
        fixed = _anchors(keys[0][low:high], keys[1][first:last]) or [((high - low) // 2, (last - first) // 2)]
        cuts = [(low, first), *((low + i, first + j) for i, j in fixed), (high, last)]
        waiting += [(i, k, j, m) for (i, j), (k, m) in pairwise(cuts)]
    return found


def _alike_at_both_ends(a: list[tuple[int, ...]], b: list[tuple[int, ...]]) -> tuple[int, int]:
    """How many are alike from the beginning, and from the end of the rest. Next to what is not alike a few
    are left, since values may tell better: of three alike where there were two, which is new?

    >>> _alike_at_both_ends([(1,)] * 100, [(1,)] * 100), _alike_at_both_ends([(1,)] * 100, [(1,)] * 101)
    ((100, 0), (36, 0))
    """
    least = min(len(a), len(b))
    head = next((n for n in range(least) if a[n] != b[n]), least)
    if head == len(a) == len(b):
        return head, 0
    tail = next((n for n in range(least - head) if a[-1 - n] != b[-1 - n]), least - head)
    return max(0, head - _LEFT), max(0, tail - _LEFT)


def _anchors(a: list[tuple[int, ...]], b: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Places of what is once in each, as many as stand in the same order (patience sorting).

    >>> _anchors([(1,), (2,), (2,), (3,)], [(2,), (3,), (1,), (4,)])
    [(3, 1)]
    """
    once: list[dict[tuple[int, ...], int]] = []
    for side in (a, b):
        counts: dict[tuple[int, ...], list[int]] = {}
        for place, key in enumerate(side):
            counts.setdefault(key, []).append(place)
        once.append({key: places[0] for key, places in counts.items() if len(places) == 1})
    both = sorted((place, once[1][key]) for key, place in once[0].items() if key in once[1])
    ends: list[int] = []  # the least end of an increasing run of each length
    tops: list[int] = []
    before: list[int] = []
    for number, (_, j) in enumerate(both):
        at = bisect_left(ends, j)
        before.append(tops[at - 1] if at else -1)
        ends[at:], tops[at:] = [j, *ends[at + 1 :]], [number, *tops[at + 1 :]]
    run, number = [], tops[-1] if tops else -1
    while number >= 0:
        run.append(both[number])
        number = before[number]
    return [pair for pair in reversed(run) if pair != (0, 0)]


def _heaviest(
    a: _Traits, b: _Traits, rows: tuple[int, int], others: tuple[int, int], near: float
) -> list[tuple[int, int]]:
    """The heaviest common subsequence of two stretches, by the whole table of the stretches' beginnings."""
    (low, high), (first, last) = rows, others
    best = np.zeros(last - first + 1, dtype=np.int64)
    ups, lefts = [], []  # whether a cell is as heavy as the one above, and as the one on its left
    for i in range(low, high):
        weight = _weights(a, i, b, slice(first, last), near)
        above, best = best, best.copy()
        np.maximum(above[1:], np.where(weight > 0, above[:-1] + weight, 0), out=best[1:])
        np.maximum.accumulate(best, out=best)
        ups.append(np.packbits(best[1:] == above[1:]))
        lefts.append(np.packbits(best[1:] == best[:-1]))
    found, i, j = [], high - low - 1, last - first - 1
    while i >= 0 and j >= 0:
        if ups[i][j >> 3] >> (7 - (j & 7)) & 1:
            i -= 1
        elif lefts[i][j >> 3] >> (7 - (j & 7)) & 1:
            j -= 1
        else:
            found.append((low + i, first + j))
            i, j = i - 1, j - 1
    return found


def _weights(a: _Traits, i: int, b: _Traits, part: slice, near: float) -> np.ndarray:
    """How much speaks for row ``i`` of ``a`` being each of these rows of ``b``; 0 where it cannot be."""

    def same(name: str) -> np.ndarray:
        mine = getattr(a, name)[i]
        found: np.ndarray = (getattr(b, name)[part] == mine) & (mine >= 0)
        return found

    kind, type_, shape, module = same("kind"), same("type"), same("shape"), same("module")
    returned = same("inner") | same("outer")
    size = b.size[part] == a.size[i]
    alike = np.zeros(len(size), dtype=np.int64)  # 1 where near, 2 where nearer than any change would be
    if not np.isnan(a.held[i, 0]):
        apart, scale = np.abs(b.held[part] - a.held[i]), a.held[i, [0, 1, 0]]
        alike = size * sum((apart <= by * scale).all(axis=1).astype(int) for by in (near, _NEAREST))
    if a.kind[i] in (INPUT, OUTPUT):
        can = kind
    else:
        ends = (b.kind[part] == INPUT) | (b.kind[part] == OUTPUT)
        can = (kind & (type_ | returned | (same("taken") & size)) | ((alike > 0) & shape)) & ~ends
    weight = 2 * type_ + shape + 3 * module + 3 * returned + 4 * same("params") + 3 * alike + 1
    return np.where(can, weight, 0)


def _by_structure(a: Graph, b: Graph, mine: _Traits, theirs: _Traits, partner: np.ndarray) -> None:
    """Pair what is left with an alike child of its parents' partners: it ran in another order."""
    taken = set(partner[partner >= 0].tolist())
    for row in np.flatnonzero((partner < 0) & (mine.kind != INPUT) & (mine.kind != OUTPUT)).tolist():
        parents = [int(partner[parent]) for parent in a.parents(row)]
        if not parents or min(parents) < 0:
            continue
        free = [
            other
            for other in b.children(parents[0])
            if other not in taken
            and (theirs.type[other], theirs.shape[other]) == (mine.type[row], mine.shape[row])
            and b.parents(other) == parents
        ]
        if free:
            with np.errstate(invalid="ignore"):
                apart = np.nan_to_num(np.abs(theirs.held[free] - mine.held[row]).sum(axis=1), nan=np.inf)
            partner[row] = free[int(apart.argmin())]
            taken.add(int(partner[row]))


def _in_order(partner: list[int], count: int) -> list[tuple[int, int]]:
    """All rows as pairs: those of the first in order, and what only the second has before its next pair.

    >>> _in_order([0, -1, 2], 4)
    [(0, 0), (1, -1), (-1, 1), (2, 2), (-1, 3)]
    """
    paired = {j for j in partner if j >= 0}
    pairs: list[tuple[int, int]] = []
    done = 0
    for i, j in enumerate(partner):
        if j >= 0:
            pairs += [(-1, other) for other in range(done, j) if other not in paired]
            done = max(done, j + 1)
        pairs.append((i, j))
    return pairs + [(-1, other) for other in range(done, count) if other not in paired]
