"""A server that records what it gets, and can be slow, refuse, fail or die."""

from __future__ import annotations

import atexit
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from intus.core.record import Record
from intus.monitoring import sender as sending
from intus.storage.codec import decode_records


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    recorder: FakeServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that vanish are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        recorder = self.server.recorder
        recorder.sockets.add(self.connection)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(recorder.delay)
        status = recorder.answer(self.path)
        reply = json.dumps({"error": "no thanks"} if status >= 400 else {"accepted": 1}).encode()
        if status == 200:
            with recorder.lock:
                recorder.got.append((self.path, body))
        recorder.tries.append((self.path, status))
        if recorder.cut():
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *args: Any) -> None:
        """Quiet."""


class FakeServer:
    """``got`` holds (path, body) of what was answered with 200, ``tries`` (path, status) of everything."""

    def __init__(self, port: int = 0) -> None:
        self.lock = threading.Lock()
        self.got: list[tuple[str, bytes]] = []
        self.tries: list[tuple[str, int]] = []
        self.sockets: set[socket.socket] = set()
        self.delay = 0.0
        self.answer: Callable[[str], int] = lambda path: 200
        self.cut: Callable[[], bool] = lambda: False  # hang up instead of answering
        self.port = port
        self.start()

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), _Handler)
        self._server.recorder = self
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def die(self) -> None:
        """Stop at once, also in the middle of a conversation."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connections that are open, as a server does to idle ones."""
        while self.sockets:
            with contextlib.suppress(OSError):
                self.sockets.pop().shutdown(socket.SHUT_RDWR)

    def batches(self) -> list[tuple[list[Record], dict[str, Any]]]:
        """What came to /records, decoded."""
        with self.lock:
            return [decode_records(body) for path, body in self.got if path == "/records"]

    def records(self) -> list[Record]:
        """All records in order of arrival."""
        return [record for records, _ in self.batches() for record in records]

    def messages(self, path: str) -> list[dict[str, Any]]:
        """JSON that came to a path."""
        with self.lock:
            return [json.loads(body) for where, body in self.got if where == path]


@pytest.fixture
def fake_server() -> type[FakeServer]:
    """The class itself: `conftest` is a name that other folders have too, and cannot be imported."""
    return FakeServer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.die()


@pytest.fixture
def nobody() -> int:
    """A port where no one listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(autouse=True)
def no_line_outlives_its_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Senders of one test must not go on trying, and logging, during the next."""
    made: list[sending.Sender] = []
    fresh = sending.Sender._fresh

    def remember(self: sending.Sender) -> None:
        fresh(self)
        made.append(self)

    monkeypatch.setattr(sending.Sender, "_fresh", remember)
    monkeypatch.setattr(sending, "_LINES", {})
    yield
    for one in made:
        atexit.unregister(one._at_exit)
        with one._changed:
            for job in one._jobs:
                job.state = "dropped"
            one._jobs.clear()
            thread = one._thread
            one._breaker.hurry()
            one._changed.notify_all()
        if thread is not None:
            thread.join(0.05)
