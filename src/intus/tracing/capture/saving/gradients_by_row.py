"""The gradients of a trace."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field

from .stored import Value


@dataclass(eq=False)
class Gradients:
    """The gradients by graph row, summed over all backward passes as in a tensor's ``grad``."""

    by_row: MutableMapping[int, Value] = field(default_factory=dict)
