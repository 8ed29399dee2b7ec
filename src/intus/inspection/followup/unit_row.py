"""Read a row of the table: a unit of a model, and a hypothesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.base import for_model
from ...core.errors import InputError
from ..models import Checkpoint
from ..results.part import Part

if TYPE_CHECKING:
    from ..results.table import Inspection

_NEEDED = ("address", "unit", "target")


@dataclass(frozen=True, slots=True)
class UnitRow:
    """A unit and a hypothesis.

    Attributes:
        checkpoint: The model.
        address: The address of the layer or operation.
        unit: The number of the unit.
        target: The name of the hypothesis.
    """

    checkpoint: Checkpoint
    address: str
    unit: int
    target: str

    def __str__(self) -> str:
        return f"{self.address}[{self.unit}]"


def read_row(table: Inspection, row: Any) -> UnitRow:
    """Return what a row of a table is about.

    Args:
        table: The table.
        row: The row: a Series, a mapping with its columns, or its label in the index of the table.

    Raises:
        InputError: If it is none of these, is about a layer as a whole or about no hypothesis, or the table
            no longer knows its models.
    """
    checkpoints = table.asked().checkpoints
    if isinstance(row, Integral) and not isinstance(row, bool):
        found = np.flatnonzero(table.index == int(row))
        if len(found) != 1:
            raise InputError(
                f"row={row} labels {len(found)} rows of the table's index. Pass the row itself, such as "
                "table.iloc[0]."
            )
        row = table.iloc[int(found[0])]
    if not isinstance(row, Mapping) and not (hasattr(row, "index") and hasattr(row, "to_dict")):
        raise InputError(
            f"row must be a row of the table, such as table.iloc[0], a dict, or a label of its "
            f"index, got {row!r}."
        )
    given = dict(row) if isinstance(row, Mapping) else row.to_dict()
    if missing := [name for name in _NEEDED if name not in given]:
        raise InputError(
            f"row has no column {missing[0]!r}, but needs {', '.join(map(repr, _NEEDED))}. Pass a row of the "
            "table that inspect returned, such as table.iloc[0]."
        )
    address, unit, target = given["address"], int(given["unit"]), given["target"]
    if unit < 0:
        raise InputError(
            f"The row is about the layer {address!r} as a whole (unit -1), but this needs a single unit. "
            "Choose a row with a unit, of a score such as 'correlation' or 'iou'."
        )
    if target == "":
        raise InputError(
            f"The score {given.get('score', '')!r} of the row has no hypothesis. Choose a row with a target."
        )
    checkpoint = _checkpoint(checkpoints, given)
    _check_unchanged(checkpoint.given, table.asked().parts)
    return UnitRow(checkpoint, str(address), unit, str(target))


def _check_unchanged(model: Any, parts: Sequence[Part]) -> None:
    """Raise InputError if the weights of a model have changed since the table was made."""
    if model is None:
        return
    version = for_model(model).version(model)
    for part in parts:
        if part.weights is not None and part.weights[0]() is model and part.weights[1] != version:
            raise InputError(
                "The weights of the model have changed since the table was made, so its rows are of another "
                "model. Inspect it again, or pass a copy of each checkpoint (copy.deepcopy(model))."
            )


def _checkpoint(checkpoints: Sequence[Checkpoint], given: Mapping[str, Any]) -> Checkpoint:
    """Return the checkpoint of a row."""
    if len(checkpoints) == 1:
        return checkpoints[0]
    epoch, name = given.get("epoch", float("nan")), given.get("model", "")
    for one in checkpoints:
        unnamed = not one.name and one.new == str(name).endswith("(new)")
        if one.epoch == epoch or (
            one.epoch != one.epoch and epoch != epoch and (one.name == name or unnamed)
        ):
            return one
    raise InputError(
        f"No model of the table has epoch {epoch!r} and name {name!r}. Its models are "
        f"{', '.join(map(str, checkpoints))}."
    )
