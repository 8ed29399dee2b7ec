"""Very wide layers are projected, so that memory is bounded: D² numbers for a layer of D features."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ...core.errors import require
from ...core.projection import PROJECTED

_PER_FEATURE = 8


class Projection:
    """A seeded sparse random projection to PROJECTED features: each feature is added to eight of them with
    random signs (Kane and Nelson 2014), which keeps distances as a dense Gaussian one does at a fraction of
    the cost. Layers that are narrow enough pass unchanged, such as those ``before`` of whose features were
    projected when they came.
    """

    def __init__(self, features: int, seed: int, before: int | None = None) -> None:
        self.given, self.features, self.seed = features, before or features, seed
        self.width = min(features, PROJECTED)

    @property
    def note(self) -> str:
        """What to tell the reader, "" where nothing is projected."""
        return f"{self.features} features projected to {self.width}" if self.features > self.width else ""

    @cached_property
    def _matrix(self) -> Any:
        sparse = require("scipy.sparse", extra="server", why="to project wide layers")
        rng = np.random.default_rng([self.seed, self.given])
        rows = np.repeat(np.arange(self.given), _PER_FEATURE)
        columns = rng.integers(0, self.width, len(rows))
        signs = rng.choice([-1.0, 1.0], len(rows)) / np.sqrt(_PER_FEATURE)
        return sparse.csr_array((signs, (rows, columns)), shape=(self.given, self.width))

    def apply(self, x: np.ndarray) -> np.ndarray:
        """x (rows, features) to (rows, width)."""
        return x if self.width == self.given else np.asarray(x @ self._matrix)
