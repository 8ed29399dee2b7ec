"""The real server of the page, in this process, on a database with made-up scores."""

from __future__ import annotations

import math
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from intus.core.graph import Graph
from intus.core.results import Results
from intus.scores import infos
from intus.scores.registry import as_score
from intus.serving.frontend import Frontend
from intus.serving.http.app import build
from intus.serving.http.feed import ChangeFeed
from intus.serving.messages import AggregatorCounts, RunLedger, StatusReport
from intus.serving.roles import Roles
from intus.storage.codec import encode_graph
from intus.storage.database import Database

#: The built page: the committed one, or the one that ``node build.mjs`` wrote to ``INTUS_WEB_OUT``.
STATIC = Path(os.environ.get("INTUS_WEB_OUT") or Path(__file__).parents[2] / "src" / "intus" / "_static")
MODEL = "DigitsNet"
LAYERS = ("conv1", "relu1", "pool1", "conv2", "relu2", "pool2", "flatten", "fc1", "relu3", "fc2")
TARGETS = {"digit": 0.1, "even": 0.5, "ink above the middle": 0.5}
HYPOTHESES = ("the upper loop", "a vertical stroke")
Row = dict[str, Any]


def kurtosis(behaviours: Any) -> float:
    """Excess kurtosis of all entries: 0 for a normal distribution."""
    return float(((behaviours - behaviours.mean()) ** 4).mean() / behaviours.var() ** 2 - 3)


#: A score without a target that is registered only in the process that computes it.
KURTOSIS = as_score(kurtosis, "kurtosis", label="Excess kurtosis", low=-2.0).infos[0]


def digits_graph() -> Graph:
    """The graph of a small convolutional network."""
    import torch
    from torch import nn

    import intus

    steps = [
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
    ]
    steps += [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)]
    model = nn.Sequential()
    for name, step in zip(LAYERS, steps, strict=True):
        model.add_module(name, step)
    return intus.trace(model, torch.zeros(1, 1, 8, 8), save="none").graph


