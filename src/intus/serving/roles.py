"""The roles that one process plays, and what they tell of themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .aggregation.service import Collector
from .evaluation.evaluator import Evaluator
from .frontend import Frontend


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles one process plays; None for those played elsewhere. ``requests`` counts what was not done."""

    collector: Collector | None = None
    evaluator: Evaluator | None = None
    frontend: Frontend | None = None
    requests: Counter[str] = field(default_factory=Counter)

    def status(self) -> dict[str, Any]:
        """Each role's counts: our own as they are now, the others' as last reported. Besides, ``requests``:
        those of this process that were refused or failed; ``runs``: counts of each (run, model)."""
        told = {
            name: dict(counts) for name, counts in (self.frontend.reported if self.frontend else {}).items()
        }
        if self.collector:
            told["aggregator"] = self.collector.status() | {"runs": self.collector.by_run()}
        if self.evaluator:
            told["evaluator"] = self.evaluator.status() | {"runs": self.evaluator.by_run()}
        if self.frontend:
            told["frontend"] = dict(self.frontend.status())
        runs = [row for counts in told.values() for row in counts.pop("runs", [])]
        roles = {name: told.get(name, {}) for name in ("aggregator", "evaluator", "frontend")}
        return roles | {"requests": dict(self.requests), "runs": runs}

    def close(self) -> None:
        """Finish what was received, along the chain."""
        for role in (self.collector, self.evaluator, self.frontend):
            if role is not None:
                role.close()
