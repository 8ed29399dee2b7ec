"""The interfaces of the roles: the aggregator calls the evaluator, and the evaluator calls the frontend.

A link is either the next role itself, in the same process, or its proxy from ``http.remote``, which has the
same methods and sends HTTP requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..core.results import Predictions, Results
from ..core.score_info import ScoreInfo
from ..storage.kept_sketch import KeptSketch
from .data_point import DataPoint
from .evaluation.targets import Target
from .messages import DoubtRequest, Notice, RunRequest, StatusReport
from .schedule import Moment

#: (run, model).
RunKey = tuple[str, str]
#: Called with a data point and True once its scores are stored, or False once it is certain to have none.
Done = Callable[[DataPoint, bool], None]


class Link(Protocol):
    """The calls that every role passes on to the next."""

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        """Store the graph of a model."""

    def put_run(self, request: RunRequest) -> None:
        """Store what the user says of a run."""

    def put_doubt(self, request: DoubtRequest) -> None:
        """Store a doubt of rows, which their scores have, before it or after it."""

    def put_target(self, target: Target) -> None:
        """Use and store a target."""

    def notices(self, notices: Sequence[Notice]) -> None:
        """Store notices."""

    def report(self, report: StatusReport) -> None:
        """Store the counts of another role."""

    def flush(self, run: str | None = None, model: str | None = None, timeout: float | None = None) -> None:
        """Wait until everything queued is scored and stored, of all or of one run or model.

        Raises:
            AwayError: If that takes longer than ``timeout`` seconds, or a server does not answer.
        """

    def check(self) -> None:
        """Raise ReplacedError if it is known that what would be stored now would be lost."""

    def clear(self, owner: str) -> None:
        """Delete the targets of a client, ``""`` for those without a client."""

    def remove(self, run: str, model: str | None = None) -> bool:
        """Delete a run, or one model of it, and return whether it was stored."""


class EvaluatorLink(Link, Protocol):
    """The evaluator, as the aggregator sees it."""

    def points(self, batch: Sequence[DataPoint], done: Done) -> None:
        """Queue data points that became complete together; ``done`` is called with each."""

    def backlog(self) -> int:
        """Return the bytes of the data points in the queue."""
        ...

    def troubles(self) -> dict[RunKey, str]:
        """Return why data points cannot be scored or stored now, by (run, model)."""
        ...

    def close(self, patience: float | None = None) -> bool:
        """Finish the queue, as far as the next role answers, and return whether it was finished.

        Args:
            patience: Seconds to take at most; None for no limit.
        """
        ...


class FrontendLink(Link, Protocol):
    """The frontend, as the evaluator sees it."""

    def results(
        self,
        results: Results,
        infos: Sequence[ScoreInfo],
        predicted: Sequence[Predictions],
        unscored: Moment | None,
    ) -> None:
        """Store results of a run, the descriptions of their scores, and the predictions of classifiers.

        ``unscored`` is the earliest epoch of the run that is not scored in full with these; None if all are.
        """

    def keep_sketch(self, run: str, model: str, sketch: KeptSketch, unscored: Moment | None) -> None:
        """Keep a sample of a layer's rows, to compare others with it; ``unscored`` as for ``results``."""

    def sketches(
        self, run: str, model: str, training: float, at: tuple[str, float, int] | None = None
    ) -> list[KeptSketch]:
        """Return what is kept of a training without its contents, or the sample of a (layer, epoch, step)."""
        ...

    def claim_target(self, name: str, owner: str) -> None:
        """Store that an owner's targets of a name apply to the runs of that owner only."""

    def arrival_order(self, run: str, model: str, mode: str) -> None:
        """Verify the scores of labels that were matched by order of arrival."""

    def targets(self) -> list[dict[str, Any]]:
        """Return the stored targets."""
        ...