class PageServer:
    """The frontend with its own database: ``with PageServer() as server: server.url``.

    ``layers`` and ``graph`` are the layers and the graph of every run that is added.
    """

    def __init__(self, layers: Sequence[str] = LAYERS, graph: Graph | None = None) -> None:
        self.layers, self.graph = tuple(layers), graph
        self._folder = tempfile.TemporaryDirectory()
        self.database = Database(Path(self._folder.name) / "scores.db")
        self.frontend = Frontend(self.database)
        self.epochs: dict[str, int] = {}
        self._port = 0
        self._server: uvicorn.Server | None = None
        self._not_paused = threading.Event()
        self._not_paused.set()

    # -- contents -------------------------------------------------------------------------------------

    def add_run(
        self,
        run: str,
        epochs: int = 0,
        *,
        model: str = MODEL,
        layers: bool = True,
        units: bool = False,
        change: Callable[[Row], Row] = lambda row: row,
    ) -> None:
        """Store a run; ``change`` is applied to its rows."""
        for epoch in range(epochs if layers else 0):
            self.add_epoch(run, epoch, model=model, change=change)
        if units:
            self.add(unit_rows(run, (0, epochs // 2, epochs - 1)))
        if self.graph is not None:
            self.database.put_graph(run, model, encode_graph(self.graph))

    def add_epoch(
        self,
        run: str,
        epoch: int | None = None,
        *,
        model: str = MODEL,
        change: Callable[[Row], Row] = lambda row: row,
    ) -> int:
        """Store the next epoch of a run."""
        if epoch is None:
            epoch = self.epochs[run] + 1
        self.epochs[run] = epoch
        rows = layer_rows(run, epoch, self.layers)
        again = [row for row in rows if row.pop("again", False)]
        self.add([change(row | {"value": 0.0, "model": model}) for row in again])
        self.add([change(row | {"model": model}) for row in rows])
        return epoch

    def add(self, rows: Sequence[Row]) -> None:
        """Store rows of results and the descriptions of their scores, as the evaluator does."""
        known = infos() | {KURTOSIS.name: KURTOSIS}
        self.frontend.results(
            Results.from_rows(rows), [known[name] for name in {row["score"] for row in rows}]
        )

    def add_notice(self, level: str, code: str, text: str, count: int = 1) -> None:
        """Store a notice ``count`` times."""
        for _ in range(count):
            self.database.add_notice(code, text, level=level, model=MODEL)

    def count(self, run: str, **counts: int) -> None:
        """Report counts of the aggregator for a run."""
        runs = [RunLedger(run, MODEL, **counts)]
        self.frontend.report(StatusReport(AggregatorCounts(), runs=runs))

    # -- the process ---------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start to listen, on the same port as before."""
        self._feed = ChangeFeed(self.database, poll=0.05)
        app = build(Roles(frontend=self.frontend), loopback=True, feed=self._feed)

        async def pausable(scope: Scope, receive: Receive, send: Send) -> None:
            await run_in_threadpool(self._not_paused.wait)
            await app(scope, receive, send)

        options: dict[str, Any] = {"lifespan": "off", "log_level": "error", "timeout_graceful_shutdown": 2}
        self._server = uvicorn.Server(uvicorn.Config(pausable, port=self._port, **options))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        self._port = self._server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Stop the server; the database remains."""
        assert self._server is not None
        self._feed.close()
        self._server.should_exit = True
        self._thread.join()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Answer requests only after the block."""
        self._not_paused.clear()
        try:
            yield
        finally:
            self._not_paused.set()

    def __enter__(self) -> PageServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.frontend.close()
        self._folder.cleanup()


def layer_rows(run: str, epoch: int, layers: Sequence[str]) -> list[Row]:
    """Return all scores of all layers at one epoch; for the digit they rise with depth and epoch."""
    rng = random.Random(f"{run} {epoch}")
    learned = 1 - math.exp(-(epoch + 0.6) / 4.0)
    rows = []
    for place, address in enumerate(layers):
        depth = place / max(1, len(layers) - 1)
        for target, chance in TARGETS.items():
            reach = 0.55 + 0.42 * depth if target == "digit" else 0.9 - 0.35 * depth * (target != "even")
            known = chance + (reach - chance) * (0.45 + 0.55 * learned) + rng.gauss(0, 0.006)
            baseline = chance + 0.02 + rng.gauss(0, 0.004)
            values = {
                "linear_f1": known,
                "linear_f1.majority": chance * 0.9,
                "linear_accuracy": known + 0.012,
                "kmeans_mi": 1.9 * known,
                "kmeans_ami": 0.8 * known,
            }
            rows += [row(run, epoch, address, target, *each, baseline) for each in values.items()]
        spread = 1 + depth * learned
        values = {
            "mean": 0.2 * spread,
            "mean_abs": 0.6 * spread,
            "std": spread,
            "min": -2.1 * spread,
            "max": 2.4 * spread,
            "norm": 30 * spread,
            "sparsity": 0.5 * depth,
            "dead": place % 3,
            "nonfinite": 0,
            "effective_rank": 4 + 20 * depth,
            "kurtosis": depth - 0.5,
        }
        rows += [
            row(run, epoch, address, "", score, value + rng.gauss(0, 0.01)) for score, value in values.items()
        ]
    broken = layers[min(4, len(layers) - 1)]
    for entry in rows:
        if entry["address"] == broken and epoch == 3:
            entry |= {"value": None, "low": None, "high": None, "note": "12 of 1 797 rows hold NaN"}
        if entry["address"] == layers[0] and epoch == 5:
            entry |= {"note": "incomplete: 37 of 40 arrays came"}
        if entry["address"] == layers[-1] and epoch == 2:
            entry |= {"again": True}  # stored twice, first with another value
    return rows


def row(
    run: str, epoch: int, address: str, target: str, score: str, value: float, baseline: float | None = None
) -> Row:
    half = None if baseline is None else 0.022
    return {
        "run": run,
        "model": MODEL,
        "address": address,
        "epoch": epoch,
        "step": epoch * 29,
        "target": target,
        "score": score,
        "value": value,
        "low": half and value - half,
        "high": half and value + half,
        "baseline": baseline,
        "n": 1797,
    }


def unit_rows(run: str, epochs: tuple[int, ...]) -> list[Row]:
    """Return the scores of all units of two layers for two hypotheses at three checkpoints."""
    rng = random.Random(7)
    rows = []
    for target in HYPOTHESES:
        for address, size in (("conv1", 8), ("conv2", 16)):
            for unit in range(size):
                strength = 0.08 + 0.5 * rng.random() ** 2
                for place, epoch in enumerate(sorted(set(epochs))):
                    value = strength * (0.35 + 0.3 * place) + rng.gauss(0, 0.015)
                    entry = row(run, epoch, address, target, "iou", value, 0.11)
                    rows.append(entry | {"unit": unit, "n": 64 * 1797})
    return rows


def plausible(layers: int = 0, epochs: int = 13, graph: Graph | None = None) -> PageServer:
    """Return a server with two runs, unit scores and notices; ``layers``: a deep model without a graph."""
    if layers:
        names = [f"encoder.layer.{i // 4}.{('attn', 'norm', 'mlp', 'out')[i % 4]}" for i in range(layers)]
        server = PageServer(names)
    else:
        server = PageServer(graph=graph or digits_graph())
    server.add_run("first try", max(1, epochs // 2))
    server.add_run("digits", epochs, units=not layers)
    server.count("digits", sent=400, kept=400, scored=400, dropped=3)
    server.add_notice("info", "graph", "The graph of DigitsNet came with the first pass.")
    text = "The target 'word' has 1 500 labels, but no layer of DigitsNet has as many rows: they have 1 797. "
    server.add_notice(
        "warning",
        "target-length",
        text + "Give one label per row, in the order in which the rows are sent.",
        13,
    )
    return server
