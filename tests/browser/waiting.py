"""Waiting for a page."""

from __future__ import annotations

import time

from playwright.sync_api import Page


def until(page: Page, expression: str, seconds: float = 20) -> None:
    """Wait for a JavaScript expression to be true; works under a policy that forbids the page eval."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"{expression} did not become true within {seconds} s"
        page.wait_for_timeout(15)
