"""Roles that reach the next one through https, with a certificate that OpenSSL made."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from serving_help import point, record

from intus.serving.errors import AwayError
from intus.serving.http import remote as links
from intus.serving.http.remote import RemoteEvaluator, RemoteFrontend
from intus.storage.codec import decode_records

ROWS = 400_000  #: of three features: 4.8 MB, several blocks


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.got.append(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(self.server.works_s)
        self._answer(b'{"accepted": 1}')

    def do_GET(self) -> None:
        self.server.asked += 1
        self.server.hangs.wait(20) if self.server.hangs else None
        self._answer(b"{}")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.flush()
        time.sleep(self.server.pause_s)  # between the head of the reply and its body
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class TlsServer(ThreadingHTTPServer):
    """A server of https that works on a POST for some time, answers others meanwhile, and may hang."""

    daemon_threads = True

    def __init__(self, certificate: str, key: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.got: list[bytes] = []
        self.asked, self.works_s, self.pause_s = 0, 0.0, 0.0
        self.hangs: threading.Event | None = None
        self.url = f"https://localhost:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that gave up has closed its connection."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl")
    folder = tmp_path_factory.mktemp("tls")
    paths = str(folder / "certificate.pem"), str(folder / "key.pem")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]]
    subprocess.run(command, check=True, capture_output=True)
    return paths


@pytest.fixture
def server(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
    monkeypatch.setattr(links, "CHECK_S", 0.3)
    monkeypatch.setattr(links, "ANSWER_S", 2.0)
    with TlsServer(*certificate) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        if running.hangs is not None:
            running.hangs.set()
        running.shutdown()
        thread.join()


@pytest.mark.long
def test_role_that_works_for_long_is_waited_for(server):
    """A message of TLS after the handshake counted as the beginning of the reply, which then was overdue."""
    server.works_s = 3.0
    evaluator = RemoteEvaluator(server.url)
    scored = []
    evaluator.points([point(record(rows=ROWS))], lambda point, stored: scored.append(stored))
    assert evaluator.close(30)
    assert scored == [True]
    (body,) = server.got
    assert decode_records(body)[0][0].array.shape == (ROWS, 3)
    assert server.asked >= 2


@pytest.mark.long
def test_pause_within_a_reply_is_waited_for(server):
    server.pause_s = 3.0
    RemoteFrontend(server.url).clear("c")
    assert len(server.got) == 1


def test_role_that_hangs_is_named(server):
    server.works_s, server.hangs = 15.0, threading.Event()
    began = time.monotonic()
    with pytest.raises(
        AwayError, match=rf"The frontend {server.url} cannot be reached: it has answered nothing"
    ):
        RemoteFrontend(server.url).flush()
    assert time.monotonic() - began < 10
    assert server.asked == 1


def test_certificate_that_nobody_vouches_for_is_refused_in_a_sentence(server, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(AwayError, match=rf"{server.url} cannot be reached: .*certificate verify failed"):
        RemoteFrontend(server.url).flush()
    assert server.got == []
