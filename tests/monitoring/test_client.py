"""The HTTP client."""

from __future__ import annotations

import pytest

from intus.core.errors import ServeError
from intus.monitoring.client import Client


def test_connection_is_reused(server):
    client = Client("127.0.0.1", server.port)
    assert client.post("/clear", b"{}").ok
    kept = client._connection
    answer = client.post("/clear", b"{}")
    assert (answer.status, answer.reply, answer.retry_after) == (200, {"accepted": 1}, 0.0)
    assert client._connection is kept
    client.close()


def test_closed_connection_is_reopened(server):
    client = Client("127.0.0.1", server.port)
    for _ in range(3):
        assert client.post("/clear", b"{}").ok
        server.hang_up()
    client.close()


def test_refusal_has_message_of_server(server):
    server.answer = lambda path: 413
    client = Client("127.0.0.1", server.port)
    answer = client.post("/records", b"x")
    client.close()
    assert not answer.ok
    assert answer.why == "no thanks"


def test_no_answer_raises_error_with_server_name(server, unused_port):
    with pytest.raises(ServeError, match=f"127.0.0.1:{unused_port} does not answer: ConnectionRefused"):
        Client("127.0.0.1", unused_port).post("/clear", b"{}")
    server.delay = 1.0
    with pytest.raises(ServeError, match=rf"{server.port} does not answer: TimeoutError"):
        Client("127.0.0.1", server.port, timeout=0.1).post("/clear", b"{}")
    server.delay, server.cut = 0.0, lambda: True
    with pytest.raises(ServeError, match="does not answer"):
        Client("127.0.0.1", server.port).post("/clear", b"{}")
