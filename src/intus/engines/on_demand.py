"""The engine that runs tasks in this process, and in others while there is much to do."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic

from ..core.errors import InputError, require
from .base import Answer, Engine, R, Task
from .local import LocalEngine
from .processes import ProcessEngine

_log = logging.getLogger("intus.engines")
#: Seconds of work without a pause after which the processes are started, which takes some itself.
AFTER_S = 2.0
#: Seconds without work after which they are ended.
IDLE_S = 20.0
#: Seconds after a failed start in which no other is tried.
RETRY_S = 60.0
#: Most processes by default. The other cores are for the training.
MOST_WORKERS = 4


def default_workers() -> int:
    """Return the number of processes to use by default: half of the cores; 0 if there is one core."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:  # macOS and Windows
        cores = os.cpu_count() or 1
    return min(MOST_WORKERS, cores // 2)


class OnDemandEngine:
    """Runs tasks in this process, and in worker processes from two seconds of work without a pause on.

    The processes, of about 180 MB each, are ended when nothing was to be done for some time. Results do not
    depend on where a task runs.

    Args:
        workers: The number of processes.
        processes: Creates the engine of the processes.
        after: Seconds of work without a pause after which they are started.
        idle: Seconds without work after which they are ended.

    Raises:
        InputError: If the number is less than 1.
        MissingExtraError: If loky is not installed.
    """

    def __init__(
        self,
        workers: int,
        processes: Callable[[int], Engine] = ProcessEngine,
        after: float = AFTER_S,
        idle: float = IDLE_S,
    ) -> None:
        if workers < 1:
            raise InputError(f"An engine needs 1 worker or more, got {workers}.")
        self.workers, self.ahead = workers, 2 * workers
        self._make, self._after, self._idle = processes, after, idle
        require("loky", extra="server", why="to score in several processes")
        self._here = LocalEngine()
        self._processes: Engine | None = None
        self._answers: weakref.WeakSet[_Awaited[Any]] = weakref.WeakSet()  # of the tasks under way
        self._busy_since = self._not_before = 0.0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """True while tasks are given to worker processes."""
        return self._processes is not None

    def submit(self, task: Task[R]) -> Answer[R]:
        """Start a task in a worker, or return a function that runs it here."""
        now = time.monotonic()
        with self._lock:
            if not self._answers:
                self._busy_since = now
            answer = _Awaited(self._send(task))
            self._answers.add(answer)
            if now - self._busy_since >= self._after and now >= self._not_before:
                self._start(task)
        return answer

    def close(self) -> None:
        """End all workers."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _send(self, task: Task[R]) -> Answer[R]:
        if self._processes is not None:
            with suppress(InputError):  # it cannot be pickled
                return self._processes.submit(task)
        return self._here.submit(task)

    def _start(self, task: Task[Any]) -> None:
        """Start the processes, unless they run, start or end."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, args=(task,), name="intus-engine", daemon=True)
            self._thread.start()

    def _run(self, task: Task[Any]) -> None:
        """Start the processes, give tasks to them from when they are ready on, and end them when idle."""
        processes = self._make(self.workers)
        try:
            ready = threading.Thread(target=self._warm, args=(processes, task), daemon=True)
            ready.start()
            while ready.is_alive() and not self._closed.wait(0.05):
                pass
            busy = time.monotonic()
            while self.running and not self._closed.wait(min(self._idle / 4, 1.0)):
                with self._lock:
                    if self._answers:
                        busy = time.monotonic()
                    elif time.monotonic() - busy >= self._idle:
                        self._processes = None
        finally:
            with self._lock:
                self._processes = None
            processes.close()

    def _warm(self, processes: Engine, task: Task[Any]) -> None:
        """Run a task once in the processes, which makes them import what tasks need."""
        try:
            processes.submit(task)()
        except Exception as error:  # whatever the task raises here, it raises in this process too
            if not self._closed.is_set():
                _log.warning("Worker processes are not used for now: %s", error)
            self._not_before = time.monotonic() + RETRY_S
            return
        with self._lock:
            if not self._closed.is_set():
                self._processes = processes


class _Awaited(Generic[R]):
    """An answer. While it is referred to, its task is under way."""

    def __init__(self, answer: Answer[R]) -> None:
        self._answer = answer

    def __call__(self) -> R:
        return self._answer()
