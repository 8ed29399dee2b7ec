"""Engines, which run the scoring. The evaluator submits tasks and reads their answers in order.

>>> engine = make_engine("local")
>>> answer = engine.submit(Task(max, (3, 5)))
>>> answer()
5
"""

from __future__ import annotations

from ..core.errors import MissingExtraError
from .base import Answer, Engine, Task, WorkerDiedError
from .local import LocalEngine

__all__ = [
    "ENGINES",
    "Answer",
    "Engine",
    "LocalEngine",
    "Task",
    "WorkerDiedError",
    "default_engine",
    "make_engine",
]

#: The engines that a server may be told to use, beside a number of processes.
ENGINES = ("local", "ray")


def default_engine() -> Engine:
    """Return the engine that suits this machine.

    It uses processes while there is much to do, if there are two cores or more and loky is installed.
    """
    from .on_demand import OnDemandEngine, default_workers

    workers = default_workers()
    try:
        return OnDemandEngine(workers) if workers else LocalEngine()
    except MissingExtraError:
        return LocalEngine()


def make_engine(name: str, workers: int | None = None, address: str | None = None) -> Engine:
    """Return the engine of that name.

    Args:
        name: "local" for this process, "processes" for processes of this machine, "on demand" for this
            process and processes while there is much to do, "ray" for Ray's workers.
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
    if name == "on demand":
        from .on_demand import OnDemandEngine

        return OnDemandEngine(workers or 1)
    from .ray import RayEngine

    return RayEngine(workers, address)
