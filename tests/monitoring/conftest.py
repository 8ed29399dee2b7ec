"""A fake server that records requests, and can be slow, refuse, fail or die."""

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
        """Ignore clients that disconnect, which is part of the tests."""


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
        recorder.answers.append((self.path, status))
        if recorder.cut():
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


class FakeServer:
    """A server in a thread of the test.

    Attributes:
        got: (path, body) of the requests that were answered with 200.
        answers: (path, status) of all requests.
        delay: Seconds before each answer.
        answer: Returns the status for a path.
        cut: Returns whether to close the connection instead of answering.
    """

    def __init__(self, port: int = 0) -> None:
        self.lock = threading.Lock()
        self.got: list[tuple[str, bytes]] = []
        self.answers: list[tuple[str, int]] = []
        self.sockets: set[socket.socket] = set()
        self.delay = 0.0
        self.answer: Callable[[str], int] = lambda path: 200
        self.cut: Callable[[], bool] = lambda: False
        self.port = port
        self.start()

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), _Handler)
        self._server.recorder = self
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def die(self) -> None:
        """Stop at once, even during a request."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.hang_up()

    def hang_up(self) -> None:
        """Close all open connections, as a server does with idle ones."""
        while self.sockets:
            with contextlib.suppress(OSError):
                self.sockets.pop().shutdown(socket.SHUT_RDWR)

    def batches(self) -> list[tuple[list[Record], dict[str, Any]]]:
        """Return the requests to /records, decoded."""
        with self.lock:
            return [decode_records(body) for path, body in self.got if path == "/records"]

    def records(self) -> list[Record]:
        """Return all records in order of arrival."""
        return [record for records, _ in self.batches() for record in records]

    def messages(self, path: str) -> list[dict[str, Any]]:
        """Return the JSON posted to a path."""
        with self.lock:
            return [json.loads(body) for where, body in self.got if where == path]


@pytest.fixture(scope="session")
def fake_server() -> type[FakeServer]:
    """Return the class: a module named ``conftest`` cannot be imported, since other folders have one too."""
    return FakeServer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.die()


@pytest.fixture
def unused_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(autouse=True)
def senders_end_with_their_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stop the senders of a test, so that they do not retry and log during the next."""
    senders: list[sending.Sender] = []
    reset = sending.Sender._reset

    def remember(self: sending.Sender) -> None:
        reset(self)
        senders.append(self)

    monkeypatch.setattr(sending.Sender, "_reset", remember)
    monkeypatch.setattr(sending, "_SENDERS", {})
    yield
    for sender in senders:
        atexit.unregister(sender._at_exit)
        with sender._changed:
            for job in sender._jobs:
                job.state = "dropped"
            sender._jobs.clear()
            thread = sender._thread
            if thread is not None:
                sender._jobs.append(None)  # in place of a request, ends the thread, which would wait for more
            sender._breaker.retry_now()
            sender._changed.notify_all()
        if thread is not None:
            thread.join(0.05)
            sender._jobs.clear()
            if not thread.is_alive():
                sender._client.close()
