"""Doubts: what is found out of rows later, when scores of them may be stored already."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from .notes import remarks

#: Scores that match the rows of two data points by their items, besides those of labels: of a layer with the
#: epoch before, and with another layer of the same pass.
WITH_EPOCH, WITH_LAYER = "cka_epoch", "cka_layer"


@dataclass(frozen=True, slots=True)
class Doubt:
    """A doubt of which items the rows of a run were, in a range of epochs.

    Attributes:
        note: What notes of its scores say.
        withdraw: Whether they have no values any more, because the rows are known to be others.
        after: The epoch that it begins after; None for the first.
        until: The last epoch; None for all that follow.
        modes: The modes of the passes; none for all.
        address: The layer; None for all.
        training: The time of the first request of the training; NaN if unknown.
        of: A remark that the notes of the scores have that it is about; "" for all.
        every: Whether it is about all scores of whole epochs, not only those that need to know the items.

    Example:
        >>> doubt = Doubt("of other rows", until=2)
        >>> [doubt.concerns("fc1", "digit", "lda_f1", epoch, "train", math.nan) for epoch in (2, 3)]
        [True, False]
        >>> doubt.concerns("fc1", "", "mean", 2, "train", math.nan)  # which needs no items
        False
    """

    note: str
    withdraw: bool = False
    after: float | None = None
    until: float | None = None
    modes: tuple[str, ...] = ()
    address: str | None = None
    training: float = math.nan
    of: str = ""
    every: bool = False

    def stated(self) -> dict[str, Any]:
        """Return what it says, by name, without what holds by default."""
        values = ((one, getattr(self, one.name)) for one in fields(self))
        return {
            one.name: value for one, value in values if value != one.default and value == value
        }  # not NaN

    def concerns(
        self,
        address: str,
        target: str,
        score: str,
        epoch: float,
        mode: str,
        training: float | None,
        note: str = "",
        step: int = -1,
    ) -> bool:
        """Return whether it is about a score.

        Args:
            address: The layer.
            target: The target; "" if the score needs none.
            score: The name of the score.
            epoch: The epoch.
            mode: The mode of the pass.
            training: The time of the first request of the training; None or NaN if unknown.
            note: What its note says.
            step: The step; -1 for a whole epoch.
        """
        # layers of one pass have their rows in one order, unless it is one of them that is in doubt
        of_items = target or score == WITH_EPOCH or (self.address is not None and score == WITH_LAYER)
        return bool(
            (of_items or (self.every and step < 0))
            and self.address in (None, address)
            and (not self.of or self.of in remarks(note))
            and (not self.modes or mode in self.modes)
            and (self.after is None or epoch > self.after)
            and (self.until is None or epoch <= self.until)
            and (training == self.training or (_is_unknown(training) and _is_unknown(self.training)))
        )


def _is_unknown(training: float | None) -> bool:
    return training is None or math.isnan(training)
