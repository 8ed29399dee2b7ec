"""Measure scoring with Ray workers: 24 layers of 10,000 rows x 256 features, with two targets.

``.venvs/ray/bin/python -m benchmarks.workers`` (``make test-ray`` creates that environment) measures data
points per second, from submitting a whole epoch until all results are stored, in this process and with one
and two workers.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from intus.core.record import Record
from intus.engines import Engine, LocalEngine
from intus.engines.ray import RayEngine
from intus.serving.data_point import DataPoint, Key
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.evaluation.targets import Target
from intus.serving.frontend import Frontend
from intus.serving.messages import TargetRequest
from intus.storage.database import Database

from . import harness

LAYERS, ROWS, FEATURES, BLOCK = 24, 10_000, 256, 500


def main() -> None:
    """Measure, and write results/workers."""
    machine = harness.machine()
    rows = [(name, _seconds(engine), os.getloadavg()[0]) for name, engine in _engines()]
    first = rows[0][1]
    table = [
        [name, f"{LAYERS / wall:.2f}", f"{first / wall:.2f} x", f"{load:.1f}"] for name, wall, load in rows
    ]
    text = harness.table(["engine", "data points per second", "relative to local", "load"], table)
    data = [dict(zip(("engine", "seconds", "load"), row, strict=True)) for row in rows]
    harness.write("workers", f"# Workers\n\n{text}\n", {"machine": machine, "rows": data})


def _engines() -> Iterator[tuple[str, Engine]]:
    yield "local", LocalEngine()
    for workers in (1, 2):
        yield f"ray, {workers} workers", RayEngine(workers)


def _seconds(engine: Engine) -> float:
    labels = np.random.default_rng(0).integers(0, 20, ROWS)
    with tempfile.TemporaryDirectory() as folder, Database(Path(folder) / "x.db") as database:
        evaluator = Evaluator(Frontend(database), engine=engine)
        evaluator.put_target(Target.parse(TargetRequest(name="class", targets=labels.tolist())))
        evaluator.put_target(Target.parse(TargetRequest(name="half", targets=(labels % 2).tolist())))
        _epoch(evaluator, labels, 0)  # workers load their libraries
        began = time.perf_counter()
        _epoch(evaluator, labels, 1)
        seconds = time.perf_counter() - began
        assert evaluator.status() == {"scored": 2 * LAYERS, "failed": 0, "pending": 0}
        evaluator.close()
    return seconds


def _epoch(evaluator: Evaluator, labels: np.ndarray, epoch: int) -> None:
    evaluator.points([_layer(labels, epoch, f"layer{number:02}") for number in range(LAYERS)])
    evaluator.flush()


def _layer(labels: np.ndarray, epoch: int, address: str) -> DataPoint:
    rng = np.random.default_rng([epoch, int(address[-2:])])
    array = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    array[:, 0] += labels
    facts = {"run": "r", "model": "m", "epoch": epoch, "mode": "train"}
    blocks = [
        Record(array[start : start + BLOCK], address, items=np.arange(start, start + BLOCK), **facts)
        for start in range(0, ROWS, BLOCK)
    ]
    return DataPoint(Key.of(blocks[0]), "output", epoch, -1, tuple(blocks))


if __name__ == "__main__":
    main()
