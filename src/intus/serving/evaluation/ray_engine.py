"""Data points measured by Ray's actors, on this machine or on many (``intus serve --engine ray``)."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from ...core.errors import IntusError, ServeError, require
from ..data_point import DataPoint
from .engine import Gather, Task
from .scoring import Measured, chosen, measure
from .targets import Target

_log = logging.getLogger("intus.serving")
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
#: That of the package, which this room may not import.
_VERSION: str = sys.modules[__name__.partition(".")[0]].__version__
#: How often a data point is measured anew whose worker died.
TRIES = 3
#: How long the first answer of all workers is waited for.
START_S = 120.0


class WorkerDiedError(IntusError):
    """A data point was given to workers again and again, and each of them died."""


class _Measurer:
    """What runs in a worker's process. It holds nothing that its death would lose."""

    def version(self) -> str:
        return _VERSION

    def measure(
        self, point: DataPoint, scores: Sequence[Any], seed: int, sketched: bool, *targets: Target
    ) -> Measured:
        return measure(point, targets, scores, seed, sketched)


class RayEngine:
    """``workers`` actors, by default as many as Ray has CPUs, on the cluster at ``address``, or on one of
    this machine alone that begins and ends with this engine. A data point goes to the worker that has least
    to do; where a worker dies another takes its place, and is given its share again.

    Raises ServeError where there is no such cluster, or too little room in it; MissingExtraError without Ray.
    """

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell its makers
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        self._ray = ray = require("ray", extra="ray", why="for the engine 'ray'")
        where = {"address": address} if address else {"num_cpus": workers, "include_dashboard": False}
        try:
            _check_reachable(address)  # Ray would try for minutes
            ray.init(**where, logging_level=logging.ERROR, log_to_driver=False, configure_logging=False)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            raise ServeError(f"Ray cannot be used at {address or 'this machine'}: {error}.") from error
        self._class = ray.remote(_Measurer)
        self._lock = threading.Lock()
        self._kept = lru_cache(maxsize=100)(ray.put)  # labels travel once, not with each data point
        room = int(ray.cluster_resources().get("CPU", 0))
        self._workers = [_Worker(self._actor()) for _ in range(workers or room or 1)]
        self.ahead = 2 * len(self._workers)
        try:
            self._greet(room)
        except BaseException:
            self.close()
            raise

    def submit(self, task: Task) -> Gather:
        """Give a data point to the worker that has least to do."""
        arguments = (
            task.point,
            chosen(task.scores),
            task.seed,
            task.sketched,
            *map(self._kept, task.targets),
        )
        return partial(self._gather, arguments, *self._send(arguments))

    def close(self) -> None:
        """End the workers, and the cluster where it is our own."""
        self._ray.shutdown()

    def _actor(self) -> Any:
        return self._class.options(num_cpus=1, runtime_env={"env_vars": _ONE_THREAD}).remote()

    def _greet(self, room: int) -> None:
        """Return when all workers have begun, and are of this version."""
        try:
            versions = self._ray.get([each.actor.version.remote() for each in self._workers], timeout=START_S)
        except self._ray.exceptions.GetTimeoutError:
            raise ServeError(
                f"Ray has {room} CPUs, and did not begin {len(self._workers)} workers on them within "
                f"{START_S:.0f} s. Ask for fewer (--workers), or free some."
            ) from None
        except self._ray.exceptions.RayError as error:
            raise ServeError(
                f"Ray cannot begin a worker; is intus installed on its machines? {error}"
            ) from None
        others = sorted(set(versions) - {_VERSION})
        if others:
            raise ServeError(f"Workers have intus {', '.join(others)}, and this is {_VERSION}: install one.")

    def _send(self, arguments: tuple[Any, ...]) -> tuple[_Worker, Any]:
        with self._lock:
            worker = min(self._workers, key=lambda worker: worker.load(self._ray))
            return worker, worker.measure(arguments)

    def _gather(self, arguments: tuple[Any, ...], worker: _Worker, promise: Any) -> Measured:
        for _ in range(TRIES):
            try:
                found: Measured = self._ray.get(promise)
                return found
            except self._ray.exceptions.RayTaskError as error:
                raise (error.cause or error) from None
            except self._ray.exceptions.ActorDiedError as error:
                self._replace(worker, error)
                worker, promise = self._send(arguments)
        raise WorkerDiedError(f"{TRIES} workers died of it, the last one while it was waited for.")

    def _replace(self, dead: _Worker, error: Exception) -> None:
        """Put another worker in a dead one's place, once."""
        with self._lock:
            if dead in self._workers:
                _log.warning("A worker died, and another takes its share: %s", str(error).partition("\n")[0])
                self._workers[self._workers.index(dead)] = _Worker(self._actor())


def _check_reachable(address: str | None) -> None:
    """Raise OSError where nobody listens at HOST:PORT; other ways to name a cluster are Ray's own."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal() and "//" not in host:
        socket.create_connection((host, int(port)), timeout=10).close()


class _Worker:
    """An actor, and what it was given that is not done."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self._promises: dict[Any, int] = {}  # bytes of each data point

    def measure(self, arguments: tuple[Any, ...]) -> Any:
        promise = self.actor.measure.remote(*arguments)
        self._promises[promise] = arguments[0].nbytes
        return promise

    def load(self, ray: Any) -> int:
        """Bytes of the data points that it was given and that are not done."""
        promises = list(self._promises)
        done = ray.wait(promises, num_returns=len(promises), timeout=0)[0] if promises else ()
        for promise in done:
            del self._promises[promise]
        return sum(self._promises.values())
