"""The table that ``inspect`` returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..core.errors import InputError
from ..scores import ScoreColumns, ScoreResult
from ..scores.multiple import false_discovery_rates
from .feed import joined
from .models import Checkpoint

if TYPE_CHECKING:
    from .plan import Plan

#: The columns of the table.
COLUMNS = (
    *("run", "model", "epoch", "address", "unit", "target", "score"),
    *("value", "low", "high", "baseline", "p", "q", "n", "note"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """The question that a table answers: the models and what was asked of them.

    It is not pickled with the table, because models and data may be large.
    """

    checkpoints: Sequence[Checkpoint]
    plan: Plan

    def __reduce__(self) -> Any:
        return _nothing, ()


def _nothing() -> None:
    """Return None, which takes the place of an unpickled ``Asked``."""


class Inspection(pd.DataFrame):  # type: ignore[misc]  # pandas has no types
    """A DataFrame of scores that remembers the models, the data and the hypotheses.

    It is a DataFrame in every respect: selections, sorted tables and copies are Inspections as well. What
    was read from a file, and the result of ``concat`` or ``merge``, no longer knows its models.
    """

    _metadata = ["_asked"]  # noqa: RUF012  pandas copies these attributes to selections
    _asked: Asked | None = None

    @property
    def _constructor(self) -> Any:
        return Inspection

    def asked(self) -> Asked:
        """Return the question that the table answers.

        Raises:
            InputError: If the table no longer knows its models.
        """
        if self._asked is None:
            raise InputError(
                "This table does not know its models any more, because it was read from a file, pickled or "
                "joined with another. Use the table that inspect(…) returned, or a selection of it."
            )
        return self._asked


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The rows of one model.

    Attributes:
        model: The name of the model.
        epoch: Its epoch, NaN if it has none.
        addresses: The address of each row.
        columns: The results.
    """

    model: str
    epoch: float
    addresses: np.ndarray
    columns: ScoreColumns

    @classmethod
    def failed(cls, model: str, epoch: float, why: str) -> Part:
        """Return one row that says why a checkpoint has no results."""
        columns = ScoreColumns.of([ScoreResult("", float("nan"), note=why)])
        return cls(model, epoch, np.array([""], dtype=object), columns)

    def noted(self, note: str) -> Part:
        """Return the part with a note added to every row."""
        return replace(self, columns=replace(self.columns, note=joined(self.columns.note, note)))


def as_table(parts: Sequence[Part], run: str, asked: Asked) -> Inspection:
    """Return the rows of all models; those of newly initialized twins are no findings and have no q-value."""
    columns = ScoreColumns.concat(part.columns for part in parts)
    sizes = [len(part.columns) for part in parts]
    new = np.repeat([one.new for one in asked.checkpoints[: len(parts)]], sizes)
    facts = {
        "run": np.full(len(columns), run, dtype=object),
        "model": np.repeat(np.array([part.model for part in parts], dtype=object), sizes),
        "epoch": np.repeat(np.array([part.epoch for part in parts], dtype=float), sizes),
        "address": np.concatenate([part.addresses for part in parts]),
        "q": false_discovery_rates(np.where(new, np.nan, columns.p)),
    }
    table = Inspection({name: facts.get(name, getattr(columns, name, None)) for name in COLUMNS})
    table._asked = asked
    return table
