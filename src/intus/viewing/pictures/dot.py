"""Write what is visible of a graph in Graphviz's language, open boxes as clusters. Graphviz lays it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .theme import theme

Box = Mapping[str, Any]


def dot(diagram: Mapping[str, Any], *, direction: str = "down", dark: bool = False) -> str:
    """Return a diagram (see ``draw.diagram``) as one ``digraph``."""
    colours = theme(dark)
    title = _quoted(diagram["title"])
    lines = [
        f"digraph {title} {{",
        f"  label={title}; labelloc=t; compound=true;",
        f'  rankdir={"LR" if direction == "right" else "TB"}; bgcolor="{colours["bg"]}"; '
        f'fontname="Helvetica"; fontcolor="{colours["text"]}";',
        '  node [fontname="Helvetica", fontsize=11, style="filled,rounded"];',
        f'  edge [fontname="Helvetica", fontsize=9, color="{colours["edge"]}", '
        f'fontcolor="{colours["edge-label"]}"];',
        *_boxes(diagram["boxes"], colours),
        *map(_edge, diagram["edges"]),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _boxes(boxes: list[Box], colours: Mapping[str, str]) -> Iterator[str]:
    """Yield clusters and nodes, each cluster closed after what it holds."""
    inside: dict[int, list[Box]] = {}
    for box in boxes:
        inside.setdefault(box["parent"], []).append(box)
    stack = [(box, True) for box in reversed(inside.get(0, []))]
    while stack:
        box, begins = stack.pop()
        indent = "  " * box["depth"]
        if not begins:
            yield f"{indent}}}"
        elif not box["open"]:
            yield f"{indent}{_node(box)}"
        else:
            fill = colours["frame-a" if box["depth"] % 2 else "frame-b"]
            yield f"{indent}subgraph cluster_{box['id']} {{"
            yield (
                f"{indent}  label={_quoted(box['title'] + '  ' + box['subtitle'])}; labeljust=l; "
                f'style="filled,rounded"; fillcolor="{fill}"; color="{colours["frame-line"]}";'
            )
            stack += [(box, False), *((child, True) for child in reversed(inside.get(box["id"], [])))]


def _node(box: Box) -> str:
    shape, style = ("box", "filled,rounded") if box["boxed"] else ("ellipse", "filled")
    words = box["title"] + (f"\n{box['subtitle']}" if box["subtitle"] else "")
    return (
        f"n{box['id']} [label={_quoted(words)}, tooltip={_quoted(_plain(box['facts']))}, shape={shape}, "
        f'style="{style}{",dashed" if box["dashed"] else ""}", fillcolor="{box["fill"]}", '
        f'color="{box["line"]}", fontcolor="{box["ink"]}"];'
    )


def _edge(edge: Mapping[str, Any]) -> str:
    words = " · ".join(filter(None, (edge["label"], edge["branch"])))
    ends = "".join(
        f", {end}label={_quoted(edge[name])}"
        for end, name in (("tail", "out"), ("head", "into"))
        if edge[name]
    )
    return f"  n{edge['from']} -> n{edge['to']} [label={_quoted(words)}{ends}];"


def _plain(words: str) -> str:
    """Return words without backslashes: in tooltips Graphviz takes even escaped ones for escapes."""
    return words.replace("\\", "\N{SET MINUS}")


def _quoted(words: str) -> str:
    """Return a string of the language, in which backslashes, quotes, newlines and ampersands are escaped."""
    escaped = words.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped.replace("&", "&amp;")}"'
