"""The table that ``inspect`` returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...core.errors import InputError
from ...scores import ScoreColumns
from ...scores.multiple import false_discovery_rates
from ..models import Checkpoint
from .part import Part

if TYPE_CHECKING:
    from ..plan import Plan

#: The columns of the table.
COLUMNS = (
    *("run", "model", "epoch", "address", "unit", "target", "score"),
    *("value", "low", "high", "baseline", "p", "q", "n", "note"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """The question that a table answers, and what it found besides the rows.

    It is not pickled with the table, because models and data may be large.

    Attributes:
        checkpoints: The models.
        plan: What was asked of them.
        parts: The rows of each model.
    """

    checkpoints: Sequence[Checkpoint]
    plan: Plan
    parts: Sequence[Part]

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

    def confusion(self, row: Any) -> pd.DataFrame:
        """Return which classes a classifier takes for which, on held-out rows.

        Args:
            row: A row of the table: its label in the index, a Series or a mapping with ``model``, ``epoch``,
                ``address``, ``score`` and ``target``.

        Returns:
            A DataFrame with one row per true class and one column per predicted class, which count rows, and
            the columns ``f1``, ``low`` and ``high``: the F1 of the class with its 95 % interval.

        Raises:
            InputError: If the row is not that of a classifier, or the table no longer knows its models.
        """
        wanted = self.loc[row] if np.isscalar(row) else row
        for part in self.asked().parts:
            same_epoch = part.epoch == wanted["epoch"] or (
                part.epoch != part.epoch and wanted["epoch"] != wanted["epoch"]
            )
            key = wanted["address"], wanted["score"], wanted["target"]
            if part.model == wanted["model"] and same_epoch and key in part.confusions:
                found = part.confusions[key]
                names = [str(one) for one in found.classes]
                frame = pd.DataFrame(found.matrix, index=pd.Index(names, name="true"), columns=names)
                frame.columns.name = "predicted"
                return frame.assign(f1=found.f1, low=found.low, high=found.high)
        raise InputError(
            f"The score {wanted['score']!r} of {wanted['address']!r} is not one of a classifier that was "
            "trained, so there is no confusion table. Choose a row such as that of 'linear_f1'."
        )


def as_table(asked: Asked, run: str) -> Inspection:
    """Return the rows of all models; those of newly initialized twins are no findings and have no q-value."""
    parts = asked.parts
    columns = ScoreColumns.concat(part.columns for part in parts)
    sizes = [len(part.columns) for part in parts]
    new = np.repeat([part.new for part in parts], sizes)
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
