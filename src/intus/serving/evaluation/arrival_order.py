"""Checks that rows without item ids arrive in the same order in each epoch.

Scores of labels that are matched by order of arrival are unverified until a second epoch begins with the same
rows. If an epoch begins with other rows, the probe sends negative item ids. Then these scores are withdrawn.
"""

from __future__ import annotations

from ...core.results import COLUMNS, Results
from ..data_point import DataPoint

BY_ORDER = "labels matched by order of arrival"
UNVERIFIED = f"{BY_ORDER}, not verified"
WITHDRAWN = "withdrawn: the next epoch began with other rows, so labels cannot be matched by order of arrival"

_Source = tuple[str, str, str]


class ArrivalOrder:
    """The state of the check for each (run, model, mode) since the server started."""

    def __init__(self) -> None:
        self._first: dict[_Source, float] = {}  # epoch
        self._holds: dict[_Source, bool] = {}

    def news(self, point: DataPoint) -> bool | None:
        """Return whether the order holds, if this data point is the first to show it; otherwise None.

        The caller passes the news on, and then calls ``update``. Until then the result is repeated.
        """
        epoch, source = point.epoch, _source(point)
        if epoch is None or any(record.batch_axis is None for record in point.records):
            return None
        if _rows_are_unknown(point):
            return None if self._holds.get(source) is False else False
        if any(record.items is not None for record in point.records):
            return None
        if epoch < self._first.setdefault(source, epoch):  # the training was started again
            self._first[source] = epoch
            self._holds.pop(source, None)
        return True if epoch > self._first[source] and self._holds.get(source) is not True else None

    def update(self, point: DataPoint, results: Results) -> Results:
        """Record the news as passed on, and return the results with updated notes."""
        news = self.news(point)
        if news is not None:
            self._holds[_source(point)] = news
        if self._holds.get(_source(point)) is not True:
            return results
        notes = [note.replace(UNVERIFIED, BY_ORDER) for note in results["note"].tolist()]
        return Results({name: results[name] for name in COLUMNS} | {"note": notes})

    def forget(self, run: str, model: str | None = None) -> None:
        """Delete the state of a run, or of one model of it."""
        for known in (self._first, self._holds):
            for source in [each for each in known if each[0] == run and model in (None, each[1])]:
                del known[source]


def _source(point: DataPoint) -> _Source:
    return point.key.run, point.key.model, point.key.mode


def _rows_are_unknown(point: DataPoint) -> bool:
    items = [record.items for record in point.records]
    return bool(items) and all(ids is not None and ids.size and int(ids.max()) < 0 for ids in items)
