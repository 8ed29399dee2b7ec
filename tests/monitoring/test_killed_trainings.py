"""Scores of an epoch whose end the training did not say have a note; those of others have none.

Each training is a process of its own, and what it had trained when it ended is known from its arguments.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time

import pytest

import intus
from intus.monitoring import flush
from intus.serving.run import Server

ROWS, BATCH = 48, 8
STEPS = ROWS // BATCH
UNSAID = "incomplete: the training did not say that the epoch ended, so rows may be missing"
SCRIPT = """
import json, os, signal, sys, time
import torch, intus
from torch.utils.data import DataLoader, TensorDataset

def kill(watch):
    while watch._tap.sender.counts().waiting:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

def train(where, run, epochs, end, names, has_set):
    x = torch.randn({rows}, 4)
    model = torch.nn.Sequential(torch.nn.Linear(4, 2))
    given = {{"probe_set": (x, {{"half": torch.arange({rows}) % 2}})}} if has_set else {{}}
    watch = intus.probe(model, run=run, budget=float("inf"), structure=False, block=True, **where, **given)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(1, epochs + 1):
        if names == "named":
            watch.epoch = epoch
        for number, (rows,) in enumerate(DataLoader(TensorDataset(x), {batch}, shuffle=True)):
            if epoch == epochs and end == f"kill {{number}}":
                kill(watch)
            optimizer.zero_grad()
            model(rows).square().mean().backward()
            optimizer.step()
    if "flush" in end:
        watch.flush()
    if "kill" in end:
        kill(watch)
    if end == "remove":
        watch.remove()

for training in json.loads(sys.argv[1]):
    if os.fork() == 0:
        train(*training)
        sys.exit()
    os.wait()
"""


def train(where, *trainings):
    """Train in processes of their own, one after the other; each is (run, epochs, end, names, has_set)."""
    script = SCRIPT.format(rows=ROWS, batch=BATCH)
    given = json.dumps([(where, *training) for training in trainings])
    subprocess.run([sys.executable, "-c", script, given], check=True, timeout=300)


def means(where, run):
    """Return the number of rows and the note of the mean of the layer, by epoch."""
    table = intus.runs(where)[run].scores(score="mean", address="0")
    return {epoch: (n, note) for epoch, n, note in zip(table.epoch, table.n, table.note, strict=True)}


@pytest.mark.long
def test_killed_epoch_has_the_rows_that_were_trained_and_a_note(tmp_path):
    """It was scored as if it had ended."""
    drawn = random.Random(0)
    kills = {
        f"{names} {number}": (drawn.randint(1, 3), drawn.randint(1, STEPS))
        for names, number in itertools.product(("named", "found"), range(4))
    }
    trainings = [
        (run, epochs, f"kill {step}", run.split()[0], False) for run, (epochs, step) in kills.items()
    ]
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        train({"host": server.host, "port": server.port}, *trainings)
        assert flush(server.host, server.port)
    for run, (epochs, step) in kills.items():
        whole = {float(epoch): (ROWS, "") for epoch in range(1, epochs)}
        assert means(str(tmp_path / "x.db"), run) == whole | {float(epochs): (step * BATCH, UNSAID)}


@pytest.mark.long
def test_trainings_that_end_normally_have_no_note(tmp_path):
    """A process that asks for scores says that it sent all, also if it is killed then."""
    runs = [(end, "found") for end in ("flush", "remove", "", "flush, then kill")] + [("flush", "named")]
    trainings = [(f"{end} {names}", 2, end, names, False) for end, names in runs]
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        train({"host": server.host, "port": server.port}, *trainings, ("set", 2, "kill 3", "found", True))
        assert flush(server.host, server.port)
    for run, *_ in trainings:
        assert means(str(tmp_path / "x.db"), run) == {1.0: (ROWS, ""), 2.0: (ROWS, "")}
    assert means(str(tmp_path / "x.db"), "set") == {0.0: (ROWS, ""), 1.0: (ROWS, "")}


@pytest.mark.long
@pytest.mark.parametrize("end", ["kill 3", ""])
def test_server_of_a_script_says_which_epoch_is_a_part(tmp_path, end):
    """Scores of a killed script have a note. Before, rows of a part were scored as those of the epoch."""
    database = str(tmp_path / "x.db")
    train({"to": database}, ("r", 2, end, "found", False))
    expected = {1.0: (ROWS, ""), 2.0: (3 * BATCH, UNSAID) if end else (ROWS, "")}
    ends, found = time.monotonic() + 30, {}
    while found != expected and time.monotonic() < ends:  # the server ends after the script
        time.sleep(0.2)
        found = means(database, "r")
    assert found == expected
