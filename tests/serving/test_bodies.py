"""Requests that are large together, slow or unfinished cost little, and hold nobody up."""

from __future__ import annotations

import contextlib
import http.client
import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import uvicorn
from serving_help import record

from intus.serving.frontend import Frontend
from intus.serving.http import connections
from intus.serving.http.app import build
from intus.serving.http.bodies import SMALL, Bodies
from intus.serving.roles import Roles
from intus.serving.run import Server, uvicorn_config
from intus.storage.codec import encode_records
from intus.storage.database import Database

MB = 1 << 20


@contextlib.contextmanager
def serving(app):
    """Serve an application in a thread, as a server does; yield its port."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn_config(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path / "x.db") as opened:
        yield opened


def begin(port: int, size: int, part: bytes = b"", path: str = "/records") -> socket.socket:
    """Send the headers of a request and a part of its body."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n\r\n"
    connection.sendall(head.encode() + part)
    return connection


def answer_of(connection: socket.socket) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer


def ask(port: int, path: str, body: bytes | None = None) -> tuple[int, float]:
    """Return the status of a request and the seconds that it took."""
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET" if body is None else "POST", path, body)
        answer = connection.getresponse()
        answer.read()
        return answer.status, time.monotonic() - began


def resident(server: Server) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def batch(megabytes: int, seq: int, client: str = "c") -> bytes:
    array = np.zeros((megabytes, MB // 4), np.float32)
    return encode_records([record(array=array, run=client)], {"client": client, "seq": seq})


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process in /proc")
def test_bodies_under_way_are_bounded_together(tmp_path):
    most, size = 64 * MB, 24 * MB
    with Server(no_token=True, database=tmp_path / "x.db", port=0, max_bytes=most) as server:
        assert ask(server.port, "/api/status")[0] == 200
        before = resident(server)
        half = bytes(size - 1)
        slow = []
        for _ in range(12):
            with contextlib.suppress(ConnectionError):  # an answer may come before all is sent
                slow.append(begin(server.port, size, half))
        time.sleep(1.0)
        assert resident(server) - before < most + 2 * size
        refused = 0
        for connection in slow:
            connection.settimeout(0.2)
            with contextlib.suppress(TimeoutError, ConnectionError):
                answer = answer_of(connection)
                assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
                refused += 1
        assert 12 - most // size <= refused < 12
        assert ask(server.port, "/flush", b"{}")[0] == 200  # small requests are taken
        status, seconds = ask(server.port, "/records", batch(24, 1))
        assert status == 429
        assert seconds < 5
        for connection in slow:
            connection.close()
        deadline = time.monotonic() + 10
        while (status := ask(server.port, "/records", batch(24, 1))[0]) == 429:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert status == 200


def test_request_beyond_bound_is_refused_before_its_body(database):
    with serving(build(Roles(frontend=Frontend(database)), bodies=Bodies(MB))) as port:
        first = begin(port, MB, bytes(MB // 2), "/results")
        time.sleep(0.3)
        second = begin(port, MB, b"", "/results")
        answer = answer_of(second)
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert b"--max-bytes" in answer.read()
        second.sendall(bytes(MB))  # what it sends nevertheless is read, and the connection goes on
        second.sendall(b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert answer_of(second).status == 200
        first.close()
        second.close()


def test_single_body_beyond_bound_is_read(database):
    with serving(build(Roles(frontend=Frontend(database)), bodies=Bodies(1000))) as port:
        assert ask(port, "/results", b"x" * MB)[0] == 400  # read, and no JSON


def test_slowest_of_bodies_that_grow_together_is_refused(database):
    with serving(build(Roles(frontend=Frontend(database)), bodies=Bodies(MB))) as port:
        silent, moving = (begin(port, MB, b"", "/results") for _ in range(2))
        time.sleep(0.2)
        silent.sendall(bytes(MB // 4))
        time.sleep(0.2)
        moving.sendall(bytes(MB))
        assert answer_of(moving).status == 400  # read, and no JSON
        assert answer_of(silent).status == 429
        silent.close()
        moving.close()


def test_announced_bytes_do_not_count_until_they_come(database):
    with serving(build(Roles(frontend=Frontend(database)), bodies=Bodies(4 * MB))) as port:
        slow = [begin(port, 4 * MB, bytes(100), "/results") for _ in range(200)]
        status, seconds = ask(port, "/results", b"x" * 3 * MB)
        assert status == 400  # read, and no JSON
        assert seconds < 10
        for connection in slow:
            connection.close()


@pytest.mark.long
def test_silent_body_is_answered_408_and_closed(database):
    with serving(build(Roles(frontend=Frontend(database)), bodies=Bodies(MB, silence=0.5))) as port:
        slow = [begin(port, 1000, b"x", "/results") for _ in range(20)]
        for connection in slow:
            answer = answer_of(connection)
            assert (answer.status, answer.headers["Connection"]) == (408, "close")
            assert b"0.5 seconds" in answer.read()
            assert connection.recv(1) == b""
            connection.close()


@pytest.mark.parametrize("sent", [b"", b"POST /records HTT", b"GET /api/runs HTTP/1.1\r\nHost: 127.0."])
def test_connection_without_whole_headers_is_closed(database, monkeypatch, sent):
    monkeypatch.setattr(connections, "REQUEST_S", 0.5)
    with serving(build(Roles(frontend=Frontend(database)))) as port:
        connection = socket.create_connection(("127.0.0.1", port), timeout=20)
        connection.sendall(sent)
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            assert connection.recv(1) == b""
        assert 0.2 < time.monotonic() - began < 15
        connection.close()


def test_headers_that_trickle_are_closed_and_a_stream_stays_open(database, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_S", 0.5)
    with serving(build(Roles(frontend=Frontend(database)))) as port:
        page = socket.create_connection(("127.0.0.1", port), timeout=20)
        page.sendall(b"GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert page.recv(12) == b"HTTP/1.1 200"
        trickling = socket.create_connection(("127.0.0.1", port), timeout=20)
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began < 20:
                trickling.sendall(b"G")
                time.sleep(0.1)
        assert time.monotonic() - began < 20
        page.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while page.recv(1 << 16):
                pass
            raise AssertionError("the stream was closed")
        page.close()
        trickling.close()


@pytest.mark.long
def test_idle_connection_stays_open_after_its_request(database, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_S", 0.3)
    with serving(build(Roles(frontend=Frontend(database)))) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        for path, body in (("/flush", b"{}"), ("/api/runs", None), ("/flush", b"{}"), ("/api/runs", None)):
            connection.request("GET" if body is None else "POST", path, body)
            assert connection.getresponse().read()
            time.sleep(0.8)
            assert connection.sock is not None
        connection.close()


@pytest.mark.long
def test_client_that_takes_no_response_is_closed(database, monkeypatch):
    monkeypatch.setattr(connections, "RESPONSE_S", 0.5)

    async def large(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(50 * MB)})

    with serving(large) as port:
        connection = socket.create_connection(("127.0.0.1", port), timeout=20)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        time.sleep(2.0)
        taken = 0
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(MB):
                taken += len(part)
        assert taken < 50 * MB
        connection.close()
        slowly = socket.create_connection(("127.0.0.1", port), timeout=20)
        slowly.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        taken = 0
        while taken < 50 * MB:  # a client that takes some bytes in time is served, however long that takes
            taken += len(slowly.recv(MB // 2))
            time.sleep(0.02)
        slowly.close()


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process in /proc")
def test_500_slow_connections_hold_nobody_up(tmp_path):
    with Server(no_token=True, database=tmp_path / "x.db", port=0, max_bytes=16 * MB) as server:
        assert ask(server.port, "/records", batch(1, 1))[0] == 200
        before = resident(server)
        slow = [begin(server.port, 200 * MB, bytes(SMALL + 1)) for _ in range(500)]
        assert resident(server) - before < 150 * MB
        assert ask(server.port, "/records", batch(8, 2))[0] in (200, 429)
        deadline = time.monotonic() + 20
        while ask(server.port, "/records", batch(1, 3))[0] != 200:
            assert time.monotonic() < deadline
        assert ask(server.port, "/api/runs")[0] == 200
        for connection in slow:
            connection.close()
