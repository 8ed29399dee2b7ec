"""The order of cells within their ranks: of a few median sweeps the one with the fewest crossings counts."""

from __future__ import annotations

import math
from bisect import bisect_right, insort

import numpy as np

from .cells import Cell, Link

WINDOW = 400  # ends of edges a crossing is looked for among, so that a rank of thousands stays cheap


def order_ranks(cells: list[Cell], count: int) -> list[list[Cell]]:
    """The cells rank by rank, from rank -1 on, each rank in an order with few crossings."""
    ranks: list[list[Cell]] = [[] for _ in range(count)]
    for cell in cells:
        ranks[cell.rank + 1].append(cell)
    for rank in ranks:
        _number(rank)
    if all(len(rank) < 2 for rank in ranks):
        return ranks
    best, fewest = [list(rank) for rank in ranks], math.inf
    for sweep in range(6):
        if fewest <= 0:
            break
        down = sweep % 2 == 0
        for rank in ranks if down else reversed(ranks):
            if len(rank) > 1:
                _sort(rank, down)
        crossings = _crossings(ranks, fewest)
        if crossings < fewest:
            best, fewest = [list(rank) for rank in ranks], crossings
    return best


def _number(rank: list[Cell]) -> None:
    for at, cell in enumerate(rank):
        cell.at = at


def _sort(rank: list[Cell], down: bool) -> None:
    wishes = {}
    for cell in rank:
        where = sorted(map(_place_of, cell.up if down else cell.down))
        many = len(where)
        wishes[cell] = (where[(many - 1) >> 1] + where[many >> 1]) / 2 if many else cell.at
    rank.sort(key=lambda cell: (wishes[cell], cell.at))
    _number(rank)


def _place_of(link: Link) -> float:
    """Place of a link's other end in its rank; ports of one open box differ by less than boxes do."""
    return link.cell.at + link.shift * 1e-5


def _crossings(ranks: list[list[Cell]], limit: float) -> int:
    """Crossings between neighbouring ranks; gives up once it is no better than ``limit``."""
    total = 0
    for rank in ranks:
        ends: list[float] = []
        for cell in rank:
            ends += sorted(map(_place_of, cell.down))
        total += _inversions(ends)
        if total >= limit:
            break
    return total


def _inversions(ends: list[float]) -> int:
    if len(ends) <= WINDOW:
        total, seen = 0, list[float]()
        for end in ends:
            total += len(seen) - bisect_right(seen, end)
            insort(seen, end)
        return total
    row = np.array(ends)
    return sum(int((row[max(0, i - WINDOW) : i] > row[i]).sum()) for i in range(1, len(row)))
