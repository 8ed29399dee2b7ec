"""Labels that found their rows by order of arrival: not verified before a second epoch began as the first.

Probes tell it by the rows' ids: an epoch that begins otherwise comes with ids below zero, and then the scores
that had been found by that order are withdrawn.
"""

from __future__ import annotations

from ...core.results import COLUMNS, Results
from ..data_point import DataPoint

BY_ORDER = "labels matched by order of arrival"
UNVERIFIED = f"{BY_ORDER}, not verified"
WITHDRAWN = "withdrawn: the next epoch began with other rows, so the order of arrival tells nothing"

_Line = tuple[str, str, str]


class ArrivalOrder:
    """What is known of the order of arrival in each run, model and mode, since the server began."""

    def __init__(self) -> None:
        self._first: dict[_Line, float] = {}  # epoch
        self._holds: dict[_Line, bool] = {}

    def hear(self, point: DataPoint) -> bool | None:
        """Whether the order holds, if this data point is the first to tell; else None. The caller says so to
        those who have the scores, and may ask again where that did not succeed."""
        epoch, line = point.epoch, _line(point)
        if epoch is None or any(record.batch_axis is None for record in point.records):
            return None
        if _nobody_knows(point):
            return None if self._holds.get(line) is False else False
        if any(record.items is not None for record in point.records):
            return None
        if epoch < self._first.setdefault(line, epoch):  # the training began again
            self._first[line] = epoch
            self._holds.pop(line, None)
        return True if epoch > self._first[line] and self._holds.get(line) is not True else None

    def told(self, point: DataPoint, results: Results) -> Results:
        """What was heard is known to those who have the scores; the results say it from now on."""
        news = self.hear(point)
        if news is not None:
            self._holds[_line(point)] = news
        if self._holds.get(_line(point)) is not True:
            return results
        notes = [note.replace(UNVERIFIED, BY_ORDER) for note in results["note"].tolist()]
        return Results({name: results[name] for name in COLUMNS} | {"note": notes})

    def forget(self, model: str | None = None) -> None:
        """Forget all, or a model."""
        for known in (self._first, self._holds):
            for line in [line for line in known if model in (None, line[1])]:
                del known[line]


def _line(point: DataPoint) -> _Line:
    return point.key.run, point.key.model, point.key.mode


def _nobody_knows(point: DataPoint) -> bool:
    known = [record.items for record in point.records]
    return bool(known) and all(ids is not None and ids.size and int(ids.max()) < 0 for ids in known)
