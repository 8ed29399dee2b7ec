"""Find the operations that are passes of one layer, by three rules.

The rules are those of the TorchLens paper, section "Handling of recurrent operations":

1. Operations with the same parameters are passes of one layer.
2. Operations that are alike and adjacent to the passes of such a layer, as parents or as children, are passes
   of one layer too. The same holds for their neighbors in turn.
3. A sequence of operations without parameters that repeats back to back (XYZXYZ) is a loop. The operations at
   the same position of its repeats are passes of one layer. Separated repeats (XYZAXYZ) are no loop.

Two operations are alike if they call the same function with the same arguments other than tensors; indexing
operations are alike if the same instruction runs them. The code works on integers, and visits each edge a
bounded number of times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..graph import OP


def find_layers(
    rows: Mapping[str, np.ndarray], edges: Mapping[str, np.ndarray], op_params: np.ndarray
) -> np.ndarray:
    """Return the layer number of every row, in the order in which the first passes of the layers ran.

    Args:
        rows: The columns of the graph's rows, of shape (rows,): ``kind``, ``type``, ``signature``,
            ``output``.
        edges: The columns of its edges, of shape (edges,), sorted by ``dst``: ``src``, ``dst``, ``arg``.
        op_params: Pairs of a row and the number of a parameter it uses, of shape (pairs, 2).
    """
    signatures = [number for number in rows["signature"].tolist() if number != -1]
    if len(set(signatures)) == len(signatures):  # no two operations are alike, as in many small models
        return np.arange(len(rows["signature"]))
    alike = _alike(rows)
    kinds = int(alike.max(initial=-1)) + 1
    if kinds == np.count_nonzero(alike >= 0):  # no two rows are alike, apart from outputs of one call
        return np.arange(len(alike))
    groups = _Groups(len(alike))
    seeds = _same_parameters(alike, op_params)
    for members in seeds:
        groups.join(members)
    if seeds:
        _grow(groups, alike, edges, op_params, seeds)
    _back_to_back(groups, alike, edges, op_params)
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

    def join(self, members: list[int]) -> None:
        """Join the groups of ``members`` into one."""
        roots = sorted({self.find(row) for row in members})
        for other in roots[1:]:
            self.root[other] = roots[0]

    def roots(self) -> np.ndarray:
        """Return the root of every row."""
        root = np.array(self.root, dtype=np.int64)
        while True:
            above = root[root]
            if np.array_equal(above, root):
                return root
            root = above

    def numbers(self) -> np.ndarray:
        """Return the group number of every row; groups are numbered in the order of their first rows."""
        roots = self.roots()
        first = roots == np.arange(len(roots))
        numbers: np.ndarray = (np.cumsum(first) - 1)[roots]
        return numbers


def _alike(rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return a number for each row, equal for rows that are alike; -1 for rows that never are."""
    out = np.full(len(rows["kind"]), -1, dtype=np.int64)
    some = np.flatnonzero((rows["kind"] == OP) & (rows["signature"] != -1))
    words = np.zeros(len(some), dtype=np.int64)
    for name in ("type", "signature", "output"):
        column = rows[name][some]
        column = column - column.min(initial=0)
        words = words * (int(column.max(initial=0)) + 1) + column
    out[some] = np.unique(words, return_inverse=True)[1]
    return out


def _same_parameters(alike: np.ndarray, op_params: np.ndarray) -> list[list[int]]:
    """Return groups of two or more alike rows that use the same set of parameters (rule 1)."""
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
    op_params: np.ndarray,
    seeds: list[list[int]],
) -> None:
    """Group alike neighbors at the same place of each group, until no group can be added (rule 2)."""
    kinds = alike.copy()
    kinds[op_params[:, 0]] = -1  # rows with parameters are grouped by rule 1 only
    parents = _Neighbors(edges["dst"], edges["src"], edges["arg"], kinds)
    children = _Neighbors(edges["src"], edges["dst"], edges["arg"], kinds)
    grouped = bytearray(len(alike))
    for members in seeds:
        for row in members:
            grouped[row] = 1
    # Children before parents: every pass has the children, but the first pass may lack the parents.
    down, up = list(seeds), list(seeds)
    while down or up:
        bucket_lists = children.in_same_place(down.pop()) if down else parents.in_same_place(up.pop())
        for bucket in bucket_lists:
            fresh = [row for row in bucket if not grouped[row]]
            if (
                fresh
                and len(bucket) > 1
                and (
                    len(fresh) == len(bucket) or len({groups.find(row) for row in bucket if grouped[row]}) < 2
                )
            ):
                for row in fresh:
                    grouped[row] = 1
                groups.join(bucket)
                down.append(bucket)
                up.append(bucket)


