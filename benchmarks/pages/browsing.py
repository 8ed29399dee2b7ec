"""Measure a page in Chromium: wall clock and CPU time of its thread until it is settled after an action.

A page is settled when for half a second no element was added or removed, no answer of a worker was pending,
and no task took more than 50 ms. The time counts until the frame after the last of these events. Animated
colors and positions do not count. A script in the page detects this and writes one line to the console, so
that no query disturbs the page meanwhile.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

LIMIT = 10.0  # seconds until an action is given up
WINDOW = {"width": 1400, "height": 900}
#: Only local servers, and none of the pages that Chromium loads for the address bar of every new window,
#: which take more than a second of CPU beside the measured page.
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--headless=new",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost",
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
]

_WATCH = """{
const state = { active: true, began: 0, at: 0, pending: 0 };
window.benchStart = () => { state.active = true; state.began = performance.now(); };
let scheduled = false;
const afterFrame = () => {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
        scheduled = false;
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = () => { state.at = Math.max(state.at, performance.now()); };
        port2.postMessage(0);
    });
};
new MutationObserver(afterFrame).observe(document, { childList: true, subtree: true });
new PerformanceObserver((list) => {
    for (const task of list.getEntries()) state.at = Math.max(state.at, task.startTime + task.duration);
}).observe({ type: "longtask" });
const Native = window.Worker;
window.Worker = class extends Native {
    constructor(...given) {
        super(...given);
        this.addEventListener("message", () => {
            state.pending = Math.max(0, state.pending - 1);
            afterFrame();
        });
    }
    postMessage(...given) { state.pending += 1; super.postMessage(...given); }
};
for (const kind of ["keydown", "click", "dblclick"])
    addEventListener(kind, (event) => { state.began = event.timeStamp; }, true);
setInterval(() => {
    if (!state.active || state.at <= state.began || state.pending) return;
    if (performance.now() - state.at < 500) return;
    if (!document.querySelector("DRAWN") || document.querySelector(".loading")) return;
    state.active = false;
    console.debug(`settled after ${state.at - state.began}`);
}, 100);
}"""
_MESSAGE = "settled after "


class Took(NamedTuple):
    """Milliseconds of wall clock and of CPU time of the page's thread."""

    wall: float
    cpu: float


class TooSlowError(Exception):
    """A page was not settled within the limit."""


class Chromium:
    """A browser that has already opened a page, as a user's has."""

    def __init__(self, playwright: Any) -> None:
        self.playwright = playwright
        self.start()

    def start(self) -> None:
        """Launch the browser and open a page."""
        path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
        self.browser = self.playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        with self.visit("p") as first:
            first.open("data:text/html,<p>")

    @contextmanager
    def visit(self, drawn: str) -> Iterator[Visit]:
        """Open a separate, isolated window while the browser is idle before and after.

        Args:
            drawn: A selector that matches once a graph is shown.

        Yields:
            The page in the window.
        """
        context = self.browser.new_context(viewport=WINDOW, reduced_motion="reduce")
        try:
            page = Visit(context, drawn)
            rest(self.browser)
            yield page
        except TooSlowError:
            self.restart()
            raise
        context.close()
        try:
            rest(self.browser)
        except TimeoutError:
            self.restart()

    def restart(self) -> None:
        """Launch another browser, because this one may draw for minutes even after its window is closed."""
        self.browser.close()
        self.start()


@contextmanager
def browsers(number: int) -> Iterator[list[Chromium]]:
    """Launch browsers, and close them at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = [Chromium(playwright) for _ in range(number)]
        yield opened
        for one in opened:
            one.browser.close()


def rest(browser: Any) -> None:
    """Wait until all processes of the browser together use at most 20 ms of CPU in 0.3 s."""
    tools = browser.new_browser_cdp_session()
    end, before, now = time.monotonic() + LIMIT, -1.0, _cpu_seconds(tools)
    while abs(now - before) > 0.021:  # the times are in hundredths of a second
        if time.monotonic() > end:
            raise TimeoutError(f"Chromium was not idle within {LIMIT:.0f} s.")
        time.sleep(0.3)
        before, now = now, _cpu_seconds(tools)
    tools.detach()


def _cpu_seconds(tools: Any) -> float:
    """Return the CPU seconds of all processes of a browser."""
    return float(sum(one["cpuTime"] for one in tools.send("SystemInfo.getProcessInfo")["processInfo"]))


class Visit:
    """A page; each action on it returns how long it took."""

    def __init__(self, context: Any, drawn: str) -> None:
        self.page = context.new_page()
        self.page.add_init_script(_WATCH.replace("DRAWN", drawn))
        self.tools = context.new_cdp_session(self.page)
        self.tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def open(self, address: str) -> Took:
        """Open an address, until the first picture is shown."""
        return self._took(lambda: self.page.goto(address, wait_until="commit", timeout=LIMIT * 1000))

    def act(self, script: str, *given: Any) -> Took:
        """Run a script with arguments; the time begins with the script."""
        return self._took(
            lambda: self.page.evaluate(f"(given) => {{ benchStart(); ({script})(given); }}", given)
        )

    def press(self, key: str) -> Took:
        """Press a key."""
        return self._took(lambda: (self.page.evaluate("benchStart()"), self.page.keyboard.press(key)))

    def click(self, x: float, y: float, times: int = 1) -> Took:
        """Click at a point, several times if requested."""
        return self._took(
            lambda: (self.page.evaluate("benchStart()"), self.page.mouse.click(x, y, click_count=times))
        )

    def _took(self, act: Callable[[], Any]) -> Took:
        """Perform an action and wait until the page is settled."""
        from playwright.sync_api import TimeoutError

        before = self._cpu()
        try:
            with self.page.expect_console_message(
                lambda message: message.text.startswith(_MESSAGE), timeout=LIMIT * 1000
            ) as event:
                act()
        except TimeoutError:
            raise TooSlowError(f"more than {LIMIT:.0f} s") from None
        after = self._cpu()
        wall = float(event.value.text.removeprefix(_MESSAGE))
        return Took(wall, 1000 * (after - before if after > before else after))  # a new process starts at 0

    def _cpu(self) -> float:
        metrics = self.tools.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))
