"""Server-sent events that inform open pages of changes in the database by any process."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import NamedTuple

from sqlalchemy.exc import DBAPIError
from starlette.concurrency import run_in_threadpool

from ...storage.database import Changes, Database

_log = logging.getLogger("intus.serving")
POLL, HEARTBEAT = 0.25, 15.0


class _News(NamedTuple):
    """News for a page: the newest change number, and the event."""

    number: int
    event: str


class ChangeFeed:
    """Streams of changes. A page that sends the number of its last change gets all later ones.

    One poll of the database serves all streams, and pages that have the same number share its answer, so a
    change costs as many queries for a thousand pages as for one. All methods but ``close`` must be called in
    one event loop.
    """

    def __init__(self, database: Database, poll: float = POLL, heartbeat: float = HEARTBEAT) -> None:
        self._database, self._poll, self._heartbeat = database, poll, heartbeat
        self._closed = False
        self._streams = 0
        self._newest = -1  # the last change number that was read
        self._answers: dict[int, asyncio.Future[_News]] = {}  # to pages by their number, while that is newest
        self._changed = asyncio.Event()  # replaced at each change
        self._poller: asyncio.Task[None] | None = None

    def close(self) -> None:
        """End every stream, within a poll's time."""
        self._closed = True

    async def stream(self, since: int | None) -> AsyncIterator[str]:
        """Yield events as text; the first is sent at once and has the newest change number.

        Args:
            since: The number of the last change that the page has; None for a page that was just opened.
        """
        self._streams += 1
        try:
            if self._poller is None or self._poller.done():
                self._answers = {}  # nobody has looked since
                self._poller = asyncio.create_task(self._follow())
            seen, event = await self._news(self._newest if since is None else since)
            yield "retry: 1000\n" + (event if since is not None else _event(Changes(seen, [], [])))
            while not self._closed:
                changed = self._changed
                if seen != self._newest:
                    number, event = await self._news(seen)
                    if number != seen:
                        seen = number
                        yield event
                        continue
                try:
                    async with asyncio.timeout(self._heartbeat):
                        await changed.wait()
                except TimeoutError:
                    yield ": heartbeat\n\n"
        finally:
            self._streams -= 1

    async def _follow(self) -> None:
        """Look for changes while there are streams."""
        told = False
        while self._streams and not self._closed:
            await asyncio.sleep(self._poll)
            try:
                await self._read(self._newest)
                told = False
            except Exception as error:  # the page's requests tell their users why
                if not told:
                    _log.warning("Open pages learn of changes later: %s", error)
                told = True
        if self._closed:  # else there is no stream, and a later one waits for a change
            self._changed.set()

    async def _news(self, since: int) -> _News:
        """Return what is news for a page; pages with the same number share one query."""
        answer = self._answers.get(since)
        if answer is None or (answer.done() and (answer.cancelled() or answer.exception())):
            answer = self._answers[since] = asyncio.create_task(self._read(since))
        try:
            return await asyncio.shield(answer)
        except (DBAPIError, OSError):  # other requests say why the database cannot be read
            return _News(since, _event(Changes(since, [], [])))

    async def _read(self, since: int) -> _News:
        found = await run_in_threadpool(self._changes, since)
        news = _News(found.number, _event(found))
        if found.number != self._newest:
            known: asyncio.Future[_News] = asyncio.get_running_loop().create_future()
            known.set_result(news)
            self._answers = {since: known}
            self._newest = found.number
            self._changed.set()
            self._changed = asyncio.Event()
        return news

    def _changes(self, since: int) -> Changes:
        found = self._database.changes(max(since, 0))
        if since > found.number:  # the database was replaced, so everything may have changed
            found = self._database.changes(0)
        return found


def _event(changes: Changes) -> str:
    data = {"change": changes.number, "what": changes.what, "runs": [list(run) for run in changes.runs]}
    return f"id: {changes.number}\nevent: change\ndata: {json.dumps(data)}\n\n"
