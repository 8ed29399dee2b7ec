"""Align the tensors of two forward passes: pairs of rows of two graphs.

Two passes of one architecture match row by row. Two implementations of it share traits of their tensors:
type, shape, the module they ran in or are the output of, parameters and, where values were saved, sums over
the values. Each shared trait adds a weight, and the pairs are the heaviest common subsequence of the two
passes (Needleman and Wunsch, J. Mol. Biol. 1970, without a gap penalty). The calls of a module that is called
repeatedly are then paired by what they were called on, and operations that ran in a different order if their
parents are paired or their values are equal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..graph import BUFFER, INPUT, OP, OUTPUT, Graph
from ..vocabularies.roles import role_of
from .modules import same_modules

_EQUAL = 1e-6  # relative difference below which two sums count as equal
_FOLDED = 2.0**-22  # the same of a value that one side computes and the other holds
_MARGIN = 64  # equal rows next to a difference that are aligned by weight
_MOST_CELLS = 200_000_000  # of one table: a second or two, and 50 MB of bits


@dataclass(frozen=True, slots=True)
class _Traits:
    """The traits of every tensor of a graph, as columns with one entry per row.

    Equal numbers mean the same in both graphs; -1 means that the trait is absent.

    Attributes:
        kind: Index into ``OP_KINDS``.
        type: The operation type.
        shape: The shape.
        moved: The same with the last axis as the second, and the other way around; -1 if layouts are one.
        module: The module call it ran in.
        inner: The innermost module call that returned it.
        outer: The outermost module call that returned it.
        layer: The module of ``inner``, whichever of its calls it was.
        params: The addresses of the parameters that its operation used.
        param_shapes: The shapes of these parameters, regardless of the order of their axes.
        size: The number of elements.
        sums: See ``align``; NaN where the value was not saved.
        role: The role of a buffer in its layer, as its name tells.
        apart: See ``align``.
    """

    kind: np.ndarray
    type: np.ndarray
    shape: np.ndarray
    moved: tuple[np.ndarray, np.ndarray]
    module: np.ndarray
    inner: np.ndarray
    outer: np.ndarray
    layer: np.ndarray
    params: np.ndarray
    param_shapes: np.ndarray
    size: np.ndarray
    sums: np.ndarray
    role: np.ndarray
    apart: np.ndarray


def align(
    a: Graph,
    b: Graph,
    sums: tuple[np.ndarray, np.ndarray] | None = None,
    *,
    near: float = 1e-3,
    any_layout: bool = False,
    apart: tuple[np.ndarray, np.ndarray] | None = None,
) -> list[tuple[int, int]]:
    """Align the rows of two graphs.

    Args:
        a: The first graph.
        b: The second graph.
        sums: For each graph a float array of shape (rows, 3) with Σ|x|, Σx² and Σx of every saved tensor, NaN
            where it was not saved. Equal sums identify equal tensors, whichever operation made them. None if
            no values are known.
        near: The largest relative difference of sums that count as close.
        any_layout: Whether a tensor may have its channels first in one graph and last in the other.
        apart: For each graph a number of every row, -1 for none. Rows with two numbers have nothing in
            common, whatever their values. None if no rows have one.

    Returns:
        Pairs (row of ``a``, row of ``b``), with -1 where a row has no partner. Every row appears once. Pairs
        are in the order of ``a``; rows that only ``b`` has come before the pair that follows them in ``b``.
    """
    ids: dict[object, int] = {}
    if sums is None:
        sums = np.full((len(a.ops), 3), np.nan), np.full((len(b.ops), 3), np.nan)
    groups = (None, None) if apart is None else apart
    addresses = _addresses(a, {}), _addresses(b, same_modules(a, b))
    unequal = _called_otherwise(*addresses)
    traits_a, traits_b = (
        _traits(
            graph,
            ids,
            sums[side],
            [_comparable(one, unequal) for one in addresses[side]],
            any_layout and side == 1,
            groups[side],
        )
        for side, graph in enumerate((a, b))
    )
    partner = np.full(len(a.ops), -1)
    if _same(traits_a, traits_b):
        partner = np.arange(len(a.ops))
    else:
        for i, j in _between(traits_a, traits_b, near):
            partner[i] = j
        _by_calls(a, b, traits_a, traits_b, partner, near)
        _by_structure(a, b, traits_a, traits_b, partner)
        _by_values(traits_a, traits_b, partner)
    return in_order(partner.tolist(), len(b.ops))


def _traits(
    graph: Graph,
    ids: dict[object, int],
    sums: np.ndarray,
    addresses: Sequence[str],
    any_layout: bool = False,
    apart: np.ndarray | None = None,
) -> _Traits:
    def column(values: list[object]) -> np.ndarray:
        numbers = [-1 if v in ("", ()) else ids.setdefault(v, len(ids)) for v in values]
        return np.array(numbers, dtype=np.int64)

    ops, rows = graph.ops, range(len(graph.ops))
    exits = [graph.row_exits.get(row, ()) for row in rows]
    params = [graph.row_params.get(row, ()) for row in rows]
    shapes = [graph.metas[meta].shape for meta in ops.meta.tolist()]
    return _Traits(
        kind=ops.kind.astype(np.int64),
        type=column([("type", graph.types[type_]) for type_ in ops.type.tolist()]),
        shape=column([("shape", shape) for shape in shapes]),
        moved=(
            column([("shape", (s[0], s[-1], *s[1:-1])) if any_layout and len(s) > 2 else "" for s in shapes]),
            column([("shape", (s[0], *s[2:], s[1])) if any_layout and len(s) > 2 else "" for s in shapes]),
        ),
        module=column([("in", addresses[call]) if call >= 0 else "" for call in ops.call.tolist()]),
        inner=column([("of", addresses[calls[0]]) if calls else "" for calls in exits]),
        outer=column([("of", addresses[calls[-1]]) if calls else "" for calls in exits]),
        layer=column([("layer", addresses[calls[0]].partition(":")[0]) if calls else "" for calls in exits]),
        params=column([tuple(graph.params[p].address for p in used) for used in params]),
        param_shapes=column(
            [tuple(sorted(tuple(sorted(graph.params[p].shape)) for p in used)) for used in params]
        ),
        size=np.array([int(np.prod(shape)) for shape in shapes], dtype=np.int64),
        sums=sums,
        role=column(
            [
                ("role", role) if kind == BUFFER and (role := role_of(graph.state_address(row))) else ""
                for row, kind in enumerate(ops.kind.tolist())
            ]
        ),
        apart=np.full(len(ops), -1) if apart is None else apart,
    )


def _addresses(graph: Graph, names: Mapping[str, str]) -> list[str]:
    """Return the addresses of all calls of modules, under other names of these."""
    return [_renamed(graph.call_address(call), names) for call in range(len(graph.calls))]


def _called_otherwise(a: Sequence[str], b: Sequence[str]) -> set[str]:
    """Return the modules that two passes call another number of times.

    An export computes the calls that no input has an effect on, so that its first call is no first one.

    >>> _called_otherwise(["", "fc:1", "fc:2", "act"], ["", "fc", "act"])
    {'fc'}
    """
    counts = [Counter(address.partition(":")[0] for address in some) for some in (a, b)]
    return {module for module in counts[0] & counts[1] if counts[0][module] != counts[1][module]}


def _comparable(address: str, unequal: Collection[str]) -> str:
    """Return the address of a call, without its number if those of the other pass are others."""
    module = address.partition(":")[0]
    return module if module in unequal else address


def _renamed(address: str, names: Mapping[str, str]) -> str:
    """Return the address of a call under another name of its module."""
    module, colon, number = address.partition(":")
    return names.get(module, module) + colon + number


def _same(a: _Traits, b: _Traits) -> bool:
    """Return whether both graphs are passes of one architecture along the same branches."""
    return len(a.kind) == len(b.kind) and all(
        bool((getattr(a, name) == getattr(b, name)).all()) for name in ("kind", "type", "module", "inner")
    )


def _between(a: _Traits, b: _Traits, near: float) -> list[tuple[int, int]]:
    """Return the heaviest common subsequence, approximately for long passes.

    Equal rows at both ends are fixed first. If the rest is still too large for one table, it is cut at rows
    that are unique in both.
    """
    columns = ("kind", "type", "shape", "module", "inner")
    keys = [list(zip(*(getattr(t, name).tolist() for name in columns), strict=True)) for t in (a, b)]
    pairs: list[tuple[int, int]] = []
    pending = [(0, len(keys[0]), 0, len(keys[1]))]
    while pending:
        start_a, stop_a, start_b, stop_b = pending.pop()
        head, tail = _equal_ends(keys[0][start_a:stop_a], keys[1][start_b:stop_b])
        pairs += [(start_a + n, start_b + n) for n in range(head)]
        pairs += [(stop_a - 1 - n, stop_b - 1 - n) for n in range(tail)]
        start_a, start_b, stop_a, stop_b = start_a + head, start_b + head, stop_a - tail, stop_b - tail
        if (stop_a - start_a) * (stop_b - start_b) <= _MOST_CELLS:
            pairs += _heaviest(a, b, (start_a, stop_a), (start_b, stop_b), near)
            continue
        halves = (stop_a - start_a) // 2, (stop_b - start_b) // 2
        fixed = _anchors(keys[0][start_a:stop_a], keys[1][start_b:stop_b]) or [halves]
        cuts = [(start_a, start_b), *((start_a + i, start_b + j) for i, j in fixed), (stop_a, stop_b)]
        pending += [(i, k, j, m) for (i, j), (k, m) in pairwise(cuts)]
    return pairs


def _equal_ends(a: list[tuple[int, ...]], b: list[tuple[int, ...]]) -> tuple[int, int]:
    """Count the equal rows at the beginning, and at the end of the rest.

    ``_MARGIN`` equal rows next to a difference are not counted: their values may decide better which row was
    inserted (of three equal rows where there were two, say).

    >>> _equal_ends([(1,)] * 100, [(1,)] * 100), _equal_ends([(1,)] * 100, [(1,)] * 101)
    ((100, 0), (36, 0))
    """
    least = min(len(a), len(b))
    head = next((n for n in range(least) if a[n] != b[n]), least)
    if head == len(a) == len(b):
        return head, 0
    tail = next((n for n in range(least - head) if a[-1 - n] != b[-1 - n]), least - head)
    return max(0, head - _MARGIN), max(0, tail - _MARGIN)


def _anchors(a: list[tuple[int, ...]], b: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Return the positions of keys that are unique in both, as many as have the same order.

    Uses patience sorting.

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
    ends: list[int] = []  # the smallest end of an increasing run of each length
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
    a: _Traits, b: _Traits, rows_a: tuple[int, int], rows_b: tuple[int, int], near: float
) -> list[tuple[int, int]]:
    """Return the heaviest common subsequence of two ranges of rows, by dynamic programming."""
    (start_a, stop_a), (start_b, stop_b) = rows_a, rows_b
    best = np.zeros(stop_b - start_b + 1, dtype=np.int64)
    same_as_above, same_as_left = [], []  # whether a cell equals the one above, and the one on its left
    for i in range(start_a, stop_a):
        weight = _weights(a, i, b, slice(start_b, stop_b), near)
        above, best = best, best.copy()
        np.maximum(above[1:], np.where(weight > 0, above[:-1] + weight, 0), out=best[1:])
        np.maximum.accumulate(best, out=best)
        same_as_above.append(np.packbits(best[1:] == above[1:]))
        same_as_left.append(np.packbits(best[1:] == best[:-1]))
    pairs, i, j = [], stop_a - start_a - 1, stop_b - start_b - 1
    while i >= 0 and j >= 0:
        if same_as_above[i][j >> 3] >> (7 - (j & 7)) & 1:
            i -= 1
        elif same_as_left[i][j >> 3] >> (7 - (j & 7)) & 1:
            j -= 1
        else:
            pairs.append((start_a + i, start_b + j))
            i, j = i - 1, j - 1
    return pairs


def _weights(a: _Traits, i: int, b: _Traits, part: slice, near: float) -> np.ndarray:
    """Return the weight of pairing row ``i`` of ``a`` with each of these rows of ``b``; 0 where excluded."""

    def same(name: str) -> np.ndarray:
        value = getattr(a, name)[i]
        equal: np.ndarray = (getattr(b, name)[part] == value) & (value >= 0)
        return equal

    kind, type_, shape, module = same("kind"), same("type"), _fit(a, i, b, part), same("module")
    returned = same("inner") | same("outer")
    size = b.size[part] == a.size[i]
    close = np.zeros(len(size), dtype=np.int64)  # 1 if close, 2 if equal up to rounding
    if not np.isnan(a.sums[i, 0]):
        close = size * sum(_agree(a, i, b, part, by).astype(int) for by in (near, _EQUAL))
        # A variance is near what a batch norm computes of it, variance + eps, but it is not the same tensor.
        close *= ((b.kind[part] == OP) == (a.kind[i] == OP)) | _agree(a, i, b, part, _FOLDED)
    if a.kind[i] in (INPUT, OUTPUT):
        allowed = kind
    else:
        ends = (b.kind[part] == INPUT) | (b.kind[part] == OUTPUT)
        is_alike = type_ | returned | (same("param_shapes") & size) | (same("role") & shape)
        allowed = ((kind & is_alike) | ((close > 0) & shape)) & ~ends
    # Of several equal tensors in a row, that which a module returns corresponds to the same.
    both_returned = (b.inner[part] >= 0) & (a.inner[i] >= 0)
    weight = (
        2 * type_ + shape + 3 * module + 3 * returned + both_returned + 4 * same("params") + 3 * close + 1
    )
    return np.where(allowed & ~_are_apart(a, i, b, part), weight, 0)


def _are_apart(a: _Traits, i: int, b: _Traits, part: slice | int | np.ndarray) -> np.ndarray:
    """Return whether row ``i`` and each of these rows have nothing in common: roles, or as ``align`` says."""
    apart: np.ndarray = np.zeros(np.shape(b.apart[part]), dtype=bool)
    for own, others in ((a.role[i], b.role[part]), (a.apart[i], b.apart[part])):
        apart |= (own >= 0) & (others >= 0) & (others != own)
    return apart


def _fit(a: _Traits, i: int | slice, b: _Traits, part: slice | int | np.ndarray) -> np.ndarray:
    """Return whether the shape of row ``i`` is that of each of these rows of ``b``, whatever their layout."""
    fit: np.ndarray = b.shape[part] == a.shape[i]
    fit |= (b.moved[0][part] == a.shape[i]) | (b.moved[1][part] == a.shape[i])
    return fit


def _agree(a: _Traits, i: int, b: _Traits, part: slice | int | np.ndarray, by: float) -> np.ndarray:
    """Return whether the sums of row ``i`` and of each of these rows differ by at most this part of them.

    Those of a tensor with an infinity tell nothing: any number is within a part of infinity.
    """
    sums = a.sums[i] if np.isfinite(a.sums[i]).all() else np.full(3, np.nan)
    agree: np.ndarray = (np.abs(b.sums[part] - sums) <= by * sums[[0, 1, 0]]).all(axis=-1)
    return agree


def _by_calls(
    a: Graph, b: Graph, traits_a: _Traits, traits_b: _Traits, partner: np.ndarray, near: float
) -> None:
    """Pair the calls of a module, or the uses of a parameter, that were made on paired tensors.

    The passes may call other modules in between in another order, as an exported file does, and then the
    heaviest common subsequence may have paired the first call of one with the second of the other. A pair of
    equal values stays, unless that of the call on the same tensor is equal too.
    """
    keys_a, keys_b = _call_keys(traits_a), _call_keys(traits_b)
    rows_b: dict[tuple[int, ...], list[int]] = {}
    for row, key in enumerate(keys_b):
        rows_b.setdefault(key, []).append(row)
    counts = Counter(keys_a)
    repeated = {
        key for key, count in counts.items() if max(key[:2]) >= 0 and min(count, len(rows_b.get(key, ()))) > 1
    }
    if not repeated:
        return
    taken = {int(j): i for i, j in enumerate(partner) if j >= 0}
    moved, displaced = set[int](), set[int]()

    def called_on(row: int) -> set[int]:
        """Return the rows of ``b`` that correspond to those which a row of ``a`` was computed from."""
        return {int(partner[i]) for i in _nearest(a, row, lambda i: partner[i] >= 0)}

    for row, key in enumerate(keys_a):
        if key not in repeated and moved.isdisjoint(a.parents(row)):
            continue
        given, now = called_on(row), int(partner[row])
        if not given or (now >= 0 and set(_nearest(b, now, taken.__contains__)) == given):
            continue
        for other in rows_b.get(key, ()):
            holder = taken.get(other, -1)
            if holder >= 0 and (keys_a[holder] != key or called_on(holder) == given):
                continue
            if set(_nearest(b, other, taken.__contains__)) != given:
                continue
            if now >= 0 and _agree(traits_a, row, traits_b, now, near) > _agree(
                traits_a, row, traits_b, other, near
            ):
                continue
            partner[row], taken[other] = other, row
            moved.add(row)
            if holder >= 0:
                partner[holder] = now
                displaced.add(holder)
            if now >= 0 and holder >= 0:
                taken[now] = holder
            else:
                taken.pop(now, None)
            break
    for row in sorted(displaced - moved):  # the last call of the file is none of what it leaves out, say
        now = int(partner[row])
        if now >= 0 and called_on(row) != set(_nearest(b, now, taken.__contains__)):
            partner[row] = now if _agree(traits_a, row, traits_b, now, near) else -1


def _call_keys(traits: _Traits) -> list[tuple[int, ...]]:
    """Return the module that returned each row, or else its parameters and type; and its shape."""
    return [
        (layer, params if layer < 0 else -1, type_ if layer < 0 else -1, shape)
        for layer, params, type_, shape in zip(
            traits.layer.tolist(),
            traits.params.tolist(),
            traits.type.tolist(),
            traits.shape.tolist(),
            strict=True,
        )
    ]


def _nearest(graph: Graph, row: int, paired: Callable[[int], bool]) -> list[int]:
    """Return the nearest paired inputs and operations that a row was computed from, at most 64 rows away."""
    waiting, seen, found = list(graph.parents(row)), set[int](), []
    while waiting and len(seen) < _MARGIN:
        parent = waiting.pop()
        if parent in seen or graph.ops.kind[parent] not in (OP, INPUT):
            continue
        seen.add(parent)
        if paired(parent):
            found.append(parent)
        else:
            waiting += graph.parents(parent)
    return found


def _by_structure(a: Graph, b: Graph, traits_a: _Traits, traits_b: _Traits, partner: np.ndarray) -> None:
    """Pair each remaining row with an equal child of its parents' partners."""
    used = set(partner[partner >= 0].tolist())
    for row in np.flatnonzero((partner < 0) & (traits_a.kind != INPUT) & (traits_a.kind != OUTPUT)).tolist():
        parents = [int(partner[parent]) for parent in a.parents(row)]
        if not parents or min(parents) < 0:
            continue
        free = [
            other
            for other in b.children(parents[0])
            if other not in used
            and (traits_b.type[other], traits_b.shape[other]) == (traits_a.type[row], traits_a.shape[row])
            and b.parents(other) == parents
            and not _are_apart(traits_a, row, traits_b, other)
        ]
        if free:
            with np.errstate(invalid="ignore"):
                difference = np.nan_to_num(
                    np.abs(traits_b.sums[free] - traits_a.sums[row]).sum(axis=1), nan=np.inf
                )
            partner[row] = free[int(difference.argmin())]
            used.add(int(partner[row]))


