"""A page in Chromium, and when it stands still after what was asked of it: wall clock, and CPU of its thread.

It stands still when for half a second nothing was added to it or taken from it, no worker owed it an answer
and no task held its thread for more than 50 ms; it did so from the frame after the last of these. Colours and
positions that merely move (an animation) do not count. The page itself says so, once, to the console: nobody
asks it meanwhile, and of ours there is no more in it than this watch.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

LIMIT = 10.0  # seconds that a page may take for anything
WINDOW = {"width": 1400, "height": 900}
#: No network but a server of our own, and none of the pages that Chromium loads for the address bar of every
#: new window: these take more than a second of CPU beside the page that is measured.
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--headless=new",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost",
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
]

_WATCH = """{
const seen = { asked: true, began: 0, at: 0, owed: 0 };
window.benchAsk = () => { seen.asked = true; seen.began = performance.now(); };
let framing = false;
const framed = () => {
    if (framing) return;
    framing = true;
    requestAnimationFrame(() => {
        framing = false;
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = () => { seen.at = Math.max(seen.at, performance.now()); };
        port2.postMessage(0);
    });
};
new MutationObserver(framed).observe(document, { childList: true, subtree: true });
new PerformanceObserver((list) => {
    for (const task of list.getEntries()) seen.at = Math.max(seen.at, task.startTime + task.duration);
}).observe({ type: "longtask" });
const Own = window.Worker;
window.Worker = class extends Own {
    constructor(...given) {
        super(...given);
        this.addEventListener("message", () => { seen.owed = Math.max(0, seen.owed - 1); framed(); });
    }
    postMessage(...given) { seen.owed += 1; super.postMessage(...given); }
};
for (const kind of ["keydown", "click", "dblclick"])
    addEventListener(kind, (event) => { seen.began = event.timeStamp; }, true);
setInterval(() => {
    if (!seen.asked || seen.at <= seen.began || seen.owed || performance.now() - seen.at < 500) return;
    if (!document.querySelector("DRAWN") || document.querySelector(".loading")) return;
    seen.asked = false;
    console.debug(`stands still after ${seen.at - seen.began}`);
}, 100);
}"""
_SAID = "stands still after "


class Took(NamedTuple):
    """Milliseconds on the wall's clock, and of CPU in the page's thread."""

    wall: float
    cpu: float


class TooSlowError(Exception):
    """A page did not stand still within the limit."""


class Chromium:
    """A browser that has opened a page before, as a user's has."""

    def __init__(self, playwright: Any) -> None:
        self.playwright = playwright
        self.start()

    def start(self) -> None:
        """Launch it, and have it open a page."""
        path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
        self.browser = self.playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        with self.visit("p") as first:
            first.open("data:text/html,<p>")

    @contextmanager
    def visit(self, drawn: str) -> Iterator[Visit]:
        """A window of its own, that shares nothing with others, once the browser is at rest; it is left once
        the browser is at rest again. ``drawn`` is the selector of what there is once a graph is shown."""
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
        """End it, for it may draw for minutes even once a window is closed, and launch another."""
        self.browser.close()
        self.start()


@contextmanager
def browsers(number: int) -> Iterator[list[Chromium]]:
    """Some of them, which end with this."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = [Chromium(playwright) for _ in range(number)]
        yield opened
        for one in opened:
            one.browser.close()


def rest(browser: Any) -> None:
    """Wait until all processes of the browser together work for at most 20 ms in three tenths of a second."""
    tools = browser.new_browser_cdp_session()
    end, before, now = time.monotonic() + LIMIT, -1.0, _worked(tools)
    while abs(now - before) > 0.021:  # they are counted in hundredths
        if time.monotonic() > end:
            raise TimeoutError(f"Chromium did not come to rest within {LIMIT:.0f} s.")
        time.sleep(0.3)
        before, now = now, _worked(tools)
    tools.detach()


def _worked(tools: Any) -> float:
    """CPU seconds of a browser's processes."""
    return float(sum(one["cpuTime"] for one in tools.send("SystemInfo.getProcessInfo")["processInfo"]))


class Visit:
    """One page: each way to ask something of it says how long the answer took."""

    def __init__(self, context: Any, drawn: str) -> None:
        self.page = context.new_page()
        self.page.add_init_script(_WATCH.replace("DRAWN", drawn))
        self.tools = context.new_cdp_session(self.page)
        self.tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def open(self, address: str) -> Took:
        """Go there; until the first picture stands."""
        return self._took(lambda: self.page.goto(address, wait_until="commit", timeout=LIMIT * 1000))

    def act(self, script: str, *given: Any) -> Took:
        """What a script asks for; it is asked for when the script begins."""
        return self._took(
            lambda: self.page.evaluate(f"(given) => {{ benchAsk(); ({script})(given); }}", given)
        )

    def press(self, key: str) -> Took:
        """What a key asks for."""
        return self._took(lambda: (self.page.evaluate("benchAsk()"), self.page.keyboard.press(key)))

    def click(self, x: float, y: float, times: int = 1) -> Took:
        """What a click asks for."""
        return self._took(
            lambda: (self.page.evaluate("benchAsk()"), self.page.mouse.click(x, y, click_count=times))
        )

    def _took(self, ask: Callable[[], Any]) -> Took:
        from playwright.sync_api import TimeoutError

        before = self._cpu()
        try:
            with self.page.expect_console_message(
                lambda message: message.text.startswith(_SAID), timeout=LIMIT * 1000
            ) as said:
                ask()
        except TimeoutError:
            raise TooSlowError(f"more than {LIMIT:.0f} s") from None
        after = self._cpu()
        wall = float(said.value.text.removeprefix(_SAID))
        return Took(wall, 1000 * (after - before if after > before else after))  # a new process begins at 0

    def _cpu(self) -> float:
        metrics = self.tools.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))
