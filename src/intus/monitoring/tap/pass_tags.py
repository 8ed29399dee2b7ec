"""The tags of a pass, which its records get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...core.record import NO_FACTS, PassFacts

if TYPE_CHECKING:
    from ..statistics import Labels


@dataclass(slots=True, eq=False)
class PassTags:
    """The tags of one pass; its gradients, which come later, have the same.

    They change only if it is known later whether the pass trains the model; see ``UndecidedPasses``.

    Attributes:
        epoch: The epoch, or the number of the call for a probe set with ``every``.
        step: The number of the model's call.
        mode: The mode.
        items: The ids of the rows, or None.
        rows: The maximum number of rows to record; None for all.
        ordered: Whether rows without ids can be identified by their order of arrival.
        labels: The labels to make statistics with in a pass of the training; None to send its rows.
        facts: What else the server shall know of the pass.
        trains: Whether a change of the parameters is expected to follow.
    """

    epoch: float
    step: int
    mode: str
    items: np.ndarray | None
    rows: int | None = None
    ordered: bool = True
    labels: Labels | None = None
    facts: PassFacts = NO_FACTS
    trains: bool = False
