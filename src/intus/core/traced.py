"""A graph of a pass with values as numpy arrays, as other frameworks and model files give it to ``Trace``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from .graph import Graph


class Traced(NamedTuple):
    """A graph and the values that are known.

    Attributes:
        graph: The graph.
        values: Values by row of the graph; empty if nothing was computed.
        params: The values of parameters by address, as far as they are known; they may be read on access.
    """

    graph: Graph
    values: Mapping[int, np.ndarray]
    params: Mapping[str, np.ndarray] = MappingProxyType({})
