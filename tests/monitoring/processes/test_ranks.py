"""Two data-parallel processes: rows matched by ids, refused without, and a probe set on one process."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from intus.monitoring import flush, register_targets
from intus.serving.run import Server
from intus.storage.database import Database

SCRIPT = """
import os, sys
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
import intus

rank, port, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
torch.manual_seed(0)
rows = torch.randn(40, 4)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)))
sampler = DistributedSampler(range(40), shuffle=True)

def train(watch, ids):
    for epoch in range(2):
        if watch:
            watch.epoch = epoch
        sampler.set_epoch(epoch)
        for items in DataLoader(range(40), batch_size=10, sampler=sampler):
            if ids:
                watch.items = items
            model(rows[items]).square().mean().backward()
            model.zero_grad()

with intus.probe(model, port=port, run="ids") as watch:
    assert watch.model == "Sequential" and "1" in watch.operations
    train(watch, True)
with intus.probe(model, port=port, run="none") as watch:
    train(watch, False)
watch = rank == 0 and intus.probe(model, port=port, run="set", probe_set=(rows, {"all": (rows[:, 0] > 0)}))
if watch:
    watch.run_probe_set()  # the untrained model, as epoch 0
    watch.epoch = 1
train(None, False)
if watch:
    watch.remove()
assert not any(module._forward_hooks for module in model.modules())
torch.distributed.barrier()
assert intus.flush(port=port)
torch.distributed.destroy_process_group()
"""


def run_ranks(script, server, *given):
    """Run a script in two processes with their ranks, and return what they wrote to stderr."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", script, str(rank), str(server.port), *given],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]
    errors = [rank.communicate(timeout=100)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    assert flush(server.host, server.port)
    return errors


@pytest.mark.long
def test_two_ranks(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    torch.manual_seed(0)
    labels = torch.randn(40, 4)[:, 0] > 0
    with Server(database=tmp_path / "x.db", port=0) as server:
        assert register_targets(server.host, server.port, name="sign", targets=labels)
        errors = run_ranks(path, server, tmp_path / "store")
    assert all("several processes train it" in error for error in errors)
    with Database(tmp_path / "x.db") as database:
        notices = " ".join(str(notice) for notice in database.notices())
        by = {run: database.points(run, "Sequential").where(address="0") for run in ("ids", "none", "set")}
    f1 = {run: points.where(score="linear_f1") for run, points in by.items()}
    assert by["ids"].where(score="mean")["n"].tolist() == [40, 40]
    assert set(f1["ids"]["target"].tolist()) == {"sign"}
    assert f1["ids"]["epoch"].tolist() == [0, 1]
    assert np.isfinite(f1["ids"]["value"]).all()
    assert not len(f1["none"])
    assert "it is unknown which rows" in notices
    assert set(f1["set"]["target"].tolist()) >= {"all"}
    assert by["set"].where(score="mean")["n"].tolist() == [40, 40]


@pytest.mark.long
def test_store_that_fails_is_said(tmp_path):
    """Before, the processes of a training were told apart by time alone, without a word."""
    script = f"""
import torch, intus
from torch import distributed
distributed.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1)
class Gone:
    def compare_set(self, *given):
        raise RuntimeError("Connection reset by peer")
distributed.distributed_c10d._get_default_store = lambda: Gone()
with intus.probe(torch.nn.Linear(2, 2), port=1, run="r") as watch, intus.probe(torch.nn.ReLU(), port=1):
    print(*watch.status()["faults"], sep="\\n")
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True)
    said = "hich processes belong to the training of run 'r' is not known, because the store"
    assert done.stdout.count(said) == 1, done.stderr
    assert done.stderr.count(said) == 1


STEPS = """
import sys
import numpy as np, torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import intus

rank, port, store, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
KINDS = ("parameter", "parameter_grad", "update")
for given in ("wrapped", "inner"):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    probed = model if given == "inner" else None
    trained = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
    torch.manual_seed(rank)
    watch = intus.probe(probed or trained, port=port, run=given, kinds=KINDS, budget=float("inf"))
    steps = []
    for watch.epoch in (1, 2):
        for _ in range(12):
            rows = torch.randn(8, 4)
            optimizer.zero_grad()
            (trained(rows) - rows[:, :1]).square().mean().backward()
            steps.append(model[0].weight.grad.double().numpy().ravel().copy())
            optimizer.step()
    watch.remove()
    assert not any("nothing of kind" in fault for fault in watch.status()["faults"])
    np.save(f"{out}/{given}{rank}.npy", steps)
torch.distributed.barrier()
assert intus.flush(port=port)
torch.distributed.destroy_process_group()
"""


@pytest.mark.long
def test_step_of_all_ranks_is_one_step(tmp_path):
    """Before, each of two processes sent the mean gradient, so that there were twice as many steps."""
    path = tmp_path / "train.py"
    path.write_text(STEPS)
    with Server(database=tmp_path / "x.db", port=0) as server:
        run_ranks(path, server, tmp_path / "store", tmp_path)
    with Database(tmp_path / "x.db") as database:
        for run in ("wrapped", "inner"):
            steps, same = (np.load(tmp_path / f"{run}{rank}.npy") for rank in range(2))
            assert np.array_equal(steps, same)
            found = database.points(run, "Sequential").where(address="0.weight")
            for epoch, rows in ((1, steps[:12]), (2, steps[12:])):
                of_epoch = found.where(epoch=epoch)
                noise = rows.var(0, ddof=1).sum()
                expected = noise / ((rows.mean(0) ** 2).sum() - noise / 12)
                told = of_epoch.where(score="gradient_noise")
                assert told["value"] == pytest.approx([expected], rel=1e-4)
                for kind in ("parameter_grad", "update"):
                    assert of_epoch.where(kind=kind, score="norm")["n"].tolist() == [12]
