"""Where cells stand from left to right: isotonic placement under neighbours, then runs made straight."""

from __future__ import annotations

import math
from typing import NamedTuple

from .cells import Cell, Link, gap

FARTHEST = 70  # a run may step aside so far, to be straight from port to port, before it steps back


def place_x(ranks: list[list[Cell]]) -> None:
    """Give every cell its ``x``, keeping the order in its rank and the distance between neighbours."""
    for rank in ranks:
        x = 0.0
        for i, cell in enumerate(rank):
            x += gap(rank[i - 1], cell) if i else 0
            cell.x = x
        for cell in rank:
            cell.x -= x / 2
    for sweep in range(8):
        for rank in reversed(ranks) if sweep % 2 else ranks:
            _settle(rank, up=sweep >= 6 or sweep % 2 == 0, down=sweep >= 6 or sweep % 2 == 1)
    _straighten(ranks)


class _Run(NamedTuple):
    cells: list[Cell]
    offsets: list[float]


def _straighten(ranks: list[list[Cell]]) -> None:
    """Move every run of cells that follow one another to one x, as far as their neighbours allow."""
    beside: dict[Cell, tuple[Cell | None, Cell | None]] = {}
    for rank in ranks:
        for i, cell in enumerate(rank):
            beside[cell] = (rank[i - 1] if i else None, rank[i + 1] if i + 1 < len(rank) else None)
    runs = _find_runs(ranks)
    for turn in range(4):
        for run in reversed(runs) if turn % 2 else runs:
            _move(run, beside)


def _move(run: _Run, beside: dict[Cell, tuple[Cell | None, Cell | None]]) -> None:
    cells, offsets = run
    low, high = -math.inf, math.inf
    own = set(cells)
    pulls: list[tuple[float, int]] = []
    for cell, offset in zip(cells, offsets, strict=True):
        left, right = beside[cell]
        if left:
            low = max(low, left.x + gap(left, cell) - offset)
        if right:
            high = min(high, right.x - gap(cell, right) - offset)
        for link in (*cell.up, *cell.down):
            if link.cell not in own:
                pulls.append((link.cell.x + (link.shift - offset), link.weight))
    if low > high + 1:
        return
    want = _weighted_median(pulls) if pulls else (cells[0].x + cells[-1].x - offsets[-1]) / 2
    x = min(high, max(low, want))
    for cell, offset in zip(cells, offsets, strict=True):
        cell.x = x + offset


def _find_runs(ranks: list[list[Cell]]) -> list[_Run]:
    """Maximal runs in which each cell is what the one above it leads to first, and the other way round. What
    is late begins one: many such, one below the other, must not push each other aside."""
    runs, taken = [], set[Cell]()
    for start in (cell for rank in ranks for cell in rank):
        if start in taken:
            continue
        run = _Run([start], [0.0])
        taken.add(start)
        cell = start
        while True:
            below = _favourite(cell.down)
            back = below and _favourite(below.cell.up)
            if below is None or back is None or back.cell is not cell:
                break
            if below.cell in taken or below.cell.late:
                break
            offset = run.offsets[-1] + back.shift
            run.offsets.append(0.0 if abs(offset) > FARTHEST else offset)
            cell = below.cell
            run.cells.append(cell)
            taken.add(cell)
        runs.append(run)
    return runs


def _favourite(links: list[Link]) -> Link | None:
    """The heaviest link; of several alike the middle one, and none when there is no middle."""
    most = max((link.weight for link in links), default=0)
    alike = sorted((link for link in links if link.weight == most), key=lambda link: link.cell.x)
    return alike[len(alike) >> 1] if len(alike) % 2 else None


def _settle(rank: list[Cell], *, up: bool, down: bool) -> None:
    """Move a rank's cells to where their neighbours want them, in order and apart: isotonic regression."""
    blocks: list[list[float]] = []  # sum of wishes times pull, pull, cells
    base: list[float] = []
    offset = 0.0
    for i, cell in enumerate(rank):
        offset += gap(rank[i - 1], cell) if i else 0
        base.append(offset)
        links = [*(cell.up if up else ()), *(cell.down if down else ())]
        pull = 1 + sum(link.weight for link in links) if links and not cell.late else 1e-3
        want = (
            _weighted_median([(link.cell.x + link.shift, link.weight) for link in links]) if links else cell.x
        )
        blocks.append([(want - offset) * pull, pull, 1])
        while len(blocks) > 1:
            a, b = blocks[-2], blocks[-1]
            if a[0] / a[1] <= b[0] / b[1]:
                break
            for k in range(3):
                a[k] += b[k]
            blocks.pop()
    i = 0
    for total, weight, count in blocks:
        for _ in range(int(count)):
            rank[i].x = total / weight + base[i]
            i += 1


def _weighted_median(points: list[tuple[float, int]]) -> float:
    if len(points) == 1:
        return points[0][0]
    points.sort(key=lambda point: point[0])
    half = sum(weight for _, weight in points) / 2
    total = 0
    for i, (x, weight) in enumerate(points):
        total += weight
        if total > half:
            return x
        if total == half:
            return (x + points[min(i + 1, len(points) - 1)][0]) / 2
    return points[-1][0]
