"""The part of the backend protocol that ``trace`` uses: run a model once and return its graph and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from ..core.traced import Traced


@runtime_checkable
class Traces(Protocol):
    """A backend of a framework other than PyTorch that traces a call.

    Attributes:
        name: The framework's name.
    """

    name: str

    def trace(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
        """Run a model once, and return the graph of the call with the value of every operation.

        The model and its random state are unchanged afterwards.

        Args:
            model: The model, which the backend owns.
            args: The positional arguments of the call.
            kwargs: Its keyword arguments.

        Raises:
            CaptureError: If the call cannot be recorded.
        """
