"""Requests of one kind, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from starlette.concurrency import run_in_threadpool

_T = TypeVar("_T")


class Turns:
    """Lets one thread at a time work on requests of a kind. The others wait for their turn, in order.

    Python runs one thread at a time. If many clients sent at once, the threads of scoring and of the page
    would be two of forty.
    """

    def __init__(self) -> None:
        self._of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def run(self, work: Callable[..., _T], *arguments: object) -> _T:
        """Call a function in a thread, when it is its turn."""
        async with self._of_loop.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            return await run_in_threadpool(work, *arguments)
