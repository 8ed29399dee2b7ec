"""What the graph page may take at most, each goal beside its figure."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intus.tracing.run import trace
from intus.viewing.html import View

from .browsing import browsers
from .pagetools import press_enter
from .workloads import PICTURED, Chain

ROUNDS = 3
PAN = """() => {
    const view = document.querySelector("#intus-graph").intusView, times = [];
    for (let i = 0; i < 40; i++) {
        const start = performance.now();
        view.cameraControl.pan(0, -90);
        view.paintNow();
        times.push(performance.now() - start);
    }
    return times;
}"""


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


class Loop(nn.Module):
    """A cell called step by step: all its passes, and what each takes of the input, lie in one container."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(1, 4)
        for step in range(x.shape[1]):
            h = self.cell(x[:, step] + h)
        return h


#: Drawn with everything open and nothing rolled: milliseconds to the first picture at most, and the model.
PAGES: dict[str, tuple[float, Any]] = {
    "GPT-2 small": (300, PICTURED["GPT-2 small"]),
    "10,000 in modules": (1000, lambda: (Nest(4, 5), {"x": torch.zeros(1)})),
    "10,000 in a row": (1000, lambda: (Chain(10_000), {"x": torch.zeros(1)})),
    "100,000 in modules": (3000, lambda: (Nest(5, 6), {"x": torch.zeros(1)})),
    "10,000 steps of a loop": (3000, lambda: (Loop(), {"x": torch.zeros(1, 10_000, 4)})),
    "100,000 in a row": (3000, lambda: (Chain(100_000), {"x": torch.zeros(1)})),
}


def goals(folder: Path) -> list[dict[str, Any]]:
    """Every goal, its figure, and the CPU time of the page's thread where that was measured."""
    found: list[dict[str, Any]] = []
    for name, (milliseconds, make) in PAGES.items():
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        model, inputs = make()
        graph = trace(model.eval(), inputs, save="none").graph
        path = View(graph, depth="all", rolled=False).save(folder / "page.html")
        seen = look(path)

        def add(what: str, goal: float, unit: str, figure: float, cpu: float | None = None) -> None:
            found.append({"what": what, "goal": goal, "unit": unit, "figure": figure, "cpu": cpu})

        add(f"{name}: first picture", milliseconds, "ms", *seen["first"])
        if seen["toggle"]:
            add(f"{name}: a toggle", 50, "ms", *seen["toggle"])
        if name.startswith("10,000"):
            add(f"{name}: a frame of panning", 16, "ms", seen["pan"])
        if name.startswith("GPT"):
            add(f"{name}: the file", 300, "KB", path.stat().st_size / 1000)
    return found


def look(path: Path) -> dict[str, Any]:
    """Medians of a page: wall and CPU of the first picture and of a toggle, a frame of panning."""
    first, toggles, frames = [], [], []
    with browsers(1) as (chromium,):
        for number in range(ROUNDS):
            with chromium.visit(".ig-canvas") as page:
                first.append(page.open(path.as_uri()))
                if number == ROUNDS - 1:
                    toggles = press_enter(page, 6)
                    frames = page.page.evaluate(PAN)
    both = [[statistics.median(clock) for clock in zip(*took, strict=True)] for took in (first, toggles)]
    return {"first": both[0], "toggle": both[1], "pan": statistics.median(frames)}
