"""What an engine is: something that runs picklable functions, in this process or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ..core.errors import IntusError

R = TypeVar("R")

#: Waits for a task's result and returns it; raises what the task raised.
Answer = Callable[[], R]


class WorkerDiedError(IntusError):
    """A task was given to several workers, and each of them died."""


@dataclass(frozen=True, slots=True)
class Task(Generic[R]):
    """A call of a pure function, which may therefore be repeated where a worker died.

    Attributes:
        function: The function. It is pickled by its name, so it must be importable.
        arguments: Positional arguments, sent with the task.
        shared: Positional arguments that follow them and that many tasks have in common: each is sent to the
            workers' machines once.
        nbytes: Size of the arguments in bytes, by which the load is balanced.
    """

    function: Callable[..., R]
    arguments: tuple[Any, ...] = ()
    shared: tuple[Hashable, ...] = ()
    nbytes: int = 0


class Engine(Protocol):
    """Runs tasks. ``ahead`` is how many tasks may be submitted before the first answer is asked for."""

    ahead: int

    def submit(self, task: Task[R]) -> Answer[R]:
        """Start a task, and return a function that waits for its result."""

    def close(self) -> None:
        """End all workers."""
