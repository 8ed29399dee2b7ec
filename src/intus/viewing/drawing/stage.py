"""Which boxes stand open, and where everything visible is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..outline import dimensions
from .cells import ASIDE
from .figures import Figures, count
from .layout import Layout, LayoutEdge, LayoutInput, LayoutNode, layout_level
from .levels import LevelEdge, Levels
from .tree import Node, Tree

HEADER = 30
PAD = 14
TITLE, SMALL, LABEL, NOTE = 13.0, 11.0, 10.5, 9.5  # sizes of type
LONGEST_CAPTION = 36
MOST_ENDS = 12  # arrows a box makes room for; more stand closer

Measure = Callable[[str, float, bool], float]


class Placed(NamedTuple):
    """A visible box."""

    node: Node
    x: float
    y: float
    width: float
    height: float
    open: bool


@dataclass(slots=True, eq=False)
class Line:
    """A visible edge: its route, and the shape of its tensor on one of the edges that bear it, at the end
    where several different tensors leave one box."""

    edge: LevelEdge
    container: int
    route: list[float]
    label: str = ""
    label_at_end: bool = False
    arrow: bool = True


class Frame(NamedTuple):
    """Everything visible, with its place."""

    boxes: list[Placed]
    lines: list[Line]
    width: float
    height: float


class Stage:
    """Lays out what is open. ``sideways`` turns the flow from downwards to rightwards; ``gap`` is the
    room between two ranks; the words on boxes are what ``captions`` gives, those at the two ends of an edge
    what ``said`` gives of its raw edges."""

    def __init__(
        self,
        tree: Tree,
        figures: Figures,
        measure: Measure,
        *,
        sideways: bool = False,
        gap: float = 34.0,
        captions: Callable[[Node, Figures], tuple[str, str]] | None = None,
        said: Callable[[list[int]], tuple[str, str]] = lambda raws: ("", ""),
    ) -> None:
        self.tree, self.figures, self.measure, self.sideways = tree, figures, measure, sideways
        self.captions, self.gap, self.said = captions or captions_of, gap, said
        self.levels = Levels(tree)
        self.open = {0}
        self._layouts: dict[int, Layout] = {}
        self._ends: dict[int, dict[int, tuple[list[str], list[str]]]] = {}

    def open_to_depth(self, depth: int) -> None:
        """Open every container down to a depth: 0 shows the model's own children alone. Folds count as no
        depth, and stay closed."""
        self.open = {0}
        levels = [0] * len(self.tree.nodes)
        for node in self.tree.preorder():
            if node.parent < 0 or not node.children:
                continue
            fold = node.kind == "group"
            levels[node.id] = levels[node.parent] + (not fold)
            if levels[node.id] <= depth and not fold:
                self.open.add(node.id)

    def open_all(self) -> None:
        """Open every container, folds too."""
        self.open = {0, *(node.id for node in self.tree.nodes if node.children)}

    def open_readable(self, most: int) -> None:
        """Open the outer containers first, as long as few enough boxes are visible to be read."""
        nodes = self.tree.nodes
        ring = nodes[0].children
        visible = len(ring)
        while ring:
            below: list[int] = []
            for id in ring:
                inside = len(nodes[id].children)
                if inside and nodes[id].kind != "group" and visible + inside <= most:
                    self.open.add(id)
                    visible += inside
                    below += nodes[id].children
            ring = below

    def visible(self, box: int) -> int:
        """The closed box that shows a box: itself, or the outermost closed container around it."""
        seen, node = box, self.tree.nodes[box]
        while node.parent > 0:
            node = self.tree.nodes[node.parent]
            if node.id not in self.open:
                seen = node.id
        return seen

    def frame(self) -> Frame:
        """Lay out every open, visible container, the inner ones first, and place what is in them."""
        self._layouts = {}
        for node in reversed(self._visible()):
            self._layouts[node.id] = self._lay_out(node)
        width, height = self._inner(0)
        frame = Frame([], [], width, height)
        stack = [(0, 0.0, 0.0)]
        while stack:
            id, x, y = stack.pop()
            layout = self._layouts[id]
            self._lines(id, layout, x, y, frame.lines)
            for child in self.tree.nodes[id].children:
                at = (layout.x[child], layout.y[child])
                dx, dy = (at[1], at[0]) if self.sideways else at
                is_open = child in self._layouts
                frame.boxes.append(
                    Placed(self.tree.nodes[child], x + dx, y + dy, *self._size(child), is_open)
                )
                if is_open:
                    stack.append((child, x + dx, y + dy + HEADER))
        return frame

    def _visible(self) -> list[Node]:
        """The open containers within open ones, outer ones first."""
        found, stack = [], [0]
        while stack:
            node = self.tree.nodes[stack.pop()]
            if node.id in self.open:
                found.append(node)
                stack += [child for child in reversed(node.children) if self.tree.nodes[child].children]
        return found

    def _lines(self, id: int, layout: Layout, x: float, y: float, out: list[Line]) -> None:
        first_port, scene = self.levels.first_port, self.tree.scene
        labelled: dict[tuple[int, tuple[int, ...]], Line] = {}  # by source and tensors: who bears the shape
        for edge, route in zip(self.levels[id].edges, layout.routes, strict=True):
            line = Line(edge, id, self._turned(route, x, y), arrow=edge.target < first_port)
            out.append(line)
            if edge.target >= first_port or edge.source >= first_port:
                continue
            tensors = tuple(self.levels.tensors(edge))
            rival = labelled.get((edge.source, tensors))
            if rival and _bend(rival.route) <= _bend(line.route):
                continue
            if rival:
                rival.label = ""
            labelled[edge.source, tensors] = line
            shape = dimensions(scene["metas"][scene["ops"]["meta"][tensors[0]]][0])
            line.label = f"{len(tensors)} tensors" if len(tensors) > 1 else shape
        leaving = Counter(line.edge.source for line in labelled.values())
        for line in labelled.values():
            line.label_at_end = leaving[line.edge.source] > 1

    def _turned(self, route: list[float], x: float, y: float) -> list[float]:
        xs, ys = (route[1::2], route[::2]) if self.sideways else (route[::2], route[1::2])
        return [at for px, py in zip(xs, ys, strict=True) for at in (x + px, y + py)]

    def _lay_out(self, node: Node) -> Layout:
        level = self.levels[node.id]
        nodes = self.tree.nodes
        header = 0.0 if node.id == 0 else self._header_width(node)
        layout = layout_level(
            LayoutInput(
                nodes=[self._layout_node(nodes[id]) for id in node.children],
                ins=level.ins,
                outs=level.outs,
                edges=[
                    LayoutEdge(
                        edge.source,
                        edge.target,
                        self._port_dx(edge.source, edge.out_port),
                        self._port_dx(edge.target, edge.in_port),
                        *(
                            0.0 if self.sideways else self.measure(s, NOTE, False)
                            for s in self.said(edge.raw)
                        ),
                    )
                    for edge in level.edges
                ],
                min_width=0.0 if self.sideways else header,
                rank_gap=self._rank_gap(node) if self.sideways else self.gap,
                inset=6.0 if self.sideways else 12.0,
            )
        )
        return _lengthened(layout, level.outs, level.edges, header) if self.sideways else layout

    def _layout_node(self, node: Node) -> LayoutNode:
        width, height = self._size(node.id)
        pinned = node.kind == "input" or node.subtitle == "input"
        if self.sideways:
            return LayoutNode(node.id, height, width, 0.0, pinned)
        return LayoutNode(node.id, width, height, self._tail(node), pinned)

    def _port_dx(self, end: int, port: int) -> float | None:
        layout = self._layouts.get(end) if port >= 0 else None
        if layout is None:
            return None
        return layout.port_x[port] - layout.width / 2 + (HEADER / 2 if self.sideways else 0)

    def _tail(self, node: Node) -> float:
        scene = self.tree.scene
        if not node.rows:
            return 0.0
        shape = dimensions(scene["metas"][scene["ops"]["meta"][node.rows[0]]][0])
        return 12 + self.measure(shape, LABEL, False)

    def _rank_gap(self, node: Node) -> float:
        """Room for the longest shape between two boxes that stand side by side."""
        tails = (self._tail(self.tree.nodes[id]) for id in node.children)
        return min(110.0, 22 + max(tails, default=22))

    def _inner(self, id: int) -> tuple[float, float]:
        layout = self._layouts[id]
        return (layout.height, layout.width) if self.sideways else (layout.width, layout.height)

    def _size(self, id: int) -> tuple[float, float]:
        """Width and height: of what is inside for an open container, of its words for anything else."""
        if id in self._layouts:
            width, height = self._inner(id)
            return width, height + HEADER
        node = self.tree.nodes[id]
        title, subtitle = self.captions(node, self.figures)
        first = self.measure(title, TITLE, True)
        second = self.measure(subtitle, SMALL, False) if subtitle else 0.0
        button = 22 if node.children else 0
        ends = 0.0 if self.sideways or node.children else self._ends_width(node)
        if not node.is_boxed:
            return max(52, ends, math.ceil(first) + 2 * PAD), 28
        return max(108, ends, math.ceil(max(first, second)) + 2 * PAD + button), 46

    def _ends_width(self, node: Node) -> float:
        """Room for the words beside the arrows of a box, where they bear any."""
        ends = self._ends.get(node.parent)
        if ends is None:
            ends = self._ends[node.parent] = {}
            for edge in self.levels[node.parent].edges:
                start, end = self.said(edge.raw)
                ends.setdefault(edge.source, ([], []))[0].append(start)
                ends.setdefault(edge.target, ([], []))[1].append(end)
        most = 0.0
        for words in ends.get(node.id, ()):
            widest = max((self.measure(word, NOTE, False) for word in words), default=0.0)
            if widest > 7:
                most = max(most, (min(len(words), MOST_ENDS) - 1) * (widest + ASIDE) + 30)
        return most

    def _header_width(self, node: Node) -> float:
        title, subtitle = self.captions(node, self.figures)
        return self.measure(title, TITLE, True) + self.measure(subtitle, SMALL, False) + 22 + 3 * PAD


def _lengthened(layout: Layout, outs: list[int], edges: list[LevelEdge], least: float) -> Layout:
    """A sideways layout long enough for its header, its way out at the new end."""
    if layout.height >= least:
        return layout
    for edge, route in zip(edges, layout.routes, strict=True):
        if edge.target in outs:
            route[-1] = least
    return layout._replace(height=least)


def captions_of(node: Node, figures: Figures) -> tuple[str, str]:
    """The words on a box: title and, below it, what it is."""
    if not node.is_boxed:
        return short(node.title), ""
    parameters = figures.parameters[node.id]
    subtitle = node.subtitle
    if node.kind == "group" and not node.address:
        subtitle = "" if subtitle in ("input", "output") else f"{len(node.children)} × {subtitle}"
    return short(node.title), short(subtitle) + (f" · {count(parameters)}" if parameters else "")


def short(text: str) -> str:
    """Keep both ends of a long name: the end tells most, the beginning says where.

    >>> short("encoder.layers.0.self_attention.dropout.inner")
    'encoder.layers…tention.dropout.inner'
    """
    return text if len(text) <= LONGEST_CAPTION else f"{text[:14]}…{text[15 - LONGEST_CAPTION :]}"


def _bend(route: list[float]) -> float:
    """How far a route goes sideways."""
    total = 0.0
    for i in range(2, len(route), 2):
        total += abs(route[i] - route[i - 2])
    return total
