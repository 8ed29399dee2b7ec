"""Servers under load: what a user sees meanwhile, whether the counts stay true, and how much memory it takes.

Everything is sent as a probe sends it, by processes that have nothing else to do, to a server as
``intus serve`` starts it. A case writes one row of facts; ``benchmarks.serving`` makes the tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from intus.core.record import Record
from intus.core.results import Results
from intus.storage.codec import encode_records
from intus.storage.database import Database

MB = 1 << 20
ROWS, FEATURES = 64, 16
MODEL, SCORE = "M", "mean"
#: Scores that show which of them a layer has: the first ones, or all.
MARKS = {"first": SCORE, "all": "linear_f1"}
#: Statuses after which a client sends the same again, as the probe does.
LATER = (408, 429, 503, 507)
#: Client processes; each has an equal part of the clients as threads.
WORKERS = 5
Facts = dict[str, Any]
#: Returns how a server of a case runs: options of ``server``, each time with a new database.
Where = Callable[[], dict[str, Any]]


class Asker:
    """A client with one connection."""

    def __init__(self, port: int, timeout: float = 120.0) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def __call__(self, path: str, body: bytes | None = None) -> tuple[int, bytes, float]:
        """Return the status, the content and the seconds that a request took."""
        began = time.perf_counter()
        try:
            try:
                answer, content = self._ask(path, body)
            except (http.client.RemoteDisconnected, ConnectionError):  # the server closes what is idle
                self._connection.close()
                answer, content = self._ask(path, body)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            return 0, str(error).encode(), time.perf_counter() - began
        return answer.status, content, time.perf_counter() - began

    def _ask(self, path: str, body: bytes | None) -> tuple[http.client.HTTPResponse, bytes]:
        self._connection.request("GET" if body is None else "POST", path, body)
        answer = self._connection.getresponse()
        return answer, answer.read()

    def json(self, path: str) -> Any:
        """Return the JSON of a request that must succeed."""
        status, content, _ = self(path)
        assert status == 200, (path, status, content[:200])
        return json.loads(content)


# -- servers -----------------------------------------------------------------------------------------


@dataclass
class Running:
    """A server, of one process or three.

    Attributes:
        port: The port that probes send to.
        page: The port of the page.
        processes: Its processes.
        peaks: The most bytes of memory seen of each process.
    """

    port: int
    page: int
    processes: list[subprocess.Popen[str]]
    peaks: dict[int, int] = field(default_factory=dict)

    def cpu(self) -> float:
        """Return the CPU seconds of all processes."""
        return sum(_cpu(each.pid) for each in self.processes)

    def resident(self) -> int:
        """Return the bytes of memory of all processes, and note the most of each."""
        now = {each.pid: _resident(each.pid) for each in self.processes}
        for pid, size in now.items():
            self.peaks[pid] = max(size, self.peaks.get(pid, 0))
        return sum(now.values())


@contextlib.contextmanager
def server(folder: str, *, roles: bool = False, database: str = "", **options: Any) -> Iterator[Running]:
    """Run a server, in three processes with ``roles``; it is killed in the end, with what is not scored."""
    ports = _free_ports(3)
    names = ("aggregator", "evaluator", "frontend")
    given = {"database": database or f"{folder}/x.db", "journal": f"{folder}/journal"} | options
    shared = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()] + ["--no-token"]
    shared += [f"--{name}-port={port}" for name, port in zip(names, ports, strict=True)]
    environment = {name: value for name, value in os.environ.items() if name != "INTUS_TOKEN"}
    processes: list[subprocess.Popen[str]] = []
    with open(f"{folder}/log", "w", encoding="utf-8") as log:
        try:
            for role in reversed(names) if roles else ("all",):
                command = [sys.executable, "-m", "intus.serving.private", f"--role={role}", *shared]
                pipe = subprocess.PIPE
                process = subprocess.Popen(
                    command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=environment
                )
                processes.append(process)
                assert process.stdout is not None
                assert "127.0.0.1" in process.stdout.readline(), Path(log.name).read_text(encoding="utf-8")
            yield Running(ports[0], ports[2], processes)
        except AssertionError as error:
            error.add_note(
                f"The server's log ends with: {Path(log.name).read_text(encoding='utf-8')[-2000:]}"
            )
            raise
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.communicate()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS")), 0)


# -- clients -----------------------------------------------------------------------------------------


def client(port: int, number: int, epochs: int, layers: int, rows: int, until: float) -> Facts:
    """Send the epochs of a run one after the other as fast as they are taken; return what it saw."""
    ask, run = Asker(port), f"run {number}"
    base = np.random.default_rng(abs(number)).normal(size=(layers, rows, FEATURES)).astype(np.float32)
    items = np.arange(rows)
    seen: Facts = {"latencies": [], "later": 0, "failed": [], "acknowledged": 0}
    for epoch in range(epochs):
        if time.time() > until:
            break
        block = base + np.float32(epoch / 64)
        facts: Facts = {"run": run, "model": MODEL, "epoch": epoch, "mode": "train", "items": items}
        records = [Record(block[layer], f"layer {layer}", **facts) for layer in range(layers)]
        last = epoch == epochs - 1
        report = {"run": run, "model": MODEL, "epoch": epoch, "sent": layers, "dropped": 0}
        report |= {"ended": True} | ({"left": True} if last else {})
        body = encode_records(records, {"client": run, "seq": epoch, "dropped": 0, "epochs": [report]})
        began = time.perf_counter()
        while True:
            status, content, _ = ask("/records", body)
            if status not in LATER or time.time() > until + 60:
                break
            seen["later"] += 1
            time.sleep(1.0)
        if status == 200:
            seen["acknowledged"] += layers
        else:
            seen["failed"].append([status, content[:200].decode("utf-8", "replace")])
        seen["latencies"].append(time.perf_counter() - began)
    return seen


def clients(port: int, count: int, epochs: int, layers: int, rows: int = ROWS, seconds: float = 1e6) -> Facts:
    """Run clients in processes of their own, and return what all saw together.

    Args:
        port: The server's port.
        count: Number of clients, each with a run of its own.
        epochs: Epochs of each.
        layers: Layers of each, all in one request per epoch.
        rows: Rows of each layer.
        seconds: Begin no epoch after this time.
    """
    workers = min(WORKERS, count)
    parts = [range(worker, count, workers) for worker in range(workers)]
    arguments = [str(each) for each in (port, epochs, layers, rows, seconds)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.loads", *arguments, *map(str, part)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for part in parts
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    began = time.perf_counter()
    answers = []
    for process in processes:  # all begin at once
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        answers += json.loads(process.communicate()[0])
    return {
        "wall": time.perf_counter() - began,
        "latencies": [each for answer in answers for each in answer["latencies"]],
        "later": sum(answer["later"] for answer in answers),
        "failed": [each for answer in answers for each in answer["failed"]],
        "acknowledged": sum(answer["acknowledged"] for answer in answers),
    }


def _worker(arguments: Sequence[str]) -> None:
    port, epochs, layers, rows = map(int, arguments[:4])
    numbers, answers = list(map(int, arguments[5:])), []
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.time() + float(arguments[4])

    def work(number: int) -> None:
        answers.append(client(port, number, epochs, layers, rows, until))

    threads = [threading.Thread(target=work, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(answers))


# -- what a user sees --------------------------------------------------------------------------------


class Watcher:
    """A user with an open page: asks for the page's data in turn, and checks the ledger each time.

    Attributes:
        seconds: The seconds that each request took, by path.
        problems: Requests that failed, and sums of the ledger that were wrong.
        ledgers: Number of rows of the ledger that were checked.
    """

    PAUSE_S = 0.2

    def __init__(self, running: Running, run: str = "run 0") -> None:
        query = f"run={run.replace(' ', '%20')}&model={MODEL}"
        self._paths = {
            "/api/status": "/api/status",
            "/api/runs": "/api/runs",
            "/api/points": f"/api/points?{query}&score={SCORE}&level=layer",
            "/api/notices": f"/api/notices?run={run.replace(' ', '%20')}",
        }
        self._running = running
        self.seconds: dict[str, list[float]] = {name: [] for name in self._paths}
        self.problems: list[str] = []
        self.ledgers = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def all(self) -> list[float]:
        """The seconds of all requests."""
        return [each for seconds in self.seconds.values() for each in seconds]

    def _watch(self) -> None:
        ask, ledger = Asker(self._running.page), Asker(self._running.port)
        while not self._done.is_set():
            for name, path in self._paths.items():
                status, content, seconds = (ledger if name == "/api/status" else ask)(path)
                self.seconds[name].append(seconds)
                if status != 200:
                    self.problems.append(f"{name}: {status} {content[:80]!r}")
                elif name == "/api/status":
                    self._check(json.loads(content)["runs"])
                self._running.resident()
                self._done.wait(self.PAUSE_S)

    def _check(self, rows: Sequence[Facts]) -> None:
        for row in rows:
            self.ledgers += 1
            sent = row["under_way"] + row["unknown"] + row["refused"] + row["kept"]
            kept = row["waiting"] + row["scored"] + row["failed"] + row["lost"]
            if row["sent"] != sent or row["kept"] != kept:
                self.problems.append(f"the ledger of {row['run']} does not add up: {row}")


def spread(seconds: Sequence[float]) -> Facts:
    """Return the median, the 95th percentile and the maximum, in milliseconds.

    >>> spread([0.001, 0.002, 0.003])
    {'p50': 2.0, 'p95': 3.0, 'max': 3.0}
    """
    ordered = sorted(seconds) or [float("nan")]
    at = min(int(0.95 * len(ordered)), len(ordered) - 1)
    found = {"p50": statistics.median(ordered), "p95": ordered[at], "max": ordered[-1]}
    return {name: round(value * 1e3, 1) for name, value in found.items()}


# -- the cases ---------------------------------------------------------------------------------------


def many_clients(
    name: str, count: int, epochs: int, layers: int, *, wait: float, where: Where = dict
) -> Facts:
    """Let many clients send all their epochs at once, and then wait for the newest epoch of each.

    Args:
        name: What is measured.
        count: Number of clients.
        epochs: Epochs of each.
        layers: Layers of each.
        wait: Seconds to wait at most for the newest epochs.
        where: How the server runs.
    """
    total = count * epochs * layers
    with tempfile.TemporaryDirectory() as folder, server(folder, **where()) as running:
        ask = Asker(running.port)
        labels = {"name": "t", "targets": [row % 2 for row in range(ROWS)]}
        assert ask("/targets", json.dumps(labels).encode())[0] == 200
        idle, before = running.resident(), running.cpu()
        with Watcher(running) as watcher:
            sent = clients(running.port, count, epochs, layers)
            ended, cpu = time.perf_counter(), running.cpu() - before
            during = _sum(ask.json("/api/status")["runs"])
            first, waited = _newest(running, count, epochs - 1, layers, ended, wait).values()
        after = _sum(ask.json("/api/status")["runs"])
        running.resident()
    problems = [*watcher.problems, *(f"a client got {each}" for each in sent["failed"])]
    if (
        not after["sent"] == after["kept"] == sent["acknowledged"] == total
        or after["failed"]
        or after["lost"]
    ):
        problems.append(f"{sent['acknowledged']} of {total} arrays were acknowledged, the ledger has {after}")
    return {
        "what": name,
        "requests": len(sent["latencies"]),
        "seconds": round(sent["wall"], 1),
        "layers a second": round(total / sent["wall"]),
        "request": spread(sent["latencies"]),
        "page": {path: spread(seconds) for path, seconds in watcher.seconds.items()}
        | {"all": spread(watcher.all)},
        "refused for later": sent["later"],
        "CPU ms a request": round(cpu * 1e3 / max(len(sent["latencies"]), 1), 2),
        "scored meanwhile": round(during["scored"] / total, 4),
        "newest epoch scored": len(waited),
        "newest epoch's first scores": len(first),
        "seconds to first": {key: value / 1e3 for key, value in spread(first).items()} if first else None,
        "runs": count,
        "seconds to newest": {key: value / 1e3 for key, value in spread(waited).items()} if waited else None,
        "waited": wait,
        "ledgers checked": watcher.ledgers,
        "problems": problems,
        "idle MB": idle // MB,
        "peak MB": sum(running.peaks.values()) // MB,
    }


def _sum(rows: Sequence[Facts]) -> Facts:
    names = ("sent", "kept", "waiting", "scored", "failed", "lost")
    return {name: sum(row[name] for row in rows) for name in names}


def _newest(
    running: Running, count: int, epoch: int, layers: int, ended: float, wait: float
) -> dict[str, list[float]]:
    """Return the seconds from ``ended`` until all layers of a run's newest epoch had each score of MARKS."""
    ask, left = Asker(running.page), {(what, number) for what in MARKS for number in range(count)}
    found: dict[str, list[float]] = {what: [] for what in MARKS}
    while left and time.perf_counter() - ended < wait:
        for what, number in sorted(left):
            if what == "all" and ("first", number) in left:
                continue
            query = f"run=run%20{number}&model={MODEL}&score={MARKS[what]}&level=layer&since={epoch}"
            status, content, _ = ask(f"/api/points?{query}&columns=epoch")
            if status == 200 and len(json.loads(content)["epoch"]) >= layers:
                left.remove((what, number))
                found[what].append(time.perf_counter() - ended)
        time.sleep(0.2)
    return found


