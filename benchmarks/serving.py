"""Measure servers: durable ingestion of tensors, the storage and reading of points, and load.

``python -m benchmarks serving load`` runs all cases of load, ``serving clients listeners`` some of them, and
``--scale 0.1`` makes each smaller. With ``--postgres`` their servers store in PostgreSQL, with ``--apart``
the three roles are processes of their own. A result that is not measured again stays in results/serving_load.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

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

from . import harness, loads

TENSORS, ROWS, FEATURES = 300, 256, 768  # 786 KB each
RUNS, LAYERS, EPOCHS, SCORES = 10, 200, 100, 10


def main() -> None:
    """Measure what was asked for, and write results/serving and results/serving_load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=["tensors", "load", *CASES], help="default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes of the cases of load")
    parser.add_argument("--postgres", action="store_true", help="run the cases of load on PostgreSQL")
    parser.add_argument("--apart", action="store_true", help="run the cases of load on three processes")
    chosen = parser.parse_args()
    parts = chosen.parts or ["tensors", "load"]
    if "tensors" in parts:
        _write_rates()
    cases = [name for name in CASES if name in parts or "load" in parts]
    if cases:
        _write_load(cases, chosen.scale, Place(apart=chosen.apart, postgres=chosen.postgres))


def _write_rates() -> None:
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


# -- load --------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """The place of a server: in one process or three, and on which database."""

    apart: bool = False
    postgres: bool = False

    @property
    def words(self) -> str:
        """The place in words."""
        return f"{PROCESSES[self.apart]}, {DATABASES[self.postgres]}"

    @property
    def suffix(self) -> str:
        """The words that follow the name of a case in the results."""
        return " apart" * self.apart + " postgres" * self.postgres


PROCESSES, DATABASES = ("one process", "three processes"), ("SQLite", "PostgreSQL")
#: Seconds to wait for scores of the newest epochs.
WAIT_S = 30.0
Case = Callable[[float, loads.Where], loads.Facts]


def _clients(scale: float, where: loads.Where, epochs: int = 100) -> loads.Facts:
    count, epochs = max(int(50 * scale), 2), max(int(epochs * scale), 2)
    name = f"{count} clients x {epochs} epochs x 20 layers"
    return loads.many_clients(name, count, epochs, 20, wait=WAIT_S, where=where)


def _fewer_clients(scale: float, where: loads.Where) -> loads.Facts:
    return _clients(scale, where, 25)


CASES: Mapping[str, Case] = {
    "clients": _clients,
    "apart": _fewer_clients,
    "postgres": _fewer_clients,
    "layers": lambda scale, where: loads.many_layers(max(int(10_000 * scale), 100), where=where),
    "runs": lambda scale, where: loads.many_runs(max(int(500 * scale), 10), where=where),
    "listeners": lambda scale, where: loads.many_pages(max(int(1000 * scale), 10), where=where),
    "memory": lambda scale, where: loads.bounded_memory(
        256 << 20, 20.0, max(int(50 * scale), 5), where=where
    ),
}
#: The cases that have a place of their own.
PLACES = {"apart": Place(apart=True), "postgres": Place(postgres=True)}


def _measured_at(case: Case, scale: float, place: Place) -> loads.Facts:
    with contextlib.ExitStack() as closing:
        make = closing.enter_context(loads.postgresql()) if place.postgres else str
        if make is None:
            return {"what": "PostgreSQL", "missing": "not installed (make test-postgres installs it)"}
        facts = case(scale, lambda: {"roles": place.apart, "database": make()})
    return facts | {"place": place.words}


