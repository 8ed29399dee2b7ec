"""What the servers are to each other: aggregator to evaluator to frontend.

A link is either the next object itself, in one process, or its stand-in from ``links``, which has the same
methods and speaks HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..core.errors import IntusError, ServeError
from ..core.results import Results
from .data_point import DataPoint, Notice

#: What is called with a data point whose scores are stored, or which never will have any.
Done = Callable[[DataPoint], None]


class BusyError(IntusError):
    """More is waiting than may; try again soon."""


class AwayError(ServeError):
    """A server of the chain does not answer now, or cannot store; what it should get is kept."""


class Link(Protocol):
    """What every role passes on to the next."""

    def put_graph(self, run: str, model: str, blob: bytes) -> None: ...
    def put_target(self, facts: Mapping[str, Any]) -> None: ...
    def notices(self, notices: Sequence[Notice]) -> None: ...
    def report(self, role: str, counts: Mapping[str, Any]) -> None: ...
    def flush(
        self, run: str | None = None, model: str | None = None, timeout: float | None = None
    ) -> None: ...
    def clear(self) -> None: ...
    def remove(self, model: str) -> None: ...


class EvaluatorLink(Link, Protocol):
    """The aggregator's view of the evaluator."""

    def points(self, batch: Sequence[DataPoint], done: Done) -> None: ...
    def backlog(self) -> int: ...
    def close(self) -> None: ...


class FrontendLink(Link, Protocol):
    """The evaluator's view of the frontend."""

    def results(self, results: Results) -> None: ...
    def claim_target(self, name: str, owner: str) -> None: ...
    def order(self, run: str, model: str, mode: str, holds: bool) -> None: ...
    def targets(self) -> list[dict[str, Any]]: ...
