"""Record the graph of the model's first observed call in a training."""

from __future__ import annotations

from typing import Any

from ...core.graph import Graph
from .attachment import StepInputs
from .graph import structure


class StepRecorder:
    """Returns the graph of the model's call in a step; implements ``backends.base.GraphRecorder``."""

    def __init__(self) -> None:
        self._inputs: StepInputs | None = None

    def begin(self, model: Any, inputs: Any) -> None:
        """Remember the step.

        Args:
            model: The model.
            inputs: The inputs passed to ``Tap.on_forward_start``.
        """
        self._inputs = inputs if isinstance(inputs, StepInputs) else None

    def end(self, output: Any) -> Graph | None:
        """Return the graph of the model's call in the step; None if there is none."""
        inputs, self._inputs = self._inputs, None
        called = None if inputs is None or output is None else inputs.model_call()
        if inputs is None or called is None:
            return None
        return structure(inputs.library, inputs.model, called)
