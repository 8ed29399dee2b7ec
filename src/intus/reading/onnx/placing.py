"""Find the modules of the nodes of an ONNX file that state none, by what they read and what reads them.

Exporters insert nodes, and optimizers rewrite them, without the names of modules. Such a node belongs to the
innermost module call that contains all that makes its inputs and all that uses its results. A module that is
merely near in the file's order tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

import onnx

from ...core.building import Scope

_Scopes = tuple[Scope, ...]


def placed(
    nodes: list[onnx.NodeProto],
    graph: onnx.GraphProto,
    stated: Mapping[str, _Scopes],
    unstated: Mapping[str, _Scopes],
) -> dict[str, _Scopes]:
    """Return the module calls around each node that states none.

    Args:
        nodes: All nodes, each after what it reads; their names and those of their tensors are unique.
        graph: The graph that they are of, for its inputs and outputs.
        stated: The module calls around the other nodes, by their names.
        unstated: The calls of functions and nested graphs around these nodes, by their names. A node is in
            all of those, whatever reads it.
    """
    weights = {tensor.name for tensor in graph.initializer}
    # Of a tensor, the calls that all that made it ran in; None if nothing did, as of weights and constants.
    made: dict[str, _Scopes | None] = {one.name: () for one in graph.input if one.name not in weights}
    for node in nodes:
        own = stated.get(node.name) if node.op_type != "Constant" else None
        if node.name in unstated:
            own = _common(made.get(name) for name in node.input)
        made.update(dict.fromkeys(node.output, own))
    # Of a tensor, the calls that all that uses it ran in, and those of its users that were placed.
    used: dict[str, _Scopes | None] = {one.name: () for one in graph.output}
    direct = dict(used)
    found: dict[str, _Scopes] = {}
    for node in reversed(nodes):
        own = after = stated.get(node.name)
        if node.name in unstated:
            after = _common(used.get(name) for name in node.output)
            before = made[node.output[0]] if node.output else None
            own = _common([before, after])
            if before is None:  # it needs nothing that was computed, so it is where it is used first of all
                own = _common(direct.get(name) for name in node.output)
            around = unstated[node.name]
            own = found[node.name] = own if own and len(own) > len(around) else around
        for name in node.input:
            used[name] = _common([used.get(name), after])
            direct[name] = _common([direct.get(name), own])
    return found


def _common(some: Iterator[_Scopes | None] | list[_Scopes | None]) -> _Scopes | None:
    """Return what several begin with, of those that are not None; None if all are."""
    known = [one for one in some if one is not None]
    return reduce(_beginning, known) if known else None


def _beginning(one: _Scopes, other: _Scopes) -> _Scopes:
    """Return what two begin with.

    >>> a, b, c = Scope("a"), Scope("a.b"), Scope("a.c")
    >>> _beginning((a, b), (a, c)) == (a,)
    True
    """
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return one[:same]
