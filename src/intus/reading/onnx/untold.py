"""Find the modules of which a file does not tell how often they were called.

An optimizer that merges the operations of two modules names one of them, as when it folds a BatchNorm into
the convolution before it. Of the other, what it has left is that an operation uses its parameters.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import replace
from math import gcd

import numpy as np

from ...core.graph import OP, Graph

_FEW = 3


def with_untold(graph: Graph, told: Collection[str], unsure: Collection[int]) -> Graph:
    """Return a graph that says of which modules a call may be several, and which may have been called.

    A call of a module in a row with another cannot be told from a longer one if no node states which call it
    is of. As every call of a module runs the same operations on the same parameters, all that is in it comes
    a multiple of the times that it is called. What does not depend on parameters may be computed once for
    all calls, so it counts only in modules without parameters.

    What leaves such a call is what the last of them returned. All of them ended with the same operations, so
    any result of these in it may be what the first returned.

    Args:
        graph: The graph.
        told: The addresses of modules of which the file tells the calls.
        unsure: The rows of operations that may be those of other modules than their own too.

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
    unplaced = _unplaced(graph, set(unsure))
    if not several and not unplaced:
        return graph
    kept = [(row, call) for row, call in graph.exits.tolist() if call not in several]
    untold = {address: most[address] for address in dict.fromkeys(several.values())}
    notes = [note(some) for note, some in ((_in_a_row, untold), (_nowhere, unplaced)) if some]
    facts = {
        "notes": [*graph.facts.get("notes", ()), *notes],
        "untold_calls": untold | unplaced,
        "unknown_outputs": sorted(graph.unknown_outputs | several.keys()),
    }
    pairs = sorted(kept + exits, key=lambda pair: pair[1])
    return replace(graph, exits=np.array(pairs, np.int64).reshape(-1, 2), facts={**graph.facts, **facts})


def _unplaced(graph: Graph, unsure: set[int]) -> dict[str, int]:
    """Return the modules without a call that may have one, with the most operations that use a parameter.

    That is if an operation that may be theirs uses a parameter or buffer of their own.
    """
    called = set(graph.calls.module.tolist())
    uses = {number: graph.state_uses(number) for number in range(len(graph.modules)) if number not in called}
    return {
        graph.modules[number].address: max(len(set(graph.ops.event[rows].tolist())) for rows in some)
        for number, some in uses.items()
        if any(not unsure.isdisjoint(rows) for rows in some)
    }


def _in_a_row(untold: Collection[str]) -> str:
    """Return the sentence that tells modules of which a call may be several.

    >>> _in_a_row(["a", "b"])
    "The file does not tell calls in a row of 'a', 'b' apart: all that is in such a module is there again."
    """
    return (
        f"The file does not tell calls in a row of {_named(untold)} apart: all that is in such a module is "
        "there again."
    )


def _nowhere(unplaced: Collection[str]) -> str:
    """Return the sentence that tells modules without a call that may have been called.

    >>> _nowhere(["conv"])
    "The file does not state which operations are those of 'conv': others use the parameters."
    """
    return (
        f"The file does not state which operations are those of {_named(unplaced)}: others use the "
        "parameters."
    )


def _named(addresses: Collection[str]) -> str:
    names = [repr(address) for address in addresses]
    more = f" and {len(names) - _FEW} more" * (len(names) > _FEW)
    return f"{', '.join(names[:_FEW])}{more}"
