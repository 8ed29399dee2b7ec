"""A picture's boxes and edges in Graphviz's language, open containers as clusters; Graphviz lays them out."""

from __future__ import annotations

from collections.abc import Iterator

from ..outline import dimensions, headline
from .boxes import Painter
from .labels import ends_said
from .picture import Plan
from .shapes import shown
from .style import theme
from .tree import Node


def dot(plan: Plan, *, title: str = "", dark: bool = False) -> str:
    """The graph as one ``digraph``."""
    colours = theme(dark)
    painter = Painter(plan.stage, colours, plan.colouring, plan.marks)
    name = title or plan.graph.model
    lines = [
        f"digraph {_quoted(name)} {{",
        f"  label={_quoted(f'{name}: {headline(plan.graph)}')}; labelloc=t; compound=true;",
        f'  rankdir={"LR" if plan.stage.sideways else "TB"}; bgcolor="{colours["bg"]}"; '
        f'fontname="Helvetica"; fontcolor="{colours["text"]}";',
        '  node [fontname="Helvetica", fontsize=11, style="filled,rounded"];',
        f'  edge [fontname="Helvetica", fontsize=9, color="{colours["edge"]}", '
        f'fontcolor="{colours["edge-label"]}"];',
        *_boxes(painter),
        *_edges(plan),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _boxes(painter: Painter) -> Iterator[str]:
    """Clusters and nodes, each cluster closed after what it holds."""
    stage, colours = painter.stage, painter.colours
    nodes = stage.tree.nodes
    stack = [(child, True) for child in reversed(nodes[0].children)]
    while stack:
        id, begins = stack.pop()
        node = nodes[id]
        indent = "  " * node.depth
        if not begins:
            yield f"{indent}}}"
        elif id in stage.open:
            title, subtitle = stage.captions(node, stage.figures)
            fill = colours["frame-a" if node.depth % 2 else "frame-b"]
            yield f"{indent}subgraph cluster_{id} {{"
            yield (
                f'{indent}  label={_quoted(f"{title}  {subtitle}")}; labeljust=l; style="filled,rounded"; '
                f'fillcolor="{fill}"; color="{colours["frame-line"]}";'
            )
            stack += [(id, False), *((child, True) for child in reversed(node.children))]
        else:
            yield f"{indent}{_node(painter, node)}"


def _node(painter: Painter, node: Node) -> str:
    look = painter.look_painted(node)
    title, subtitle = painter.captions(node)
    shape = "box" if node.is_boxed else "ellipse"
    style = "filled,rounded" if node.is_boxed else "filled"
    words = _quoted(f"{title}\n{subtitle}" if subtitle else title)
    return (
        f"n{node.id} [label={words}, tooltip={_quoted(_plain(painter.facts(node)))}, shape={shape}, "
        f'style="{style}{",dashed" if look.dashed else ""}", fillcolor="{look.fill}", color="{look.line}", '
        f'fontcolor="{look.ink}"];'
    )


def _edges(plan: Plan) -> Iterator[str]:
    tree, scene = plan.stage.tree, plan.stage.tree.scene
    joined: dict[tuple[int, int], list[int]] = {}
    for raw, (src, dst) in enumerate(zip(scene["edges"]["src"], scene["edges"]["dst"], strict=True)):
        a, b = tree.box_of[src], tree.box_of[dst]
        if a < 0 or b < 0 or raw in tree.hidden:
            continue
        ends = plan.stage.visible(a), plan.stage.visible(b)
        if ends[0] != ends[1] or src == dst:
            joined.setdefault(ends, []).append(raw)
    for (a, b), raws in joined.items():
        rows = sorted({scene["edges"]["src"][raw] for raw in raws})
        shape = dimensions(scene["metas"][scene["ops"]["meta"][rows[0]]][0])
        words = [f"{len(rows)} tensors" if len(rows) > 1 else shape]
        words += ["IF"] if any(raw in plan.marks.starts for raw in raws) else []
        tail, head = ends_said(plan, raws)
        said = "".join(
            f", {end}label={_quoted(what)}" for end, what in (("tail", tail), ("head", head)) if what
        )
        yield f"  n{a} -> n{b} [label={_quoted(' · '.join(words))}{said}];"


def _plain(words: str) -> str:
    """Words without backslashes: in tooltips Graphviz takes even escaped ones for escapes."""
    return words.replace("\\", "\N{SET MINUS}")


def _quoted(words: str) -> str:
    """A string of the language; a backslash would begin an escape, an ampersand an entity of HTML, and a
    newline is one."""
    lines = (shown(line).replace("\\", "\\\\").replace('"', '\\"') for line in words.split("\n"))
    return '"' + "\\n".join(lines).replace("&", "&amp;") + '"'
