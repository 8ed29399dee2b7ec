"""The tools that are compared: how each makes the pages of a model, and the actions on them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..workloads import PICTURED
from .browsing import Took, Visit

ROOT = Path(__file__).parents[2]
VIEWERS = ROOT / ".venvs" / "viewers" / "bin" / "python"
MISSING = "not installed: run make bench ARGS=pages"

Steps = list[tuple[str, Callable[[Visit], list[Took]]]]

#: Selects the last module of the page's graph, so that Enter closes and opens it.
LAST = """() => {
    const view = document.querySelector("#intus-graph").intusView;
    const inner = view.tree.nodes.filter((n) => n.children.length && n.kind === "module").at(-1);
    if (inner) view.select(inner.address);
    document.querySelector(".ig-canvas").focus();
    return inner?.address ?? "";
}"""
#: Presses the middle one of torchvista's "+" or "-" signs.
SIGN = """([sign]) => {
    const icons = [...document.querySelectorAll("text[class^=collapse-icon_]")];
    const same = icons.filter((icon) => (icon.textContent.trim() === "+") === (sign === "+"));
    const button = same[same.length >> 1].parentNode.querySelector("circle[class^=collapse-button_]");
    button.dispatchEvent(new MouseEvent("click", { bubbles: true }));
}"""


#: Returns the middle of the largest layer in Model Explorer's first picture. It draws on a canvas, and only
#: the hook of its own tests gives access to positions.
HOOK = "window.me_test = { renderers: {} };"
LARGEST = """() => {
    const [shown] = Object.values(me_test.renderers);
    const tops = Object.values(shown.curModelGraph.nodesById).filter((node) => !node.nsParentId);
    const size = (node) => node.descendantsNodeIds?.length ?? 0;
    const layer = tops.reduce((a, b) => (size(b) > size(a) ? b : a));
    const x = shown.getNodeX(layer) + shown.getNodeWidth(layer) / 2;
    const y = shown.getNodeY(layer) + shown.getNodeHeight(layer) / 2;
    const at = shown.webglRendererThreejsService.convertScenePosToScreen(x, y);
    const canvas = document.querySelector("canvas.main").getBoundingClientRect();
    return [at.x + canvas.x, at.y + canvas.y];
}"""


class Tool:
    """A tool: a process that makes its pages of all models, and the actions on each."""

    name = ""
    drawn = ""  # a selector that matches once a graph is shown
    python = VIEWERS

    def __init__(self) -> None:
        self.facts: dict[str, dict[str, Any]] = {}
        self.process: subprocess.Popen[str] | None = None

    def start(self, folder: Path) -> None:
        """Start to make the pages."""
        if self.python.exists():
            command = [
                self.python,
                "-W",
                "ignore",
                "-m",
                "benchmarks.pages.makers",
                type(self).__name__.lower(),
            ]
            self.process = subprocess.Popen([*command, folder], cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def made(self) -> None:
        """Wait until all pages are made, and store the facts of each."""
        for found in self._reports(len(PICTURED)):
            self.facts[found.pop("model")] = found
        missing = "ended without a result" if self.process else MISSING
        for model in PICTURED:
            self.facts.setdefault(model, {"error": missing})

    def _reports(self, lines: int) -> Iterator[dict[str, Any]]:
        """Yield the next reports of the process, skipping other output."""
        while self.process and self.process.stdout and lines and (line := self.process.stdout.readline()):
            if line.startswith("FOUND "):
                lines -= 1
                yield json.loads(line.removeprefix("FOUND "))

    def visits(self, model: str) -> Iterator[Steps]:
        """Yield the actions on each page of a model: open it; with all open, close and open a module."""
        for what, address in self.facts[model].get("addresses", {}).items():
            opened: Steps = [(what, lambda visit, address=address: [visit.open(address)])]
            yield opened + ([("toggle", self.toggle)] if what == "all" else [])

    def toggle(self, visit: Visit) -> list[Took]:
        """Close and open a module, if there is one."""
        raise NotImplementedError

    def close(self) -> None:
        """Kill the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Intus(Tool):
    """A file that opens readable, and one with everything open, in which the last module is toggled."""

    name = "intus"
    drawn = ".ig-canvas"
    python = Path(sys.executable)

    def toggle(self, visit: Visit) -> list[Took]:
        """Close and open the last module."""
        return press_enter(visit, 2)


def press_enter(visit: Visit, times: int) -> list[Took]:
    """Close and open the last module, if there is one."""
    return [visit.press("Enter") for _ in range(times)] if visit.page.evaluate(LAST) else []


class Torchvista(Tool):
    """The same two files; a module in the middle is toggled."""

    name = "torchvista"
    drawn = "svg g[class^=node_]"

    def toggle(self, visit: Visit) -> list[Took]:
        """Close and open a module in the middle."""
        some = visit.page.evaluate("document.querySelector('text[class^=collapse-icon_]') !== null")
        return [visit.act(SIGN, sign) for sign in "-+"] if some else []


class Explorer(Tool):
    """A server that writes no file.

    The largest layer of its first picture is opened by a double click and closed by a button of the toolbar.
    Then everything is opened by another button.
    """

    name = "Model Explorer"
    drawn = "canvas.main"

    def made(self) -> None:
        """Wait until all models are converted and the server responds."""
        super().made()
        for served in self._reports(1):
            until_served(served["port"])
            for found in self.facts.values():
                found["instead"] = "a server"
                found["addresses"] = {
                    what: f"http://localhost:{served['port']}/{query}"
                    for what, query in found.get("addresses", {}).items()
                }

    def visits(self, model: str) -> Iterator[Steps]:
        """Yield the actions on the page of a model."""
        for address in self.facts[model].get("addresses", {}).values():
            opened: Steps = [("first", lambda visit, address=address: [self.open(visit, address)])]
            toggled: Steps = [("toggle", self.toggle)] if self.facts[model]["toggles"] else []
            yield [*opened, *toggled, ("all", lambda visit: [visit.act(icon("expand-all"))])]

    def open(self, visit: Visit, address: str) -> Took:
        """Open an address, with the hook that gives access to positions."""
        visit.page.add_init_script(HOOK)
        return visit.open(address)

    def toggle(self, visit: Visit) -> list[Took]:
        """Open and close the largest layer."""
        x, y = visit.page.evaluate(LARGEST)
        visit.page.mouse.move(x, y)
        visit.page.wait_for_timeout(300)  # it must detect the layer under the pointer first
        visit.click(x, y)  # a double click opens only a selected layer
        return [visit.click(x, y, times=2), visit.act(icon("collapse-all"))]


def icon(name: str) -> str:
    """Return a script that presses a button of Model Explorer."""
    return f"() => document.querySelector('mat-icon.{name}').click()"


def until_served(port: int, seconds: float = 60.0) -> None:
    """Wait until a port accepts connections."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as ask:
            if ask.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"Port {port} accepts no connection after {seconds:.0f} s.")


TOOLS: list[type[Tool]] = [Intus, Torchvista, Explorer]
