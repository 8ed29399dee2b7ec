"""Define the sample of a layer that ``sketches.py`` keeps; what computes it needs no database."""

from __future__ import annotations

from typing import NamedTuple


class KeptSketch(NamedTuple):
    """A layer in one epoch.

    Attributes:
        layer: The layer with its kind and mode.
        training: The time of the first request of its training, in seconds since 1970.
        epoch: The epoch.
        step: The step, -1 for a whole epoch.
        previous: The (epoch, step) of the layer that it is compared with; None for none.
        number: Its number among the layers of its epoch, in the network's order; -1 if its rows are those of
            another.
        content: The sample of its rows; empty if it was not asked for.
    """

    layer: str
    training: float
    epoch: float
    step: int
    previous: tuple[float, int] | None
    number: int
    content: bytes = b""
