"""Write the database and the journal of a server of an older commit, for test_older_versions.py.

``python tests/serving/older/write.py COMMIT`` writes COMMIT.tar.xz beside this file. The server is killed
when two epochs are scored and a third is open. Requests are made here: no other code takes part.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sqlite3
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
ROWS = np.random.default_rng(0).normal(size=(40, 6)).astype("<f4")
LAYERS = ("a", "b")


def request(epoch: int, seq: int, layers: tuple[str, ...], *, ended: bool, sent: int) -> bytes:
    """Return the body of a request to /records; the rows of an epoch are ROWS plus its number."""
    head, parts, facts = {}, [], []
    for number, layer in enumerate(layers):
        items = np.arange(len(ROWS), dtype="<i8")
        for name, kind, array in (
            (f"{number}", "F32", ROWS + np.float32(epoch)),
            (f"{number}.items", "I64", items),
        ):
            begin = sum(map(len, parts))
            parts.append(array.tobytes())
            head[name] = {
                "dtype": kind,
                "shape": list(array.shape),
                "data_offsets": [begin, begin + len(parts[-1])],
            }
        record = {"address": layer, "kind": "output", "run": "r", "model": "M", "step": epoch, "epoch": epoch}
        facts.append(record | {"mode": "train", "batch_axis": 0, "index": 0})
    report = {
        "run": "r",
        "model": "M",
        "epoch": epoch,
        "sent": sent,
        "dropped": 0,
        "ended": ended,
        "left": False,
    }
    envelope = {"client": "c", "seq": seq, "dropped": 0, "epochs": [report]}
    head["__metadata__"] = {"intus": "1", "records": json.dumps(facts), "envelope": json.dumps(envelope)}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def post(port: int, path: str, body: bytes) -> bytes:
    """Send a request and return the reply."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    assert answer.status == 200, content
    return content


def write(commit: str) -> None:
    """Write the archive of a commit."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        tree, data = Path(folder) / "tree", Path(folder) / "data"
        data.mkdir()
        repository = HERE.parents[2]
        subprocess.run(
            ["git", "-C", repository, "worktree", "add", "-q", "--detach", tree, commit], check=True
        )
        try:
            script = "import sys; from intus.serving.run import main; sys.exit(main(sys.argv[1:]))"
            options = ["--port", str(port), "--database", "x.db"]
            if "no_token" in (tree / "src/intus/serving/run.py").read_text() + _options(tree):
                options.append("--no-token")
            environment = os.environ | {"PYTHONPATH": str(tree / "src")}
            server = subprocess.Popen([sys.executable, "-c", script, *options], cwd=data, env=environment)
            _wait_for(port)
            post(port, "/targets", json.dumps({"name": "t", "targets": [0, 1] * 20}).encode())
            for epoch in range(2):
                post(port, "/records", request(epoch, epoch + 1, LAYERS, ended=True, sent=2))
            post(port, "/flush", b"{}")
            post(port, "/records", request(2, 3, LAYERS[:1], ended=False, sent=1))
            server.kill()
            server.wait()
        finally:
            subprocess.run(["git", "-C", repository, "worktree", "remove", "--force", tree], check=True)
        with sqlite3.connect(data / "x.db") as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
        with tarfile.open(HERE / f"{commit}.tar.xz", "w:xz") as archive:
            archive.add(data, ".")


def _options(tree: Path) -> str:
    path = tree / "src/intus/serving/options.py"
    return path.read_text() if path.exists() else ""


def _wait_for(port: int) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("The server did not start.")


if __name__ == "__main__":
    write(sys.argv[1])
