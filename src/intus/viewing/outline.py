"""Format a graph as plain text: a headline, an outline of modules and operations, a summary."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..core.analysis.flops import flops
from ..core.graph import FAILED, OP, OP_KINDS, PARAMETER, Graph, elements, end_names
from .scene import totals

_HEADER = ("", "type", "output", "parameters", "FLOPs", "time")


class Row(NamedTuple):
    """A line of the outline.

    Attributes:
        depth: How many modules enclose it.
        name: The address of the module call or the label of the operation.
        type: The class of the module or the type of the operation.
        shape: The shape of the first output, as text.
        parameters: The number of parameters; None if unknown.
        nanoseconds: The time it took.
        is_module: Whether it is a module call rather than an operation.
        flops: The floating point operations that are known.
        times: How many equal rows this one stands for; its figures are then their sums.
        last: The name of the last of them, ``""`` if ``times`` is 1.
    """

    depth: int
    name: str
    type: str
    shape: str
    parameters: int | None
    nanoseconds: int
    is_module: bool
    flops: int = 0
    times: int = 1
    last: str = ""


def headline(graph: Graph) -> str:
    """Return the totals as a phrase: ``14 operations, 6 modules, 12,810 parameters (50 KB), 1.3 ms``."""
    total = totals(graph)
    parts = [_count(total["operations"], "operation"), _count(total["modules"], "module")]
    if total["parameters"] is None:
        parts.append("? parameters")
    else:
        parts.append(f"{_count(total['parameters'], 'parameter')} ({size(total['bytes'])})")
    if total["seconds"] > 0:
        parts.append(duration(total["seconds"] * 1e9))
    return ", ".join(parts)


def outline(graph: Graph, *, depth: int | None = None, most: int | None = 500) -> str:
    """Return a table of modules and operations in order of execution, indented by module.

    A module that ran a single operation is one line.

    Args:
        graph: The graph.
        depth: How many levels of modules to open. Default: all.
        most: The largest number of lines, or None for no limit.
    """
    rows = [row for row in walk(graph) if depth is None or row.depth <= depth]
    return _table(graph, rows, most)


def summary(graph: Graph, *, depth: int | None = None, most: int | None = 50) -> str:
    """Return an outline that is short even for a large model.

    Equal passes of a layer, and equal neighbors, are one line with their number; see ``folded``.

    Args:
        graph: The graph.
        depth: How many levels of modules to open. Default: as many as ``most`` lines allow.
        most: The largest number of lines, or None for no limit.
    """
    rows = folded(list(walk(graph)))
    deepest = max((row.depth for row in rows), default=0)
    if depth is None:
        lines = np.cumsum(np.bincount([row.depth for row in rows], minlength=1))
        depth = max(0, int((lines <= most).sum()) - 1) if most is not None else deepest
    shown = [row for row in rows if row.depth <= depth]
    text = _table(graph, shown, most).replace("\n", f"\n{_costs(graph)}\n", 1)
    if any(row.times > 1 for row in shown):
        text += "\n\n×n: n equal neighbors or passes. Figures are sums; the lines inside show the first."
    if depth < deepest:
        text += f"\n\nLevels 0 to {depth} of {deepest}; summary(depth={depth + 1}) opens the next."
    for sentence in graph.facts.get("not_restored", ()):
        text += f"\n\nNot restored: {sentence}"
    for sentence in graph.facts.get("notes", ()):
        text += f"\n\nNote: {sentence}"
    return text


def folded(rows: list[Row]) -> list[Row]:
    """Merge equal rows: passes of one layer or module, and neighbors.

    Two rows are equal if type, shape, number of parameters and all rows inside them are. The first of several
    equal rows stays, with the sums of their figures.
    """
    parent, children = _tree(rows)
    kinds: dict[tuple[object, ...], int] = {}
    kind = [0] * len(rows)
    for n in range(len(rows) - 1, -1, -1):
        row = rows[n]
        key = (
            row.type,
            row.shape,
            row.parameters,
            row.is_module,
            *(kind[child] for child in children[n + 1]),
        )
        kind[n] = kinds.setdefault(key, len(kinds))
    merged = [False] * len(rows)
    out = list(rows)

    def merge(n: int, first: int) -> None:
        out[first] = _added(out[first], out[n])
        merged[n] = True

    for siblings in children:
        passes: dict[tuple[str, int], int] = {}
        for n in siblings:
            stem, several, _ = rows[n].name.rpartition(":")
            if several and passes.setdefault((stem, kind[n]), n) != n:
                merge(n, passes[stem, kind[n]])
        first = -1
        for n in siblings:
            if merged[n]:
                continue
            if first >= 0 and kind[n] == kind[first] and rows[n].type not in OP_KINDS[1:]:
                merge(n, first)
            else:
                first = n
    for n, above in enumerate(parent):  # rows inside a merged row are merged with it
        merged[n] = merged[n] or (above >= 0 and merged[above])
    return [row for row, is_merged in zip(out, merged, strict=True) if not is_merged]


def _tree(rows: list[Row]) -> tuple[list[int], list[list[int]]]:
    """Return the parent of each row (-1: none), and the children of row ``n`` at ``n + 1``, of none at 0."""
    parent: list[int] = []
    children: list[list[int]] = [[] for _ in range(len(rows) + 1)]
    path: list[int] = []
    for n, row in enumerate(rows):
        del path[row.depth :]
        parent.append(path[-1] if path else -1)
        children[parent[n] + 1].append(n)
        path.append(n)
    return parent, children


def _added(first: Row, other: Row) -> Row:
    """Add the figures of an equal row; calls of one module share its parameters."""
    shared = first.name.partition(":")[0] == other.name.partition(":")[0]
    return first._replace(
        times=first.times + other.times,
        last=other.last or other.name,
        parameters=first.parameters if shared else _sum(first.parameters, other.parameters),
        nanoseconds=first.nanoseconds + other.nanoseconds,
        flops=first.flops + other.flops,
    )


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _costs(graph: Graph) -> str:
    """Return the line of totals under the headline."""
    total, counts = totals(graph), flops(graph)
    frozen = 0 if total["parameters"] is None else total["parameters"] - total["trainable"]
    parts = [f"{frozen:,.0f} parameters frozen"] if frozen else []
    parts += [f"{size(total['activations'])} of activations", f"{count(int(counts.clip(0).sum()))} FLOPs"]
    unknown = int((counts < 0).sum())
    return ", ".join(parts) + (f" and {_count(unknown, 'operation')} uncounted" if unknown else "")


def _table(graph: Graph, rows: list[Row], most: int | None) -> str:
    shown = rows[:most]
    cells = [_HEADER, *map(_cells, shown)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADER))]
    lines = [f"{graph.model}: {headline(graph)}", ""]
    lines += [_aligned(line, widths) for line in cells]
    if len(rows) > len(shown):
        lines.append(f"… and {len(rows) - len(shown):,} more")
    if graph.error:
        lines += ["", f"Failed{failed_at(graph)}: {graph.error}"]
    return "\n".join(lines)


def failed_at(graph: Graph) -> str:
    """Return where a pass failed, as ``" in fc at linear_1_1"``, or ``""`` if that is not known."""
    rows = np.flatnonzero(graph.ops.flags & FAILED).tolist()
    if rows:
        calls = graph.enclosing_calls(rows[-1])
        address = graph.modules[int(graph.calls.module[calls[-1]])].address if calls else ""
        return f"{f' in {address}' if address else ''} at {graph.label(rows[-1])}"
    raised = graph.facts.get("raised") or {"module": ""}
    return f" in {raised['module']}" if raised["module"] else ""


def walk(graph: Graph) -> Iterator[Row]:
    """Yield the rows of the outline in order of execution, modules before their contents."""
    inside = _CallTotals(graph)
    opened: list[int] = []
    for row in range(len(graph.ops)):
        chain = [call for call in graph.enclosing_calls(row) if graph.call_address(call)]
        shared = 0
        while shared < min(len(opened), len(chain)) and opened[shared] == chain[shared]:
            shared += 1
        single = next((n for n, call in enumerate(chain) if inside.operations[call] == 1), None)
        stop = len(chain) if single is None else single + 1
        for level in range(shared, stop):
            yield inside.module_row(chain[level], level, chain[-1] if level == single else chain[level])
        if single is None:
            yield inside.op_row(row, len(chain))
        opened = chain


class _CallTotals:
    """Totals of each module call: operations, time, FLOPs, and parameters, which count once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        calls = len(graph.calls)
        self.operations = np.zeros(calls, dtype=np.int64)
        self.time = np.zeros(calls, dtype=np.int64)
        self.flops = np.zeros(calls, dtype=np.int64)
        self.op_flops = flops(graph).clip(0)
        inside = graph.ops.call >= 0
        np.add.at(self.operations, graph.ops.call[_first_tensors(graph) & inside], 1)
        np.add.at(self.time, graph.ops.call[inside], graph.ops.time[inside])
        np.add.at(self.flops, graph.ops.call[inside], self.op_flops[inside])
        self.ends = end_names(graph.ops.kind.tolist(), graph.facts)
        self.params: list[set[int]] = [set() for _ in range(calls)]
        self.op_params: dict[int, set[int]] = {}
        for row, param in graph.op_params.tolist():
            self.op_params.setdefault(row, set()).add(param)
            if graph.ops.call[row] >= 0:
                self.params[graph.ops.call[row]].add(param)
        for call in range(calls - 1, -1, -1):  # a call follows its parent, so this visits children first
            parent = int(graph.calls.parent[call])
            if parent >= 0:
                self.operations[parent] += self.operations[call]
                self.time[parent] += self.time[call]
                self.flops[parent] += self.flops[call]
                self.params[parent] |= self.params[call]

    def module_row(self, call: int, depth: int, named: int) -> Row:
        """Return the row of a call, with the name and class of ``named``, itself or a call inside it."""
        graph = self.graph
        outputs = graph.call_outputs.get(call, [])
        shape = dimensions(graph.metas[graph.ops.meta[outputs[0]]].shape) if outputs else ""
        shape += f" and {len(outputs) - 1} more" if len(outputs) > 1 else ""
        return Row(
            depth,
            graph.call_address(named),
            graph.modules[graph.calls.module[named]].type,
            "not known" if call in graph.unknown_outputs else shape,
            self._size(self.params[call]),
            int(self.time[call]),
            True,
            int(self.flops[call]),
        )

    def op_row(self, row: int, depth: int) -> Row:
        """Return the row of an operation, input, output or buffer."""
        graph, kind = self.graph, int(self.graph.ops.kind[row])
        failed = " failed" if graph.ops.flags[row] & FAILED else ""
        return Row(
            depth,
            graph.state_address(row) if kind == PARAMETER else graph.labels[row],
            (graph.types[graph.ops.type[row]] if kind == OP else self.ends.get(row, OP_KINDS[kind])) + failed,
            "" if failed else dimensions(graph.metas[graph.ops.meta[row]].shape),
            self._size(self.op_params.get(row, set())),
            int(graph.ops.time[row]),
            False,
            int(self.op_flops[row]),
        )

    def _size(self, params: set[int]) -> int | None:
        return elements(self.graph.params[p] for p in params)


