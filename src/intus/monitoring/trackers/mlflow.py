"""MLflow: metrics of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import mlflow
from mlflow.entities import Metric

from .base import Point, TrackedRun

_MOST = 1000  # metrics in a request
_LONGEST = 240  # characters of a name
#: MLflow allows only letters, digits, underscores, dashes, periods, spaces and slashes on every system.
_REFUSED = re.compile(r"[^\w\-. /]")


class Mlflow:
    """Writes to the active run of MLflow, or to a new one at the tracking URI that is set.

    Args:
        where: The experiment of a new run; ``""`` for the active run, or a new one where MLflow puts it.
        run: The training.
    """

    has_fractions = False
    takes_log = True

    def __init__(self, where: str, run: TrackedRun) -> None:
        self._client = mlflow.MlflowClient()
        active = None if where else mlflow.active_run()
        self._is_own = active is None
        self.run = self._begun(where, run) if active is None else active.info.run_id
        self._names: dict[str, str] = {}  # by key

    def _begun(self, where: str, run: TrackedRun) -> str:
        """Begin a run that is not the active one, since the script may begin one of its own."""
        stands = mlflow.active_run()
        experiment = None
        if where:
            found = self._client.get_experiment_by_name(where)
            experiment = self._client.create_experiment(where) if found is None else found.experiment_id
        tags = {"intus.tags": ", ".join(run.tags)} if run.tags else None
        new = mlflow.start_run(
            experiment_id=experiment, run_name=run.run, nested=stands is not None, tags=tags
        )
        if run.config:
            mlflow.log_params(dict(run.config))
        mlflow.end_run()
        self._client.update_run(new.info.run_id, status="RUNNING")
        return str(new.info.run_id)

    def write(self, points: Sequence[Point]) -> None:
        """Write numbers."""
        metrics = [
            Metric(self._key(each.name), each.value, int(1000 * each.time), math.floor(each.x))
            for each in points
        ]
        for start in range(0, len(metrics), _MOST):
            self._client.log_batch(self.run, metrics[start : start + _MOST], synchronous=True)

    def _key(self, name: str) -> str:
        """Return a name that MLflow allows, another one for each name."""
        plain = _REFUSED.sub("_", name)[:_LONGEST]
        key, number = plain, 1
        while self._names.setdefault(key, name) != name:
            number += 1
            key = f"{plain} {number}"
        return key

    def tell(self, findings: Sequence[str]) -> None:
        """Write the sentences that hold now into a file of the run."""
        self._client.log_text(self.run, "".join(f"{each}\n" for each in findings), "intus/findings.txt")

    def close(self) -> None:
        """End the run, if it was begun here."""
        if self._is_own:
            self._client.set_terminated(self.run)
