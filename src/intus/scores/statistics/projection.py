"""Random projection of very wide layers, which bounds the memory of moments (D² numbers for D features)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ...core.errors import require
from ...core.projection import PROJECTED

_PER_FEATURE = 8


class Projection:
    """A seeded sparse random projection to PROJECTED features (Kane and Nelson 2014).

    Each feature is added to eight of the new ones with random signs. This preserves distances as well as a
    dense Gaussian projection, at a fraction of the cost. Layers of at most PROJECTED features are unchanged.

    Args:
        features: Number of features of the rows.
        seed: Seed of the projection.
        before: Number of features of the layer, if its rows were projected before they arrived.

    Attributes:
        given: Number of features of the rows before this projection.
        features: Number of features of the layer.
        width: Number of features after the projection.
    """

    def __init__(self, features: int, seed: int, before: int | None = None) -> None:
        self.given, self.features, self.seed = features, before or features, seed
        self.width = min(features, PROJECTED)

    @property
    def note(self) -> str:
        """A note for the reader of a score; "" if nothing is projected."""
        return f"{self.features} features projected to {self.width}" if self.features > self.width else ""

    @property
    def added(self) -> float:
        """Return what the projection adds to 1 / (participation ratio), on average over its signs.

        It is the share of pairs of features that are added to the same new one. One made before rows arrive
        (``core.projection.project``) puts as many features into each.
        """
        if self.width < self.given:
            return 1 / self.width
        each, more = divmod(self.features, self.width)
        return (more * (each + 1) * each + (self.width - more) * each * (each - 1)) / self.features**2

    @cached_property
    def _matrix(self) -> Any:
        sparse = require("scipy.sparse", extra="server", why="to project wide layers")
        rng = np.random.default_rng([self.seed, self.given])
        rows = np.repeat(np.arange(self.given), _PER_FEATURE)
        columns = rng.integers(0, self.width, len(rows))
        signs = rng.choice([-1.0, 1.0], len(rows)) / np.sqrt(_PER_FEATURE)
        return sparse.csr_array((signs, (rows, columns)), shape=(self.given, self.width))

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Project rows (rows, given) to (rows, width)."""
        return x if self.width == self.given else np.asarray(x @ self._matrix)
