"""Models whose parameters two processes share: a probe set run by both, or refused before anything runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from intus.monitoring import flush
from intus.serving.run import Server
from intus.storage.database import Database

BEGIN = """
import json, math, os, sys
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel
import intus
from intus.backends.torch import agreement
from intus.core.errors import InputError

rank, port, store, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
rows = torch.randn(40, 8, generator=torch.Generator().manual_seed(1))
labels = rows[:, 0] > 0
SET = (rows, {"sign": labels})

def make(kind):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 3))
    if kind == "ddp":
        return DistributedDataParallel(net)
    if kind == "fsdp1":
        net[0] = FullyShardedDataParallel(net[0], device_id=torch.device("cpu"))
        return FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    fully_shard(net[0], mesh=mesh)
    return fully_shard(net, mesh=mesh)

def train(model, watch=None, alone=False):
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for epoch in range(2):
        if watch:
            watch.epoch = epoch + 1
        for step in range(4):
            batch = rows[(10 * step + 5 * rank) % 40 :][:5]
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            if alone and rank == 0 and step == 1 and epoch == 0:
                intus.flush(port=port)  # only here: nothing runs, and nobody hangs
    if watch:
        watch.remove()
    state = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
    buffers = [b for b in model.buffers()]
    return torch.cat([each.detach().flatten().double() for each in [*state, *buffers]])

def refused(**options):
    try:
        intus.probe(**({"port": port} | options))
    except InputError as error:
        return str(error)
"""

SHARED = """
same = {}
for kind in ("fsdp1", "fsdp2", "ddp"):
    plain = train(make(kind))
    for every in (None, 3):
        model = make(kind)
        run = f"{kind} {every}"
        watch = intus.probe(model, port=port, run=run, probe_set=SET, every=every, budget=math.inf)
        if every is None:
            watch.run_probe_set()  # untrained, as epoch 0
        if kind == "fsdp2":
            assert all(hasattr(p, "full_tensor") for p in model.parameters())  # sharded again
        same[run] = torch.equal(plain, train(model, watch)), watch.status()["troubles"], watch.model
net = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6))
torch.manual_seed(0)
net = make("ddp").module.eval()
same["untrained"] = net[0](rows).mean().item()
if rank == 0:
    open(out, "w").write(json.dumps(same))
torch.distributed.barrier()
assert intus.flush(port=port)
torch.distributed.destroy_process_group()
"""

REFUSED = """
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

agreement.WAIT_S = 1.0
found = {}
model = make("fsdp2")
if rank == 0:
    found["alone"] = refused(model=model, probe_set=SET)
torch.distributed.barrier()
found["late"] = refused(model=model, probe_set=SET) if rank == 1 else None
torch.distributed.barrier()
agreement._agreements.clear(); agreement._agreements[0, 1] = 9  # as in a new start of both
found["other"] = refused(model=model, probe_set=SET, every=2 + rank)
for kind in ("fsdp1", "fsdp2"):
    found[kind] = refused(model=make(kind), kinds=("output", "parameter", "update"))
split = parallelize_module(nn.Sequential(nn.Linear(8, 6)), mesh, {"0": ColwiseParallel()})
found["tensor parallel"] = refused(model=split)
plain = train(make("fsdp2"))
model = make("fsdp2")
watch = intus.probe(model, port=port, run="half", probe_set=SET, budget=math.inf)
found["same"] = torch.equal(plain, train(model, watch, alone=True))
found["troubles"] = watch.status()["troubles"]
open(f"{out}.{rank}", "w").write(json.dumps(found))
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


@pytest.fixture
def ranks(tmp_path):
    """Run a script in two processes beside a server; returns its database afterwards."""

    def run(script: str) -> Database:
        (tmp_path / "train.py").write_text(BEGIN + script)
        with Server(database=tmp_path / "x.db", port=0) as server:
            command = [sys.executable, "-W", "ignore", tmp_path / "train.py"]
            more = [str(server.port), str(tmp_path / "store"), str(tmp_path / "out")]
            both = [
                subprocess.Popen(
                    [*command, str(rank), *more],
                    stderr=subprocess.PIPE,
                    text=True,
                    env=os.environ | {"OMP_NUM_THREADS": "1"},
                )
                for rank in range(2)
            ]
            errors = [rank.communicate(timeout=100)[1] for rank in both]
            assert [rank.returncode for rank in both] == [0, 0], errors
            assert flush(server.host, server.port)
        return Database(tmp_path / "x.db")

    return run


def test_probe_set_of_sharded_model_runs_in_every_process_and_is_sent_once(ranks, tmp_path):
    with ranks(SHARED) as database:
        found = json.loads((tmp_path / "out").read_text())
        untrained = found.pop("untrained")
        assert found == {key: [True, 0, "Sequential"] for key in found}
        assert len(found) == 6
        for kind in ("fsdp1", "fsdp2", "ddp"):
            points = database.points(f"{kind} None", "Sequential")
            means = points.where(score="mean", address="0")
            assert means["epoch"].tolist() == [0, 1, 2]
            assert means["n"].tolist() == [40, 40, 40]
            assert means["value"][0] == pytest.approx(untrained, rel=1e-5)
            assert set(points.where(score="lda_f1")["target"].tolist()) == {"sign"}
            assert set(points["address"].tolist()) == {"", "0", "1", "2", "3", "4"}
            steps = database.points(f"{kind} 3", "Sequential").where(score="mean", address="0")
            assert steps["epoch"].tolist() == [0, 3, 6, 7]
            assert set(steps["n"].tolist()) == {40}
        left_out = ("repeated", "too_late")  # too late if the second process was much slower
        repeated = {notice["run"] for notice in database.notices() if notice["code"] in left_out}
        assert repeated == {"ddp None", "ddp 3"}


def test_what_processes_cannot_record_together_is_refused(ranks, tmp_path):
    with ranks(REFUSED) as database:
        means = database.points("half", "Sequential").where(score="mean", address="0")
    first, second = (json.loads((tmp_path / f"out.{rank}").read_text()) for rank in range(2))
    assert "probe() was not called in all of them within 1 s: rank 1 is missing" in first["alone"]
    assert "one came too late" in second["late"]
    for found in (first, second):
        assert "rank 1 has 40 rows (every=3, labels" in found["other"]
        for kind in ("fsdp1", "fsdp2"):
            assert "kinds may not be 'parameter', 'update' for Sequential" in found[kind]
        assert "'0.weight' is a part of a parameter" in found["tensor parallel"]
        assert found["same"]
        assert found["troubles"] == 1
    assert means["epoch"].tolist() == [2]  # the second epoch ended in both
