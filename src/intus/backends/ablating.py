"""The optional part of the backend protocol with which ``inspect`` ablates units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ..core.graph import Graph


class Ablations(NamedTuple):
    """The outputs of one pass, with and without ablations.

    Attributes:
        graph: The graph of the pass.
        outputs: What the model returned, unchanged and for each ablation: the arrays among it, in order.
    """

    graph: Graph
    outputs: list[list[np.ndarray]]


@runtime_checkable
class Ablates(Protocol):
    """A backend that recomputes a pass with some units replaced by numbers."""

    def ablate(
        self, model: Any, inputs: Any, address: str, axis: int, changes: Sequence[Mapping[int, float]]
    ) -> Ablations:
        """Run a model once, and what follows a layer again for each change; called inside ``evaluation``.

        Args:
            model: The model.
            inputs: Its inputs, as ``Backend.inputs`` returns them.
            address: The layer, with its call, or an operation.
            axis: The axis of the units in its output.
            changes: The numbers of the units that are replaced, each with its value.

        Raises:
            AddressError: If the layer did not run in this pass.
            CaptureError: If the pass cannot be recorded or changed.
        """
