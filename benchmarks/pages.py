"""How fast the graph page is in Chromium: ``python -m benchmarks.pages``.

For models from 553 to 100,000 operations with everything open: the file's size, the time from asking for the
page to its first picture, an opening and a closing (layout and picture), a frame of panning. Milliseconds of
the wall clock, medians; nothing else should run. Needs playwright and Chromium.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intus.tracing.run import trace
from intus.viewing.html import View

RESULTS = Path(__file__).parent / "results"
VIEW = "document.querySelector('#intus-graph').intusView"
ROUNDS = 3
FIRST = """
const wait = () => {
    if (document.querySelector('#intus-graph')?.intusView) window.firstPicture = performance.now();
    else requestAnimationFrame(wait);
};
requestAnimationFrame(wait);
"""
TOGGLE = """(name) => {
    const view = VIEW, times = [];
    for (let i = 0; i < 7; i++) {
        for (const act of ['close', 'open']) {
            const start = performance.now();
            view[act](name);
            view.paintNow();
            times.push(performance.now() - start);
        }
    }
    return times;
}""".replace("VIEW", VIEW)
LAST = f"{VIEW}.tree.nodes.filter(n => n.children.length && n.kind === 'module').at(-1)?.address ?? ''"
PAN = """() => {
    const view = VIEW, times = [];
    for (let i = 0; i < 40; i++) {
        const start = performance.now();
        view.lens.pan(0, -90);
        view.paintNow();
        times.push(performance.now() - start);
    }
    return times;
}""".replace("VIEW", VIEW)


class Nest(nn.Module):
    """Modules in modules, with a residual around each: ``wide ** depth`` leaves of a few operations."""

    def __init__(self, depth: int, wide: int) -> None:
        super().__init__()
        self.wide = wide
        self.inner = nn.ModuleList(Nest(depth - 1, wide) for _ in range(wide)) if depth else []

    def forward(self, x: Tensor) -> Tensor:
        for inner in self.inner:
            x = x + inner(x)
        if not len(self.inner):
            for _ in range(self.wide):
                x = torch.tanh(x) * 2
        return x


class Chain(nn.Module):
    """One operation after the other, in no module."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.length):
            x = x.neg()
        return x


def gpt2() -> View:
    """GPT-2 small, its structure alone."""
    import transformers

    with torch.device("meta"):
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
        return View(trace(model, torch.zeros(1, 32, dtype=torch.long), save="none").graph, depth="all")


def of(model: nn.Module) -> View:
    """The page of a model that takes one number, everything open and nothing rolled."""
    return View(trace(model, torch.zeros(1), save="none").graph, depth="all", rolled=False)


def measure(browser: Any, view: View, folder: Path) -> dict[str, float]:
    """One page's figures."""
    path = view.save(folder / "page.html")
    first, times = [], {}
    for _ in range(ROUNDS):
        context = browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
        page = context.new_page()
        page.add_init_script(FIRST)
        page.goto(path.as_uri())
        page.wait_for_timeout(50)
        while not (at := page.evaluate("window.firstPicture")):
            page.wait_for_timeout(20)
        first.append(at)
        if len(first) == ROUNDS:
            name = page.evaluate(LAST)
            times["toggle"] = statistics.median(page.evaluate(TOGGLE, name)) if name else float("nan")
            frames = sorted(page.evaluate(PAN))
            times["pan"], times["worst pan"] = statistics.median(frames), frames[-1]
            times["boxes"] = page.evaluate(f"{VIEW}.frame.boxes.length")
        context.close()
    return {"KB": path.stat().st_size / 1000, "first": statistics.median(first), **times}


def main() -> None:
    """Measure, print and write the table."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    views = {
        "gpt2": gpt2(),
        "10,000": of(Nest(4, 5)),
        "10,000 chain": of(Chain(10_000)),
        "100,000": of(Nest(5, 6)),
        "100,000 chain": of(Chain(100_000)),
    }
    columns = ("KB", "boxes", "first", "toggle", "pan", "worst pan")
    lines = ["| page | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--headless=new"]
        )
        for name, view in views.items():
            found = measure(browser, view, Path(folder))
            lines.append(f"| {name} | " + " | ".join(f"{found[column]:,.1f}" for column in columns) + " |")
            print(lines[-1], flush=True)
        browser.close()
    text = "# The graph page\n\nSee `benchmarks/pages.py`. Milliseconds, medians; load of the machine at the "
    text += f"end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.\n\n" + "\n".join(lines) + "\n"
    (RESULTS / "pages.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
