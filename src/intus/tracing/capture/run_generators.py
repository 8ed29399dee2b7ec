"""Run the generators and coroutines that models return, which compute nothing until they are iterated."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from ...core.errors import CaptureError


def drained(out: Any) -> Any:
    """Return a generator's items as a list, a coroutine's result, and anything else unchanged.

    Args:
        out: What a model returned.

    Raises:
        CaptureError: If ``out`` is asynchronous and an event loop is already running in this thread, as in a
            notebook. Nothing of ``out`` has run then.

    Example:
        >>> drained(number for number in (1, 2))
        [1, 2]
    """
    if inspect.isgenerator(out):
        return list(out)
    if inspect.iscoroutine(out):
        _need_no_loop(out)
        return asyncio.run(out)
    if inspect.isasyncgen(out):
        _need_no_loop(out)
        return asyncio.run(_collect(out))
    return out


async def _collect(items: Any) -> list[Any]:
    return [item async for item in items]


def _need_no_loop(out: Any) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if inspect.iscoroutine(out):
        out.close()  # otherwise Python warns that it was never awaited
    raise CaptureError(
        f"{out.__qualname__} is asynchronous, and this thread is already running an event loop. Trace it "
        "in another thread: await asyncio.to_thread(intus.trace, model, inputs)."
    )