def many_layers(layers: int, epochs: int = 2, where: Where = dict) -> Facts:
    """Send a run of many layers, one request an epoch, and read what a page of it reads."""
    with tempfile.TemporaryDirectory() as folder, server(folder, **where()) as running:
        idle, before = running.resident(), running.cpu()
        with Watcher(running) as watcher:
            sent = clients(running.port, 1, epochs, layers)
            cpu = running.cpu() - before
            time.sleep(5)
        after = _sum(Asker(running.port).json("/api/status")["runs"])
        peak = sum(running.peaks.values())
    problems = [*watcher.problems, *map(str, sent["failed"])]
    if after["kept"] != layers * epochs:
        problems.append(f"{layers * epochs} arrays were sent, the ledger has {after}")
    reading = _stored(runs=1, layers=layers, epochs=5, where=where)
    return {
        "what": f"a run of {layers:,} layers",
        "request": spread(sent["latencies"]),
        "page": {"all": spread(watcher.all)},
        "CPU ms a layer": round(cpu * 1e3 / (layers * epochs), 3),
        "scored after 5 s": round(after["scored"] / (layers * epochs), 4),
        "problems": problems + reading.pop("problems"),
        "idle MB": idle // MB,
        "peak MB": peak // MB,
        "reading": reading,
    }


