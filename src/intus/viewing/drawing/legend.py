"""Above a picture its name and totals, below it what the colours mean."""

from __future__ import annotations

from typing import NamedTuple

from ...core.graph import CREATED, FAILED, Graph
from ..outline import headline
from .boxes import Painter
from .measure import measure
from .shapes import Curve, Group, Rect, Shape, Text, shown
from .stage import Frame, short
from .style import Theme, scale_colour
from .tree import Node

_WORDS = 11.0


class Header(NamedTuple):
    """What stands above, and the room it takes."""

    group: Group
    width: float
    height: float


def header(title: str, graph: Graph, colours: Theme) -> Header:
    """The model's name, its totals, and the error that ended the pass."""
    title = title if len(title) <= 60 else short(title)
    lines: list[Shape] = [
        Text(0, 8, title, 15, colours["text"], bold=True),
        Text(0, 27, headline(graph), _WORDS, colours["text-soft"]),
    ]
    if graph.error:
        error = shown(f"Raised {graph.error.splitlines()[0]}")
        error = error if len(error) <= 120 else error[:119] + "…"
        lines.append(Text(0, 45, error, _WORDS, colours["error"]))
    width = max(measure(text.words, text.size, text.bold) for text in lines if isinstance(text, Text))
    return Header(Group("", lines), width, 18.0 * len(lines) + 8)


def legend(painter: Painter, frame: Frame, room: float) -> tuple[Group, float, float]:
    """The key, its width and height, in as many rows as the room asks for."""
    if painter.painted:
        return _scale(painter)
    shapes: list[Shape] = []
    x = width = 0.0
    y = 22.0
    for word, node in _kinds(painter, frame).items():
        needs = 22 + measure(word, _WORDS) + 16
        if x and x + needs > room:
            x, y = 0.0, y + 20
        look = painter.look(node)
        radius = 3.0 if node.is_boxed else 6.0
        if word == "folded":
            shapes.append(Rect(x + 2, y - 3, 17, 12, radius, look.fill, look.line, look.weight))
        shapes.append(Rect(x, y - 6, 17, 12, radius, look.fill, look.line, look.weight, look.dashed))
        shapes.append(Text(x + 22, y, word, _WORDS, painter.colours["text-soft"]))
        x += needs
        width = max(width, x - 16)
    return Group("", shapes), width, y + 8 if shapes else 0.0


def _kinds(painter: Painter, frame: Frame) -> dict[str, Node]:
    """What the picture holds, with a box of each kind as its sample."""
    found: dict[str, Node] = {}
    for box in frame.boxes:
        node = box.node
        if box.open:
            continue
        if any(row in painter.marks.decisions for row in node.rows):
            found.setdefault("decision", node)
        elif node.flags & FAILED:
            found.setdefault("raised", node)
        elif node.kind in ("input", "output", "buffer", "constant"):
            found.setdefault(node.kind, node)
        elif node.kind == "group" and node.subtitle in ("input", "output"):
            found.setdefault(f"many {node.subtitle}s", node)
        elif node.children:
            found.setdefault("module, closed" if node.kind == "module" else "folded", node)
        elif node.flags & CREATED:
            found.setdefault("made inside", node)
        elif node.has_params:
            found.setdefault("with parameters", node)
        else:
            found.setdefault("module of one function" if node.is_boxed else "function", node)
    order = (
        "input",
        "with parameters",
        "function",
        "module of one function",
        "module, closed",
        "folded",
        "decision",
    )
    return {word: found[word] for word in (*order, *(w for w in found if w not in order)) if word in found}


def _scale(painter: Painter) -> tuple[Group, float, float]:
    painted, colours = painter.painted, painter.colours
    assert painted is not None
    ink, y = colours["text-soft"], 24.0
    title = shown(short(painted.title))
    start = painted.least if painted.log and painted.least else painted.low
    low = ("≤ " if start > 0 and 0 in painted.values.values() else "") + painted.words(start)
    high = painted.words(painted.high)
    shapes: list[Shape] = [Text(0, y, title, _WORDS, colours["text"], bold=True)]
    x = measure(title, _WORDS, True) + 12
    shapes.append(Text(x, y, low, _WORDS, ink))
    x += measure(low, _WORDS) + 8
    ticks = painted.ticks()
    cells = 30 if ticks else 20
    long = 6.0 * cells
    shapes += [Rect(x + 6 * i, y - 5, 6.5, 10, 0, scale_colour(i / (cells - 1)), "") for i in range(cells)]
    for tick in ticks:
        at = x + long * painted.share(tick)
        shapes.append(Curve([(at, y + 5), (at, y + 9)], ink, 1))
        shapes.append(Text(at, y + 16, painted.words(tick), 9.5, ink, anchor="middle"))
    shapes.append(Text(x + long + 8, y, high, _WORDS, ink))
    return Group("", shapes), x + long + 8 + measure(high, _WORDS), y + (22 if ticks else 10)