class _Neighbors:
    """The neighbors of each row in one direction that may be grouped, each with the number of its place.

    Neighbors have the same place if they are alike, are connected by the same argument, and have the same
    position among several such neighbors of a row.
    """

    def __init__(self, row: np.ndarray, other: np.ndarray, arg: np.ndarray, kinds: np.ndarray) -> None:
        order = np.argsort(row, kind="stable")
        order = order[kinds[other[order]] >= 0]
        row, other, arg = row[order], other[order], arg[order]
        place = kinds[other] * (int(arg.max(initial=0)) + 1) + arg
        rank = occurrences(row * (int(place.max(initial=0)) + 1) + place)
        self.place = (place * (int(rank.max(initial=0)) + 1) + rank).tolist()
        self.other = other.tolist()
        self.start = np.searchsorted(row, np.arange(len(kinds) + 1)).tolist()

    def in_same_place(self, members: list[int]) -> list[list[int]]:
        """Return the neighbors of a group's members as lists, one for each place."""
        buckets: dict[int, list[int]] = {}
        start, other, place = self.start, self.other, self.place
        for row in members:
            for at in range(start[row], start[row + 1]):
                buckets.setdefault(place[at], []).append(other[at])
        return [sorted(set(bucket)) for bucket in buckets.values()]


def occurrences(values: np.ndarray) -> np.ndarray:
    """Return, for each entry of an array of shape (n,), how often its value occurred before it.

    Example:
        >>> occurrences(np.array([5, 5, 2, 5])).tolist()
        [0, 1, 0, 2]
    """
    if (values[1:] > values[:-1]).all():
        return np.zeros(len(values), dtype=np.int64)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    at = np.arange(len(values))
    begun = at.copy()
    begun[1:][ordered[1:] == ordered[:-1]] = 0
    out = np.empty(len(values), dtype=np.int64)
    out[order] = at - np.maximum.accumulate(begun)
    return out


def _back_to_back(
    groups: _Groups, alike: np.ndarray, edges: Mapping[str, np.ndarray], op_params: np.ndarray
) -> None:
    """Group the rows of repeats among ungrouped operations without parameters (rule 3).

    The longest repeats come first. Each operation belongs to at most one repeat.
    """
    line = np.flatnonzero(alike >= 0)  # operations only: inputs and buffers do not interrupt a loop
    if len(line) < 2:
        return
    roots = groups.roots()
    taken = roots != np.arange(len(roots))
    taken[roots[taken]] = True
    taken[op_params[:, 0]] = True
    # grouped rows and rows with parameters get a unique negative letter, which matches nothing
    word = np.where(taken[line], -1 - np.arange(len(line)), alike[line])
    free = np.ones(len(line), dtype=bool)
    for start, stop, period in _runs(word):
        if free[start:stop].all() and _flows(line, start, stop, period, edges):
            free[start:stop] = False
            for offset in range(period):
                members = line[np.arange(start + offset, stop, period)].tolist()
                groups.join(members)


def _flows(line: np.ndarray, start: int, stop: int, period: int, edges: Mapping[str, np.ndarray]) -> bool:
    """Return whether the second pass uses a result of the first; otherwise they are parallel branches."""
    first, second = line[start : start + period], line[start + period : min(start + 2 * period, stop)]
    low, high = np.searchsorted(edges["dst"], [second[0], second[-1] + 1])
    src, dst = edges["src"][low:high], edges["dst"][low:high]
    return bool((np.isin(src, first) & np.isin(dst, second)).any())


def _runs(word: np.ndarray) -> list[tuple[int, int, int]]:
    """Return the maximal runs of at least two whole periods as (start, stop, period), longest first.

    A run of two or more periods p contains a multiple of p at which the word equals itself p later. Only
    those positions are tested: n/1 + n/2 + n/3 + … of them, a million for a word of a hundred thousand
    letters.

    Example:
        >>> _runs(np.array([1, 2, 3, 1, 2, 3, 1, 2, 3]))
        [(0, 9, 3)]
        >>> _runs(np.array([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3]))
        []
    """
    ranks: list[np.ndarray] = []
    found: set[tuple[int, int, int]] = set()
    for at, period in _candidates(word):
        ranks = ranks or _ranks(word)
        left = at - _common_length(ranks, at, at + period, backwards=True)
        right = at + _common_length(ranks, at, at + period)
        passes = (right - left) // period + 1  # whole passes only
        runs = np.stack([left, left + passes * period, period], axis=1)[passes >= 2]
        found.update(map(tuple, np.unique(runs, axis=0).tolist()))
    return sorted(found, key=lambda run: (run[0] - run[1], run[2], run[0]))


def _candidates(word: np.ndarray, most: int = 1 << 18) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield multiples of each period at which the word equals itself one period later, with the period.

    About ``most`` of them are in memory at once.
    """
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
    """Return, for k = 1, 2, 4 …, numbers that are equal for positions followed by the same k letters."""
    _, rank = np.unique(word, return_inverse=True)
    ranks, k = [rank], 1
    while 2 * k <= len(word):
        pair = rank[: len(rank) - k] * (int(rank.max()) + 1) + rank[k:]
        _, rank = np.unique(pair, return_inverse=True)
        ranks.append(rank)
        k *= 2
    return ranks


def _common_length(
    ranks: list[np.ndarray], one: np.ndarray, other: np.ndarray, *, backwards: bool = False
) -> np.ndarray:
    """Return how many letters are equal from positions ``one`` and ``other`` on, or backwards before them."""
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
