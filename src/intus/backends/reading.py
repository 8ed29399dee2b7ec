"""The optional half of the backend protocol: read any operation of a pass, and gradients of its values.

A backend that records graphs may have a method ``read``. ``inspect`` needs it for units that no module
returns (a functional ``relu``, attention probabilities, inputs of the model) and for gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ..core.graph import Graph
from .base import Operation


class Target(NamedTuple):
    """The number of each record that gradients are of.

    Attributes:
        records: The number of records in the block.
        choice: A class: an index into the last axis of an output (records, classes); an array of one index
            per record of the block; a function of the model's output that returns one number per record; or
            None if the output is one number per record.
        only: The position of the one record in the block whose number counts; None for all.
    """

    records: int
    choice: Any = None
    only: int | None = None


class Reading(NamedTuple):
    """Values of one pass.

    Attributes:
        graph: The graph of the pass.
        values: Copies of the values of the chosen rows, by row of the graph.
        gradients: The gradients of the target by row. A row that the target does not depend on through
            differentiable operations is absent.
        chosen: Whether the class of the target is the largest output of each record, (records,); all True if
            the target is no single class.
    """

    graph: Graph
    values: Mapping[int, np.ndarray]
    gradients: Mapping[int, np.ndarray]
    chosen: np.ndarray


@runtime_checkable
class ReadsOperations(Protocol):
    """A backend that reads any operation of a pass."""

    def read(
        self, model: Any, inputs: Any, chosen: Sequence[int | str], target: Target | None = None
    ) -> Reading:
        """Run a model once and read the values of operations; called inside ``Backend.evaluation``.

        Args:
            model: The model.
            inputs: Its inputs, as ``Backend.inputs`` returns them.
            chosen: The ordinals of operations, and the labels of inputs or buffers.
            target: Also return the gradients of the sum of these numbers. Default: no gradients.

        Raises:
            AddressError: If there is no such operation in this pass.
            CaptureError: If the pass cannot be recorded, or the target has no gradient.
            InputError: If the target does not fit the model's output.
        """


@runtime_checkable
class Attributes(Protocol):
    """A backend that attributes numbers of the output to layers, other than by a plain gradient."""

    def attribute(
        self, model: Any, inputs: Any, layers: list[Operation], method: str, target: Target, seed: int
    ) -> dict[str, np.ndarray]:
        """Return the attribution of every layer by address; called inside ``Backend.evaluation``.

        Args:
            model: The model.
            inputs: Its inputs, as ``Backend.inputs`` returns them.
            layers: The layers, each of which runs once.
            method: ``"smoothgrad"``, ``"guided_backprop"``, ``"gradcam"`` or ``"guided_gradcam"``.
            target: The numbers that are attributed.
            seed: The seed of noise.

        Raises:
            InputError: If the method does not apply to the model or the target.
            MissingExtraError: If captum is not installed.
        """
