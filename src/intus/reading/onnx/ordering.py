"""Put the nodes of an ONNX model in an order in which each follows what it reads."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import onnx

from ...core.errors import CodecError
from .inlining import nested


def arrange(model: onnx.ModelProto, path: Path) -> None:
    """Put the nodes of a model, its functions and nested graphs in order, if they are not.

    Args:
        model: The model, which is changed.
        path: Its file, for messages.

    Raises:
        CodecError: If nodes read each other's results in a circle, or one reads a name that nothing makes, or
            two make the same name.
    """
    _arrange(model.graph, _given(model.graph), path)
    for function in model.functions:
        _arrange(function, set(function.input), path)


def _given(graph: onnx.GraphProto) -> set[str]:
    """Return the names that a graph has without its nodes."""
    return {
        *(one.name for one in (*graph.input, *graph.initializer)),
        *(one.values.name for one in graph.sparse_initializer),
    }


def _arrange(graph: Any, known: set[str], path: Path) -> None:
    """Put the nodes of a graph or function in order; ``known`` are the names from outside of its nodes."""
    nodes = list(graph.node)
    makers: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in filter(None, node.output):
            if makers.setdefault(name, number) != number:
                raise CodecError(
                    f"{str(path)!r} is damaged: {_called(nodes[makers[name]])} and {_called(node)} both make "
                    f"{name!r}."
                )
    needed: list[set[int]] = []
    for node in nodes:
        reads = set(_reads(node))
        # Not by subtraction, which goes through all keys.
        if missing := sorted(name for name in reads if name not in makers and name not in known):
            raise CodecError(
                f"{str(path)!r} is damaged: {_called(node)} reads {missing[0]!r}, which is no input and no "
                "weight, and which no node makes."
            )
        needed.append({makers[name] for name in reads if name in makers})
    outputs = (one if isinstance(one, str) else one.name for one in graph.output)
    if missing := sorted(set(filter(None, outputs)) - makers.keys() - known):
        raise CodecError(f"{str(path)!r} is damaged: it returns {missing[0]!r}, which no node makes.")
    order = _sorted(needed)
    if len(order) < len(nodes):
        circle = " reads from ".join(_called(nodes[number]) for number in _circle(needed, set(order)))
        raise CodecError(f"{str(path)!r} is damaged: its nodes form a circle, in which {circle}.")
    if order != list(range(len(nodes))):
        copies = [onnx.NodeProto.FromString(nodes[number].SerializeToString()) for number in order]
        del graph.node[:]
        graph.node.extend(copies)
    inside = [inner for node in graph.node for inner in nested(node).values()]
    outer = known | makers.keys() if inside else known
    for inner in inside:
        _arrange(inner, outer | _given(inner), path)


def _reads(node: onnx.NodeProto) -> Iterable[str]:
    """Yield the names that a node reads, also those from outside of its nested graphs in these."""
    yield from filter(None, node.input)
    for graph in nested(node).values():
        own = _given(graph) | {name for inner in graph.node for name in inner.output}
        yield from (name for inner in graph.node for name in _reads(inner) if name not in own)
        yield from (one.name for one in graph.output if one.name and one.name not in own)


def _sorted(needed: Sequence[set[int]]) -> list[int]:
    """Return numbers so that each follows those that it needs, otherwise in their order; none of a circle."""
    dependents: list[list[int]] = [[] for _ in needed]
    for number, some in enumerate(needed):
        for one in some:
            dependents[one].append(number)
    waiting = [len(some) for some in needed]
    ready = [number for number, count in enumerate(waiting) if not count]
    order = []
    while ready:
        order.append(heapq.heappop(ready))
        for one in dependents[order[-1]]:
            waiting[one] -= 1
            if not waiting[one]:
                heapq.heappush(ready, one)
    return order


def _circle(needed: Sequence[set[int]], done: set[int]) -> list[int]:
    """Return numbers of which each needs the next, and the last is the first again."""
    way = [min(set(range(len(needed))) - done)]
    while way[-1] not in way[:-1]:
        way.append(min(needed[way[-1]] - done))
    return way[way.index(way[-1]) :]


def _called(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name!r}" if node.name else f"the {node.op_type} of {list(node.output)!r}"
