"""The targets that an evaluator has in use: requests write them while its thread reads.

A target registered since the server started is for every run that its patterns match. One kept from an
earlier life is for the runs that have scores of it, so that a training goes on where the server was
restarted, and labels of one project are not scored for the next; registering it again makes it new.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from .point import DataPoint
from .targets import Target


class TargetStore(Protocol):
    """Where targets are kept from one life of the server to the next."""

    def put_target(self, facts: Mapping[str, Any]) -> None: ...
    def targets(self) -> list[dict[str, Any]]: ...


class KnownTargets:
    """Targets by name; those of an earlier life are fetched from the store when first needed.

    The dict is replaced, never changed, so that who reads it needs no lock.
    """

    def __init__(self, store: TargetStore) -> None:
        self._store = store
        self._targets: dict[str, Target] | None = None
        self._lock = threading.Lock()

    def put(self, facts: Mapping[str, Any]) -> tuple[str, bool]:
        """Take a target into use and store it, replacing one of the same name; returns the name, and whether
        one that was in use had other labels."""
        target = Target.parse(facts)
        with self._lock:
            self._store.put_target(facts)
            known = self._known()
            before = known.get(target.name)
            self._targets = known | {target.name: target}
        in_use = before is not None and before.runs is None
        return target.name, in_use and not np.array_equal(before.labels, target.labels)  # type: ignore[union-attr]

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._targets = {}

    def of(self, point: DataPoint) -> list[Target]:
        """The targets that apply to a data point."""
        with self._lock:
            known = self._targets = self._known()
        return [target for target in known.values() if target.applies(point)]

    def set_aside(self, point: DataPoint) -> list[str]:
        """The names of targets that match a data point but are kept for other runs."""
        with self._lock:
            known = self._targets = self._known()
        return [name for name, target in known.items() if target.matches(point) and not target.applies(point)]

    def _known(self) -> dict[str, Target]:
        if self._targets is None:
            stored = self._store.targets()
            runs = [frozenset((run, model) for run, model in facts["runs"]) for facts in stored]
            kept = [replace(Target.parse(f), runs=of) for f, of in zip(stored, runs, strict=True)]
            return {target.name: target for target in kept}
        return self._targets
