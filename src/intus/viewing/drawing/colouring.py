"""An overlay's values looked up for boxes, and the colours they give."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..outline import duration, size
from .figures import Figures, count, value
from .style import scale_colour
from .tree import Node, Tree

_TITLES = {"time": "Time", "memory": "Activation memory", "parameters": "Parameters", "flops": "FLOPs"}
_FORMATS = {"time": duration, "memory": size, "parameters": count, "flops": count}

WIDE = 100  # from this ratio on, by amount nearly all boxes would look alike
MOST_TICKS = 3


class Colouring(NamedTuple):
    """Values by address; ``name`` is the built-in overlay's, ``""`` for the caller's own; ``log`` whether
    colour goes by power rather than by amount, ``least`` the least amount above zero (see ``scaled``)."""

    title: str
    values: dict[str, float | None]
    low: float
    high: float
    name: str = ""
    log: bool | None = None
    least: float | None = None

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
        return scale_colour(self.share(number))

    def share(self, number: float) -> float:
        """0 at the low end and 1 at the high end; by power, zero stands with the least."""
        if self.log and self.least:
            return math.log(number / self.least) / math.log(self.high / self.least) if number > 0 else 0.0
        span = self.high - self.low
        return (number - self.low) / span if span > 0 else 0.5

    def ticks(self) -> list[float]:
        """The powers of ten (of two for bytes) that are marked on a scale by power."""
        if not self.log or not self.least:
            return []
        binary = self.name == "memory"
        power = math.log2 if binary else math.log10
        # The ends have words of their own.
        first, last = math.floor(power(self.least) + 1e-9) + 1, math.ceil(power(self.high) - 1e-9) - 1
        for step in (1, 2, 5, 10, 20, 40) if binary else (1, 2, 3, 6, 12, 24, 48):
            powers = range(math.ceil(first / step) * step, last + 1, step)
            if len(powers) <= MOST_TICKS:
                return [2.0**p if binary else float(f"1e{p}") for p in powers]
        return []


def scaled(painted: Colouring, amounts: Iterable[float | None]) -> Colouring:
    """The overlay with the least of its amounts, where it has nothing below zero; unless it says otherwise,
    it goes by power where its amounts span more than two decades."""
    least = min((amount for amount in amounts if amount is not None and amount > 0), default=math.inf)
    if painted.low < 0 or least >= painted.high:
        return painted._replace(log=False, least=None)
    wide = painted.high / least > WIDE
    return painted._replace(least=least, log=wide if painted.log is None else painted.log)


def colouring(
    painted: dict[str, Any] | str | None, tree: Tree, figures: Figures, shown: Iterable[Node]
) -> Colouring | None:
    """What ``overlay.paint`` gave, looked up in the graph's own figures where it is a name. Those of a module
    are the sum of what is inside it, so the scale ends at the largest closed box that is ``shown``."""
    if painted is None:
        return None
    if not isinstance(painted, str):
        given = Colouring(**painted)
        return scaled(given, given.values.values())
    column = getattr(figures, painted)
    values: dict[str, float | None] = {
        node.address: column[node.id]
        for node in tree.nodes[1:]
        if is_paintable(node) and (painted != "parameters" or column[node.id])
    }
    ends = [column[node.id] for node in shown if is_paintable(node)]
    return scaled(Colouring(_TITLES[painted], values, 0.0, max(ends, default=0.0), painted), ends)


def is_paintable(node: Node) -> bool:
    """Whether a box can be painted at all: inputs, outputs and buffers are not computed."""
    return node.kind in ("op", "module")
