"""Goals for the speed and size of the graph page, with figures."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intus.tracing.run import trace
from intus.viewing.html import View

from ..workloads import PICTURED, Chain
from .browsing import browsers
from .tools import press_enter

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
    """Nested modules with a residual around each: ``wide ** depth`` leaves of a few operations."""

    def __init__(self, depth: int, wide: int) -> None:
        super().__init__()
        self.wide = wide
        self.inner = nn.ModuleList(Nest(depth - 1, wide) for _ in range(wide)) if depth else []

    def forward(self, x: Tensor) -> Tensor:
        """Apply all modules."""
        for inner in self.inner:
            x = x + inner(x)
        if not len(self.inner):
            for _ in range(self.wide):
                x = torch.tanh(x) * 2
        return x


class Loop(nn.Module):
    """A cell called step by step; all its passes, and all slices of the input, are in one container."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        """Process a sequence (1, steps, 4)."""
        h = x.new_zeros(1, 4)
        for step in range(x.shape[1]):
            h = self.cell(x[:, step] + h)
        return h


#: By model: the goal in milliseconds for the first picture, with everything open and unrolled, and the model.
PAGES: dict[str, tuple[float, Any]] = {
    "GPT-2 small": (300, PICTURED["GPT-2 small"]),
    "10,000 in modules": (1000, lambda: (Nest(4, 5), {"x": torch.zeros(1)})),
    "10,000 in a row": (1000, lambda: (Chain(10_000), {"x": torch.zeros(1)})),
    "100,000 in modules": (3000, lambda: (Nest(5, 6), {"x": torch.zeros(1)})),
    "10,000 steps of a loop": (3000, lambda: (Loop(), {"x": torch.zeros(1, 10_000, 4)})),
    "100,000 in a row": (3000, lambda: (Chain(100_000), {"x": torch.zeros(1)})),
}


def goals(folder: Path) -> list[dict[str, Any]]:
    """Return every goal with its figure, and the CPU time of the page's thread if it was measured."""
    found: list[dict[str, Any]] = []
    for name, (milliseconds, make) in PAGES.items():
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        model, inputs = make()
        graph = trace(model.eval(), inputs, save="none").graph
        path = View(graph, depth="all", rolled=False).save(folder / "page.html")
        measured = measure(path)

        def add(what: str, goal: float, unit: str, figure: float, cpu: float | None = None) -> None:
            found.append({"what": what, "goal": goal, "unit": unit, "figure": figure, "cpu": cpu})

        add(f"{name}: first picture", milliseconds, "ms", *measured["first"])
        if measured["toggle"]:
            add(f"{name}: a toggle", 50, "ms", *measured["toggle"])
        if name.startswith("10,000"):
            add(f"{name}: a frame of panning", 16, "ms", measured["pan"])
        if name.startswith("GPT"):
            add(f"{name}: the file", 300, "KB", path.stat().st_size / 1000)
    return found


def measure(path: Path) -> dict[str, Any]:
    """Return medians for a page: wall clock and CPU of first picture and toggle, time of a panning frame."""
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
