"""Tell of targets that were registered after a run was scored in part: its arrays are gone by then."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from ..data_point import DataPoint
from ..messages import Notice, counted
from .targets import Target

_Run = tuple[str, str]


class _Scored(NamedTuple):
    """Data points of a (run, model) that began to be scored: how many, and one of the last epoch."""

    points: int
    last: DataPoint


class LateTargets:
    """Remembers what was scored before each target was first registered.

    Each is told of once for each (run, model): at once if that has no scores with labels, and else when its
    first score of the target comes, for a target may be meant for other runs than the earlier ones.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scored: dict[_Run, _Scored] = {}
        self._labelled: set[_Run] = set()
        self._late: dict[tuple[str, _Run], _Scored] = {}  # what is not told of yet

    def registered(self, target: Target) -> list[Notice]:
        """Return the notices of a target of a new name that is registered."""
        with self._lock:
            runs = {run: scored for run, scored in self._scored.items() if target.applies(scored.last)}
            self._late |= {
                (target.name, run): scored for run, scored in runs.items() if run in self._labelled
            }
            return [_notice(target.name, runs[run]) for run in runs if run not in self._labelled]

    def chosen(self, point: DataPoint, targets: Iterable[str]) -> list[Notice]:
        """Return the notices of a data point that is scored with these targets from now on."""
        run, names = (point.key.run, point.key.model), list(targets)
        if point.key.kind != "output" or point.epoch is None:
            return []
        with self._lock:
            before = self._scored.get(run)
            scored = _Scored(1, replace(point, records=()))
            if before is not None:  # epochs are not scored in their order
                last = max(before.last, scored.last, key=lambda each: each.epoch or 0.0)
                scored = _Scored(1 + before.points, last)
            self._scored[run] = scored
            if names:
                self._labelled.add(run)
            late = {name: self._late.pop((name, run), None) for name in names}
        return [_notice(name, scored) for name, scored in late.items() if scored is not None]

    def forget(self, run: str, model: str | None) -> None:
        """Delete what is known of a run, or of one model of it."""
        with self._lock:
            of = [one for one in self._scored if one[0] == run and model in (None, one[1])]
            for one in of:
                del self._scored[one]
                self._labelled.discard(one)
            self._late = {key: scored for key, scored in self._late.items() if key[1] not in of}


def _notice(name: str, scored: _Scored) -> Notice:
    key = scored.last.key
    text = (
        f"The target {name!r} was registered after {counted(scored.points, 'data point')} of this run began "
        f"to be scored, the last of epoch {scored.last.epoch:g}. These have no scores of it, because "
        "arrays are not kept. Register targets before the training."
    )
    return Notice("target_late", text, "warning", key.run, key.model)
