"""Which operations are passes of one layer: the paper's three rules (TorchLens, "Handling of recurrent
operations").

1. Operations with the same parameters are passes of one layer.
2. Operations that are alike and adjacent to the passes of such a layer, up or down the graph, are passes of
   one layer too, and so are their alike neighbours in turn.
3. A sequence of operations without parameters that repeats back to back (XYZXYZ) is a loop; its operations
   are passes of one layer. Separated repeats (XYZAXYZ) are not.

"Alike" is the same function with the same arguments that are not tensors, or, for indexing, the same
instruction. Everything here works on plain integers; each edge is looked at a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..core.graph import OP


def find_layers(
    rows: Mapping[str, np.ndarray], edges: Mapping[str, np.ndarray], op_params: np.ndarray
) -> np.ndarray:
    """Number the layer of every row, in the order their first passes ran."""
    count = len(rows["kind"])
    groups = _Groups(count)
    alike = _alike(rows)
    rule1 = _same_parameters(alike, op_params)
    for members in rule1:
        groups.join(members)
    without = alike.copy()
    without[op_params[:, 0]] = -1  # what has parameters of its own is a pass of nothing but rule 1's
    _grow(groups, without, edges, rule1, count)
    _back_to_back(groups, alike, edges, op_params, count)
    return groups.numbers()


class _Groups:
    """Union-find whose root is always the earliest row."""

    def __init__(self, count: int) -> None:
        self.root = list(range(count))

    def find(self, row: int) -> int:
        root = self.root
        while root[row] != row:
            root[row] = root[root[row]]
            row = root[row]
        return row

    def join(self, members: list[int]) -> bool:
        """Make members one group; true if that changed anything."""
        roots = sorted({self.find(row) for row in members})
        for other in roots[1:]:
            self.root[other] = roots[0]
        return len(roots) > 1

    def numbers(self) -> np.ndarray:
        found: dict[int, int] = {}
        return np.array(
            [found.setdefault(self.find(row), len(found)) for row in range(len(self.root))], dtype=np.int64
        )


def _alike(rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """A number for each row that two rows share when they are alike; -1 for rows that never repeat."""
    unique: dict[tuple[int, int, int], int] = {}
    out = np.full(len(rows["kind"]), -1, dtype=np.int64)
    columns = (rows["kind"], rows["type"], rows["signature"], rows["output"])
    for row, (kind, type_, signature, output) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        if kind == OP and signature != -1:
            out[row] = unique.setdefault((type_, signature, output), len(unique))
    return out


def _same_parameters(alike: np.ndarray, op_params: np.ndarray) -> list[list[int]]:
    """Rule 1: groups of two or more alike rows that use the same set of parameters."""
    params: dict[int, list[int]] = {}
    for row, param in op_params.tolist():
        params.setdefault(row, []).append(param)
    groups: dict[tuple[int, ...], list[int]] = {}
    for row, used in params.items():
        if alike[row] >= 0:
            groups.setdefault((int(alike[row]), *sorted(set(used))), []).append(row)
    return [sorted(members) for members in groups.values() if len(members) > 1]


def _grow(
    groups: _Groups,
    alike: np.ndarray,
    edges: Mapping[str, np.ndarray],
    seeds: list[list[int]],
    count: int,
) -> None:
    """Rule 2: from each group, alike neighbours in the same place become groups, until nothing grows."""
    parents: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    children: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for src, dst, arg in zip(
        edges["src"].tolist(), edges["dst"].tolist(), edges["arg"].tolist(), strict=True
    ):
        parents[dst].append((src, arg))
        children[src].append((dst, arg))
    kinds = alike.tolist()
    grouped = bytearray(count)
    for members in seeds:
        for row in members:
            grouped[row] = 1
    # Down before up: what follows the seeds follows every pass of them, what precedes may lack the first.
    down, up = list(seeds), list(seeds)
    while down or up:
        members, neighbours = (down.pop(), children) if down else (up.pop(), parents)
        for bucket in _same_place(members, neighbours, kinds).values():
            fresh = [row for row in bucket if not grouped[row]]
            if fresh and len(bucket) > 1 and len({groups.find(row) for row in bucket if grouped[row]}) < 2:
                for row in fresh:
                    grouped[row] = 1
                groups.join(bucket)
                down.append(bucket)
                up.append(bucket)


def _same_place(
    members: list[int], neighbours: list[list[tuple[int, int]]], kinds: list[int]
) -> dict[tuple[int, int, int], list[int]]:
    """The neighbours of a group's members, those together that are alike and stand in the same place."""
    buckets: dict[tuple[int, int, int], set[int]] = {}
    for row in members:
        rank: dict[tuple[int, int], int] = {}
        for other, arg in neighbours[row]:
            if kinds[other] >= 0:
                place = (kinds[other], arg)
                rank[place] = rank.get(place, -1) + 1
                buckets.setdefault((*place, rank[place]), set()).add(other)
    return {place: sorted(bucket) for place, bucket in buckets.items()}


