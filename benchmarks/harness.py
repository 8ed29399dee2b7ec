"""The measurement: one thread, CPU seconds, contenders interleaved round by round."""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
_SINK = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *args): pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def measure(
    contenders: Mapping[str, Callable[[], object]], *, seconds: float, least: int = 3, most: int = 30
) -> dict[str, list[float]]:
    """Return the CPU seconds of every contender, one number per round, after a warm-up round.

    A round runs each contender once, so that a slower machine slows all of them down. Garbage collection
    stays enabled, as for a user.

    Args:
        contenders: The functions to measure, by name.
        seconds: Stop after this much CPU time.
        least: The least number of rounds.
        most: The largest number of rounds.
    """
    for run in contenders.values():
        run()
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    began = time.process_time()
    for number in range(most):
        if number >= least and time.process_time() - began > seconds:
            break
        for name, run in contenders.items():
            start = time.process_time_ns()
            run()
            taken[name].append((time.process_time_ns() - start) / 1e9)
    return taken


def summary(taken: Mapping[str, Sequence[float]], base: str) -> dict[str, dict[str, float]]:
    """Return median, minimum, number of rounds, and the ratio of medians to the contender ``base``.

    >>> summary({"plain": [1.0, 2.0, 3.0], "ours": [2.0, 3.0, 7.0]}, "plain")["ours"]["ratio"]
    1.5
    """
    bottom = statistics.median(taken[base])
    return {
        name: {
            "median": statistics.median(times),
            "minimum": min(times),
            "rounds": len(times),
            "ratio": statistics.median(times) / bottom,
        }
        for name, times in taken.items()
    }


def paired(taken: Mapping[str, Sequence[float]], base: str) -> dict[str, dict[str, float]]:
    """Return the ratio of total times to the contender ``base`` with its 95 % bootstrap interval over rounds.

    Unlike a median, the total includes work that is done only in some rounds.

    >>> found = paired({"plain": [1.0, 1.0, 1.0, 1.0], "ours": [1.0, 1.0, 1.0, 5.0]}, "plain")["ours"]
    >>> found["ratio"], found["low"] < 2 < found["high"]
    (2.0, True)
    """
    draw = random.Random(0)
    rounds = range(len(taken[base]))
    drawn = [draw.choices(rounds, k=len(rounds)) for _ in range(1000)]
    out = {}
    for name, times in taken.items():
        ratios = sorted(
            sum(times[n] for n in numbers) / sum(taken[base][n] for n in numbers) for numbers in drawn
        )
        out[name] = {
            "ratio": sum(times) / sum(taken[base]),
            "low": ratios[25],
            "high": ratios[-26],
            "seconds": sum(times),
            "rounds": len(times),
        }
    return out


@contextmanager
def sink() -> Iterator[int]:
    """Run a server that accepts everything in another process, and yield its port."""
    process = subprocess.Popen([sys.executable, "-c", _SINK], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def machine() -> dict[str, Any]:
    """Return facts about hardware and software, without names of the machine or its files."""
    import numpy

    facts: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load before": round(os.getloadavg()[0], 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
    }
    if find_spec("torch") is not None:  # the environments of other frameworks do not have it
        import torch

        facts |= {"threads used": torch.get_num_threads(), "torch": torch.__version__}
    return facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns.

    >>> print(table(["a", "bb"], [["1", "2"]]))
    | a | bb |
    |---|----|
    | 1 | 2  |
    """
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [heads, *rows]
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def write(name: str, text: str, data: Any) -> None:
    """Print a result and write it to results/NAME.md and .json."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(text)
