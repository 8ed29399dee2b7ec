"""An overlay's values looked up for boxes, and the colours they give."""

from __future__ import annotations

import re
from collections.abc import Iterable
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


def colouring(
    painted: dict[str, Any] | str | None, tree: Tree, figures: Figures, shown: Iterable[Node]
) -> Colouring | None:
    """What ``overlay.paint`` gave, looked up in the graph's own figures where it is a name. Those of a module
    are the sum of what is inside it, so the scale ends at the largest closed box that is ``shown``."""
    if painted is None:
        return None
    if not isinstance(painted, str):
        return Colouring(**painted)
    column = getattr(figures, painted)
    values: dict[str, float | None] = {
        node.address: column[node.id]
        for node in tree.nodes[1:]
        if is_paintable(node) and (painted != "parameters" or column[node.id])
    }
    high = max((column[node.id] for node in shown if is_paintable(node)), default=0.0)
    return Colouring(_TITLES[painted], values, 0.0, high, painted)


def is_paintable(node: Node) -> bool:
    """Whether a box can be painted at all: inputs, outputs and buffers are not computed."""
    return node.kind in ("op", "module")
