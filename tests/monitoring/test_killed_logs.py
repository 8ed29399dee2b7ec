"""Logged values reach the server soon, also if no later one is logged and the process is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
import torch

import intus
from intus.serving.run import Server

TRAIN = """
import os, signal, sys, time, torch, intus
model = torch.nn.Linear(2, 2)
watch = intus.probe(model, "127.0.0.1", int(sys.argv[1]), run="killed")
for step in range(40):
    model(torch.ones(3, 2))
    watch.log(loss=step)
time.sleep(3)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
def test_values_logged_three_seconds_before_a_kill_are_stored(tmp_path):
    """All but the first were lost, for they waited for the next call of log."""
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        ended = subprocess.run([sys.executable, "-c", TRAIN, str(server.port)], timeout=120)
        assert ended.returncode == -signal.SIGKILL
        table = intus.runs(f"{server.host}:{server.port}")["killed"].log("loss")
    assert table["value"].tolist() == list(range(40))


def test_values_that_wait_are_counted_and_sent_without_another_call(tmp_path):
    with (
        Server(database=tmp_path / "x.db", port=0, scores="mean") as server,
        intus.probe(torch.nn.Linear(2, 2), server.host, server.port, run="r") as watch,
    ):
        for step in range(10):
            watch.log(loss=step, accuracy=0.5)
        assert 0 < watch.status()["log_waiting"] <= 20
        ends = time.monotonic() + 30
        while watch.status()["log_waiting"] and time.monotonic() < ends:
            time.sleep(0.05)
        table = intus.runs(f"{server.host}:{server.port}")["r"].log()
    assert len(table) == 20
