"""The engine that runs tasks in Ray's actors, on this machine or on many (``intus serve --engine ray``)."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from ..core.errors import ServeError, require
from .base import TRIES, Answer, R, Task, WorkerDiedError, one_thread

_log = logging.getLogger("intus.engines")
#: The version of the package, whose __init__ this folder may not import.
_VERSION: str = sys.modules[__name__.partition(".")[0]].__version__
#: Seconds to wait for all workers to start.
START_S = 120.0
_SHUT_DOWN = "Ray was shut down while it ran a task."


class _Actor:
    """The actor of a worker process. It has no state, so nothing is lost when it dies."""

    def version(self) -> str:
        return _VERSION

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...], *shared: Any) -> Any:
        return function(*arguments, *shared)


class RayEngine:
    """Runs tasks in Ray's workers.

    A task goes to the worker with the fewest bytes to process. A worker that dies is replaced, and its tasks
    are run again.

    Args:
        workers: Number of workers, by default one for each CPU that Ray has.
        address: HOST:PORT of a cluster. By default Ray is used as this process has it already, and goes on
            after this engine; else a cluster on this machine alone is started, and ended with this engine.

    Raises:
        ServeError: If the cluster cannot be reached, has too few CPUs, or is another than this process uses.
        MissingExtraError: If Ray is not installed.
    """

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no reports to Ray's makers
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        self._ray = ray = require("ray", extra="ray", why="for the engine 'ray'")
        self._starts = not ray.is_initialized()
        if self._starts:
            _start(ray, workers, address)
        elif address:
            raise ServeError(
                f"Ray cannot be used at {address}: this process uses Ray already, and can use one cluster "
                "at a time. Call ray.shutdown() before, or leave out the address."
            )
        self._is_closed = False
        self._class = ray.remote(_Actor)
        self._environment = one_thread()
        if address is None:  # workers on this machine find the modules that this process finds
            self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        self._lock = threading.Lock()
        self._put = lru_cache(maxsize=100)(ray.put)  # shared arguments are sent once
        cpus = int(ray.cluster_resources().get("CPU", 0))
        self._workers = [_Worker(self._start_actor()) for _ in range(workers or cpus or 1)]
        self.ahead = 2 * len(self._workers)
        try:
            self._wait_for_workers(cpus)
        except BaseException:
            self.close()
            raise

    def submit(self, task: Task[R]) -> Answer[R]:
        """Send a task to the worker with the fewest bytes to process."""
        return partial(self._gather, task, *self._send(task))

    def close(self) -> None:
        """End the workers, and the cluster if this engine started it."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        if self._starts:
            self._ray.shutdown()
            return
        for worker in self._workers:
            self._ray.kill(worker.actor)

    def _start_actor(self) -> Any:
        return self._class.options(num_cpus=1, runtime_env={"env_vars": self._environment}).remote()

    def _wait_for_workers(self, cpus: int) -> None:
        """Wait until all workers run, and check that they have this version of intus."""
        try:
            versions = self._ray.get([each.actor.version.remote() for each in self._workers], timeout=START_S)
        except self._ray.exceptions.GetTimeoutError:
            raise ServeError(
                f"Ray has {cpus} CPUs and did not start {len(self._workers)} workers on them within "
                f"{START_S:.0f} s. Ask for fewer workers (--workers), or free some CPUs."
            ) from None
        except self._ray.exceptions.RayError as error:
            raise ServeError(
                f"Ray cannot start a worker: {error} Check that intus is installed on all of its machines."
            ) from None
        others = sorted(set(versions) - {_VERSION})
        if others:
            raise ServeError(
                f"The workers have intus {', '.join(others)} and this process has {_VERSION}. Install the "
                "same version on all machines."
            )

    def _check_open(self) -> None:
        """Raise WorkerDiedError after ``close``, when Ray would start a cluster anew for any call of it."""
        if self._is_closed:
            raise WorkerDiedError(_SHUT_DOWN)

    def _send(self, task: Task[R]) -> tuple[_Worker, Any]:
        self._check_open()
        try:
            shared = [self._put(each) for each in task.shared]
            with self._lock:
                self._check_open()
                worker = min(self._workers, key=lambda worker: worker.load(self._ray))
                return worker, worker.start(task, shared)
        except self._ray.exceptions.RayError as error:
            raise self._gone(error) from error

    def _gather(self, task: Task[R], worker: _Worker, promise: Any) -> R:
        for _ in range(TRIES):
            self._check_open()
            try:
                result: R = self._ray.get(promise)
                return result
            except self._ray.exceptions.RayTaskError as error:
                raise (error.cause or error) from None
            except self._ray.exceptions.ActorDiedError as error:
                self._replace(worker, error)
                worker, promise = self._send(task)
            except self._ray.exceptions.RayError as error:  # no memory or disk, or the cluster is gone
                raise self._gone(error) from error
            except SystemExit:  # of Ray, in each thread that waits for it when it is shut down
                raise WorkerDiedError(_SHUT_DOWN) from None
        raise WorkerDiedError(f"{TRIES} workers died while they ran the same task.")

    @staticmethod
    def _gone(error: Exception) -> WorkerDiedError:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        return WorkerDiedError(f"Ray cannot run a task: {reason}")

    def _replace(self, dead: _Worker, error: Exception) -> None:
        """Replace a dead worker by a new one, unless that was done already."""
        with self._lock:
            if dead in self._workers and not self._is_closed:
                _log.warning("A worker died; a new one takes its tasks: %s", str(error).partition("\n")[0])
                self._workers[self._workers.index(dead)] = _Worker(self._start_actor())


def _start(ray: Any, workers: int | None, address: str | None) -> None:
    """Start a cluster on this machine, or connect to the one at an address."""
    own: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False}
    try:
        _check_reachable(address)  # Ray would try for minutes
        ray.init(
            **({"address": address} if address else own),
            logging_level=logging.ERROR,
            log_to_driver=False,
            configure_logging=False,
        )
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise ServeError(f"Ray cannot be used at {address or 'this machine'}: {error}.") from error


def _check_reachable(address: str | None) -> None:
    """Raise OSError if nothing listens at HOST:PORT or ray://HOST:PORT; other addresses are left to Ray."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal() and "//" not in host:
        socket.create_connection((host, int(port)), timeout=10).close()


class _Worker:
    """An actor and its unfinished tasks."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self._promises: dict[Any, int] = {}  # the size of each task

    def start(self, task: Task[Any], shared: list[Any]) -> Any:
        promise = self.actor.run.remote(task.function, task.arguments, *shared)
        self._promises[promise] = task.nbytes
        return promise

    def load(self, ray: Any) -> int:
        """Return the bytes of the unfinished tasks."""
        promises = list(self._promises)
        done = ray.wait(promises, num_returns=len(promises), timeout=0)[0] if promises else ()
        for promise in done:
            del self._promises[promise]
        return sum(self._promises.values())
