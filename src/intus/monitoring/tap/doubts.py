"""Tell the server of doubts of rows, whose scores may be stored already."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from ...core.doubt import Doubt
from ..sender import Sender


class Doubts:
    """The doubts of one model's rows.

    Args:
        run: The name of the training.
        name: The name of the model.
        sender: Tells the server.
    """

    def __init__(self, run: str, name: str, sender: Sender) -> None:
        self._run, self._name, self._sender = run, name, sender
        self._new: list[Doubt] = []
        self._lasting: list[Doubt] = []  # of all rows that follow, also of another training

    def add(self, doubt: Doubt) -> None:
        """Tell the server of a doubt with the next ``tell``."""
        self._new.append(doubt)
        if doubt.until is None:
            self._lasting.append(doubt)

    def begin_training(self) -> None:
        """Doubt all rows of another training of which those of earlier ones are in doubt for good."""
        self._new += [replace(one, after=None) for one in self._lasting]

    def tell(self) -> None:
        """Tell the server of new doubts."""
        new, self._new = self._new, []
        for doubt in new:
            self._sender.doubt(self._run, self._name, doubt)


def from_epoch(note: str, epoch: float) -> Doubt:
    """Return a note on the scores of an epoch and of all later ones."""
    return Doubt(note, after=math.nextafter(epoch, -math.inf))


def of_epoch(note: str, epoch: float, modes: Iterable[str] = (), *, every: bool = False) -> Doubt:
    """Return a note on the scores of one epoch.

    Args:
        note: The note.
        epoch: The epoch.
        modes: The modes of the passes; none for all.
        every: Whether it is on all scores, not only those that need to know the items.
    """
    return Doubt(note, after=math.nextafter(epoch, -math.inf), until=epoch, modes=tuple(modes), every=every)
