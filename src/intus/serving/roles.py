"""The roles that one process runs, and their counts."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from dataclasses import dataclass, field

import msgspec

from ..core.errors import InputError
from .aggregation.service import BEAT_S, AggregatorService
from .decoding import read
from .errors import AwayError
from .evaluation.evaluator import Evaluator
from .frontend import Frontend
from .messages import COUNTED_RUNS, ChangeRunRequest, StatusReply, StatusReport, counted, duration

#: Seconds without a report of another process after which its counts are called old.
SILENT_S = 4 * BEAT_S
#: Seconds to wait for the next report.
ANEW_S = BEAT_S + 3.0


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
        old = self._silence()
        return read(
            {
                "aggregator": of_aggregator.aggregator or {},
                "evaluator": of_evaluator.evaluator or {},
                "frontend": self.frontend.status() if self.frontend else {},
                "requests": self.requests,
                "runs": [
                    ledger if not old else msgspec.structs.replace(ledger, trouble=old)
                    for ledger in of_aggregator.runs
                    if run in (None, ledger.run) and model in (None, ledger.model)
                ],
                "waits": of_aggregator.waits,
            },
            StatusReply,
        )

    def change_run(self, change: ChangeRunRequest) -> None:
        """Tag, rename or delete a run, and delete what waits of it.

        Raises:
            InputError: If there is no such run; if it cannot be renamed, or not be deleted by this process,
                because arrays of it wait, which would be stored under the old name.
            AwayError: If it cannot be known whether arrays of it wait.
        """
        assert self.frontend is not None
        if change.remove and self.aggregator:
            if not self.aggregator.remove(run=change.run):
                raise InputError(f"There is no run {change.run!r}.")
            return
        frozen = self.aggregator.frozen(change.run) if self.aggregator and change.name is not None else None
        with frozen or contextlib.nullcontext():
            self._change_run(self.frontend, change)
            if self.aggregator and change.name is not None:
                self.aggregator.forget_run(change.run)

    def _change_run(self, frontend: Frontend, change: ChangeRunRequest) -> None:
        waiting = self._waiting(change) if change.remove or change.name is not None else 0
        if waiting:
            raise InputError(
                f"The run {change.run!r} cannot be {_done(change)} while "
                f"{counted(waiting, 'array')} of it {'waits' if waiting == 1 else 'wait'} to be scored, "
                f"which would be stored as {change.run!r} again. Do it when all is scored (intus.flush waits "
                "for that)" + (", or call intus.clear(HOST, PORT, run=)." if change.remove else ".")
            )
        frontend.change_run(change)

    def _waiting(self, change: ChangeRunRequest) -> int:
        """Return the number of arrays of a run that wait to be scored.

        The counts of an aggregator that is another process may be of some time ago, so its next report is
        waited for.

        Raises:
            AwayError: If it does not come, or has no counts of the run since there are too many.
        """
        if self.aggregator:
            return self.aggregator.waiting(change.run)
        assert self.frontend is not None
        cannot = f"The run {change.run!r} cannot be {_done(change)} now: the aggregator"
        unknown = "so it is not known whether arrays of the run wait to be scored."
        asked = time.monotonic()
        while self.frontend.heard.get("aggregator", -math.inf) < asked:
            if time.monotonic() - asked > ANEW_S:
                raise AwayError(
                    f"{cannot} has reported nothing for {ANEW_S:.0f} s, {unknown} Do it when all roles run; "
                    "or, if none but this one does, in the database: intus.runs(DATABASE)."
                )
            time.sleep(0.05)
        rows = self.frontend.reported["aggregator"].runs
        own = [row.waiting for row in rows if row.run == change.run]
        if not own and len(rows) >= COUNTED_RUNS:
            raise AwayError(f"{cannot} reports the newest {len(rows):,} runs, {unknown}")
        return sum(own)

    def _silence(self) -> str:
        """Return a sentence if the aggregator is another process and has not reported for long; else ""."""
        heard = self.frontend.heard.get("aggregator") if self.frontend and not self.aggregator else None
        silent = 0.0 if heard is None else time.monotonic() - heard
        if silent < SILENT_S:
            return ""
        return (
            f"The aggregator has reported nothing for {duration(int(silent))}, so these counts are old: it "
            "has ended, or the evaluator does not pass its reports on."
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

    def end(self) -> None:
        """End the scoring at once, before this process ends. What is left is kept as by ``close``."""
        if self.evaluator is not None:
            self.evaluator.end()


def _done(change: ChangeRunRequest) -> str:
    return "removed" if change.remove else "renamed"
