"""The edges of every container: a tensor's way is cut at each border it crosses, and a port joins the parts.
A level needs nothing but itself to be laid out, and does not change when boxes open or close."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .tree import Tree


@dataclass(slots=True, eq=False)
class LevelEdge:
    """An edge between two members of one container: children, or ports on its border (ids from
    ``Levels.first_port`` on). ``raw`` are the scene's edges that run along it; ``out_port`` and ``in_port``
    are where it goes on inside, when its ends are containers, else -1."""

    source: int
    target: int
    raw: list[int]
    out_port: int = -1
    in_port: int = -1


class Level(NamedTuple):
    """What one container holds."""

    edges: list[LevelEdge]
    ins: list[int]
    outs: list[int]


class Levels:
    """The level of every container of a tree, by its box. Works downwards: when a container is finished,
    what its edges need further inside is already noted."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.first_port = self._next_port = len(tree.nodes)
        self._pending: dict[int, dict[tuple[int, int], LevelEdge]] = {}
        self._ports: dict[
            tuple[int, int], dict[tuple[int, ...], int]
        ] = {}  # by container and side: 0 in, 1 out
        self._start()
        self._levels = {
            node.id: self._finish(node.id) for node in tree.preorder() if node.id == 0 or node.children
        }

    def __getitem__(self, container: int) -> Level:
        return self._levels[container]

    def tensors(self, edge: LevelEdge) -> list[int]:
        """Rows whose tensors run along an edge, each once."""
        src = self.tree.scene["edges"]["src"]
        return sorted({src[raw] for raw in edge.raw})

    def _start(self) -> None:
        """Note every edge in the smallest container that holds both its ends."""
        nodes, box_of = self.tree.nodes, self.tree.box_of
        edges = self.tree.scene["edges"]
        for raw, (src, dst) in enumerate(zip(edges["src"], edges["dst"], strict=True)):
            a, b = box_of[src], box_of[dst]
            if a < 0 or b < 0 or (a == b and src != dst) or raw in self.tree.hidden:
                continue
            while nodes[a].depth > nodes[b].depth:
                a = nodes[a].parent
            while nodes[b].depth > nodes[a].depth:
                b = nodes[b].parent
            while nodes[a].parent != nodes[b].parent:
                a, b = nodes[a].parent, nodes[b].parent
            self._add(nodes[a].parent, a, b, raw)

    def _finish(self, container: int) -> Level:
        edges = list(self._pending.pop(container, {}).values())
        for edge in edges:
            if self._is_container(edge.target):
                self._enter(edge)
            if self._is_container(edge.source):
                self._leave(edge)
        ins, outs = (list(self._ports.get((container, side), {}).values()) for side in (0, 1))
        return Level(edges, ins, outs)

    def _enter(self, edge: LevelEdge) -> None:
        dst = self.tree.scene["edges"]["dst"]
        edge.in_port = self._port(edge.target, 0, edge)
        for raw in edge.raw:
            self._add(edge.target, edge.in_port, self._child_towards(edge.target, dst[raw]), raw)

    def _leave(self, edge: LevelEdge) -> None:
        src = self.tree.scene["edges"]["src"]
        edge.out_port = self._port(edge.source, 1, edge)
        seen = set()  # a tensor that leaves for two places leaves once
        for raw in edge.raw:
            if src[raw] not in seen:
                self._add(edge.source, self._child_towards(edge.source, src[raw]), edge.out_port, raw)
            seen.add(src[raw])

    def _is_container(self, end: int) -> bool:
        return end < self.first_port and bool(self.tree.nodes[end].children)

    def _child_towards(self, container: int, row: int) -> int:
        nodes, box = self.tree.nodes, self.tree.box_of[row]
        while nodes[box].parent != container:
            box = nodes[box].parent
        return box

    def _add(self, container: int, source: int, target: int, raw: int) -> None:
        edges = self._pending.setdefault(container, {})
        edge = edges.get((source, target))
        if edge:
            edge.raw.append(raw)
        else:
            edges[source, target] = LevelEdge(source, target, [raw])

    def _port(self, container: int, side: int, edge: LevelEdge) -> int:
        known = self._ports.setdefault((container, side), {})
        key = tuple(self.tensors(edge))
        if key not in known:
            known[key] = self._next_port
            self._next_port += 1
        return known[key]