def _by_values(a: _Traits, b: _Traits, partner: np.ndarray) -> None:
    """Pair operations whose values are equal, if they have no partner or one of another value.

    A file may compute the keys of an attention before its queries, and the heaviest common subsequence keeps
    the order. A value that several rows have is left where it is. A row of ``b`` that has the value of
    another row of ``a``, as a convolution does that includes the activation after it, is no partner of an
    operation of another type.
    """
    of_b = {int(j): i for i, j in enumerate(partner) if j >= 0}

    def fits(i: int, j: int) -> bool:
        return bool(_fit(a, i, b, j) and _agree(a, i, b, j, _EQUAL) and not _are_apart(a, i, b, j))

    open_b = np.array(
        [j for j in np.flatnonzero(b.kind == OP).tolist() if j not in of_b or not fits(of_b[j], j)], int
    )
    for i in np.flatnonzero((a.kind == OP) & ~np.isnan(a.sums[:, 0])).tolist():
        now = int(partner[i])
        if now >= 0 and fits(i, now):
            continue
        equal = _fit(a, i, b, open_b) & _agree(a, i, b, open_b, _EQUAL) & ~_are_apart(a, i, b, open_b)
        found = open_b[equal].tolist()
        if len(found) != 1 or a.sums[i, 0] == 0:
            if now >= 0 and a.type[i] != b.type[now] and a.inner[i] != b.inner[now]:
                same = (a.kind == OP) & _fit(a, slice(None), b, now)
                if (same & _agree(b, now, a, slice(None), _EQUAL)).any():
                    partner[i] = -1
            continue
        (other,) = found
        holder = of_b.get(other, -1)
        if now >= 0:
            del of_b[now]
        if holder >= 0:
            # The two swap their partners, unless those have nothing in common.
            alike = now >= 0 and (bool(_fit(a, holder, b, now)) or a.type[holder] == b.type[now])
            alike = alike and not _are_apart(a, holder, b, now)
            partner[holder] = now if alike else -1
            if alike:
                of_b[now] = holder
        partner[i], of_b[other] = other, i
        open_b = open_b[open_b != other]


def in_order(partner: list[int], count: int) -> list[tuple[int, int]]:
    """Return all rows as pairs: the first graph's in order, unpaired rows of the second in between.

    >>> in_order([0, -1, 2], 4)
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
