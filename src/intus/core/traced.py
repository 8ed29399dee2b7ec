"""A graph of a pass with values as numpy arrays, as other frameworks and model files give it to ``Trace``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from .graph import Graph


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
