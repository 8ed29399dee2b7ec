"""The architectures of the catalogue: a name, and a function that builds the model and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class NotPlainError(Exception):
    """A model that cannot be built or run even without intus, so it says nothing about tracing."""


class TooLargeError(NotPlainError):
    """A model with more parameters than the sweep has time and memory for."""

    def __init__(self, parameters: int, most: int) -> None:
        super().__init__(f"{parameters / 1e6:.0f} million parameters, more than {most / 1e6:.0f} million")


class Architecture(NamedTuple):
    """An architecture of the catalogue.

    Attributes:
        family: Its family.
        name: Its name.
        build: Returns a model with random weights and the inputs for ``trace`` (a tensor, tuple or mapping).
            It may raise ``NotPlainError``; other exceptions have the same meaning.
    """

    family: str
    name: str
    build: Callable[[], tuple[Callable[..., Any], Any]]
