"""One row of a trace's graph, which every question about an op starts from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from ...core.graph import Graph

if TYPE_CHECKING:
    from ...core.facts import Facts
    from .trace import Trace


class OpRow:
    """A trace and the number of a row in its graph."""

    __slots__ = ("_trace", "row")

    def __init__(self, trace: Trace, row: int) -> None:
        self._trace = trace
        self.row = row

    @property
    def _graph(self) -> Graph:
        return self._trace.graph

    @property
    def _facts(self) -> Facts:
        return self._trace._facts

    def _ops(self, rows: Iterable[int]) -> list[Self]:
        return [type(self)(self._trace, row) for row in rows]


def known(number: int) -> int | None:
    """The number as it is told: None for -1, which stands for "not known" in the graph's columns."""
    return int(number) if number >= 0 else None
