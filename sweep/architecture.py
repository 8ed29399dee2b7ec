"""What a family of the catalogue gives: names, and for each name how to make the model and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class NotPlainError(Exception):
    """A model that could not be made or run without intus: nothing to hold against a trace."""


class Architecture(NamedTuple):
    """``build()`` makes a model at random init and the inputs of ``trace``: a tensor, a tuple, a mapping.

    It may raise ``NotPlainError``; whatever else it raises says the same.
    """

    family: str
    name: str
    build: Callable[[], tuple[Callable[..., Any], Any]]