def _first_tensors(graph: Graph) -> np.ndarray:
    """Return a mask (rows,) of operations; of one that returned several tensors only the first row counts."""
    ran, event = graph.ops.kind == OP, graph.ops.event
    later = np.zeros(len(ran), dtype=bool)
    later[1:] = ran[:-1] & (event[1:] >= 0) & (event[1:] == event[:-1])
    first: np.ndarray = ran & ~later
    return first


def dimensions(shape: tuple[int, ...]) -> str:
    """Format a shape; ``?`` is a length that is open, or a shape that is not known.

    >>> dimensions((2, 3, 8)), dimensions(()), dimensions((-1, 3))
    ('2×3×8', 'scalar', '?×3')
    """
    return "×".join("?" if length < 0 else str(length) for length in shape) or "scalar"


def size(nbytes: float) -> str:
    """Format a number of bytes in a unit that keeps it short.

    >>> size(0), size(1536), size(3_000_000)
    ('0 B', '1.5 KB', '2.9 MB')
    """
    units = ("B", "KB", "MB", "GB", "TB")
    power = min(int(math.log(nbytes, 1024)) if nbytes >= 1 else 0, len(units) - 1)
    value = nbytes / 1024**power
    return f"{value:.0f} {units[power]}" if power == 0 or value >= 100 else f"{value:.1f} {units[power]}"


