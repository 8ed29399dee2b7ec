"""The rows that one model has in the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...scores import Confusion, ScoreColumns, ScoreResult


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The rows of one model.

    Attributes:
        model: The name of the model.
        epoch: Its epoch, NaN if it has none.
        addresses: The address of each row.
        groups: The number of each row's group of units, in the order requested; -1 for none.
        columns: The results.
        confusions: Which classes each classifier takes for which, by address, score and target.
        new: Whether the model is a newly initialized twin.
        weights: A weak reference to the model that was read, and the version of its weights then; None if
            that is not known.
    """

    model: str
    epoch: float
    addresses: np.ndarray
    groups: np.ndarray
    columns: ScoreColumns
    confusions: Mapping[tuple[str, str, str], Confusion] = field(default_factory=dict)
    new: bool = False
    weights: tuple[Any, int] | None = None

    @classmethod
    def failed(cls, model: str, epoch: float, why: str) -> Part:
        """Return one row that says why a checkpoint has no results."""
        columns = ScoreColumns.of([ScoreResult("", float("nan"), note=why)])
        return cls(model, epoch, np.array([""], dtype=object), np.array([-1]), columns)

    def noted(self, note: str) -> Part:
        """Return the part with a note added to every row."""
        return replace(self, columns=replace(self.columns, note=joined(self.columns.note, note)))

    def extended(self, addresses: np.ndarray, columns: ScoreColumns, groups: Any = -1) -> Part:
        """Return the part with further rows, of these groups of units; -1 for none."""
        return replace(
            self,
            addresses=np.concatenate([self.addresses, addresses]),
            groups=np.concatenate([self.groups, np.broadcast_to(groups, len(addresses))]),
            columns=ScoreColumns.concat([self.columns, columns]),
        )


def joined(notes: np.ndarray, more: str) -> np.ndarray:
    """Return the notes with more text; rows without a note share one string."""
    empty = notes == ""
    out = np.full(len(notes), more, dtype=object)
    out[~empty] = notes[~empty] + f", {more}"
    return out
