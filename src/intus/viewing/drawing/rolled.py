"""The rolled graph: the passes of a recurrent layer as one node, with what differs by pass on its edges."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...core.graph import Calls, Edges, Graph, Ops
from .marks import ranges


class Rolled(NamedTuple):
    """``rows`` is the new row of every old one; ``op_passes`` and ``call_passes`` say how many passes each
    row and module call stands for; ``notes`` by edge in which passes of its ends it runs where that is not in
    all: ``("1-2", "2-3")`` leaves passes 1 and 2 and enters 2 and 3. Its edges may run against the order of
    rows."""

    graph: Graph
    rows: np.ndarray
    op_passes: list[int]
    call_passes: list[int]
    notes: dict[int, tuple[str, str]]


def rolled(graph: Graph) -> Rolled:
    """One row for every layer, where its first pass ran.

    Times are summed over the passes; shapes are the first pass's.
    """
    layer = graph.ops.layer
    count = int(layer.max()) + 1 if len(layer) else 0
    passes = np.bincount(layer, minlength=count)
    _, first = np.unique(layer, return_index=True)
    kept = np.sort(first)  # rows that stay, in order
    new_of_layer = np.zeros(count, dtype=np.int64)
    new_of_layer[layer[kept]] = np.arange(len(kept))
    row = new_of_layer[layer]  # every old row's new one
    calls, call, call_passes = _calls(graph, kept)
    columns = {name: column[kept] for name, column in graph.ops.columns().items()}
    columns["passno"] = np.ones(len(kept), dtype=np.int64)
    columns["call"] = call[columns["call"]]
    columns["time"] = np.bincount(row, graph.ops.time, minlength=len(kept)).astype(np.int64)
    edges, notes = _edges(graph, row, passes)
    exits = np.column_stack([row[graph.exits[:, 0]], call[graph.exits[:, 1]]])
    op_params = np.column_stack([row[graph.op_params[:, 0]], graph.op_params[:, 1]])
    branches = {branch.row: branch for branch in (b._replace(row=int(row[b.row])) for b in graph.branches)}
    whole = replace(
        graph,
        ops=Ops(len(kept), **columns),
        edges=edges,
        calls=calls,
        op_params=np.unique(op_params, axis=0),
        exits=np.unique(exits[exits[:, 1] >= 0], axis=0),
        branches=tuple(branches.values()),
    )
    return Rolled(whole, row, passes[layer[kept]].tolist(), call_passes, notes)


def _calls(graph: Graph, kept: np.ndarray) -> tuple[Calls, np.ndarray, list[int]]:
    """The module calls in which a row stays, each old call's new number (-1 for none), and how many calls of
    its module each stands for. The last of the numbers is no call's."""
    calls = graph.calls
    staying = np.zeros(len(calls), dtype=bool)
    staying[graph.ops.call[kept][graph.ops.call[kept] >= 0]] = True
    for call in range(len(calls) - 1, -1, -1):
        if staying[call] and calls.parent[call] >= 0:
            staying[calls.parent[call]] = True
    number = np.append(np.where(staying, np.cumsum(staying) - 1, -1), -1)  # of no call, -1, there is none
    stays = np.flatnonzero(staying)
    parent = number[calls.parent[stays]]
    start, stop = (np.searchsorted(kept, column[stays]) for column in (calls.start, calls.stop))
    new = Calls(calls.module[stays], calls.passno[stays], parent, start, stop)
    before = np.bincount(calls.module, minlength=len(graph.modules))
    after = np.bincount(new.module, minlength=len(graph.modules))
    return new, number, [int(before[m]) if after[m] == 1 else 1 for m in new.module.tolist()]


def _edges(graph: Graph, row: np.ndarray, passes: np.ndarray) -> tuple[Edges, dict[int, tuple[str, str]]]:
    old, ops = graph.edges, graph.ops
    served: dict[tuple[int, int, int], tuple[list[int], list[int]]] = {}
    for src, dst, arg in zip(old.src.tolist(), old.dst.tolist(), old.arg.tolist(), strict=True):
        out, into = served.setdefault((int(row[dst]), int(row[src]), arg), ([], []))
        out.append(int(ops.passno[src]))
        into.append(int(ops.passno[dst]))
    keys = sorted(served)
    layers = np.zeros(len(graph.ops), dtype=np.int64)
    layers[row] = ops.layer
    notes = {}
    for edge, key in enumerate(keys):
        sides = [
            ranges(side) if len(set(side)) < passes[layers[end]] else ""
            for side, end in zip(served[key], (key[1], key[0]), strict=True)
        ]
        if any(sides):
            notes[edge] = (sides[0], sides[1])
    table = np.array(keys, dtype=np.int64).reshape(-1, 3)
    return Edges(table[:, 1], table[:, 0], table[:, 2]), notes
