"""The HTTP calls, one by one."""

from __future__ import annotations

import pytest

from intus.core.errors import ServeError
from intus.monitoring.client import Client


def test_a_connection_is_kept_and_an_answer_read(server):
    client = Client("127.0.0.1", server.port)
    assert client.post("/clear", b"{}").ok
    kept = client._connection
    answer = client.post("/clear", b"{}")
    assert (answer.status, answer.reply, answer.retry_after) == (200, {"accepted": 1}, 0.0)
    assert client._connection is kept
    client.close()


def test_a_connection_that_the_server_closed_is_opened_again(server):
    client = Client("127.0.0.1", server.port)
    for _ in range(3):
        assert client.post("/clear", b"{}").ok
        server.hang_up()
    client.close()


def test_a_refusal_is_an_answer_with_the_servers_sentence(server):
    server.answer = lambda path: 413
    client = Client("127.0.0.1", server.port)
    answer = client.post("/records", b"x")
    client.close()
    assert not answer.ok
    assert answer.why == "no thanks"


def test_no_answer_is_an_error_that_names_the_server(server, nobody):
    with pytest.raises(ServeError, match=f"127.0.0.1:{nobody} does not answer: ConnectionRefused"):
        Client("127.0.0.1", nobody).post("/clear", b"{}")
    server.delay = 1.0
    with pytest.raises(ServeError, match=rf"{server.port} does not answer: TimeoutError"):
        Client("127.0.0.1", server.port, timeout=0.1).post("/clear", b"{}")
    server.delay, server.cut = 0.0, lambda: True
    with pytest.raises(ServeError, match="does not answer"):
        Client("127.0.0.1", server.port).post("/clear", b"{}")
