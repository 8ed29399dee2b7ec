"""Find the modules of which a file does not tell how often they were called."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import replace
from math import gcd

import numpy as np

from ...core.graph import OP, Graph

_FEW = 3


def with_untold(graph: Graph, told: Collection[str]) -> Graph:
    """Return a graph that says of which modules a call may be several.

    A call of a module in a row with another cannot be told from a longer one if no node states which call it
    is of. As every call of a module runs the same operations on the same parameters, all that is in it comes
    a multiple of the times that it is called. What does not depend on parameters may be computed once for
    all calls, so it counts only in modules without parameters.

    What leaves such a call is what the last of them returned. All of them ended with the same operations, so
    any result of these in it may be what the first returned.

    Args:
        graph: The graph.
        told: The addresses of modules of which the file tells the calls.

    Returns:
        The graph, with the most calls of each such module (``untold_calls``) and all that these may have
        returned (``unknown_outputs``).
    """
    ops, calls = graph.ops, graph.calls
    innermost = np.where(ops.call >= 0, calls.module[ops.call], -1)
    alike = list(zip(ops.type.tolist(), ops.setting.tolist(), innermost.tolist(), strict=True))
    params: dict[int, list[int]] = defaultdict(list)
    for row, param in graph.op_params.tolist():
        if "." in graph.params[param].address:  # a weight that the exporter made may be there twice
            params[row].append(param)
    first = ops.kind == OP  # of the results of one operation
    first[1:] &= ops.event[1:] != ops.event[:-1]
    most: Counter[str] = Counter()
    several: dict[int, str] = {}
    exits: list[tuple[int, int]] = []
    for call in range(1, len(calls)):
        address = graph.modules[int(calls.module[call])].address
        if address in told:
            continue
        rows = (np.flatnonzero(first[calls.start[call] : calls.stop[call]]) + calls.start[call]).tolist()
        uses = Counter((alike[row], param) for row in rows for param in params.get(row, ()))
        times = gcd(*(uses or Counter(alike[row] for row in rows)).values())
        most[address] += max(1, times)
        if times > 1:
            several[call] = address
            ends = {(alike[row], int(ops.output[row])) for row in graph.call_outputs.get(call, ())}
            inside = range(int(calls.start[call]), int(calls.stop[call]))
            exits += [(row, call) for row in inside if (alike[row], int(ops.output[row])) in ends]
    if not several:
        return graph
    kept = [(row, call) for row, call in graph.exits.tolist() if call not in several]
    untold = {address: most[address] for address in dict.fromkeys(several.values())}
    facts = {
        "notes": [*graph.facts.get("notes", ()), _note(untold)],
        "untold_calls": untold,
        "unknown_outputs": sorted(graph.unknown_outputs | several.keys()),
    }
    pairs = sorted(kept + exits, key=lambda pair: pair[1])
    return replace(graph, exits=np.array(pairs, np.int64).reshape(-1, 2), facts={**graph.facts, **facts})


def _note(untold: Collection[str]) -> str:
    """Return the sentence that tells these modules.

    >>> _note(["a", "b"])
    "The file does not tell calls in a row of 'a', 'b' apart: all that is in such a module is there again."
    """
    names = [repr(address) for address in untold]
    more = f" and {len(names) - _FEW} more" * (len(names) > _FEW)
    return (
        f"The file does not tell calls in a row of {', '.join(names[:_FEW])}{more} apart: all that is in "
        "such a module is there again."
    )
