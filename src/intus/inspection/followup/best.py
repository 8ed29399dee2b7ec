"""Order rows by the strength of their value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import InputError, did_you_mean
from ...scores import infos
from ..units import RANDOM

if TYPE_CHECKING:
    from ..results.table import Inspection


def strengths(table: Inspection) -> np.ndarray:
    """Return how strong the value of each row is.

    It is the distance from the value of a unit that does not respond, if values on both sides of it are
    responses: from 0 for correlations, from .5 for the area under the ROC curve. For other scores it is the
    value.
    """
    values = table.value.to_numpy(dtype=float)
    for name in table.score.unique():
        center = center_of(table, name)
        if center is not None:
            values = np.where(table.score == name, np.abs(values - center), values)
    return np.asarray(values)


def center_of(table: Inspection, name: str) -> float | None:
    """Return the value that a score has for a unit that does not respond; see ``ScoreInfo.center``.

    Args:
        table: The table.
        name: The name of the score.
    """
    scores = () if table._asked is None else table._asked.plan.scores
    known = infos() | {info.name: info for score in scores for info in score.infos}
    return known[name].center if name in known else None


def of_units(table: Inspection, score: str | None) -> Inspection:
    """Return the rows of single units with a value, of one score.

    Args:
        table: The table.
        score: The score; None if there is only one.

    Raises:
        InputError: If there is no such row, or the score is not determined.
    """
    rows: Inspection = table[(table.unit >= 0) & table.value.notna()]
    names = list(rows.score.unique())
    if score is None and len(names) == 1:
        return rows
    if not names:
        raise InputError(
            "The table has no values of single units. Inspect units with a score of units, such as 'iou'."
        )
    if score is None:
        raise InputError(
            f"The table has several scores of units, {names}. Pass score=, such as score={names[0]!r}."
        )
    if score not in names:
        raise InputError(
            f"The table has no values of units of the score {score!r}. {did_you_mean(score, names)}"
        )
    chosen: Inspection = rows[rows.score == score]
    return chosen


def best_rows(table: Inspection, by: str | Sequence[str], score: str | None) -> Inspection:
    """Return the strongest unit of each group; see ``Inspection.best``.

    Raises:
        InputError: If ``by`` names no column.
    """
    names = [by] if isinstance(by, str) else list(by)
    for name in names:
        if name not in table.columns:
            raise InputError(f"by={name!r} is no column of the table. {did_you_mean(name, table.columns)}")
    rows = of_units(table, score)
    rows = rows[~rows.note.str.contains(RANDOM, regex=False)]  # a baseline is no finding
    order = np.argsort(-strengths(rows), kind="stable")
    best: Inspection = rows.iloc[order].drop_duplicates(names) if names else rows.iloc[order[:1]]
    in_order: Inspection = best.sort_index()
    return in_order
