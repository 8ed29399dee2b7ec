"""Spread the pass of one model over the workers of an engine."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ...core.errors import InputError
from ...engines import Answer, Engine, Task, make_engine
from ..plan import Block
from .feed import BlockFeed
from .model_pass import ModelPass

_T = TypeVar("_T")
_TASKS = 4  # for each worker, so that slow ones do not hold up the others
_BLOCKS = 16  # most blocks of a task, whose inputs are sent with it


@contextmanager
def open_engine(given: int | str | None) -> Iterator[Engine | None]:
    """Return a context with the engine that the caller of ``inspect`` names; None for this process.

    Args:
        given: A number of processes of this machine, ``"ray"`` for Ray's workers on it, or
            ``"ray://host:port"`` for a cluster. None for this process.

    Raises:
        InputError: If it is something else.
        ServeError: If the cluster cannot be reached.
        MissingExtraError: If loky or Ray is not installed.
    """
    if given is None:
        yield None
        return
    engine = _made(given)
    try:
        yield engine
    finally:
        engine.close()


def _made(given: Any) -> Engine:
    if isinstance(given, int) and not isinstance(given, bool) and given >= 1:
        return make_engine("processes", given)
    if given == "ray":
        return make_engine("ray")
    if isinstance(given, str) and given.startswith("ray://"):
        return make_engine("ray", address=given)
    raise InputError(
        f"engine must be a number of processes, 'ray' or 'ray://host:port', got {given!r}. Leave it out to "
        "run in this process."
    )


def run_in_workers(
    model_pass: ModelPass, blocks: Iterable[Block], engine: Engine, count: int
) -> Iterator[int]:
    """Run a model over blocks in an engine's workers, and yield the number of records read so far.

    The first block is run here, because it determines the layout of every output. The scorers of the workers
    are merged in the order of the blocks, so that the result does not depend on which worker is faster.

    Args:
        model_pass: The pass.
        blocks: The blocks.
        engine: The engine.
        count: The number of blocks.
    """
    waiting = iter(blocks)
    yield from model_pass.run(itertools.islice(waiting, 1))
    for records, feeds in spread(waiting, _run, (model_pass.empty(),), engine, count):
        model_pass.merge(feeds, records)
        yield model_pass.done


def spread(
    blocks: Iterator[Block],
    function: Callable[..., _T],
    shared: tuple[Any, ...],
    engine: Engine,
    count: int,
) -> Iterator[tuple[int, _T]]:
    """Call a function of lists of blocks in an engine's workers.

    Args:
        blocks: The blocks, which are made here and sent to the workers.
        function: Takes a list of blocks and ``shared``. It is pickled by its name.
        shared: Further arguments.
        engine: The engine.
        count: The number of blocks, roughly.

    Yields:
        The number of records of each list, in order, and what the function returned.
    """
    size = max(1, min(_BLOCKS, math.ceil(count / (_TASKS * max(1, engine.ahead // 2)))))
    answers: deque[tuple[int, Answer[_T]]] = deque()
    while True:
        part = list(itertools.islice(blocks, size))
        if part:
            records = sum(map(len, part))
            answers.append((records, engine.submit(Task(function, (part,), shared, _nbytes(part)))))
        if answers and (not part or len(answers) >= engine.ahead):
            records, answer = answers.popleft()
            yield records, answer()
        elif not part:
            return


def _run(blocks: list[Block], shared: ModelPass) -> list[BlockFeed]:
    """Run some blocks in a worker and return the scorers that they fed."""
    own = shared.empty()
    for _ in own.run(blocks):
        pass
    return own.feeds


def _nbytes(blocks: list[Block]) -> int:
    """Return roughly how much work blocks are: the size of their labels and inputs."""
    labels = sum(column.nbytes for block in blocks for column in block.labels.values())
    return labels + sum(getattr(block.inputs, "nbytes", 0) for block in blocks)
