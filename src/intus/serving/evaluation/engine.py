"""Where data points are measured: in this process, one after the other, or by workers elsewhere.

What a data point says by itself is a pure function of it and its labels, so it may be asked anywhere, and
again where a worker died. What relates it to others stays with the evaluator, which takes answers in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from ..data_point import DataPoint
from .scoring import Measured, chosen, measure
from .targets import Target

#: Waits for what was measured; raises what went wrong.
Gather = Callable[[], Measured]


class Task(NamedTuple):
    """What is to be measured, and how: see ``evaluator.measure``; ``scores`` by name, None for the usual."""

    point: DataPoint
    targets: Sequence[Target]
    scores: Sequence[str] | None
    seed: int
    sketched: bool


class Engine(Protocol):
    """``ahead`` is how many data points may be under way at once."""

    ahead: int

    def submit(self, task: Task) -> Gather:
        """Have a data point measured."""

    def close(self) -> None:
        """Let go of all workers."""


class LocalEngine:
    """Measures in the thread that asks for the answer.

    >>> LocalEngine().ahead
    1
    """

    ahead = 1

    def submit(self, task: Task) -> Gather:
        """Nothing is done yet."""
        return partial(measure, task.point, task.targets, chosen(task.scores), task.seed, task.sketched)

    def close(self) -> None:
        """There is nothing to let go of."""


def make(name: str, workers: int | None = None, address: str | None = None) -> Engine:
    """The engine of that name, "local" or "ray"; the other two are Ray's, see RayEngine."""
    if name == "local":
        return LocalEngine()
    from .ray_engine import RayEngine

    return RayEngine(workers, address)
