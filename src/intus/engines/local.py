"""The engine that runs tasks in this process."""

from __future__ import annotations

from functools import partial

from .base import Answer, R, Task


class LocalEngine:
    """Runs each task in the thread that requests its answer.

    >>> LocalEngine().ahead
    1
    """

    ahead = 1

    def submit(self, task: Task[R]) -> Answer[R]:
        """Return a function that runs the task and returns its result."""
        return partial(task.function, *task.arguments, *task.shared)

    def close(self) -> None:
        """Do nothing: there are no workers."""
