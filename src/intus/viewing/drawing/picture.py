"""From a graph to a picture: the boxes that stand open, where they stand, and the shapes that show them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.flops import flops
from ...core.graph import Graph
from ..outline import headline
from ..overlay import Overlay, paint
from ..scene import scene
from .boxes import Painter
from .colouring import Colouring, colouring
from .figures import Figures, figures
from .folds import unite
from .labels import labels_of, said
from .legend import header, legend
from .lines import shapes_of
from .marks import Marks, marks
from .measure import measure
from .rolled import Rolled
from .rolled import rolled as roll
from .shapes import Group, Picture, Rect, shown
from .stage import Frame, Stage, captions_of, short
from .style import theme
from .tree import Node, Tree, build_tree

READABLE = 26  # boxes open at first
MARGIN = 16.0


class Plan(NamedTuple):
    """A graph laid out: what is open, where it stands, and what is to be said of it. Where it is rolled,
    ``graph`` is the whole one, and marks and notes go by rows and edges of the rolled."""

    graph: Graph
    stage: Stage
    frame: Frame
    marks: Marks
    notes: dict[int, tuple[str, str]]
    colouring: Colouring | None


def plan(
    graph: Graph,
    *,
    depth: float | None = None,
    rolled: bool = False,
    direction: str = "down",
    overlay: Overlay = None,
) -> Plan:
    """Lay a graph out.

    ``depth`` is how many levels of modules stand open, as many as stay readable by default, ``math.inf`` for
    all; ``rolled`` shows the passes of a recurrent layer, and equal modules in a row, as one with a count;
    ``direction`` is where the data flows: ``"down"`` or ``"right"``.
    """
    passes = roll(graph) if rolled else None
    whole, graph = graph, passes.graph if passes else graph
    told = marks(graph)
    data = scene(graph)
    if passes:
        data["ops"]["flops"] = _summed(whole, passes)
    tree = build_tree(data)
    sums = figures(tree)
    if passes:
        _count(tree.nodes, passes)
        for first, fold in unite(tree).items():
            for column in sums:
                column[first] = column[fold]
    told = told._replace(arguments=_told_apart(told.arguments, tree))
    notes = passes.notes if passes else {}
    stage = Stage(
        tree,
        sums,
        measure,
        sideways=direction == "right",
        gap=48.0 if rolled else 34.0,
        captions=lambda node, sums: _captions(node, sums, told.decisions, tree),
        said=lambda raws: said(notes, told.arguments, raws),
    )
    if depth is None:
        stage.open_readable(READABLE)
    elif depth == float("inf"):
        stage.open_all()
    else:
        stage.open_to_depth(int(depth))
    frame = stage.frame()
    closed = [box.node for box in frame.boxes if not box.open]
    painted = colouring(paint(overlay), tree, sums, closed)
    return Plan(whole, stage, frame, told, notes, painted)


def picture(plan: Plan, *, title: str = "", dark: bool = False) -> Picture:
    """The shapes of a laid-out graph, its totals above and its key below."""
    graph, stage, frame = plan.graph, plan.stage, plan.frame
    colours = theme(dark)
    title = shown(title or graph.model)
    top = header(title, graph, colours)
    painter = Painter(stage, colours, plan.colouring, plan.marks)
    key, key_width, key_height = legend(painter, frame, max(frame.width, 300.0))
    width = max(frame.width, top.width, key_width) + 2 * MARGIN
    x, y = (width - frame.width) / 2, MARGIN + top.height
    groups = [painter.frame(box) for box in frame.boxes if box.open]
    groups.append(Group("", [shape for line in frame.lines for shape in shapes_of(line, stage, colours)]))
    groups += [painter.box(box) for box in frame.boxes if not box.open]
    groups += [painter.header(box) for box in frame.boxes if box.open]
    groups.append(Group("", [*labels_of(plan, colours)]))
    ground = Rect(0, 0, width, y + frame.height + key_height + MARGIN, 0, colours["bg"], "")
    return Picture(
        ground.width,
        ground.height,
        colours["bg"],
        title,
        f"{headline(graph)}." + (f" {shown(graph.error)}" if graph.error else ""),
        [
            top.group.moved(MARGIN, MARGIN),
            *(group.moved(x, y) for group in groups),
            key.moved(MARGIN, y + frame.height),
        ],
    )


def _summed(graph: Graph, passes: Rolled) -> list[float | None]:
    """The FLOPs of every row, its passes together; None where one of them is not known."""
    each = flops(graph)
    total = np.bincount(passes.rows, each, minlength=len(passes.op_passes))
    unknown = np.bincount(passes.rows, each < 0, minlength=len(total)) > 0
    return [None if lost else known for known, lost in zip(total.tolist(), unknown.tolist(), strict=True)]


def _count(nodes: list[Node], passes: Rolled) -> None:
    for node in nodes:
        if node.kind == "module":
            node.passes = passes.call_passes[node.call]
        elif node.kind == "op":
            node.passes = passes.op_passes[node.rows[0]]


def _told_apart(arguments: dict[int, str], tree: Tree) -> dict[int, str]:
    """The arguments of boxes to which several lead, those from inside the box itself aside."""
    src, dst = (tree.scene["edges"][name] for name in ("src", "dst"))
    into: dict[int, dict[int, str]] = {}
    for edge, name in arguments.items():
        if tree.box_of[src[edge]] != tree.box_of[dst[edge]]:
            into.setdefault(tree.box_of[dst[edge]], {})[edge] = name
    return {e: name for names in into.values() if len(set(names.values())) > 1 for e, name in names.items()}


def _captions(node: Node, sums: Figures, decisions: dict[int, str], tree: Tree) -> tuple[str, str]:
    """The page's words on a box, with its pass, its count of passes, or what was decided on it."""
    title, subtitle = captions_of(node, sums)
    if node.kind == "buffer":  # its type is its address
        title = short(tree.scene["types"][tree.scene["ops"]["type"][node.rows[0]]])
    if node.passes > 1:
        title += f" (x{node.passes})"
    elif node.kind == "op" and ":" in node.address:
        title += node.address[node.address.rindex(":") :]
    decision = next((decisions[row] for row in node.rows if row in decisions), "")
    return shown(f"{title} · {decision}" if decision else title), shown(subtitle)
