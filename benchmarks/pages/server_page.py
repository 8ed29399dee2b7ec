"""Measure how fast the live page opens on a full database: 10 runs x 200 layers x 100 epochs x 10 scores.

``python -m benchmarks.pages.server_page`` creates the database once (two million points), serves it, and
opens it in Chromium five times, each time with an empty cache. It measures milliseconds from the request to
the frame in which the plot with all its lines and the list of layers are shown.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import torch
from playwright.sync_api import sync_playwright

import intus
from intus.core.results import Results
from intus.storage.codec import encode_graph
from intus.storage.database import Database

from .. import harness

RESULT = harness.RESULTS / "page.json"
SCORES = (
    "linear_f1", "linear_f1.majority", "linear_f1.shuffled", "linear_accuracy", "kmeans_mi", "kmeans_ami",
    "mean", "std", "sparsity", "effective_rank",
)  # fmt: skip
INTRINSIC = 6  # scores from here on have no target
#: Checks at every frame whether the page is complete, and stores the time of the page's clock.
WATCH = """(layers) => {
  const check = () => {
    const listed = document.querySelectorAll('.layers li').length === layers;
    const drawn = document.querySelector('.canvas [role=img]')?.ariaLabel?.includes(`${layers} layers over`);
    if (listed && drawn) requestAnimationFrame(() => { window.completed = performance.now(); });
    else requestAnimationFrame(check);
  };
  check();
}"""


def fill(path: Path, runs: int, layers: int, epochs: int) -> None:
    """Write a database of plausible curves: scores rise with the epoch and the depth of the layer."""
    model = torch.nn.Sequential()
    for i in range(layers):
        step = torch.nn.ReLU() if i % 2 else torch.nn.Linear(4, 4)
        model.add_module(f"step_{i:03}", step)
    addresses = np.array([name for name, _ in model.named_children()])
    graph = encode_graph(intus.trace(model, torch.zeros(1, 4), save="none").graph)
    rng = np.random.default_rng(0)
    shape = (len(SCORES), layers)
    score, place = (axis.ravel() for axis in np.meshgrid(range(shape[0]), range(shape[1]), indexing="ij"))
    with Database(path) as database:
        for number in range(runs):
            run = f"run {number}"
            for epoch in range(epochs):
                learned = 1 - math.exp(-epoch / 20)
                value = 0.1 + 0.8 * learned * (place + 1) / layers + rng.normal(0, 0.01, place.size)
                about = {"run": [run] * place.size, "model": ["Deep"] * place.size}
                where = {"epoch": np.full(place.size, epoch), "address": addresses[place]}
                target = np.where(score < INTRINSIC, "class", "")
                what = {"score": np.array(SCORES)[score], "target": target, "n": np.full(place.size, 1797)}
                bounds = {"low": value - 0.02, "high": value + 0.02, "baseline": np.full(place.size, 0.1)}
                database.add(Results(about | where | what | bounds | {"value": value}))
            database.put_graph(run, "Deep", graph)


def wait_for(url: str) -> None:
    """Wait until the server responds."""
    for _ in range(100):
        try:
            urllib.request.urlopen(url).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise SystemExit(f"No server answered at {url} within 20 s.")


def server_cpu(pid: int) -> float:
    """Return the CPU milliseconds of a process so far, or 0 without /proc."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    ticks = stat.read_text().rsplit(")", 1)[1].split()[11:13]
    return 1000 * sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def opening(url: str, pid: int, layers: int, times: int) -> list[tuple[float, float, float]]:
    """Open the page several times, each in a new browser context.

    Returns:
        For each time the milliseconds of wall clock, of CPU in the server, and of CPU in the page's thread.
    """
    found = []
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(times):
            context = browser.new_context(viewport={"width": 1400, "height": 900})
            page = context.new_page()
            page.add_init_script(f"({WATCH})({layers})")
            devtools = context.new_cdp_session(page)
            devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
            before = server_cpu(pid)
            page.goto(url)
            page.wait_for_function("window.completed", timeout=60_000)
            served = server_cpu(pid) - before
            metrics = devtools.send("Performance.getMetrics")["metrics"]
            (worked,) = (m["value"] for m in metrics if m["name"] == "TaskDuration")
            found.append((float(page.evaluate("window.completed")), served, 1000 * worked))
            context.close()
        browser.close()
    return found


def main() -> None:
    """Create the database unless it exists, serve it, measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", type=Path, default=Path(tempfile.gettempdir()) / "intus-page.db")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--layers", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--port", type=int, default=8093)
    options = parser.parse_args()
    if not options.database.exists():
        fill(options.database, options.runs, options.layers, options.epochs)
    command = [
        sys.executable,
        "-m",
        "intus.serving",
        "--no-token",
        "--role",
        "frontend",
        "--port",
        str(options.port),
    ]
    with subprocess.Popen([*command, "--database", str(options.database)]) as server:
        try:
            url = f"http://127.0.0.1:{options.port}/"
            wait_for(url)
            load = os.getloadavg()[0]
            found = opening(url, server.pid, options.layers, options.times + 1)[1:]
        finally:
            server.terminate()
    size = {name: getattr(options, name) for name in ("runs", "layers", "epochs")} | {"scores": len(SCORES)}
    size |= {"cores": os.cpu_count(), "load": round(load, 1)}
    clock, served, worked = (sorted(round(ms) for ms in column) for column in zip(*found, strict=True))
    median = {name: statistics.median(ms) for name, ms in (("server", served), ("page", worked))}
    result = size | {"median_ms": statistics.median(clock), "ms": clock, "cpu_ms": median}
    print(json.dumps(result))
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
