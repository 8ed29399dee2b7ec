"""An overlay's values looked up for boxes, and the colours they give."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ..text import duration, size
from .figures import Figures, count, value
from .style import scale_colour
from .tree import Node, Tree

_TITLES = {"time": "Time", "memory": "Activation memory", "parameters": "Parameters", "flops": "FLOPs"}
_FORMATS = {"time": duration, "memory": size, "parameters": count, "flops": count}


class Colouring(NamedTuple):
    """Values by address; ``name`` is the built-in overlay's, ``""`` for the caller's own."""

    title: str
    values: dict[str, float | None]
    low: float
    high: float
    name: str = ""

    def words(self, number: float) -> str:
        """A value as people write it."""
        return _FORMATS[self.name](number) if self.name else value(number)

    def value(self, node: Node) -> float | None:
        """A box's value: under any of its names, and for a module called once more also under its path."""
        for name in node.names:
            if name in self.values:
                return self.values[name]
        for name in node.names:
            for other in (re.sub(r":\d+$", "", name), f"{name}:1"):
                if other in self.values:
                    return self.values[other]
        return None

    def colour(self, number: float) -> str:
        """The colour of a value."""
        span = self.high - self.low
        return scale_colour((number - self.low) / span if span > 0 else 0.5)


def colouring(painted: dict[str, Any] | str | None, tree: Tree, figures: Figures) -> Colouring | None:
    """What ``overlay.paint`` gave, looked up in the graph's own figures where it is a name. Containers bear
    the sum of what is inside them, and so may lie beyond the scale, which ends at the largest single box."""
    if painted is None:
        return None
    if not isinstance(painted, str):
        return Colouring(**painted)
    column = getattr(figures, painted)
    values: dict[str, float | None] = {}
    high = 0.0
    for node in tree.nodes[1:]:
        if not is_paintable(node) or (painted == "parameters" and not column[node.id]):
            continue
        values[node.address] = column[node.id]
        if not node.children:
            high = max(high, column[node.id])
    return Colouring(_TITLES[painted], values, 0.0, high, painted)


def is_paintable(node: Node) -> bool:
    """Whether a box can be painted at all: inputs, outputs and buffers are not computed."""
    return node.kind in ("op", "module")
