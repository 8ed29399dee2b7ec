"""The roles that one process runs, and what they count."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .aggregation.service import AggregatorService
from .decoding import read
from .evaluation.evaluator import Evaluator
from .frontend import Frontend
from .messages import StatusReply, StatusReport


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles that one process runs; None for one that runs elsewhere.

    ``requests`` counts the requests of this process that were refused or failed, by status.
    """

    aggregator: AggregatorService | None = None
    evaluator: Evaluator | None = None
    frontend: Frontend | None = None
    requests: Counter[str] = field(default_factory=Counter)

    def status(self) -> StatusReply:
        """Return what each role counts: our own as they are now, the others as they last reported."""
        reports = dict(self.frontend.reported) if self.frontend else {}
        if self.aggregator:
            reports["aggregator"] = self.aggregator.counts()
        if self.evaluator:
            reports["evaluator"] = self.evaluator.counts()
        of_aggregator, of_evaluator = (
            reports.get(role, StatusReport()) for role in ("aggregator", "evaluator")
        )
        return read(
            {
                "aggregator": of_aggregator.aggregator or {},
                "evaluator": of_evaluator.evaluator or {},
                "frontend": self.frontend.status() if self.frontend else {},
                "requests": self.requests,
                "runs": [*of_aggregator.runs, *of_evaluator.runs],
            },
            StatusReply,
        )

    def close(self) -> None:
        """Finish what was received, one role after the other."""
        for role in (self.aggregator, self.evaluator, self.frontend):
            if role is not None:
                role.close()
