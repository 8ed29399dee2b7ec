"""A server with made-up scores, for working on the page: it answers as `intus serve` does, at once.

``python tests/browser/standin.py --port 8090 --live 2`` adds an epoch every two seconds; ``--layers 200
--epochs 100`` shows the page at its full size, ``--empty`` before anything was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

#: The built page: the committed one, or where ``INTUS_WEB_OUT`` made ``node build.mjs`` put another.
STATIC = Path(os.environ.get("INTUS_WEB_OUT") or Path(__file__).parents[2] / "src" / "intus" / "_static")
COLUMNS = ("address", "unit", "epoch", "step", "kind", "target", "score", "value", "low", "high", "baseline")
MORE = ("n", "note", "revision")
LAYERS = ("conv1", "relu1", "pool1", "conv2", "relu2", "pool2", "flatten", "fc1", "relu3", "fc2")
TARGETS = {"digit": 0.1, "even": 0.5, "ink above the middle": 0.5}
PER_TARGET = (
    "linear_f1",
    "linear_f1.majority",
    "linear_f1.shuffled",
    "linear_accuracy",
    "kmeans_mi",
    "kmeans_ami",
)
INTRINSIC = (
    "mean",
    "mean_abs",
    "std",
    "min",
    "max",
    "norm",
    "sparsity",
    "dead",
    "nonfinite",
    "effective_rank",
)
HYPOTHESES = ("the upper loop", "a vertical stroke")
Row = dict[str, Any]


def digits_graph() -> dict[str, Any]:
    """The scene of a small convolutional network, from a real trace."""
    import torch
    from torch import nn

    import intus
    from intus.viewing.scene import scene

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
    return scene(intus.trace(model, torch.zeros(1, 1, 8, 8), save="none").graph)


class Store:
    """Runs and rows in memory, with the change counter the page follows."""

    def __init__(self, layers: tuple[str, ...] = LAYERS, graph: dict[str, Any] | None = None) -> None:
        self.layers = layers
        self.graph = graph
        self.rows: list[Row] = []
        self.runs: list[Row] = []
        self.notices: list[Row] = []
        self.change = 0
        self.what: list[str] = []
        self.online = True
        self.lock = threading.Lock()

    def add_run(self, run: str, epochs: int = 0, *, units: bool = False) -> None:
        now = time.time()
        with self.lock:
            self.runs.insert(
                0, {"run": run, "model": "DigitsNet", "framework": "torch", "started": now, "updated": now}
            )
        for epoch in range(epochs):
            self.add_epoch(run, epoch)
        if units:
            with self.lock:
                self.rows += unit_rows(run, (0, epochs // 2, epochs - 1))
        self.changed("points", "graph")

    def add_epoch(self, run: str, epoch: int | None = None) -> int:
        with self.lock:
            if epoch is None:
                epoch = 1 + max((r["epoch"] for r in self.rows if r["run"] == run), default=-1)
            self.rows += layer_rows(run, epoch, self.layers)
        self.changed("points")
        return epoch

    def add_notice(self, level: str, code: str, text: str, count: int = 1) -> None:
        with self.lock:
            notice = {
                "id": len(self.notices) + 1,
                "time": time.time(),
                "level": level,
                "run": "",
                "model": "DigitsNet",
            }
            self.notices.insert(0, notice | {"code": code, "text": text, "count": count})
        self.changed("notices")

    def changed(self, *what: str) -> None:
        self.change += 1
        self.what = list(what)

    def summary(self, about: Row) -> Row:
        rows = [r for r in self.rows if r["run"] == about["run"]]
        layer = [r for r in rows if r["unit"] < 0]
        pairs = dict.fromkeys((r["score"], r["target"]) for r in rows if r["unit"] >= 0)
        return about | {
            "epochs": sorted({r["epoch"] for r in rows}),
            "addresses": list(self.layers),
            "targets": list(dict.fromkeys(r["target"] for r in layer if r["target"])),
            "scores": list(dict.fromkeys(r["score"] for r in layer)),
            "kinds": list(dict.fromkeys(r["kind"] for r in layer)),
            "units": [{"score": score, "target": target} for score, target in pairs],
            "has_graph": self.graph is not None,
            "points": len(rows),
        }

    def points(self, query: dict[str, str]) -> dict[str, list[Any]]:
        wanted = {k: v for k, v in query.items() if k in ("run", "score", "target", "kind", "address")}
        units = query.get("level") == "unit"
        with self.lock:
            rows = [r for r in self.rows if (r["unit"] >= 0) == units]
            rows = [r for r in rows if all(r[k] == v for k, v in wanted.items())]
        asked = query["columns"].split(",") if "columns" in query else (*COLUMNS, *MORE)
        return {name: [row[name] for row in rows] for name in asked}


def layer_rows(run: str, epoch: int, layers: tuple[str, ...]) -> list[Row]:
    """Every score of every layer at one epoch: deeper layers know the digit better, and later epochs too."""
    rng = random.Random(f"{run} {epoch}")
    learned = 1 - math.exp(-(epoch + 0.6) / 4.0)
    rows = []
    for i, address in enumerate(layers):
        depth = i / max(1, len(layers) - 1)
        for target, chance in TARGETS.items():
            reach = 0.55 + 0.42 * depth if target == "digit" else 0.9 - 0.35 * depth * (target != "even")
            known = chance + (reach - chance) * (0.45 + 0.55 * learned) + rng.gauss(0, 0.006)
            baseline = chance + 0.02 + rng.gauss(0, 0.004)
            values = (known, chance * 0.9, baseline, known + 0.012, 1.9 * known, 0.8 * known)
            for score, value in zip(PER_TARGET, values, strict=True):
                rows.append(row(run, epoch, address, target, score, value, baseline))
        spread = 1 + depth * learned
        values = (
            0.2 * spread,
            0.6 * spread,
            spread,
            -2.1 * spread,
            2.4 * spread,
            30 * spread,
            0.5 * depth,
            i % 3,
            0,
            4 + 20 * depth,
        )
        for score, value in zip(INTRINSIC, values, strict=True):
            rows.append(row(run, epoch, address, "", score, value + rng.gauss(0, 0.01), None))
    broken = layers[min(4, len(layers) - 1)]
    for entry in rows:
        if entry["address"] == broken and epoch == 3:
            entry |= {"value": None, "low": None, "high": None, "note": "12 of 1 797 rows hold NaN"}
        if entry["address"] == layers[0] and epoch == 5:
            entry |= {"note": "incomplete: 37 of 40 arrays came"}
        if entry["address"] == layers[-1] and epoch == 2:
            entry |= {"revision": 1}
    return rows


def row(
    run: str, epoch: int, address: str, target: str, score: str, value: float, baseline: float | None
) -> Row:
    half = None if baseline is None else 0.022
    key = {"run": run, "address": address, "unit": -1, "epoch": epoch, "step": epoch * 29, "kind": "output"}
    bounds = {"low": half and value - half, "high": half and value + half, "baseline": baseline}
    return key | {
        "target": target,
        "score": score,
        "value": value,
        **bounds,
        "n": 1797,
        "note": "",
        "revision": 0,
    }


def unit_rows(run: str, epochs: tuple[int, ...]) -> list[Row]:
    """Two hypotheses asked of every unit of two layers at three checkpoints."""
    rng = random.Random(7)
    rows = []
    for target in HYPOTHESES:
        for address, size in (("conv1", 8), ("conv2", 16)):
            for unit in range(size):
                strength = 0.08 + 0.5 * rng.random() ** 2
                for i, epoch in enumerate(sorted(set(epochs))):
                    value = strength * (0.35 + 0.3 * i) + rng.gauss(0, 0.015)
                    entry = row(run, epoch, address, target, "iou", value, 0.11)
                    rows.append(entry | {"unit": unit, "n": 64 * 1797})
    return rows


def app(store: Store, static: Path = STATIC) -> Starlette:
    """The routes of the page, on a store."""

    async def runs(_: Request) -> Response:
        return JSONResponse({"runs": [store.summary(about) for about in store.runs]})

    async def points(request: Request) -> Response:
        return JSONResponse(store.points(dict(request.query_params)))

    async def graph(_: Request) -> Response:
        missing = JSONResponse({"error": "This run has no graph."}, status_code=404)
        return missing if store.graph is None else JSONResponse(store.graph)

    async def notices(_: Request) -> Response:
        return JSONResponse({"notices": store.notices})

    async def status(_: Request) -> Response:
        counts = {"received": len(store.rows) // 20, "dropped": 3 if store.rows else 0, "incomplete": 0}
        counts |= {"duplicates": 0, "refused": 0, "pending": 0}
        runs = [{"run": about["run"], "model": about["model"]} | counts for about in store.runs[:1]]
        scored = {"scored": len(store.rows) // 28, "failed": 0}
        return JSONResponse(
            {"aggregator": counts, "evaluator": scored, "frontend": {}, "requests": {}, "runs": runs}
        )

    async def epoch(request: Request) -> Response:
        return JSONResponse({"epoch": store.add_epoch(request.query_params.get("run", store.runs[0]["run"]))})

    async def stream(request: Request) -> Response:
        if not store.online:
            return JSONResponse({"error": "The stand-in is told to be away."}, status_code=503)
        return StreamingResponse(events(request), media_type="text/event-stream")

    async def events(request: Request) -> AsyncIterator[str]:
        seen = store.change
        yield ": hello\n\n"
        while store.online and not await request.is_disconnected():
            if store.change != seen:
                seen = store.change
                data = {
                    "change": seen,
                    "what": store.what,
                    "runs": [[r["run"], r["model"]] for r in store.runs],
                }
                yield f"id: {seen}\nevent: change\ndata: {json.dumps(data)}\n\n"
            await asyncio.sleep(0.05)

    async def page(request: Request) -> Response:
        return FileResponse(static / request.path_params.get("name", "index.html"))

    gets = {"/": page, "/static/{name}": page, "/api/runs": runs, "/api/points": points, "/api/graph": graph}
    gets |= {"/api/notices": notices, "/api/status": status, "/api/stream": stream}
    routes = [Route(path, endpoint) for path, endpoint in gets.items()]
    return Starlette(routes=[*routes, Route("/dev/epoch", epoch, methods=["POST"])])


class Standin:
    """The app on a free port in a thread: ``with Standin(store) as server: server.url``."""

    def __init__(self, store: Store, port: int = 0, static: Path = STATIC) -> None:
        self.store = store
        config = uvicorn.Config(
            app(store, static), port=port, log_level="warning", timeout_graceful_shutdown=2
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Standin:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self.store.online = False
        self._server.should_exit = True
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"


def plausible(layers: int = 0, epochs: int = 13, scene: dict[str, Any] | None = None) -> Store:
    """A store as after a demo: two runs, unit scores, notices; with ``layers`` a deep one and no graph."""
    if layers:
        store = Store(
            tuple(f"encoder.layer.{i // 4}.{('attn', 'norm', 'mlp', 'out')[i % 4]}" for i in range(layers))
        )
    else:
        store = Store(graph=scene or digits_graph())
    store.add_run("first try", max(1, epochs // 2))
    store.add_run("digits", epochs, units=not layers)
    store.add_notice("info", "graph", "The graph of DigitsNet came with the first pass.")
    text = "The target 'word' has 1 500 labels, but no layer of DigitsNet has as many rows: they have 1 797. "
    store.add_notice(
        "warning",
        "target-length",
        text + "Give one label per row, in the order in which the rows are sent.",
        13,
    )
    return store


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--epochs", type=int, default=13)
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--live", type=float, default=0, help="seconds between new epochs")
    parser.add_argument("--empty", action="store_true")
    parser.add_argument("--static", type=Path, default=STATIC)
    options = parser.parse_args()
    store = Store() if options.empty else plausible(options.layers, options.epochs)
    with Standin(store, options.port, options.static) as server:
        print(server.url, flush=True)
        while True:
            time.sleep(options.live or 3600)
            if options.live and store.runs:
                store.add_epoch(store.runs[0]["run"])


if __name__ == "__main__":
    main()
