"""The tools whose pages are compared: how each makes the page of a model, and what is asked of it there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .browsing import Took, Visit

ROOT = Path(__file__).parent.parent
VIEWERS = ROOT / ".venvs" / "viewers" / "bin" / "python"
MISSING = "not installed: run make bench ARGS=pages"

Steps = list[tuple[str, Callable[[Visit], list[Took]]]]

#: The last module of the page's graph, selected, so that Enter closes and opens it.
LAST = """() => {
    const view = document.querySelector("#intus-graph").intusView;
    const inner = view.tree.nodes.filter((n) => n.children.length && n.kind === "module").at(-1);
    if (inner) view.select(inner.address);
    document.querySelector(".ig-canvas").focus();
    return inner?.address ?? "";
}"""
#: Press the middle one of torchvista's signs that say "+" or "-".
SIGN = """([sign]) => {
    const icons = [...document.querySelectorAll("text[class^=collapse-icon_]")];
    const same = icons.filter((icon) => (icon.textContent.trim() === "+") === (sign === "+"));
    const button = same[same.length >> 1].parentNode.querySelector("circle[class^=collapse-button_]");
    button.dispatchEvent(new MouseEvent("click", { bubbles: true }));
}"""


class Tool:
    """One tool's page of one model: ``facts`` of how it was made, ``visits`` to it."""

    name = ""

    def __init__(self, model: str, folder: Path) -> None:
        self.facts: dict[str, Any] = {}

    def visits(self) -> Iterator[tuple[str, Steps]]:
        """For each page the selector of what is there once it is drawn, and what to ask for."""
        yield from ()

    def close(self) -> None:
        """End what it runs."""


class Intus(Tool):
    """A file that opens as far as can be read, and one with everything open."""

    name = "intus"

    def __init__(self, model: str, folder: Path) -> None:
        import torch

        import intus

        from .workloads import PICTURED

        torch.manual_seed(0)
        module, inputs = PICTURED[model]()
        began = time.perf_counter()
        found = intus.trace(module.eval(), inputs, save="none")
        self.pages = [found.draw(folder / "intus-first.html")]
        self.facts = {"made": time.perf_counter() - began}
        self.pages.append(found.draw(folder / "intus-all.html", depth="all", rolled=False))
        self.facts["kilobytes"] = self.pages[1].stat().st_size / 1000

    def visits(self) -> Iterator[tuple[str, Steps]]:
        first, all_ = (page.as_uri() for page in self.pages)
        yield ".ig-canvas", [("first", lambda visit: [visit.open(first)])]
        yield ".ig-canvas", [("all", lambda visit: [visit.open(all_)]), ("toggle", press_enter)]


def press_enter(visit: Visit, times: int = 6) -> list[Took]:
    """Close and open the last module, where there is one."""
    return [visit.press("Enter") for _ in range(times)] if visit.page.evaluate(LAST) else []


class Torchvista(Tool):
    """The same two files by torchvista."""

    name = "torchvista"

    def __init__(self, model: str, folder: Path) -> None:
        self.pages: list[dict[str, Any]] = []
        if not VIEWERS.exists():
            self.facts = {"error": MISSING}
            return
        with peer("torchvista", model, str(folder)) as process:
            self.pages = list(told(process))
        self.facts = {"made": self.pages[0]["made"], "error": self.pages[0]["error"]}
        if path := self.pages[1]["path"]:
            self.facts["kilobytes"] = Path(path).stat().st_size / 1000

    def visits(self) -> Iterator[tuple[str, Steps]]:
        drawn = "svg g[class^=node_]"
        for what, page in zip(("first", "all"), self.pages, strict=False):
            if page["path"]:
                address = Path(page["path"]).as_uri()
                steps: Steps = [(what, lambda visit, address=address: [visit.open(address)])]
                yield drawn, steps + ([("toggle", press_signs)] if what == "all" else [])


def press_signs(visit: Visit) -> list[Took]:
    """Close and open a module in the middle, where there is one."""
    some = visit.page.evaluate("document.querySelector('text[class^=collapse-icon_]') !== null")
    return [visit.act(SIGN, sign) for sign in "-+"] if some else []


class Explorer(Tool):
    """Model Explorer's server; it writes no file. Everything is opened and closed by its toolbar's buttons;
    the toggle is of the layer in the middle of its first picture, with nothing else open."""

    name = "Model Explorer"
    address = ""
    process: subprocess.Popen[str] | None = None

    def __init__(self, model: str, folder: Path) -> None:
        self.facts = {"instead": "a server"}
        if not VIEWERS.exists():
            self.facts["error"] = MISSING
            return
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.process = peer("explorer", model, str(port))
        self.facts |= next(told(self.process), {"error": "ended without a word"})
        self.address = self.facts.pop("path", "")
        if self.address:
            until_served(port)

    def visits(self) -> Iterator[tuple[str, Steps]]:
        address = self.address
        if not address:
            return

        def toggles(visit: Visit) -> list[Took]:
            if not self.facts["modules"]:
                return []
            visit.open(address)
            visit.page.mouse.move(515, 478)
            visit.page.wait_for_timeout(300)  # it asks what is under the pointer before it is pressed
            visit.click(515, 478)  # and opens only what is selected
            visit.page.wait_for_timeout(600)
            return [visit.click(515, 478, times=2), visit.act(icon("collapse-all"))]

        yield (
            "canvas.main",
            [
                ("first", lambda visit: [visit.open(address)]),
                ("all", lambda visit: [visit.act(icon("expand-all"))]),
            ],
        )
        yield "canvas.main", [("toggle", toggles)]

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def icon(name: str) -> str:
    """A script that presses a button of Model Explorer's."""
    return f"() => document.querySelector('mat-icon.{name}').click()"


def peer(*command: str) -> subprocess.Popen[str]:
    """A process of the neighbours' environment."""
    return subprocess.Popen(
        [str(VIEWERS), "-W", "ignore", "-m", "benchmarks.peerpages", *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def told(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """What such a process says in JSON, among what others print."""
    assert process.stdout
    for line in process.stdout:
        if line.startswith("FOUND "):
            yield json.loads(line.removeprefix("FOUND "))


def until_served(port: int, seconds: float = 60.0) -> None:
    """Wait until a port answers."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as ask:
            if ask.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"Nothing answers at port {port}.")


TOOLS: list[type[Tool]] = [Intus, Torchvista, Explorer]
