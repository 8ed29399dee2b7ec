"""Checks that rows without item ids arrive in the same order in each epoch.

Scores of labels that are matched by order of arrival are unverified until a second epoch begins with the same
rows. If an epoch begins with other rows, the probe sends negative item ids. Then these scores are withdrawn.
Epochs may be scored in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...core.notes import joined, remarks
from ...core.record import PROBE_SET_MODE
from ...core.results import COLUMNS, Results
from ..data_point import DataPoint
from ..messages import DoubtRequest, Notice

_MATCHED = "labels matched by order of arrival"
BY_ORDER = f"{_MATCHED}, assumed after the first batch of each epoch"
UNVERIFIED = f"{_MATCHED}, not verified"
_VERIFIED = {UNVERIFIED: BY_ORDER}
WITHDRAWN = "withdrawn: the next epoch began with other rows, so labels cannot be matched by order of arrival"

_Source = tuple[str, str, str]
_NUMBERS = "value", "low", "high", "baseline"


@dataclass(slots=True)
class _State:
    """The state of the check for one training.

    Attributes:
        attempt: How often the training was started again.
        first: The first epoch whose rows arrived in the same order, as far as is known.
        last: The last one.
        holds: Whether the order holds; None if it is not known.
    """

    attempt: int
    first: float = math.inf
    last: float = -math.inf
    holds: bool | None = None


class ArrivalOrder:
    """The state of the check for each (run, model, mode) since the server started."""

    def __init__(self) -> None:
        self._states: dict[_Source, _State] = {}

    def news(self, point: DataPoint) -> bool | None:
        """Return whether the order holds, if this data point is the first to show it; otherwise None.

        The caller passes the news on, and then calls ``update``. Until then the result is repeated.
        """
        epoch, state = point.epoch, self._state(point)
        if state is None or epoch is None or any(record.batch_axis is None for record in point.records):
            return None
        if _rows_are_unknown(point):
            # a probe set is always the same, but layers may have its rows in an order of their own
            return None if state.holds is False or point.key.mode == PROBE_SET_MODE else False
        if any(record.items is not None for record in point.records):
            return None
        state.first, state.last = min(state.first, epoch), max(state.last, epoch)
        return True if state.first < state.last and state.holds is not True else None

    def update(self, point: DataPoint, results: Results) -> Results:
        """Record the news as passed on, and return the results with updated notes."""
        news, state = self.news(point), self._state(point)
        if state is None:
            return results
        if news is not None:
            state.holds = news
        notes = results["note"].tolist()
        if state.holds is True:
            notes = [joined(*(_VERIFIED.get(each, each) for each in remarks(note))) for note in notes]
        columns = {name: results[name] for name in COLUMNS} | {"note": notes}
        if state.holds is False:
            for row, note in enumerate(notes):
                if UNVERIFIED in remarks(note):
                    notes[row] = WITHDRAWN
            unverified = np.array([note is WITHDRAWN for note in notes], bool)
            columns |= {name: np.where(unverified, np.nan, results[name]) for name in _NUMBERS}
        return Results(columns)

    def _state(self, point: DataPoint) -> _State | None:
        """Return the state of the data point's training; None if it was started again since."""
        state = self._states.setdefault(_source(point), _State(point.attempt))
        if point.attempt > state.attempt:
            state = self._states[_source(point)] = _State(point.attempt)
        return state if point.attempt == state.attempt else None

    def forget(self, run: str, model: str | None = None) -> None:
        """Delete the state of a run, or of one model of it."""
        for source in [each for each in self._states if each[0] == run and model in (None, each[1])]:
            del self._states[source]


def disproved(point: DataPoint) -> DoubtRequest:
    """Return the doubt of scores of the mode of a data point which shows that rows come in other orders."""
    began = point.training if math.isfinite(point.training) else None
    modes = [point.key.mode]
    named = point.key.run, point.key.model, WITHDRAWN
    return DoubtRequest(*named, withdraw=True, modes=modes, of=UNVERIFIED, began=began)


def withdrawn(run: str, model: str, mode: str) -> Notice:
    """Return the notice that scores of a mode were withdrawn."""
    of_mode = f" in mode {mode}" if mode else ""
    text = f"Scores of the first epoch{of_mode} are {WITHDRAWN}."
    return Notice("order", text, "warning", run, model)


def _source(point: DataPoint) -> _Source:
    return point.key.run, point.key.model, point.key.mode


def _rows_are_unknown(point: DataPoint) -> bool:
    items = [record.items for record in point.records]
    return bool(items) and all(ids is not None and ids.size and int(ids.max()) < 0 for ids in items)
