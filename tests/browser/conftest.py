"""A real Chromium, with no network but this machine's own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, sync_playwright
from waiting import until

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium: install it, or name it in the variable CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield browser
        browser.close()


@pytest.fixture
def new_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Open a page with the given options of a browser context.

    A request that would leave this machine fails, and so does the test; so does an error in the page.
    """
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def guard(route: Route) -> None:
        url = route.request.url
        if url.startswith(("file://", "data:", "blob:", "about:", "http://127.0.0.1", "http://localhost")):
            route.continue_()
        else:
            complaints.append(f"asked for {url}")
            route.abort()

    def make(**options: object) -> Page:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 820}} | options)
        context.route("**/*", guard)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(f"raised {error}"))
        return page

    yield make
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def open_graph(new_page: Callable[..., Page], tmp_path: Path) -> Callable[..., Page]:
    """Save a View as a file, open it, and wait until the graph stands; offline, nothing moving."""

    def make(view: object, *, motion: bool = False, **options: object) -> Page:
        path = view.save(tmp_path / "graph.html")  # type: ignore[attr-defined]
        reduced = "no-preference" if motion else "reduce"
        page = new_page(offline=True, reduced_motion=reduced, **options)
        page.goto(path.as_uri())
        until(page, "Boolean(document.querySelector('#intus-graph').intusView)")
        return page

    return make
