"""Running what a function merely returned: generators and coroutines do nothing until they are asked."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from ...core.errors import CaptureError


def drained(out: Any) -> Any:
    """What ``out`` comes to: a generator's items as a list, a coroutine's result, anything else itself.

    Raises CaptureError for what is asynchronous where an event loop is running in this thread (a notebook):
    nothing of it has run by then.

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
        out.close()  # or Python warns that it was never awaited
    raise CaptureError(
        f"{out.__qualname__} is asynchronous and an event loop is running in this thread, which it has "
        "to wait for. Trace it in a thread of its own: await asyncio.to_thread(intus.trace, model, inputs)."
    )
