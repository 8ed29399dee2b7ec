"""Measure servers: durable ingestion of tensors, and the storage and reading of points."""

from __future__ import annotations

import http.client
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient

from intus.core.record import Record
from intus.core.results import Results
from intus.serving.frontend import Frontend
from intus.serving.http.app import build
from intus.serving.roles import Roles
from intus.serving.run import Server
from intus.storage.codec import encode_records
from intus.storage.database import Database

from . import harness

TENSORS, ROWS, FEATURES = 300, 256, 768  # 786 KB each
RUNS, LAYERS, EPOCHS, SCORES = 10, 200, 100, 10


def main() -> None:
    """Measure, and write results/serving."""
    rows = [*_ingest(), *_points()]
    text = "\n".join(
        [
            "# Servers",
            "",
            harness.table(
                ["what", "per wall second", "per CPU second", "goal"],
                [[name, _format(wall), _format(cpu), goal] for name, wall, cpu, goal in rows],
            ),
            "",
        ]
    )
    data = [dict(zip(("what", "wall", "cpu", "goal"), row, strict=True)) for row in rows]
    harness.write("serving", text, {"machine": harness.machine(), "rows": data})


Row = tuple[str, float, float, str]


def _format(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2f}"


def _ingest() -> Iterator[Row]:
    """Measure how many tensors of 786 KB a server acknowledges, which are then in its journal."""
    array = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).astype(np.float32)
    bodies = [
        encode_records([Record(array, "layer", run="r", model="m", epoch=0)], {"client": "c", "seq": seq})
        for seq in range(TENSORS)
    ]
    for fsync in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(no_token=True, database=f"{folder}/x.db", port=0, fsync=fsync, max_bytes=1 << 30)
            try:
                with _measured(server.process.pid) as spent:
                    _send(server, bodies)
                wall, cpu = spent()
            finally:
                server.process.kill()
                server.stop()
        name = "tensors of 786 KB stored durably" + (", each with fsync" if fsync else "")
        yield name, TENSORS / wall, TENSORS / cpu, "200"


def _send(server: Server, bodies: list[bytes]) -> None:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    for body in bodies:
        connection.request("POST", "/records", body)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    connection.close()


def _points() -> Iterator[Row]:
    """Measure how many points are stored, stored again, and read as a page reads them."""
    with tempfile.TemporaryDirectory() as folder, Database(Path(folder) / "x.db") as database:
        size = RUNS * EPOCHS * LAYERS * SCORES
        tables = [[_table(run, epoch) for epoch in range(EPOCHS)] for run in range(RUNS)]
        with _measured() as spent:
            for of_run in tables:
                for table in of_run:
                    database.add(table)
        wall, cpu = spent()
        yield f"points stored ({size:,} of {RUNS} runs)", size / wall, size / cpu, "30,000"
        with _measured() as spent:
            for table in tables[0]:
                assert database.add(table) == 0
        wall, cpu = spent()
        yield "points stored again", size / RUNS / wall, size / RUNS / cpu, "30,000"
        client = TestClient(build(Roles(frontend=Frontend(database))))
        for what, path in (
            ("list of runs read by a page", "/api/runs"),
            ("plot of 200 layers x 100 epochs read", "/api/points?run=r3&model=m&score=s3&level=layer"),
        ):
            with _measured() as spent:
                for _ in range(5):
                    assert client.get(path).status_code == 200
            wall, cpu = spent()
            yield what, 5 / wall, 5 / cpu, "1 (both)"


def _table(run: int, epoch: int) -> Results:
    size, chance = LAYERS * SCORES, np.random.default_rng(epoch)
    numbers = {name: chance.random(size) for name in ("value", "low", "high", "baseline")}
    return Results(
        numbers
        | {
            "run": [f"r{run}"] * size,
            "model": ["m"] * size,
            "epoch": [float(epoch)] * size,
            "address": [f"encoder.layers.{i // SCORES}" for i in range(size)],
            "target": ["digit"] * size,
            "score": [f"s{i % SCORES}" for i in range(size)],
            "n": [600] * size,
        }
    )


@contextmanager
def _measured(process: int | None = None) -> Iterator[Callable[[], tuple[float, float]]]:
    """Measure a block: wall seconds, and CPU seconds of a process, by default this one."""
    began, before, out = time.perf_counter(), _cpu(process), []
    yield lambda: out[0]
    out.append((time.perf_counter() - began, max(_cpu(process) - before, 1e-9)))


def _cpu(process: int | None) -> float:
    if process is None:
        return time.process_time()
    fields: list[Any] = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
