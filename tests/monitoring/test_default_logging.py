"""A script that sets up no logging gets each promised warning once, and nothing of a quiet training."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys, torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from intus.monitoring import probe
from intus.serving.run import Server

torch.manual_seed(0)
case, place = sys.argv[1:]
x = torch.randn(60, 4)
y = (x[:, 0] > 0).long()
loader = DataLoader(TensorDataset(x, y), 20, shuffle=True)
others = [TensorDataset(torch.randn(size, 4)) for size in ((30, 50) if case == "two datasets" else (30,))]
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)

def step(x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()

with Server(database=place, port=0) as server:
    watch = probe(model, server.host, server.port, budget=float("inf"))
    for epoch in range(4):
        if case == "permutations":
            for ids in torch.randperm(60).split(20):
                step(x[ids], y[ids])
        elif case == "first batch at random":
            for start in [0] + [20] * (epoch + 1):
                step(x[start : start + 20], y[start : start + 20])
        else:
            for batch in loader:
                step(*batch)
        with torch.no_grad():
            model.eval()
            for other in others:
                for (rows,) in DataLoader(other, 10):
                    model(rows)
            model.train()
    watch.remove()
    watch.flush()
    print("\\n".join(watch.status()["faults"]), end="")
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("quiet", []),
        ("two datasets", ["DataLoader over TensorDataset of 50 items are not recorded in epoch 1"]),
        ("permutations", ["No new epoch was found since epoch 1"]),
        ("first batch at random", ["if batches are drawn again at random"]),
    ],
)
def test_default_logging_has_each_warning_once(tmp_path, case, words):
    """Before, these were of level INFO, which Python does not print unless it is told to."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, case, str(tmp_path / "x.db")],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
    )
    assert [done.stderr.count(one) for one in words] == [1] * len(words)
    said = [line.removeprefix("intus: ").lower() for line in done.stderr.splitlines()]
    assert sorted(said) == sorted(done.stdout.lower().splitlines())
    assert words or not said
