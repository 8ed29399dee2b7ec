"""Engines, which run the scoring. The evaluator submits tasks and reads their answers in order.

>>> engine = make_engine("local")
>>> answer = engine.submit(Task(max, (3, 5)))
>>> answer()
5
"""

from __future__ import annotations

from .base import Answer, Engine, Task, WorkerDiedError
from .local import LocalEngine

__all__ = ["ENGINES", "Answer", "Engine", "LocalEngine", "Task", "WorkerDiedError", "make_engine"]

#: The names that ``make_engine`` takes.
ENGINES = ("local", "ray")


def make_engine(name: str, workers: int | None = None, address: str | None = None) -> Engine:
    """Return the engine of that name.

    Args:
        name: "local" for this process, "processes" for processes of this machine, "ray" for Ray's workers.
        workers: Number of workers, by default one for each of Ray's CPUs.
        address: HOST:PORT of a Ray cluster, by default a new one on this machine.

    Raises:
        ServeError: If the cluster cannot be reached, or has too few CPUs.
        MissingExtraError: If Ray is not installed.
    """
    if name == "local":
        return LocalEngine()
    if name == "processes":
        from .processes import ProcessEngine

        return ProcessEngine(workers or 1)
    from .ray import RayEngine

    return RayEngine(workers, address)
