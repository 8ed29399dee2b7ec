"""Server-sent events that inform open pages of changes in the database by any process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from sqlalchemy.exc import DBAPIError
from starlette.concurrency import run_in_threadpool

from ...storage.database import Changes, Database

POLL, HEARTBEAT = 0.25, 15.0


class ChangeFeed:
    """Streams of changes. A page that sends the number of its last change gets all later ones."""

    def __init__(self, database: Database, poll: float = POLL, heartbeat: float = HEARTBEAT) -> None:
        self._database, self._poll, self._heartbeat = database, poll, heartbeat
        self._closed = False

    def close(self) -> None:
        """End every stream."""
        self._closed = True

    async def stream(self, since: int | None) -> AsyncIterator[str]:
        """Yield events as text; the first is sent at once and has the newest change number.

        Args:
            since: The number of the last change that the page has; None for a page that was just opened.
        """
        news = await self._changes(since or 0)
        if since is None:
            news = Changes(news.number, [], [])
        elif since > news.number:  # the database was replaced, so everything may have changed
            news = await self._changes(0)
        yield "retry: 1000\n" + _event(news)
        quiet = 0.0
        while not self._closed:
            await asyncio.sleep(self._poll)
            quiet += self._poll
            seen = news.number
            latest = await self._changes(seen)
            if latest.number != seen:
                news, quiet = latest, 0.0
                yield _event(news)
            elif quiet >= self._heartbeat:
                quiet = 0.0
                yield ": heartbeat\n\n"

    async def _changes(self, since: int) -> Changes:
        """Return the changes; none while the database cannot be read, which other requests say."""
        try:
            return await run_in_threadpool(self._database.changes, since)
        except (DBAPIError, OSError):
            return Changes(since, [], [])


def _event(changes: Changes) -> str:
    data = {"change": changes.number, "what": changes.what, "runs": [list(run) for run in changes.runs]}
    return f"id: {changes.number}\nevent: change\ndata: {json.dumps(data)}\n\n"
