"""A server in a process of its own, and what a test asks it."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import numpy as np
from serving_help import record

from intus.serving.run import Server
from intus.storage.codec import encode_records
from intus.storage.database import Database


class Served(Server):
    """A server of all roles, started with a database and a journal in a folder."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(**{"database": folder / "x.db", "port": 0, "no_token": True} | options)

    def ask(self, path: str, body: bytes | None = None, wait: float = 60) -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON of a GET, or of a POST if there is a body."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=wait + 30)
        try:
            headers = {"Prefer": f"wait={wait}"}
            connection.request("GET" if body is None else "POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def flush(self, wait: float = 60) -> tuple[int, str]:
        """Return the status and the error of a flush."""
        status, answer = self.ask("/flush", b"{}", wait)
        return status, answer.get("error", "")

    def send(self, epoch: int, layers: int = 2, rows: int = 4, width: int = 3, ended: bool = True) -> int:
        """Send an epoch of a run, and return the status."""
        return self.ask("/records", epoch_of(epoch, layers, rows, width, ended))[0]

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()

    @property
    def journal(self) -> int:
        """The bytes of the journal."""
        return self.ask("/api/status")[1]["aggregator"]["journal"]

    @property
    def ledger(self) -> dict[str, Any]:
        """The ledger of the run."""
        (row,) = self.ask("/api/status")[1]["runs"]
        return row


def epoch_of(epoch: int, layers: int = 2, rows: int = 4, width: int = 3, ended: bool = True) -> bytes:
    """Return a request with an epoch of the run."""
    array = np.random.default_rng(epoch).normal(size=(rows, width)).astype(np.float32)
    records = [record(array=array + n, address=f"fc{n}", epoch=epoch) for n in range(layers)]
    report = {"run": "r", "model": "m", "epoch": epoch, "sent": layers, "ended": ended}
    return encode_records(records, {"client": "c", "seq": epoch, "dropped": 0, "epochs": [report]})


def stored(path: Path) -> list[tuple[float, str]]:
    """Return the (epoch, layer) pairs with scores in a database."""
    with Database(path) as database:
        points = database.points("r", "m", score="mean")
    return sorted(zip(points["epoch"].tolist(), points["address"].tolist(), strict=True))


def pairs(epochs: range, layers: int = 2) -> list[tuple[float, str]]:
    """Return the (epoch, layer) pairs of epochs."""
    return [(float(epoch), f"fc{n}") for epoch in epochs for n in range(layers)]
