"""What the roles are to each other: the aggregator calls the evaluator, the evaluator the frontend.

A link is either the next role itself, in one process, or its stand-in from ``http.remote``, which has the
same methods and sends HTTP requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..core.results import Results
from ..core.score_info import ScoreInfo
from .data_point import DataPoint
from .evaluation.targets import Target
from .messages import Notice, StatusReport

#: Called with a data point whose scores are stored, or which is certain to have none.
Done = Callable[[DataPoint], None]


class Link(Protocol):
    """What every role passes on to the next."""

    def put_graph(self, run: str, model: str, blob: bytes) -> None: ...
    def put_target(self, target: Target) -> None: ...
    def notices(self, notices: Sequence[Notice]) -> None: ...
    def report(self, report: StatusReport) -> None: ...
    def flush(
        self, run: str | None = None, model: str | None = None, timeout: float | None = None
    ) -> None: ...
    def clear(self) -> None: ...
    def remove(self, model: str) -> None: ...


class EvaluatorLink(Link, Protocol):
    """The evaluator, as the aggregator sees it."""

    def points(self, batch: Sequence[DataPoint], done: Done) -> None: ...
    def backlog(self) -> int: ...
    def close(self) -> None: ...


class FrontendLink(Link, Protocol):
    """The frontend, as the evaluator sees it."""

    def results(self, results: Results, infos: Sequence[ScoreInfo]) -> None: ...
    def claim_target(self, name: str, owner: str) -> None: ...
    def arrival_order(self, run: str, model: str, mode: str, holds: bool) -> None: ...
    def targets(self) -> list[dict[str, Any]]: ...
