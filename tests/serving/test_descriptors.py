"""A server needs few file descriptors, however many runs it has seen, and survives having none left."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from serving_help import record

from intus.serving.aggregation import journal as module
from intus.serving.aggregation.journal import Journal
from intus.storage.codec import encode_records

LIMIT = 256
#: What a server has open besides, however many runs there are: five connections of the database with two
#: descriptors each, and pipes.
OTHERS = 20


@contextmanager
def limited_server(folder: Path):
    """Start a server that may have LIMIT descriptors; yield (process, port, lines of its log)."""
    command = [sys.executable, "-m", "intus.serving", "--port", "0", "--no-token"]
    process = subprocess.Popen(
        ["bash", "-c", f'ulimit -n {LIMIT}; exec "$@"', "-", *command, "--database", str(folder / "x.db")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "INTUS_TOKEN"},
    )
    with process:
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
        reader.start()
        port = int(process.stdout.readline().rpartition(":")[2])
        try:
            yield process, port, lines
        finally:
            process.terminate()
            process.wait(60)
            reader.join(10)


def ask(connection: http.client.HTTPConnection, path: str, body: bytes | None = None) -> int:
    connection.request("GET" if body is None else "POST", path, body)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def descriptors(process: subprocess.Popen) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="counts the descriptors in /proc")
def test_finished_runs_and_open_pages_need_few_descriptors(tmp_path):
    with limited_server(tmp_path) as (process, port, lines):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        assert ask(client, "/api/status") == 200
        before = descriptors(process)
        for number in range(400):
            run = {"run": f"run {number}", "model": "m"}
            report = run | {"epoch": 0, "sent": 1, "dropped": 0, "ended": True, "left": True}
            envelope = {"client": f"c{number}", "seq": 1, "dropped": 0, "epochs": [report]}
            assert ask(client, "/records", encode_records([record(**run)], envelope)) == 200
        assert ask(client, "/flush", b"{}") == 200
        assert descriptors(process) <= before + module.MOST_OPEN + OTHERS
        pages = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        for page in pages:
            page.sendall(b"GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert page.recv(12) == b"HTTP/1.1 200"
        assert descriptors(process) <= before + module.MOST_OPEN + OTHERS + 50
        assert ask(client, "/api/runs") == 200
        for page in pages:
            page.close()
        client.close()
    assert not [line for line in lines if "Too many open files" in line]


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="counts the descriptors in /proc")
def test_full_table_of_descriptors_is_one_line_and_passes(tmp_path):
    with limited_server(tmp_path) as (process, port, lines):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        assert ask(client, "/api/status") == 200
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(LIMIT)]
        while not lines:  # the table is full
            time.sleep(0.1)
        time.sleep(3)  # asyncio tries again each second
        assert descriptors(process) == LIMIT
        (line,) = lines
        assert "No connection can be accepted: [Errno 24] Too many open files" in line
        assert ask(client, "/records", encode_records([record()], {"client": "c", "seq": 1})) in (200, 507)
        for each in idle:
            each.close()
        other = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        assert ask(other, "/records", encode_records([record()], {"client": "c", "seq": 2})) == 200
        other.close()
        client.close()


def test_log_is_opened_again_when_it_is_appended_to(tmp_path):
    journal = Journal(tmp_path / "journal")
    runs = [(f"run {number}", "m") for number in range(module.MOST_OPEN + 5)]
    for number in range(3):
        for run in runs:
            log = journal.log(run)
            if number == 0:
                log.begin({"group": list(run)})
            log.append({"number": number}, b"body")
    journal.close()
    found = {}
    again = Journal(tmp_path / "journal")
    for run, _, frame in again.replay():
        found.setdefault(run, []).append(frame.head.get("number"))
    assert found == {run: [None, 0, 1, 2] for run in runs}
    assert again.damage == {}
    again.close()