def many_runs(runs: int, where: Where = dict) -> Facts:
    """Read what a page reads of a database with many runs."""
    reading = _stored(runs=runs, layers=20, epochs=10, where=where)
    problems = reading.pop("problems")
    return {"what": f"{runs:,} runs", "problems": problems, "reading": reading}


def _stored(runs: int, layers: int, epochs: int, where: Where) -> Facts:
    """Return the time and the bytes of each route of a page, of a database that is filled."""
    scores = ("mean", "std", "linear_f1")
    found, options = Facts(), where()
    with tempfile.TemporaryDirectory() as folder:
        with Database(options.get("database") or f"{folder}/x.db") as database:
            for run in range(runs):
                size = layers * len(scores) * epochs
                cells = range(size)
                database.add(
                    Results(
                        {name: np.random.default_rng(run).random(size) for name in ("value", "low", "high")}
                        | {
                            "run": [f"run {run}"] * size,
                            "model": [MODEL] * size,
                            "epoch": [float(i // (layers * len(scores))) for i in cells],
                            "address": [f"layer {i // len(scores) % layers}" for i in cells],
                            "target": ["t" if scores[i % len(scores)] == "linear_f1" else "" for i in cells],
                            "score": [scores[i % len(scores)] for i in cells],
                            "n": [ROWS] * size,
                        }
                    )
                )
        with server(folder, **options) as running:
            ask, problems = Asker(running.page), []
            query = f"run=run%20{runs - 1}&model={MODEL}"
            for path in ("/api/runs", f"/api/points?{query}&score=mean&level=layer", f"/api/findings?{query}",
                         "/api/notices", "/api/status"):  # fmt: skip
                answers = [ask(path) for _ in range(5)]
                problems += [f"{path}: {status}" for status, _, _ in answers if status != 200]
                name = path.partition("?")[0]
                found[name] = spread([seconds for *_, seconds in answers]) | {"KB": len(answers[0][1]) >> 10}
            running.resident()
    return found | {"problems": problems, "peak MB": sum(running.peaks.values()) // MB}


def many_pages(pages: int, epochs: int = 5, idle_s: float = 10.0, where: Where = dict) -> Facts:
    """Keep the event streams of many pages open: idle, and while epochs are written."""
    with tempfile.TemporaryDirectory() as folder, server(folder, **where()) as running:
        return asyncio.run(_pages(running, pages, epochs, idle_s))


async def _pages(running: Running, pages: int, epochs: int, idle_s: float) -> Facts:
    told: list[float] = []

    async def page() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.page)
        writer.write(b"GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        while line := await reader.readline():
            if line.startswith(b"event: change"):
                told.append(time.perf_counter())
        told.append(float("nan"))  # the server ended it

    tasks = []
    for number in range(pages):
        tasks.append(asyncio.create_task(page()))
        if number % 50 == 49:
            await asyncio.sleep(0.02)
    while len(told) < pages:
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)
    before = running.cpu()
    await asyncio.sleep(idle_s)
    idle = (running.cpu() - before) / idle_s
    running.resident()
    asks = Asker(running.page)
    delays, cpus = [], []
    with Watcher(running) as watcher:
        for epoch in range(epochs):
            before, count, began = running.cpu(), len(told), time.perf_counter()
            table = {"run": "run 0", "model": MODEL, "epoch": float(epoch), "score": SCORE, "value": 0.5}
            columns = {name: [value] * 20 for name, value in table.items()}
            columns["address"] = [f"layer {layer}" for layer in range(20)]
            status = (await asyncio.to_thread(asks, "/results", json.dumps({"columns": columns}).encode()))[0]
            assert status == 200
            while len(told) < count + pages and time.perf_counter() - began < 60:
                await asyncio.sleep(0.01)
            delays += [each - began for each in told[count:]]
            cpus.append(running.cpu() - before)
    lost = sum(each != each for each in told)
    for task in tasks:
        task.cancel()
    return {
        "what": f"{pages:,} open pages",
        "idle core": round(idle, 3),
        "CPU s an epoch": round(statistics.median(cpus), 3),
        "told after": spread(delays),
        "page": {"all": spread(watcher.all)},
        "peak MB": sum(running.peaks.values()) // MB,
        "problems": [*watcher.problems, *([f"{lost} streams were ended"] if lost else [])],
    }


def bounded_memory(most: int, seconds: float, count: int, bodies: int = 12, where: Where = dict) -> Facts:
    """Send more than a server with a small ``max_bytes`` can hold: large bodies at once, and many clients."""
    size = 200 * MB
    with tempfile.TemporaryDirectory() as folder, server(folder, max_bytes=most, **where()) as running:
        warm = client(running.port, -1, 2, 20, ROWS, time.time() + 60)  # the first score loads libraries
        assert Asker(running.port)("/flush", b"{}")[0] == 200
        idle = running.resident()
        held = [
            threading.Thread(target=_half_body, args=(running.port, size, seconds)) for _ in range(bodies)
        ]
        with Watcher(running) as watcher:
            for thread in held:
                thread.start()
            sent = clients(running.port, count, 10_000, 20, rows=1024, seconds=seconds)
            for thread in held:
                thread.join()
        after = _sum(Asker(running.port).json("/api/status")["runs"])
    problems = [*watcher.problems, *(f"a client got {each}" for each in sent["failed"])]
    acknowledged = sent["acknowledged"] + warm["acknowledged"]
    if after["kept"] != acknowledged or after["failed"]:
        problems.append(f"{acknowledged} arrays were acknowledged, the ledger has {after}")
    peak = sum(running.peaks.values())
    return {
        "what": f"{bodies} bodies of 200 MB and {count} clients, --max-bytes {most // MB} MB",
        "request": spread(sent["latencies"]),
        "page": {"all": spread(watcher.all)},
        "refused for later": sent["later"],
        "acknowledged MB": sent["acknowledged"] * 1024 * FEATURES * 4 // MB,
        "lost": after["lost"],
        "idle MB": idle // MB,
        "peak MB": peak // MB,
        "over idle, of max_bytes": round((peak - idle) / most, 2),
        "problems": problems,
    }


def _half_body(port: int, size: int, seconds: float) -> None:
    """Send all of a body but its last byte, and nothing more for ``seconds``."""
    head = f"POST /records HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n\r\n".encode()
    began = time.monotonic()
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
    ):
        connection.sendall(head)
        for _ in range(size // MB - 1):
            connection.sendall(bytes(MB))
        time.sleep(max(seconds - (time.monotonic() - began), 0.0))


@contextlib.contextmanager
def postgresql() -> Iterator[Callable[[], str] | None]:
    """Yield a function that makes a database of a PostgreSQL server of its own; None if there is none."""
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
    import pytest
    from postgres_help import postgres  # type: ignore[import-not-found, unused-ignore]

    with contextlib.ExitStack() as closing:
        try:
            make = closing.enter_context(postgres())
        except pytest.skip.Exception:
            make = None
        yield make


if __name__ == "__main__":
    _worker(sys.argv[1:])
