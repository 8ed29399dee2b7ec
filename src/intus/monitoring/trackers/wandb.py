"""Weights & Biases: the history of a run."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import wandb

from .base import Point, TrackedRun

_ROWS_LEFT = "{} rows wait for a step of the script, and its run {} was finished before, so W&B lacks them."
_FINDINGS_LEFT = "The findings are others than when the run {} was finished, and W&B has those."
_FINISH_LATER = "Call watch.remove() and watch.flush() before wandb.finish()."
#: The last step with a row of ours, by W&B's id of the run. Several probes may write to the run of a script.
_LAST_STEPS: dict[str, int] = {}
_LOCK = threading.Lock()


class Wandb:
    """Writes to the run that is active, or to a new one.

    A row of the history is all that was logged at one step of W&B, and steps never go back. So in a run of
    the script, where a step of ours could make W&B refuse one of the script's, a row is added to one that the
    script is about to complete, one to each, and the rest when the probe ends.

    Args:
        where: The project of a new run; ``""`` for the active run, or a new one in the default project.
        run: The training.
    """

    has_fractions = True

    def __init__(self, where: str, run: TrackedRun) -> None:
        active = None if where else wandb.run
        self._is_own = self.takes_log = active is None
        self._run = active or wandb.init(
            project=where or None,
            name=run.run,
            config=dict(run.config),
            tags=list(run.tags),
            reinit="create_new",  # the script may begin a run of its own
        )
        self.run = str(self._run.id)
        self._rows: dict[tuple[str, float], dict[str, float]] = {}
        self._defined: set[str] = set()  # names whose axis is known to W&B
        self._newest: dict[str, tuple[float, float]] = {}  # x and value, by name
        self._late: set[str] = set()  # names of which an older value was written last
        self._findings = self._told = ""  # those that hold now, and those that the run has

    def write(self, points: Sequence[Point]) -> None:
        """Write numbers, or keep them until the script logs."""
        for point in points:
            if self._is_own and point.name in self._rows.get((point.axis, point.x), ()):
                self._complete()
            row = self._rows.setdefault((point.axis, point.x), {f"intus/{point.axis}": point.x})
            row[point.name] = point.value
            self._note(point)
            if point.name not in self._defined:
                self._defined.add(point.name)
                self._run.define_metric(point.name, step_metric=f"intus/{point.axis}")
        if self._is_own:
            self._complete()
            return
        with _LOCK:
            if self._rows and not self._is_over() and self._run.step > _LAST_STEPS.get(self.run, -1):
                self._run.log(self._rows.pop(next(iter(self._rows))), commit=False)
                _LAST_STEPS[self.run] = self._run.step

    def _complete(self) -> None:
        """Write all rows, each at a step of its own."""
        with _LOCK:
            while self._rows:
                step = max(self._run.step, _LAST_STEPS.get(self.run, -1) + 1)
                self._run.log(self._rows[next(iter(self._rows))], step=step, commit=True)
                _LAST_STEPS[self.run] = step
                del self._rows[next(iter(self._rows))]
        if self._late:
            self._run.summary.update({name: self._newest[name][1] for name in self._late})
            self._late.clear()

    def _note(self, point: Point) -> None:
        """Note which value is the newest of its name: W&B takes the one that is written last for it."""
        for name, value in ((point.name, point.value), (f"intus/{point.axis}", point.x)):
            if name not in self._newest or point.x >= self._newest[name][0]:
                self._newest[name] = point.x, value
                self._late.discard(name)
            else:
                self._late.add(name)

    def _is_over(self) -> bool:
        """Return whether the script has finished the run: a question to it then waits for half a minute."""
        return bool(getattr(self._run, "_is_finished", False))  # nothing public tells

    def tell(self, findings: Sequence[str]) -> None:
        """Write the sentences that hold now into the summary of the run."""
        self._findings = "\n".join(findings)
        if not self._is_over():
            self._run.summary["intus/findings"] = self._told = self._findings

    def close(self) -> None:
        """Write what is left, and end the run if it was begun here."""
        left = [_ROWS_LEFT.format(len(self._rows), self.run)] * bool(self._rows)
        left += [_FINDINGS_LEFT.format(self.run)] * (self._findings != self._told)
        if left and self._is_over():
            raise RuntimeError(" ".join([*left, _FINISH_LATER]))
        self._complete()
        if self._is_own:
            self._run.finish()