def _write_load(cases: Sequence[str], scale: float, place: Place) -> None:
    """Measure cases of load, and write them beside those that were measured before."""
    path = harness.RESULTS / "serving_load.json"
    found = json.loads(path.read_text(encoding="utf-8"))["cases"] if path.exists() else {}
    machine = harness.machine()
    for case in cases:
        name = case + place.suffix
        facts = _measured_at(CASES[case], scale, PLACES.get(case, Place()) if place == Place() else place)
        found[name] = facts | {"scale": scale, "load before": machine["load before"]}
        print(json.dumps({name: found[name]}), flush=True)
    order = [
        name + Place(*each).suffix for name in CASES for each in itertools.product((False, True), repeat=2)
    ]
    found = {name: found[name] for name in order if name in found}
    goals = [
        [_what(facts), what, figure, "yes" if met else "**no**"]
        for name, facts in found.items()
        for what, figure, met in ([] if "missing" in facts else _goals(name.partition(" ")[0], facts))
    ]
    seen = [[_what(facts), *_seen(facts)] for facts in found.values()]
    heads = ["case", "request ms", "page ms", "for later", "scored meanwhile", "newest epochs scored", "MB"]
    text = "\n\n".join(
        [
            "# Servers under load",
            harness.table(["case", "goal", "figure", "met"], goals),
            "Milliseconds are median / 95th percentile / maximum.",
            harness.table(heads, seen),
            "What a page reads of a database with as much, in milliseconds, and its size:",
            harness.table(["case", "route", "ms", "KB"], _routes(found)),
            "",
        ]
    )
    harness.write("serving_load", text, {"machine": machine, "cases": found})


def _what(facts: loads.Facts) -> str:
    """Return what was measured, and where; a result of an earlier version has both in one text, or SQLite."""
    return ", ".join(filter(None, (facts["what"], facts.get("place"))))


def _goals(name: str, facts: loads.Facts) -> Iterator[tuple[str, str, bool]]:
    """Yield each goal of a case, the figure, and whether it is met."""
    problems = facts["problems"]
    yield "every request is answered, every ledger adds up", f"{len(problems)} problems", not problems
    if "page" in facts:
        p95 = facts["page"]["all"]["p95"]
        yield "a page's request meanwhile takes at most 1 s (p95)", f"{p95:,.0f} ms", p95 <= 1000
    if "newest epoch scored" in facts:
        for what, count, seconds in (
            ("has its first scores", "newest epoch's first scores", "seconds to first"),
            ("has all scores", "newest epoch scored", "seconds to newest"),
        ):
            if seconds not in facts:  # measured by an earlier version
                continue
            slowest = (facts[seconds] or {"max": facts["waited"]})["max"]
            done, runs = facts[count], facts["runs"]
            figure = f"{done} of {runs} within {facts['waited']:.0f} s, the last after {slowest:.1f} s"
            met = done == runs and slowest <= 10
            yield f"the newest epoch of each run {what} 10 s after the last request", figure, met
    if name == "listeners":
        yield "idle: at most 0.05 core", f"{facts['idle core']:.3f}", facts["idle core"] <= 0.05
        yield "an epoch: at most 0.5 CPU s", f"{facts['CPU s an epoch']:.2f}", facts["CPU s an epoch"] <= 0.5
        p95 = facts["told after"]["p95"]
        yield "pages are told within 2 s (p95)", f"{p95:,.0f} ms", p95 <= 2000
    if name == "memory":
        ratio = facts["over idle, of max_bytes"]
        yield "memory over that of an idle server: at most 3 x --max-bytes", f"{ratio:.2f}", ratio <= 3
    for route, figures in facts.get("reading", {}).items():
        if route.startswith("/"):
            yield f"{route} takes at most 1 s (median)", f"{figures['p50']:,.0f} ms", figures["p50"] <= 1000


def _seen(facts: loads.Facts) -> list[str]:
    """Return the cells of a case: what clients and pages saw, scores, and memory idle and at most."""
    if "missing" in facts:
        return [facts["missing"], *[""] * 5]
    newest = f"{facts['newest epoch scored']} of {facts['runs']}" if "newest epoch scored" in facts else "-"
    memory = [str(facts[name]) for name in ("idle MB", "peak MB") if name in facts]
    return [
        _spread(facts.get("request")),
        _spread(facts.get("page", {}).get("all")),
        str(facts.get("refused for later", "-")),
        f"{facts['scored meanwhile']:.1%}" if "scored meanwhile" in facts else "-",
        newest,
        " to ".join(memory) or "-",
    ]


def _spread(figures: Mapping[str, float] | None) -> str:
    return "-" if figures is None else " / ".join(f"{figures[each]:,.0f}" for each in ("p50", "p95", "max"))


def _routes(found: Mapping[str, loads.Facts]) -> list[list[str]]:
    return [
        [_what(facts), route, _spread(figures), f"{figures['KB']:,}"]
        for facts in found.values()
        for route, figures in facts.get("reading", {}).items()
        if route.startswith("/")
    ]


# -- rates -------------------------------------------------------------------------------------------

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
