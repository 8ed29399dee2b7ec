"""The parts of a model that the tracing of it needs to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..base import Operation

#: Arguments of models for training mode.
MODES = ("training", "is_training")


class Structure(NamedTuple):
    """The layers of a model and their variables.

    Attributes:
        operations: The layers, the model first.
        parameters: The variables that are trained or were, by address.
        buffers: All other variables, by address.
        trained: The addresses of the parameters that are trained.
        call: Calls the model.
        replaced: ``replaced(layer, function)`` lets calls of a layer call ``function(own, *args, **kwargs)``
            instead, where ``own`` calls the layer, and returns a function that undoes it.
    """

    operations: list[Operation]
    parameters: Mapping[str, Any]
    buffers: Mapping[str, Any]
    trained: set[str]
    call: Callable[..., Any]
    replaced: Callable[[Any, Callable[..., Any]], Callable[[], None]]
