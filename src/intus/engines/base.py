"""The interface of engines, which run picklable functions in this process or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ..core.errors import IntusError

R = TypeVar("R")

#: Waits for a task's result and returns it; raises what the task raised.
Answer = Callable[[], R]


#: Number of workers on which a task is tried, if each of them dies.
TRIES = 3


def one_thread() -> dict[str, str]:
    """Return the environment of a worker: its libraries use one thread each."""
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class WorkerDiedError(IntusError):
    """Raised if every worker that ran a task died, or the workers are gone; nothing is known of the task."""


@dataclass(frozen=True, slots=True)
class Task(Generic[R]):
    """A call of a pure function, which can therefore be repeated if a worker dies.

    Attributes:
        function: The function. It is pickled by its name, so it must be importable.
        arguments: Positional arguments, sent with the task.
        shared: Further positional arguments, which many tasks have in common. Each is sent to the workers'
            machines once.
        nbytes: Size of the arguments in bytes, for balancing the load.
    """

    function: Callable[..., R]
    arguments: tuple[Any, ...] = ()
    shared: tuple[Hashable, ...] = ()
    nbytes: int = 0


class Engine(Protocol):
    """Runs tasks.

    Attributes:
        ahead: Number of tasks that may be submitted before the first answer is requested.
    """

    ahead: int

    def submit(self, task: Task[R]) -> Answer[R]:
        """Start a task, and return a function that waits for its result."""

    def close(self) -> None:
        """End all workers."""
