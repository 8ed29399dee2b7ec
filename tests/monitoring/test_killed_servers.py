"""Servers killed with SIGKILL at random moments, beside a real training."""

from __future__ import annotations

import contextlib
import json
import math
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from intus.monitoring import flush, probe, register_targets
from intus.storage.token_file import read_token

IMAGES = torch.tensor(load_digits().data[:600], dtype=torch.float32) / 16
LABELS = load_digits().target[:600]


def free_ports(count):
    """Return ports below 32768, which the system gives to no outgoing connection while a server is down."""
    ports = []
    while len(ports) < count:
        with (
            contextlib.suppress(OSError),
            socket.create_server(("127.0.0.1", random.randint(20000, 32000))) as one,
        ):
            ports.append(one.getsockname()[1])
    return ports


class Fleet:
    """Server processes that threads kill and restart at random moments, from a seed."""

    def __init__(self, folder, roles, seed) -> None:
        self.ports = dict(zip(("aggregator", "evaluator", "frontend"), free_ports(3), strict=True))
        self.commands = {role: self._command(role, folder) for role in roles}
        self.processes = {role: self._start(role) for role in roles}
        self.folder = folder
        self.kills, self._seed = dict.fromkeys(roles, 0), seed
        self._stopped = threading.Event()

    def _command(self, role, folder):
        ports = [f"--{name}-port={port}" for name, port in self.ports.items()]
        arguments = [f"--role={role}", f"--database={folder}/x.db", *ports]
        return [sys.executable, "-m", "intus.serving.private", *arguments]

    def _start(self, role):
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            self.commands[role], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout.readline()
        return process

    def start_killing(self, max_kills, pause) -> None:
        """Kill and restart each server, up to ``max_kills`` times, and after ``stop_killing`` to half of it.

        On a loaded machine a server may take as long to start as the training takes.
        """
        self._threads = [
            threading.Thread(
                target=self._kill_repeatedly,
                args=(role, max_kills, pause, random.Random(f"{self._seed}{role}")),
            )
            for role in self.processes
        ]
        for thread in self._threads:
            thread.start()

    def _kill_repeatedly(self, role, max_kills, pause, random_) -> None:
        while self.kills[role] < max_kills:
            is_over = self._stopped.wait(random_.uniform(0.02, pause))
            if is_over and self.kills[role] >= max_kills // 2:
                return
            self.processes[role].kill()
            self.processes[role].communicate()
            self.kills[role] += 1
            self._stopped.wait(random_.uniform(0, pause / 4))
            self.processes[role] = self._start(role)

    def stop_killing(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def read(self, path):
        url = f"http://127.0.0.1:{self.ports['frontend']}{path}"
        token = read_token("127.0.0.1", self.ports["frontend"])
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()


def train(fleet, epochs, pause):
    """Train, and return the mean output of layer 0 in each epoch, computed independently."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    seen = {epoch: [] for epoch in range(epochs)}
    port = fleet.ports["aggregator"]
    with probe(model, "127.0.0.1", port, run="r", budget=math.inf) as watch:
        for epoch in range(epochs):
            watch.epoch = epoch
            for rows in torch.randperm(600).split(60):
                watch.items = rows
                nn.functional.cross_entropy(model(IMAGES[rows]), torch.tensor(LABELS)[rows]).backward()
                seen[epoch].append((IMAGES[rows] @ model[0].weight.T + model[0].bias).detach())
                optimizer.step()
                optimizer.zero_grad()
                time.sleep(pause)
    return watch, {epoch: float(torch.cat(rows).double().mean()) for epoch, rows in seen.items()}


def check(fleet, epochs, pause, kills, between):
    assert register_targets("127.0.0.1", fleet.ports["aggregator"], name="digit", targets=LABELS)
    fleet.start_killing(kills, between)
    watch, means = train(fleet, epochs, pause)
    fleet.stop_killing()
    assert flush("127.0.0.1", fleet.ports["aggregator"], timeout=600)
    assert min(fleet.kills.values()) >= kills // 2
    status = watch.status()
    assert (status["dropped"], status["failed"], status["waiting"]) == (0, 0, 0)
    assert status["sent"] == epochs * 10 * 4
    points = fleet.read("/api/points?run=r&model=Sequential&score=mean&address=0")
    assert points["epoch"] == list(range(epochs))
    assert points["n"] == [600] * epochs
    assert np.allclose(points["value"], list(means.values()), rtol=1e-5)
    assert set(points["note"]) == {""}
    kept = [path.read_bytes() for path in fleet.folder.glob("x.db.journal/**/*.log")]
    assert kept
    assert not any(b'"F32"' in content for content in kept)  # only scores are on disk
    f1 = fleet.read("/api/points?run=r&model=Sequential&score=linear_f1&target=digit&address=2")
    assert f1["epoch"] == list(range(epochs))


@pytest.fixture
def fleet(tmp_path, request):
    fleet = Fleet(tmp_path, *request.param)
    yield fleet
    fleet.stop()


@pytest.mark.long
@pytest.mark.parametrize("fleet", [(["all"], 1)], indirect=True)
def test_no_record_is_lost_or_duplicated(fleet):
    check(fleet, epochs=8, pause=0.03, kills=2, between=1.2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "roles", [["all"], ["aggregator", "evaluator", "frontend"]], ids=["together", "apart"]
)
def test_no_record_is_lost_or_duplicated_in_many_kills(tmp_path, roles, seed):
    fleet = Fleet(tmp_path, roles, seed)
    try:
        check(fleet, epochs=40, pause=0.04, kills=8, between=2.5)
    finally:
        fleet.stop()


@pytest.mark.long
def test_line_is_up_soon_after_the_server_returns(tmp_path):
    """Keep the server away for so long that pauses would have grown to many seconds."""
    fleet = Fleet(tmp_path, ["all"], 0)
    try:
        model = nn.Sequential(nn.Linear(64, 16), nn.ReLU())
        with probe(model, "127.0.0.1", fleet.ports["aggregator"], run="r", budget=math.inf) as watch:
            sender = watch._tap.sender
            sender._random.random = lambda: 1.0  # the longest pauses
            model(IMAGES[:60])
            assert sender.drain(20)
            fleet.processes["all"].kill()
            fleet.processes["all"].communicate()
            model(IMAGES[60:120])
            time.sleep(5)
            assert watch.status()["server"] == "down"
            fleet.processes["all"] = fleet._start("all")  # returns once it listens
            returned = time.monotonic()
            while watch.status()["server"] != "up" and time.monotonic() < returned + 10:
                time.sleep(0.01)
            assert time.monotonic() - returned < 2
            assert sender.drain(20)
            status = watch.status()
        assert (status["sent"], status["dropped"]) == (6, 0)
    finally:
        fleet.stop()
