"""A graph of a pass with values as numpy arrays, as other frameworks and model files give it to ``Trace``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from .building import nbytes
from .graph import Graph, Meta, Ops


class Parts(Protocol):
    """The operations of a model file, which can be run again on other tensors."""

    def computed(self, rows: Collection[int], row: int, given: Mapping[int, np.ndarray]) -> np.ndarray | None:
        """Return what operations compute for one of their rows; None if they cannot be run so.

        Args:
            rows: The rows of the operations.
            row: One of them.
            given: Arrays in the place of rows that they begin at. Others are as in the pass.
        """


class Traced(NamedTuple):
    """A graph and the values that are known.

    Attributes:
        graph: The graph.
        values: Values by row of the graph; empty if nothing was computed.
        params: The values of parameters by address, as far as they are known; they may be read on access.
        parts: The operations that ran, to be run again; None if they cannot be.
    """

    graph: Graph
    values: Mapping[int, np.ndarray]
    params: Mapping[str, np.ndarray] = MappingProxyType({})
    parts: Parts | None = None

    def with_shapes(self) -> Traced:
        """Return the same graph with the shapes and sizes of the values, where these are known.

        A framework may record a graph before it runs, when lengths that depend on the data are open.
        """
        ops, known = self.graph.ops, self.graph.metas
        more: dict[Meta, int] = {}
        column = np.array(ops.meta)
        for row, value in self.values.items():
            meta, shape = known[ops.meta[row]], tuple(np.shape(value))
            if shape != meta.shape:
                whole = meta._replace(shape=shape, nbytes=nbytes(shape, meta.dtype))
                column[row] = more.setdefault(whole, len(known) + len(more))
        if not more:
            return self
        shaped = Ops(len(ops), **{**ops.columns(), "meta": column})
        return self._replace(graph=replace(self.graph, metas=(*known, *more), ops=shaped))