def count(number: float) -> str:
    """Format a large number in a unit that keeps it short.

    >>> count(950), count(12_345), count(3.2e9)
    ('950', '12.3 K', '3.20 G')
    """
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if number >= scale:
            value = number / scale
            return f"{value:.2f} {unit}" if value < 10 else f"{value:.1f} {unit}"
    return f"{number:.0f}"


def duration(nanoseconds: float) -> str:
    """Format a time in nanoseconds in a unit that keeps it short.

    >>> duration(950), duration(12_345), duration(3.2e9)
    ('950 ns', '12.3 µs', '3.20 s')
    """
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= scale:
            value = nanoseconds / scale
            return f"{value:.2f} {unit}" if value < 10 else f"{value:.1f} {unit}"
    return f"{nanoseconds:.0f} ns"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        "  " * row.depth + (row.name if row.times == 1 else f"{row.name} … {_tail(row)}"),
        row.type + (f" ×{row.times}" if row.times > 1 else ""),
        row.shape,
        "?" if row.parameters is None else f"{row.parameters:,}" if row.parameters else "",
        count(row.flops) if row.flops else "",
        duration(row.nanoseconds) if row.nanoseconds else "",
    )


def _tail(row: Row) -> str:
    """Return the part of the last name that differs: ``11`` of ``h.0 … h.11``, ``3`` of ``mix:1 … mix:3``."""
    for separator in (":", "."):
        stem, found, tail = row.last.rpartition(separator)
        if found and stem == row.name.rpartition(separator)[0]:
            return tail
    return row.last


def _aligned(cells: tuple[str, ...], widths: list[int]) -> str:
    left = "  ".join(cell.ljust(width) for cell, width in zip(cells[:3], widths[:3], strict=True))
    right = "  ".join(cell.rjust(width) for cell, width in zip(cells[3:], widths[3:], strict=True))
    return f"{left}  {right}".rstrip()


def _count(number: float, noun: str) -> str:
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"
