"""Fixtures for tests in Chromium; the network is limited to this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_server import PageServer, digits_graph, plausible
from playwright.sync_api import Browser, BrowserContext, Page, Route, sync_playwright
from waiting import follow_requests, until

from intus.core.graph import Graph

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
#: Features that start processes beside the page in each new window: the popups of the address bar, which take
#: twice the CPU time of the tested page, and a spare renderer.
UNNEEDED = (
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "SpareRendererForSitePerProcess",
)
#: Chromium uses only the last list of disabled features, so this repeats those that Playwright disables.
PLAYWRIGHTS = (
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "PaintHolding", "MediaRouter"),
    *("HttpsUpgrades", "HttpsFirstBalancedModeAutoEnable", "LensOverlay", "ThirdPartyStoragePartitioning"),
    *("AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints", "NetworkTimeServiceQuerying"),
    *("AimEnabled", "PreconnectToSearch"),
)
ARGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    f"--disable-features={','.join(UNNEEDED + PLAYWRIGHTS)}",
]


@pytest.fixture(scope="module")
def launch() -> Iterator[Callable[..., Browser]]:
    """Return a function ``launch(*flags, NAME="value")`` that starts Chromium with flags and environment."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: install it, or set the variable CHROMIUM to its path")
    browsers: list[Browser] = []
    with sync_playwright() as playwright:

        def launched(*flags: str, **variables: str) -> Browser:
            options: dict[str, Any] = {"args": [*ARGS, *flags], "env": {**os.environ, **variables}}
            browsers.append(playwright.chromium.launch(executable_path=CHROMIUM, **options))
            return browsers[-1]

        yield launched
        for browser in browsers:
            browser.close()


@pytest.fixture(scope="module")
def chromium(launch: Callable[..., Browser]) -> Browser:
    return launch()


@pytest.fixture
def new_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Return a function that opens a page with the given options of a browser context.

    The test fails if the page requests anything from another machine or raises an error.
    """
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def guard(route: Route) -> None:
        url = route.request.url
        if url.startswith(("file://", "data:", "blob:", "about:", "http://127.0.0.1", "http://localhost")):
            route.continue_()
        else:
            complaints.append(f"requested {url}")
            route.abort()

    def make(**options: object) -> Page:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 820}} | options)
        context.route("**/*", guard)
        contexts.append(context)
        page = context.new_page()
        follow_requests(page)
        page.on("pageerror", lambda error: complaints.append(f"raised {error}"))
        return page

    yield make
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def open_graph(new_page: Callable[..., Page], tmp_path: Path) -> Callable[..., Page]:
    """Return a function that saves a View as a file, opens it offline and waits for the graph."""

    def make(view: object, *, motion: bool = False, **options: object) -> Page:
        path = view.save(tmp_path / "graph.html")  # type: ignore[attr-defined]
        reduced = "no-preference" if motion else "reduce"
        page = new_page(offline=True, reduced_motion=reduced, **options)
        page.goto(path.as_uri())
        until(page, "Boolean(document.querySelector('#intus-graph').intusView)")
        return page

    return make


@pytest.fixture(scope="module")
def graph() -> Graph:
    return digits_graph()


@pytest.fixture
def server(graph: Graph) -> PageServer:
    return plausible(graph=graph)


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Return a function that opens the page of a server.

    The test fails after an error on the console or a request to another host.
    """
    problems: list[str] = []
    servers: list[PageServer] = []
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    context.set_default_timeout(8000)

    def open_page(server: PageServer, fragment: str = "") -> Page:
        if server not in servers:
            server.__enter__()
            servers.append(server)
        page = context.new_page()
        follow_requests(page)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))

        def guard(route: Any) -> None:
            if route.request.url.startswith((server.url, "data:", "blob:")):
                return route.continue_()
            problems.append(f"requested {route.request.url}")
            return route.abort()

        page.route("**/*", guard)
        page.goto(server.url + fragment)
        return page

    yield open_page
    context.close()
    for server in servers:
        server.__exit__()
    # Failed connections are expected in tests that stop the server.
    assert [t for t in problems if "ERR_CONNECTION" not in t and "503" not in t] == []
