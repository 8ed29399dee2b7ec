"""A real server in a process of its own, for environments that cannot run one themselves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: The interpreter that runs the server: that of the main environment, see the Makefile.
PYTHON = os.environ.get("INTUS_SERVER_PYTHON", sys.executable)


class Served:
    """A running server.

    Args:
        port: The port for probes.
        page: The port of the page.
    """

    def __init__(self, port: int, page: int) -> None:
        self.port, self._page = port, page

    def points(self, run: str, model: str, score: str, target: str = "") -> Any:
        """Return the points of a score, as the page gets them."""
        query = urllib.parse.urlencode({"run": run, "model": model, "score": score, "target": target})
        with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/api/points?{query}", timeout=20) as reply:
            return json.load(reply)


@contextmanager
def server(folder: Path) -> Iterator[Served]:
    """Run ``intus serve`` with a new database until the context ends."""
    command = [
        PYTHON,
        "-m",
        "intus",
        "serve",
        "--port",
        "0",
        "--no-token",
        "--database",
        str(folder / "served.db"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    stop = threading.Timer(60, process.kill)  # instead of waiting forever for a line
    stop.start()
    try:
        printed = ""
        while not (found := re.search(r"http://[\d.]+:(\d+)/ · probes send to [\d.]+:(\d+)", printed)):
            line = process.stdout.readline() if process.stdout else ""
            assert line, f"the server did not start: {printed}"
            printed += line
        stop.cancel()
        yield Served(int(found[2]), int(found[1]))
    finally:
        stop.cancel()
        process.terminate()
        process.communicate(timeout=20)
