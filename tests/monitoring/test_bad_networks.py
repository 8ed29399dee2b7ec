"""A real training and server, with a proxy between them that cuts, delays, repeats and reorders requests."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from intus.monitoring import flush, probe
from intus.serving.run import Server

IMAGES = torch.tensor(load_digits().data[:300], dtype=torch.float32) / 16
FAULTS = ("none", "none", "cut before", "cut after", "twice", "late", "delayed", "half", "busy")


class Proxy(ThreadingHTTPServer):
    """Forwards requests, with faults chosen from a seed and counted in ``faults``."""

    daemon_threads = True

    def __init__(self, host, port, seed) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.host, self.target, self.random = host, port, random.Random(seed)
        self.faults = dict.fromkeys(FAULTS, 0)
        self.faultless = False
        self.delayed: list[threading.Timer] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def fault(self) -> str:
        fault = "none" if self.faultless else self.random.choice(FAULTS)
        self.faults[fault] += 1
        return fault

    def forward(self, path, headers, body):
        connection = http.client.HTTPConnection(self.host, self.target, timeout=30)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def handle_error(self, request, client_address) -> None:
        """Ignore aborted requests, which are part of the test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def do_POST(self) -> None:
        proxy, body = self.server, self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name: self.headers[name] for name in ("Content-Type", "Prefer") if name in self.headers}
        fault = proxy.fault() if self.path == "/records" else "none"
        if fault == "late":
            time.sleep(proxy.random.uniform(0, 0.1))
        if fault == "delayed":  # long after the sender gave up and sent it again: out of order, and repeated
            timer = threading.Timer(proxy.random.uniform(0.1, 1), proxy.forward, (self.path, headers, body))
            proxy.delayed.append(timer)
            timer.start()
        if fault == "busy":
            return self.answer(429, b"{}")
        if fault in ("cut before", "delayed"):
            return self.cut()
        if fault == "half":  # the server receives half a body
            with socket.create_connection((proxy.host, proxy.target)) as line:
                text = f"POST /records HTTP/1.1\r\nHost: {proxy.host}\r\nContent-Length: {len(body)}\r\n\r\n"
                line.sendall(text.encode() + body[: len(body) // 2])
            return self.cut()
        answers = [proxy.forward(self.path, headers, body) for _ in range(1 + (fault == "twice"))]
        if fault == "cut after":
            return self.cut()
        return self.answer(*answers[-1])

    def answer(self, status, body) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *args) -> None:
        """Log nothing."""


def train(host, port, epochs):
    """Train, and return the probe and the mean output of the model in each epoch."""
    model = nn.Linear(64, 8)
    seen = {epoch: [] for epoch in range(epochs)}
    with probe(model, host, port, run="r", name="m", which=lambda m, op: op.address == "") as watch:
        for epoch in range(epochs):
            watch.epoch = epoch
            for rows in torch.arange(300).split(50):
                watch.items = rows
                seen[epoch].append(model(IMAGES[rows]).detach())
                time.sleep(0.01)
    return watch, {epoch: float(torch.cat(rows).double().mean()) for epoch, rows in seen.items()}


def check(tmp_path, seed, epochs):
    with Server(no_token=True, database=tmp_path / "x.db", port=0) as server:
        proxy = Proxy(server.host, server.port, seed)
        try:
            watch, means = train("127.0.0.1", proxy.server_port, epochs)
            where = "127.0.0.1", proxy.server_port
            # flush returns False while the client counts the server as down
            flushed = any(flush(*where, timeout=60) for _ in range(15))
            proxy.faultless = True
            done = flushed or flush(*where, timeout=60)
            for timer in proxy.delayed:
                timer.join()
        finally:
            proxy.shutdown()
            proxy.server_close()
        assert done
        assert sum(count > 0 for count in proxy.faults.values()) > 4
        status = watch.status()
        assert (status["sent"], status["dropped"], status["failed"]) == (epochs * 6, 0, 0)
        with urllib.request.urlopen(
            f"{server.page_url}api/points?run=r&model=m&score=mean", timeout=20
        ) as answer:
            points = json.load(answer)
        assert points["epoch"] == list(range(epochs))
        assert points["n"] == [300] * epochs
        assert np.allclose(points["value"], list(means.values()), rtol=1e-5)
        assert set(points["note"]) == {""}
        assert not [line for line in server.log if "Traceback" in line]


@pytest.mark.long
def test_no_record_is_lost_or_duplicated(tmp_path):
    check(tmp_path, seed=4, epochs=4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_no_record_is_lost_or_duplicated_for_many_seeds(tmp_path, seed):
    check(tmp_path, seed, epochs=15)
