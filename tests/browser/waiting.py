"""Wait for a condition on a page."""

from __future__ import annotations

import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from playwright.sync_api import Page, Request

#: The requests of each page that are not answered.
_UNANSWERED = WeakKeyDictionary[Page, set[Request]]()


def until(page: Page, expression: str, seconds: float = 20) -> None:
    """Wait until a JavaScript expression is true; this works under a policy that forbids eval."""
    eventually(page, lambda: page.evaluate(expression), expression, seconds)


def eventually(page: Page, condition: Callable[[], object], what: str = "it", seconds: float = 20) -> None:
    """Wait until a function returns what is true.

    Args:
        page: The page, which goes on meanwhile.
        condition: It must be false before the event that the test waits for.
        what: The condition in words.
        seconds: The time until the test fails.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not become true within {seconds} s"
        page.wait_for_timeout(15)


def redrawn(page: Page) -> None:
    """Wait until every change so far of the state of the page, or of a graph, is drawn.

    The page updates its parts in the next animation frame, and these draw their canvases in the one after.
    A third is for what follows from the new sizes.
    """
    page.evaluate(
        """new Promise((done) => {
            const next = (left) => (left ? requestAnimationFrame(() => next(left - 1)) : done());
            next(3);
        })"""
    )


def follow_requests(page: Page) -> None:
    """Keep the requests of a page for ``answered``, except that of its stream of events, which has no end."""
    requests = _UNANSWERED[page] = set[Request]()
    page.on("request", lambda request: request.url.endswith("/api/stream") or requests.add(request))
    for end in ("requestfinished", "requestfailed"):
        page.on(end, lambda request: requests.discard(request))  # type: ignore[call-overload]


def answered(page: Page) -> None:
    """Wait until every request of the page is answered and drawn, those too that follow from an answer."""
    requests = _UNANSWERED[page]
    redrawn(page)
    while requests:
        eventually(page, lambda: not requests, "that every request is answered")
        redrawn(page)
