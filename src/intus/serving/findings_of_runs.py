"""Keep what follows from the scores of each run up to date, in a small share of the time."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Collection, Iterable

from ..core import findings
from ..core.findings import Finding
from ..core.results import COLUMNS, Results
from ..storage.database import Database
from ..storage.logged import Logged
from .schedule import Moment

#: After the scores of a run were looked through, it is not done again for this many times as long.
PAUSE = 20.0
#: Seconds that it may take when the server ends.
AT_END_S = 0.5
_log = logging.getLogger("intus.serving")
_RunKey = tuple[str, str]


class FindingsOfRuns:
    """Finds, stores and logs what follows from the scores and the logged values of runs.

    It reads all scores of a run, which takes seconds for a hundred thousand points. What is not looked at now
    is looked at by a timer.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._found: dict[_RunKey, list[Finding]] = {}
        self._new: dict[_RunKey, None] = {}  # with scores since they were looked at
        self._took: dict[_RunKey, float] = {}  # seconds, the last time
        self._due: dict[_RunKey, float] = {}
        self._made: dict[_RunKey, float] = {}  # when, in seconds since 1970
        self._unscored: dict[_RunKey, Moment | None] = {}  # the earliest epoch that is not scored in full
        #: Run, model and training of logged values that were looked at, with names that are not finite.
        self._seen: set[tuple[str, str, float | None, str]] = set()
        self._looking = threading.Lock()
        self._timer: threading.Timer | None = None
        self._closed = False

    def of(self, run: str, model: str) -> list[Finding]:
        """Return the findings of a run, as far as its scores were looked at."""
        return self._found.get((run, model), [])

    def age(self, run: str, model: str) -> tuple[float | None, bool]:
        """Return when the scores of a run were looked through, in seconds since 1970, and if there are more.

        The time is None if they were not since the start.
        """
        run_key = run, model
        return self._made.get(run_key), run_key in self._new or self._unscored.get(run_key) is not None

    def scored(self, runs: Iterable[_RunKey], unscored: Moment | None = None) -> None:
        """Note runs that have new scores, and their earliest epoch that is not scored in full.

        What follows from the scores is looked for before that epoch: the newest epoch is scored first, and
        from it alone would seem to begin what began in an earlier one, and in the layers that are scored.
        """
        for run_key in dict.fromkeys(runs):
            self._unscored[run_key] = unscored
            self._new[run_key] = None

    def revised(self, run: str, model: str) -> None:
        """Look at the scores of a run again, of which some have other notes or values now."""
        self._new[run, model] = None
        self.update()

    def flush(self, run: str | None = None, model: str | None = None) -> None:
        """Look at all scores of all runs, or of one, now: everything was scored that will be."""
        with self._looking:
            for run_key in {**self._new, **{key: None for key, each in self._unscored.items() if each}}:
                if run in (None, run_key[0]) and model in (None, run_key[1]):
                    self._unscored.pop(run_key, None)
                    self._look(run_key)

    def update(self) -> None:
        """Look at the new scores of runs that are due, unless another thread does so now."""
        if not self._looking.acquire(blocking=False):
            return
        try:
            for run_key in list(self._new):
                if self._due.get(run_key, 0.0) <= time.monotonic():
                    self._look(run_key)
        finally:
            self._looking.release()
        left = [self._due.get(run_key, 0.0) for run_key in list(self._new)]
        if left and self._timer is None and not self._closed:
            self._timer = threading.Timer(max(min(left) - time.monotonic(), 0.01), self._timed)
            self._timer.daemon = True
            self._timer.start()

    def logged(self, run: str, model: str, values: Collection[Logged]) -> None:
        """Look at values that the user logged. The scores of the present epoch may be incomplete."""
        bad = [each for each in values if not math.isfinite(each.value)]
        news = {(run, model, each.training, each.name) for each in bad}
        if any(each.kind == "logged" for each in self.of(run, model)):  # not of a training that begins
            news |= {(run, model, each.training, "") for each in values}
        if news - self._seen:
            self._seen |= news
            with self._looking:
                self._find(run, model, of_log=True)

    def held(self) -> threading.Lock:
        """Return the lock within which nothing is looked at, as while a run is deleted."""
        return self._looking

    def forget(self, run: str, model: str | None = None) -> None:
        """Forget a run, or a model of it, that was deleted, within ``held``."""
        self._seen = {each for each in self._seen if not (each[0] == run and model in (None, each[1]))}
        for known in (self._found, self._new, self._took, self._due, self._made, self._unscored):
            for run_key in [key for key in list(known) if key[0] == run and model in (None, key[1])]:
                known.pop(run_key, None)

    def close(self) -> None:
        """End the timer, and look at what takes little time."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        with self._looking:
            left = AT_END_S
            for run_key in sorted(self._new, key=lambda run_key: self._took.get(run_key, 0.0)):
                left -= self._took.get(run_key, 0.0)
                if left > 0:
                    self._look(run_key)

    def _timed(self) -> None:
        self._timer = None
        self.update()

    def _look(self, run_key: _RunKey) -> None:
        self._new.pop(run_key, None)
        began = time.monotonic()
        self._find(*run_key)
        ended = time.monotonic()
        self._took[run_key], self._due[run_key] = ended - began, ended + PAUSE * (ended - began)

    def _find(self, run: str, model: str, *, of_log: bool = False) -> None:
        """Find, store and log; a failure is logged, and stops nothing else.

        Args:
            run: The run.
            model: The model.
            of_log: Whether only logged values changed. Then what was found in scores before is kept.
        """
        try:
            log = [
                (each.name, each.step, each.epoch, each.value)
                for each in self._database.log(run, model)
                if not each.note
            ]
            kept = self._found.get((run, model)) if of_log else None
            made = time.time()
            if kept is None:
                names = findings.SCORES
                tables = [self._database.points(run, model, level="layer", score=name) for name in names]
                layers = self._database.addresses(run, model)
                until = self._unscored.get((run, model))
                scores = _before(Results.concat(tables), until)
                found = findings.findings(scores, layers, log, model)
            else:
                found = [each for each in kept if each.kind != "logged"]
                found += findings.findings(Results(), (), log, model)
            self._found[run, model] = found
            if kept is None:
                self._made[run, model] = made
            began = [each.text for each in found if each.kind == "nonfinite"]
            texts = [each.text for each in found if each.kind != "nonfinite"]
            new = self._database.put_findings(run, model, texts)
            if began:  # in place of what the evaluator reported at once, of the epoch that was scored first
                new += self._database.put_findings(run, model, began, code="nonfinite", level="warning")
            several = new and sum(one["run"] == run for one in self._database.runs()) > 1
            for text in new:
                _log.info("finding in %s: %s", f"{run or model} ({model})" if several else run or model, text)
        except Exception:
            _log.exception("The findings of %s could not be computed", run or model)


def _before(results: Results, until: Moment | None) -> Results:
    """Return the results of earlier epochs than one; of all if it is None."""
    if until is None:
        return results
    epochs, steps = results["epoch"], results["step"]
    keep = (epochs < until.epoch) | ((epochs == until.epoch) & (steps < until.step))
    return Results({name: results[name][keep] for name in COLUMNS})
