"""The frontend without its HTTP: what is found goes into the database, for the page to read."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from sqlalchemy.exc import InterfaceError, OperationalError

from ..core.results import Results
from ..storage.database import Database
from .data_point import Notice
from .evaluation.arrival_order import BY_ORDER, UNVERIFIED, WITHDRAWN
from .evaluation.targets import Target
from .interfaces import AwayError

_log = logging.getLogger("intus.serving")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _storing(work: Callable[_P, _T]) -> Callable[_P, _T]:
    """Tell a disk that is full, or a database that is away, from a mistake: it may pass."""

    @wraps(work)
    def call(*args: _P.args, **options: _P.kwargs) -> _T:
        try:
            return work(*args, **options)
        except (OperationalError, InterfaceError) as error:
            raise AwayError(f"The database cannot be written now: {error.orig}.") from error

    return call


class Frontend:
    """Keeps what is found in the database, for the page to read."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.reported: dict[str, dict[str, Any]] = {}
        self._counts: Counter[str] = Counter(results=0, notices=0)
        database.end_targets()

    @_storing
    def results(self, results: Results) -> None:
        """Store scores. Raises AwayError where that may work later, as do the others."""
        self.database.add(results)
        self._counts["results"] += len(results)

    @_storing
    def notices(self, notices: Sequence[Notice]) -> None:
        """Store what people should see, and log it."""
        for notice in notices:
            _log.log(_LEVELS[notice.level], "%s: %s", notice.code, notice.text)
            self.database.add_notice(
                notice.code, notice.text, level=notice.level, run=notice.run, model=notice.model
            )
            self._counts["notices"] += 1

    @_storing
    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        """Store a model's graph."""
        self.database.put_graph(run, model, blob)

    @_storing
    def put_target(self, facts: Mapping[str, Any]) -> None:
        """Store a target's labels, so that they survive a restart."""
        target = Target.parse(facts)
        self.database.put_target(
            target.name,
            facts["targets"],
            target.model_pattern.pattern,
            target.layer_pattern.pattern,
            target.run_pattern.pattern,
            target.owner,
        )

    @_storing
    def claim_target(self, name: str, owner: str) -> None:
        """Remember that a target is for its owner's runs alone."""
        self.database.claim_target(name, owner)

    @_storing
    def order(self, run: str, model: str, mode: str, holds: bool) -> None:
        """Scores whose labels were matched by order of arrival are verified, or withdrawn."""
        if holds:
            self.database.revise(run, model, mode, UNVERIFIED, BY_ORDER)
        elif self.database.revise(run, model, mode, UNVERIFIED, WITHDRAWN, withdraw=True):
            self.notices(
                [Notice("order", f"Scores of the first epoch are {WITHDRAWN}.", "warning", run, model)]
            )

    @_storing
    def targets(self) -> list[dict[str, Any]]:
        """The targets stored."""
        return self.database.targets()

    def report(self, role: str, counts: Mapping[str, Any]) -> None:
        """Remember what another role counted."""
        self.reported[role] = dict(counts)

    def flush(self, run: str | None = None, model: str | None = None, timeout: float | None = None) -> None:
        """Nothing waits here."""

    @_storing
    def clear(self) -> None:
        """Forget everything."""
        self.database.clear()

    @_storing
    def remove(self, model: str) -> None:
        """Forget a model."""
        self.database.remove(model)

    def status(self) -> dict[str, int]:
        """Counts: rows of results and notices that came."""
        return dict(self._counts)

    def close(self) -> None:
        """Close the database."""
        self.database.close()
