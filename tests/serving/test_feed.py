"""One poll of the database serves the event streams of all open pages."""

from __future__ import annotations

import asyncio
import json

import pytest

from intus.core.results import Results
from intus.serving.http.feed import ChangeFeed
from intus.storage.database import Database

POLL = 0.02


class Counting(Database):
    """A database that counts the queries for changes, and may be away."""

    queries = 0
    away = False

    def changes(self, since=0):
        self.queries += 1
        if self.away:
            raise OSError("away")
        return super().changes(since)

    def write(self, run: str = "r") -> None:
        row = {"run": run, "model": "m", "epoch": 0, "address": "fc1", "score": "mean", "value": 0.5}
        self.add(Results.from_rows([row]))


@pytest.fixture
def database(tmp_path):
    with Counting(tmp_path / "x.db") as opened:
        yield opened


class Page:
    """An open page: what it was told."""

    def __init__(self, feed: ChangeFeed, since: int | None = None) -> None:
        self.told: list[dict] = []
        self.beats = 0
        self._task = asyncio.create_task(self._listen(feed, since))

    async def _listen(self, feed, since) -> None:
        async for text in feed.stream(since):
            if text.startswith(":"):
                self.beats += 1
            else:
                self.told.append(json.loads(text.partition("data: ")[2]))

    async def knows(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.told) < count:
                await asyncio.sleep(0.005)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def test_change_costs_one_query_for_all_pages(database):
    async def check() -> None:
        feed = ChangeFeed(database, POLL)
        pages = [Page(feed) for _ in range(300)]
        for page in pages:
            await page.knows(1)
        database.queries = 0
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(10 * POLL)
        passed = asyncio.get_running_loop().time() - began
        assert database.queries <= passed / POLL + 1
        for number, run in enumerate(("a", "b", "c"), start=2):
            await asyncio.to_thread(database.write, run)
            for page in pages:
                await page.knows(number)
                assert page.told[-1]["what"] == ["points"]
                assert page.told[-1]["runs"] == [[run, "m"]]
        passed = asyncio.get_running_loop().time() - began
        assert database.queries <= passed / POLL + 4
        for page in pages:
            await page.close()
        await asyncio.sleep(3 * POLL)
        database.queries = 0
        await asyncio.sleep(10 * POLL)
        assert database.queries == 0

    asyncio.run(check())


def test_page_that_returns_gets_what_it_missed(database):
    async def check() -> None:
        feed = ChangeFeed(database, POLL)
        early = Page(feed)
        await early.knows(1)
        first = early.told[0]["change"]
        for run in "ab":
            await asyncio.to_thread(database.write, run)
        late = Page(feed, first)
        await late.knows(1)
        while late.told[-1]["runs"][-1:] != [["b", "m"]]:  # the first answer may be shared with an older page
            await late.knows(len(late.told) + 1)
        assert {run for told in late.told for run, _ in told["runs"]} == {"a", "b"}
        replaced = Page(feed, first + 1000)  # of a database that was there before
        await replaced.knows(1)
        assert {run for run, _ in replaced.told[0]["runs"]} == {"a", "b"}
        for page in (early, late, replaced):
            await page.close()

    asyncio.run(check())


def test_pages_opened_after_a_pause_know_of_changes_in_it(database):
    async def check() -> None:
        feed = ChangeFeed(database, POLL)
        first = Page(feed)
        await first.knows(1)
        number = first.told[0]["change"]
        await first.close()
        await asyncio.sleep(3 * POLL)
        await asyncio.to_thread(database.write)
        again = Page(feed, number)
        await again.knows(1)
        assert (again.told[0]["change"], again.told[0]["runs"]) == (number + 1, [["r", "m"]])
        await again.close()

    asyncio.run(check())


def test_streams_outlive_a_database_that_is_away(database, caplog):
    async def check() -> None:
        feed = ChangeFeed(database, POLL, heartbeat=5 * POLL)
        pages = [Page(feed) for _ in range(3)]
        for page in pages:
            await page.knows(1)
        database.away = True
        await asyncio.sleep(10 * POLL)
        database.away = False
        await asyncio.to_thread(database.write)
        for page in pages:
            await page.knows(2)
            assert page.beats
            await page.close()

    asyncio.run(check())
    assert [record.getMessage() for record in caplog.records] == ["Open pages learn of changes later: away"]


def test_closed_feed_ends_every_stream(database):
    async def check() -> None:
        feed = ChangeFeed(database, POLL)
        pages = [Page(feed) for _ in range(3)]
        for page in pages:
            await page.knows(1)
        feed.close()
        async with asyncio.timeout(20):
            await asyncio.gather(*(page._task for page in pages))

    asyncio.run(check())
