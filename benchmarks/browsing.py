"""A page in Chromium, and when it stands still after what was asked of it: wall clock, and CPU of its thread.

It stands still when for half a second nothing was added to it or taken from it, no worker owed it an answer
and no task held its thread for more than 50 ms; it did so from the frame after the last of these. Colours and
positions that merely move (an animation) do not count.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

LIMIT = 15.0  # seconds that a page may take for anything
WINDOW = {"width": 1400, "height": 900}
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--headless=new"]
_NOWHERE = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost"  # no network but a server of our own

_WATCH = """
const seen = window.benchSeen = { began: 0, at: 0, owed: 0 };
const framed = () => requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => { seen.at = Math.max(seen.at, performance.now()); };
    port2.postMessage(0);
});
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
"""
_STILL = """(drawn) => {
    const seen = window.benchSeen;
    return seen && seen.at > seen.began && !seen.owed && performance.now() - seen.at > 500
        && document.querySelector(drawn) && !document.querySelector(".loading");
}"""


class Took(NamedTuple):
    """Milliseconds on the wall's clock, and of CPU in the page's thread."""

    wall: float
    cpu: float


class TooSlowError(Exception):
    """A page did not stand still within the limit."""


@contextmanager
def browser() -> Iterator[Any]:
    """A fresh Chromium."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=[*_ARGUMENTS, _NOWHERE])
        try:
            yield opened
        finally:
            opened.close()


class Visit:
    """One page in a window of its own; ``drawn`` is the selector of what there is once a graph is shown."""

    def __init__(self, browser: Any, drawn: str) -> None:
        self.drawn = drawn
        self.context = browser.new_context(viewport=WINDOW, reduced_motion="reduce")
        self.page = self.context.new_page()
        self.page.add_init_script(_WATCH)
        self.tools = self.context.new_cdp_session(self.page)
        self.tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def open(self, address: str) -> Took:
        """Go there; how long until the first picture stands."""
        before = self._cpu()
        self.page.goto(address, wait_until="commit", timeout=LIMIT * 1000)
        return self._settled(before)

    def act(self, script: str, *given: Any) -> Took:
        """How long what a script asks for takes; it is asked for when the script begins."""
        before = self._cpu()
        self.page.evaluate(f"(given) => {{ benchSeen.began = performance.now(); ({script})(given); }}", given)
        return self._settled(before)

    def press(self, key: str) -> Took:
        """How long what a key asks for takes."""
        before = self._cpu()
        self.page.evaluate("() => { benchSeen.began = performance.now(); }")
        self.page.keyboard.press(key)
        return self._settled(before)

    def click(self, x: float, y: float, times: int = 1) -> Took:
        """How long what a click asks for takes."""
        before = self._cpu()
        self.page.evaluate("() => { benchSeen.began = performance.now(); }")
        self.page.mouse.click(x, y, click_count=times)
        return self._settled(before)

    def _cpu(self) -> float:
        metrics = self.tools.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

    def _settled(self, before: float) -> Took:
        from playwright.sync_api import TimeoutError

        try:
            self.page.wait_for_function(_STILL, arg=self.drawn, polling=50, timeout=LIMIT * 1000)
        except TimeoutError:
            raise TooSlowError(f"more than {LIMIT:.0f} s") from None
        wall = self.page.evaluate("benchSeen.at - benchSeen.began")
        after = self._cpu()
        return Took(wall, 1000 * (after - before if after > before else after))  # a new process begins at 0

    def close(self) -> None:
        """Leave the page."""
        self.context.close()
