"""The optional part of the backend protocol that ``inspect`` needs for files of weights and for twins."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class LoadsWeights(Protocol):
    """A backend that makes copies of a model with other weights."""

    def weights(self, path: Path) -> Any:
        """Return the weights in a file.

        Raises:
            InputError: If the file holds no weights, or cannot be read.
        """

    def with_weights(self, model: Any, weights: Any) -> Any:
        """Return a copy of a model with these weights; the model itself is not changed.

        Raises:
            InputError: If the weights are not those of such a model.
        """

    def initialized(self, model: Any, seed: int) -> Any:
        """Return a copy of a model with newly initialized parameters; the model itself is not changed.

        Raises:
            InputError: If some parameters cannot be initialized.
        """
