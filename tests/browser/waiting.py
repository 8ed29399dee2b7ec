"""Wait for a condition on a page."""

from __future__ import annotations

import time

from playwright.sync_api import Page


def until(page: Page, expression: str, seconds: float = 20) -> None:
    """Wait until a JavaScript expression is true; this works under a policy that forbids eval."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"{expression} did not become true within {seconds} s"
        page.wait_for_timeout(15)