def _back_to_back(
    groups: _Groups,
    alike: np.ndarray,
    edges: Mapping[str, np.ndarray],
    op_params: np.ndarray,
    count: int,
) -> None:
    """Rule 3: tandem repeats among the rows that no rule has grouped and that use no parameters.

    The longest repeats come first; what they took no other repeat may have.
    """
    word = alike.copy()
    taken = np.array([groups.find(row) != row for row in range(count)], dtype=bool)
    roots = {groups.find(row) for row in np.flatnonzero(taken).tolist()}
    taken[list(roots)] = True
    if len(op_params):
        taken[op_params[:, 0]] = True
    barrier = taken | (word < 0)
    line = np.flatnonzero(alike >= 0)  # a loop's body is what ran in a row, inputs and buffers aside
    if len(line) < 2:
        return
    word = np.where(barrier[line], -1 - np.arange(len(line)), word[line])  # barriers never match anything
    fed = _feeds(edges)
    free = np.ones(len(line), dtype=bool)
    for start, stop, period in _runs(word):
        if free[start:stop].all() and _flows(line, start, stop, period, fed):
            free[start:stop] = False
            for offset in range(period):
                members = line[np.arange(start + offset, stop, period)].tolist()
                groups.join(members)


def _feeds(edges: Mapping[str, np.ndarray]) -> dict[int, list[int]]:
    fed: dict[int, list[int]] = {}
    for src, dst in zip(edges["src"].tolist(), edges["dst"].tolist(), strict=True):
        fed.setdefault(dst, []).append(src)
    return fed


def _flows(line: np.ndarray, start: int, stop: int, period: int, fed: dict[int, list[int]]) -> bool:
    """Whether the second pass consumes something of the first: parallel branches are no loop."""
    first = set(line[start : start + period].tolist())
    second = line[start + period : min(start + 2 * period, stop)].tolist()
    return any(src in first for row in second for src in fed.get(row, ()))


def _runs(word: np.ndarray) -> list[tuple[int, int, int]]:
    """Stretches (start, stop, period) that hold at least two whole periods, as long as can be, longest first.

    A stretch of two periods p or more holds a multiple of p at which the word equals itself p later, so only
    those places are looked at: n/1 + n/2 + n/3 … of them, a million for a word of a hundred thousand.

    >>> _runs(np.array([1, 2, 3, 1, 2, 3, 1, 2, 3]))
    [(0, 9, 3)]
    >>> _runs(np.array([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3]))
    []
    """
    ranks = _ranks(word)
    found: set[tuple[int, int, int]] = set()
    for at, period in _places_to_look(word):
        left = at - _alike_for(ranks, at, at + period, backwards=True)
        right = at + _alike_for(ranks, at, at + period)
        passes = (right - left) // period + 1  # whole passes only
        runs = np.stack([left, left + passes * period, period], axis=1)[passes >= 2]
        found.update(map(tuple, np.unique(runs, axis=0).tolist()))
    return sorted(found, key=lambda run: (run[0] - run[1], run[2], run[0]))


def _places_to_look(word: np.ndarray, most: int = 1 << 18) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Multiples of every period at which the word equals itself one period on; ``most`` in memory at once."""
    size, first = len(word), 1
    while first <= size // 2:
        last = min(size // 2 + 1, first + max(1, most * first // size))
        periods = np.arange(first, last)
        counts = -(-(size - periods) // periods)  # multiples of each period below size - period
        period = np.repeat(periods, counts)
        at = (np.arange(len(period)) - np.repeat(np.cumsum(counts) - counts, counts)) * period
        same = word[at] == word[at + period]
        if same.any():
            yield at[same], period[same]
        first = last


def _ranks(word: np.ndarray) -> list[np.ndarray]:
    """For k = 1, 2, 4 …: a number for every position that two positions share when k letters are alike."""
    _, rank = np.unique(word, return_inverse=True)
    ranks, k = [rank], 1
    while 2 * k <= len(word):
        pair = rank[: len(rank) - k] * (int(rank.max()) + 1) + rank[k:]
        _, rank = np.unique(pair, return_inverse=True)
        ranks.append(rank)
        k *= 2
    return ranks


def _alike_for(
    ranks: list[np.ndarray], one: np.ndarray, other: np.ndarray, *, backwards: bool = False
) -> np.ndarray:
    """How many letters are alike from ``one`` and from ``other`` onwards, or before them backwards."""
    length = np.zeros(len(one), dtype=np.int64)
    for power in range(len(ranks) - 1, -1, -1):
        rank, k = ranks[power], 1 << power
        if backwards:
            a, b = one - length - k, other - length - k
            fits = a >= 0
        else:
            a, b = one + length, other + length
            fits = b < len(rank)
        where = np.flatnonzero(fits)
        alike = where[rank[a[where]] == rank[b[where]]]
        length[alike] += k
    return length
