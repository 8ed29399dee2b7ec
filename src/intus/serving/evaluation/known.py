"""The targets that an evaluator has in use: requests write them while its thread reads.

Whose labels a run is scored on: those that its own process registered; else those registered by one that
trains nothing itself, such as a notebook. So trainings side by side have their own labels under one name.
Labels kept from before the server was begun again are for the runs that had begun by then, so that a training
goes on, and labels of one project are not scored for the next; registering them again makes them new.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ...core.errors import InputError
from ..data_point import DataPoint
from .targets import Target

_Key = tuple[str, str]
_log = logging.getLogger("intus.serving")


class TargetStore(Protocol):
    """Where targets are kept from one life of the server to the next."""

    def put_target(self, facts: Mapping[str, Any]) -> None: ...
    def claim_target(self, name: str, owner: str) -> None: ...
    def targets(self) -> list[dict[str, Any]]: ...


class KnownTargets:
    """Targets by name and owner; those of an earlier life are fetched from the store when first needed.

    The dict is replaced, never changed, so that who reads it needs no lock.
    """

    def __init__(self, store: TargetStore) -> None:
        self._store = store
        self._targets: dict[_Key, Target] | None = None
        self._senders: set[str] = set()  # clients that sent records
        self._order = 0.0
        self._lock = threading.Lock()

    def put(self, facts: Mapping[str, Any]) -> tuple[str, bool]:
        """Take a target into use and store it, replacing the same owner's of that name; returns the name, and
        whether one that was in use had other labels."""
        target = Target.parse(facts)
        with self._lock:
            self._store.put_target(facts)
            known, key = self._known(), (target.name, target.owner)
            before = known.get(key)
            self._order = max([self._order, *(old.registered for old in known.values())]) + 1
            others = {old: kept for old, kept in known.items() if old != key}
            self._targets = others | {key: replace(target, registered=self._order)}
        in_use = before is not None and before.until is None
        return target.name, in_use and not np.array_equal(before.labels, target.labels)  # type: ignore[union-attr]

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._targets = {}

    def of(self, point: DataPoint) -> list[Target]:
        """The targets that apply to a data point: of one name its own process's, else the newest."""
        with self._lock:
            self._claim(point)
            known = self._known()
        fitting = [target for target in known.values() if target.applies(point)]
        fitting.sort(key=lambda target: (target.is_own(point), target.registered))
        return list({target.name: target for target in fitting}.values())

    def set_aside(self, point: DataPoint) -> list[str]:
        """The names of targets that match a data point but are kept for other runs, unless they are another
        training's."""
        with self._lock:
            known = self._known()
        return [
            target.name
            for target in known.values()
            if target.matches(point) and not target.applies(point) and not target.claimed
        ]

    def _claim(self, point: DataPoint) -> None:
        """Who sends records keeps its targets to itself."""
        known = self._known()
        self._senders.update(point.clients)
        for key, target in known.items():
            if target.client in self._senders and not target.claimed:
                self._store.claim_target(*key)
                known = known | {key: replace(target, claimed=True)}
        self._targets = known

    def _known(self) -> dict[_Key, Target]:
        if self._targets is None:
            kept = _read(self._store.targets())
            self._targets = {(target.name, target.owner): target for target in kept}
        return self._targets


def _read(kept: Iterable[Mapping[str, Any]]) -> Iterator[Target]:
    """The targets of an earlier life; what an older intus took and this one does not is left out."""
    for facts in kept:
        try:
            yield Target.kept(facts)
        except InputError as error:
            _log.warning("A target kept from before is not used: %s", error)
