"""An unused port."""

import socket

import pytest


@pytest.fixture
def unused_tcp_port_number() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
