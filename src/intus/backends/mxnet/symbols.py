"""Read and change the graph of a symbol by its JSON."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import mxnet as mx
from mxnet.symbol import Symbol

#: The beginning of the names of the operations that are added to read tensors and their gradients.
TAP = "intus_tap_"


def nodes(symbol: Symbol) -> list[dict[str, Any]]:
    """Return the nodes of a symbol: variables and operations, each after its inputs."""
    found: list[dict[str, Any]] = json.loads(symbol.tojson())["nodes"]
    return found


def identity(symbol: Symbol, **options: Any) -> Symbol:
    """Return the identity of a symbol, of the same kind; ``options`` are those of ``mx.symbol.identity``."""
    result = mx.symbol.identity(symbol.as_nd_ndarray(), **options)
    return result.as_np_ndarray() if isinstance(symbol, mx.symbol.numpy._Symbol) else result


def program(symbol: Symbol) -> list[Any]:
    """Return the operations of a graph without taps and names, to compare two graphs."""
    graph = json.loads(symbol.tojson())
    places: list[tuple[int, int | None]] = []  # of each node, with the output that it stands for
    found: list[Any] = []

    def entry(source: list[int]) -> tuple[int, int]:
        place, output = places[source[0]]
        return place, source[1] if output is None else output

    for node in graph["nodes"]:
        inputs = [entry(source) for source in node["inputs"]]
        if TAP in node["name"]:
            places.append(inputs[0])
            continue
        places.append((len(found), None))
        name = node["name"] if node["op"] == "null" else ""
        found.append((node["op"], name, node.get("attrs", {}), inputs, node.get("subgraphs")))
    return [*found, [entry(head) for head in graph["heads"]]]


def equal_operations(program: list[Any]) -> str | None:
    """Return the type of an operation that a program runs twice on the same inputs, or None.

    Args:
        program: The result of ``program``.
    """
    seen: set[str] = set()
    for one in program[:-1]:
        if one[0] != "null" and repr(one) in seen:
            return str(one[0])
        seen.add(repr(one))
    return None


def with_taps(symbol: Symbol, names: Collection[str]) -> Symbol:
    """Return a graph of the same values in which an identity follows the first output of some operations.

    Its name is ``TAP`` and that of the operation. Outputs of the graph get none, because their gradient does
    not come from another operation.

    Args:
        symbol: The graph.
        names: The names of the operations.
    """
    graph = json.loads(symbol.tojson())
    heads = {head[0] for head in graph["heads"]}
    numbers: list[int] = []
    tapped: dict[int, int] = {}
    found: list[dict[str, Any]] = []

    def entry(source: list[int]) -> list[int]:
        node, output, *rest = source
        if output == 0 and node in tapped:
            return [tapped[node], 0, *rest]
        return [numbers[node], output, *rest]

    for at, node in enumerate(graph["nodes"]):
        numbers.append(len(found))
        found.append({**node, "inputs": [entry(source) for source in node["inputs"]]})
        if node["op"] != "null" and node["name"] in names and at not in heads:
            tapped[at] = len(found)
            found.append({"op": "_copy", "name": TAP + node["name"], "inputs": [[numbers[at], 0, 0]]})
    graph["nodes"] = found
    graph["arg_nodes"] = [numbers[at] for at in graph["arg_nodes"]]
    graph["heads"] = [entry(head) for head in graph["heads"]]
    graph.pop("node_row_ptr", None)
    return mx.symbol.load_json(json.dumps(graph))


def entries(symbol: Symbol, table: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return the node and output of every internal of a symbol.

    Nodes and internals have the same order, but only internals list the outputs that a node shows.
    """
    names = symbol.get_internals().list_outputs()
    found: list[tuple[int, int]] = []
    at = 0
    for number, node in enumerate(table):
        if node["op"] == "null":
            found.append((number, 0))
            at += 1
            continue
        following = table[number + 1]["name"] if number + 1 < len(table) else None
        own: list[str] = []
        while at < len(names) and names[at] not in own and _is_of(names[at], node["name"], following):
            own.append(names[at])
            found.append((number, len(own) - 1))
            at += 1
    return found


def _is_of(entry: str, node: str, following: str | None) -> bool:
    """Return whether an internal belongs to a node, and not to the one that follows."""
    if not entry.startswith(f"{node}_"):
        return False
    longer = following is not None and following.startswith(f"{node}_")
    return not (longer and (entry == following or entry.startswith(f"{following}_")))
