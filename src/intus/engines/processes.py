"""The engine that runs tasks in processes of this machine, by loky."""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from ..core.errors import InputError, require
from .base import TRIES, Answer, R, Task, WorkerDiedError, one_thread

_log = logging.getLogger("intus.engines")


class ProcessEngine:
    """Runs tasks in worker processes.

    If a worker dies, all are started again, and the tasks without a result are run again. Shared arguments
    are written to a file once, which the workers read. Functions and classes that are defined in a notebook
    or script are sent by value (by cloudpickle).

    Args:
        workers: The number of processes.

    Raises:
        InputError: If the number is less than 1.
        MissingExtraError: If loky is not installed.
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise InputError(f"An engine needs 1 worker or more, got {workers}.")
        self._loky = require("loky", extra="inspect", why="to run in several processes")
        self.workers, self.ahead = workers, 2 * workers
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="intus-engine-")
        self._written: dict[int, tuple[Any, Path]] = {}  # with the object, so that its id stays its own
        self._pool: Any = None
        self._closed = False

    def submit(self, task: Task[R]) -> Answer[R]:
        """Send a task to the workers.

        Raises:
            InputError: If an argument cannot be pickled.
        """
        arguments = pickled(task.arguments)
        shared = tuple(str(self._write(one)) for one in task.shared)
        call = partial(_run, task.function, arguments, shared)
        return partial(self._gather, call, self._send(call))

    def close(self) -> None:
        """End the workers and delete the files."""
        with self._lock:
            self._closed = True
            if self._pool is not None:
                self._pool.shutdown(wait=True, kill_workers=True)
                self._pool = None
        self._folder.cleanup()

    def _write(self, value: Any) -> Path:
        with self._lock:
            if id(value) not in self._written:
                path = Path(self._folder.name) / f"{len(self._written)}.pickle"
                path.write_bytes(pickled(value))
                self._written[id(value)] = value, path
            return self._written[id(value)][1]

    def _send(self, call: Any, broken: Any = None) -> tuple[Any, Any]:
        """Submit a call, in new workers if the pool is the ``broken`` one; return the pool and the future."""
        with self._lock:
            if self._closed:
                raise WorkerDiedError("The workers were ended.")
            if self._pool is not None and self._pool is broken:
                _log.warning("A worker died. All workers are started again, and continue where they were.")
            if self._pool is None or self._pool is broken:
                self._pool = self._new_pool()
            try:
                return self._pool, self._pool.submit(call)
            except self._loky.process_executor.BrokenProcessPool:  # it broke before anything was sent
                self._pool = self._new_pool()
                return self._pool, self._pool.submit(call)
            except self._loky.process_executor.ShutdownExecutorError:  # this process ends
                raise WorkerDiedError("The workers were ended.") from None

    def _new_pool(self) -> Any:
        return self._loky.ProcessPoolExecutor(
            self.workers, env=one_thread(), initializer=_set_up, initargs=(os.getpid(), self._folder.name)
        )

    def _gather(self, call: Any, sent: tuple[Any, Any]) -> Any:
        pool, future = sent
        for _ in range(TRIES):
            try:
                return future.result()
            except self._loky.process_executor.ShutdownExecutorError:
                raise WorkerDiedError("The workers were ended.") from None
            except self._loky.process_executor.BrokenProcessPool:
                pool, future = self._send(call, broken=pool)
        raise WorkerDiedError(f"The workers died {TRIES} times while they ran the same task.")


def pickled(value: Any) -> bytes:
    """Return a value as bytes; raises InputError if it cannot be pickled."""
    cloudpickle = require("cloudpickle", extra="inspect", why="to send models to other processes")
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:  # whatever a __reduce__ raises
        raise InputError(
            f"What the workers need cannot be pickled: {error}. Use engine=None, or remove what holds a "
            "lock, a generator or an open file from the model."
        ) from error


def _set_up(parent: int, folder: str) -> None:
    """Leave Ctrl+C to the process that started this worker, and end with it, also if it is killed.

    Args:
        parent: The number of that process.
        folder: Its files, which nobody else deletes if it is killed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent, folder), daemon=True).start()


def _end_with(parent: int, folder: str) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _run(function: Any, arguments: bytes, shared: tuple[str, ...]) -> Any:
    return function(*pickle.loads(arguments), *map(_read, shared))


@lru_cache(maxsize=2)
def _read(path: str) -> Any:
    return pickle.loads(Path(path).read_bytes())
