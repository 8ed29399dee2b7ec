"""The roles that one process runs, and their counts."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field

from .aggregation.service import AggregatorService
from .decoding import read
from .evaluation.evaluator import Evaluator
from .frontend import Frontend
from .messages import StatusReply, StatusReport


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles that one process runs.

    Attributes:
        aggregator: The aggregator; None if it runs elsewhere.
        evaluator: The evaluator; None if it runs elsewhere.
        frontend: The frontend; None if it runs elsewhere.
        requests: Counts of the requests to this process that were refused or failed, by status.
    """

    aggregator: AggregatorService | None = None
    evaluator: Evaluator | None = None
    frontend: Frontend | None = None
    requests: Counter[str] = field(default_factory=Counter)

    def status(self, run: str | None = None, model: str | None = None) -> StatusReply:
        """Return the counts of each role: current ones of this process, the last reports of others.

        Args:
            run: The ledgers of this run alone.
            model: Those of this model alone.
        """
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
                "runs": [
                    ledger
                    for ledger in of_aggregator.runs
                    if run in (None, ledger.run) and model in (None, ledger.model)
                ],
                "waits": of_aggregator.waits,
            },
            StatusReply,
        )

    @property
    def keeps_rest(self) -> bool:
        """True if what is not scored when the process ends is kept: in the journal, or by another process."""
        return self.aggregator is None or self.aggregator.journal is not None

    def close(self, patience: float | None = None) -> None:
        """Finish the queues, one role after the other.

        Args:
            patience: Seconds to score at most; None until all is scored. What is left then is in the journal,
                or with the sender.
        """
        ends, finished = math.inf if patience is None else time.monotonic() + patience, True
        for role in (self.aggregator, self.evaluator):
            left = None if patience is None else max(ends - time.monotonic(), 0.0)
            finished = (role is None or role.close(left)) and finished
        if self.frontend is not None and finished:  # else a last data point may be stored at this moment
            self.frontend.close()
