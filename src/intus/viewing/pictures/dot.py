"""Write the visible part of a graph in Graphviz's language, with open boxes as clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .theme import theme

Box = Mapping[str, Any]


def dot(diagram: Mapping[str, Any], *, direction: str = "down", dark: bool = False) -> str:
    """Return a diagram as a ``digraph`` in Graphviz's language. Graphviz makes its own layout.

    Args:
        diagram: What the picture would show; see ``draw.diagram``.
        direction: The direction of the data flow: ``"down"`` or ``"right"``.
        dark: Whether to use the dark theme's colors.
    """
    colors = theme(dark)
    title = _quoted(diagram["title"])
    lines = [
        f"digraph {title} {{",
        f"  label={title}; labelloc=t; compound=true;",
        f'  rankdir={"LR" if direction == "right" else "TB"}; bgcolor="{colors["bg"]}"; '
        f'fontname="Helvetica"; fontcolor="{colors["text"]}";',
        '  node [fontname="Helvetica", fontsize=11, style="filled,rounded"];',
        f'  edge [fontname="Helvetica", fontsize=9, color="{colors["edge"]}", '
        f'fontcolor="{colors["edge-label"]}"];',
        *_boxes(diagram["boxes"], colors),
        *map(_edge, diagram["edges"]),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _boxes(boxes: list[Box], colors: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of clusters and nodes; the end of a cluster follows its contents."""
    inside: dict[int, list[Box]] = {}
    for box in boxes:
        inside.setdefault(box["parent"], []).append(box)
    stack = [(box, True) for box in reversed(inside.get(0, []))]
    while stack:
        box, is_start = stack.pop()
        indent = "  " * box["depth"]
        if not is_start:
            yield f"{indent}}}"
        elif not box["open"]:
            yield f"{indent}{_node(box)}"
        else:
            fill = colors["frame-a" if box["depth"] % 2 else "frame-b"]
            yield f"{indent}subgraph cluster_{box['id']} {{"
            yield (
                f"{indent}  label={_quoted(box['title'] + '  ' + box['subtitle'])}; labeljust=l; "
                f'style="filled,rounded"; fillcolor="{fill}"; color="{colors["frame-line"]}";'
            )
            stack += [(box, False), *((child, True) for child in reversed(inside.get(box["id"], [])))]


def _node(box: Box) -> str:
    shape, style = ("box", "filled,rounded") if box["boxed"] else ("ellipse", "filled")
    label = "\n".join(filter(None, (box["title"], box["subtitle"], *box["details"])))
    return (
        f"n{box['id']} [label={_quoted(label)}, tooltip={_quoted(_plain(box['facts']))}, shape={shape}, "
        f'style="{style}{",dashed" if box["dashed"] else ""}", fillcolor="{box["fill"]}", '
        f'color="{box["line"]}", fontcolor="{box["ink"]}"];'
    )


def _edge(edge: Mapping[str, Any]) -> str:
    label = " · ".join(filter(None, (edge["label"], edge["branch"])))
    ends = "".join(
        f", {end}label={_quoted(edge[name])}"
        for end, name in (("tail", "out"), ("head", "into"))
        if edge[name]
    )
    return f"  n{edge['from']} -> n{edge['to']} [label={_quoted(label)}{ends}];"


def _plain(text: str) -> str:
    """Replace backslashes, because in tooltips Graphviz interprets even escaped ones as escapes."""
    return text.replace("\\", "\N{SET MINUS}")


def _quoted(text: str) -> str:
    """Quote a string for Graphviz, with backslashes, quotes, newlines and ampersands escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped.replace("&", "&amp;")}"'
