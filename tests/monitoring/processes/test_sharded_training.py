"""Models whose parameters processes share: a probe set run by all, or refused before anything runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

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

rank, port, world, store, out = *map(int, sys.argv[1:4]), sys.argv[4], sys.argv[5]
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
axes = ("shard",) if world == 2 else ("data", "shard")
mesh = init_device_mesh("cpu", (2,) * len(axes), mesh_dim_names=axes)
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

TWO_AXES = """
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

plain = train(make("fsdp2"))
model = make("fsdp2")
watch = intus.probe(model, port=port, run="hsdp", probe_set=SET, budget=math.inf)
watch.run_probe_set()
found = {"same": torch.equal(plain, train(model, watch)), "troubles": watch.status()["troubles"]}
torch.manual_seed(0)
found["untrained"] = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6)).eval()[0](rows).mean().item()
normed = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 6))
parallelize_module(normed, mesh["shard"], {"0": SequenceParallel()})
found["sequence"] = refused(model=normed)
found["both"] = refused(model=fully_shard(normed, mesh=mesh["data"]))
open(f"{out}.{rank}", "w").write(json.dumps(found))
torch.distributed.barrier()
assert intus.flush(port=port)
torch.distributed.destroy_process_group()
"""

CALLBACKS = """
from intus.callbacks.probe_callback import ProbeCallback

found = {}
for kind in ("fsdp1", "fsdp2", "ddp"):
    for options in ({"probe_set": SET}, {}):
        callback, model = ProbeCallback(), make(kind)
        callback.prepare("127.0.0.1", port, {"run": f"{kind} {len(options)}", "budget": math.inf, **options})
        callback.begin(model, 0, is_first=rank == 0)
        found[f"{kind} {len(options)}"] = callback.watch is not None
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for epoch in range(2):
            callback.at(epoch)
            for step in range(2):
                optimizer.zero_grad()
                model(rows[20 * rank + 10 * step :][:10]).square().mean().backward()
                optimizer.step()
        callback.finish()
open(f"{out}.{rank}", "w").write(json.dumps(found))
torch.distributed.barrier()
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

LATE = """
found = {}
for own in (True, False):
    for rank_of_turn in range(world):  # the second process begins when the first has left
        torch.distributed.barrier()
        if rank == rank_of_turn:
            net = nn.Linear(8, 6)
            options = {} if own else {"ranks": (rank, world), "probe_set": SET}
            watch = intus.probe(net, port=port, run=f"late {own}", name="net", budget=math.inf, **options)
            for epoch in (1, 2):
                watch.epoch = epoch
                net(rows[20 * rank:][:20])
            watch.remove()
            assert intus.flush(port=port)
torch.distributed.destroy_process_group()
"""

ORDERS = """
import gc
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

OPTIONS = {
    "own": {},
    "parameter": {"kinds": ("output", "parameter")},
    "set": {"probe_set": SET},
    "ranks": {"probe_set": SET, "ranks": (rank, world)},
}

def split(net, how):
    if how == "tensor":
        return parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    if how == "fsdp2":
        return fully_shard(net, mesh=mesh)
    return FullyShardedDataParallel(net, device_id=torch.device("cpu"), use_orig_params=how == "fsdp1 views")

def train(model, watch, how, own):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in (1, 2):
        if watch:
            watch.epoch = epoch
        for start in (0, 20):  # data parallelism halves a batch; tensor parallelism does not
            items = list(range(start, start + 20))
            items = items if how == "tensor" else items[10 * rank :][:10]
            if watch and own:
                watch.items = items
            optimizer.zero_grad()
            model(rows[items]).square().mean().backward()
            optimizer.step()

found = {}
for how in ("tensor", "fsdp2", "fsdp1", "fsdp1 views"):
    for what, options in OPTIONS.items():
        for order in ("before", "after"):
            torch.manual_seed(0)
            net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
            key, watch, said = f"{how}, {what}, probed {order}", None, []
            model = net if order == "before" else split(net, how)
            try:
                watch = intus.probe(model, port=port, run=key, name="net", budget=math.inf, **options)
            except InputError as error:
                said = [str(error)]
            train(split(net, how) if order == "before" else model, watch, how, "probe_set" not in options)
            if watch:
                watch.remove()
                said = watch.status()["faults"]
            found[key] = said
net = nn.Sequential(nn.Linear(8, 6))
watch = rank == 0 and intus.probe(net, port=port, run="alone", probe_set=SET)
fully_shard(net, mesh=mesh)
for epoch in (1, 2):  # the first process alone has the probe, and the second waits for no pass of it
    if watch:
        watch.epoch = epoch
    net(rows).sum().backward()
torch.distributed.barrier()
assert intus.flush(port=port)
torch.distributed.destroy_process_group()
del net
gc.collect()  # what remains of it is not run either
found["alone"] = watch.status()["faults"] if watch else []
open(f"{out}.{rank}", "w").write(json.dumps(found))
"""

UNDER_DDP = """
found = {}
for options in ({}, {"ranks": (rank, world)}):
    model = make("ddp")
    watch = intus.probe(
        model, port=port, run=f"ddp {len(options)}", name="net", probe_set=SET, budget=math.inf, **options
    )
    train(model, watch)
    status = watch.status()
    found[watch.run] = status["faults"], status["recorded"] > 0
open(f"{out}.{rank}", "w").write(json.dumps(found))
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


@pytest.fixture
def ranks(tmp_path):
    """Run a script in several processes beside a server; returns its database afterwards."""

    def run(script: str, world: int = 2) -> Database:
        (tmp_path / "train.py").write_text(BEGIN + script)
        with Server(database=tmp_path / "x.db", port=0) as server:
            command = [sys.executable, "-W", "ignore", tmp_path / "train.py"]
            more = [str(server.port), str(world), str(tmp_path / "store"), str(tmp_path / "out")]
            every = [
                subprocess.Popen(
                    [*command, str(rank), *more],
                    stderr=subprocess.PIPE,
                    text=True,
                    env=os.environ | {"OMP_NUM_THREADS": "1"},
                )
                for rank in range(world)
            ]
            try:
                errors = [rank.communicate(timeout=200)[1] for rank in every]
            finally:
                for rank in every:
                    rank.kill()
            assert not any(rank.returncode for rank in every), errors
            assert flush(server.host, server.port)
        return Database(tmp_path / "x.db")

    return run


@pytest.mark.long
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
            assert steps["epoch"].tolist() == [0, 3, 6, 8]  # the last look is after 8 calls
            assert set(steps["n"].tolist()) == {40}
        left_out = ("repeated", "too_late")  # too late if the second process was much slower
        repeated = {notice["run"] for notice in database.notices() if notice["code"] in left_out}
        assert repeated == {"ddp None", "ddp 3"}


@pytest.mark.slow
def test_model_sharded_over_a_mesh_of_two_axes(ranks, tmp_path):
    """HSDP: 2 × 2 processes, of which one sends; sequence parallelism is refused, alone and inside."""
    with ranks(TWO_AXES, world=4) as database:
        means = database.points("hsdp", "Sequential").where(score="mean", address="0")
        assert not [notice for notice in database.notices() if notice["level"] == "error"]
    for rank in range(4):
        found = json.loads((tmp_path / f"out.{rank}").read_text())
        assert (found["same"], found["troubles"]) == (True, 0)
        for name in ("sequence", "both"):
            assert "sequence parallelism: layers compute some of their positions" in found[name]
            assert "its parameter '0.weight' shows it" in found[name]
    assert means["epoch"].tolist() == [0, 1, 2]
    assert means["n"].tolist() == [40, 40, 40]
    assert means["value"][0] == pytest.approx(found["untrained"], rel=1e-5)


@pytest.mark.long
def test_callbacks_begin_where_the_model_can_run(ranks, tmp_path):
    """In every process of a sharded model with a probe set, else in the first; the set is sent once."""
    with ranks(CALLBACKS) as database:
        first, second = (json.loads((tmp_path / f"out.{rank}").read_text()) for rank in range(2))
        assert set(first.values()) == {True}
        assert second == {name: name in ("fsdp1 1", "fsdp2 1") for name in first}
        for name in first:
            means = database.points(name, "Sequential").where(score="mean", address="0")
            with_set = name.endswith("1")
            assert means["epoch"].tolist() == ([0, 1, 2] if with_set else [1, 2]), name
            assert set(means["n"].tolist()) == {40 if with_set else 20}, name
        assert "repeated" not in {notice["code"] for notice in database.notices()}


@pytest.mark.long
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
        assert "tensor parallelism: layers compute a part of their features" in found["tensor parallel"]
        assert "its parameter '0.weight' shows it" in found["tensor parallel"]
        assert found["same"]
        assert found["troubles"] == 1
    assert means["epoch"].tolist() == [0, 2]  # the untrained model, and the second epoch, which ended in both


@pytest.mark.long
def test_process_that_begins_when_the_others_have_left_is_of_the_same_training(ranks):
    with ranks(LATE) as database:
        for own in (True, False):
            means = database.points(f"late {own}", "net").where(score="mean", address="")
            assert means["epoch"].tolist() == ([1, 2] if own else [0, 1, 2])
            counts = means["n"].tolist()
            assert counts[-2:] == [40, 40]
            assert counts[:-2] == [20] * (not own)  # older epochs are not waited for
            assert [note for note in means["note"] if note] == ["1 of 2 ranks"] * (not own)
        assert not {notice["code"] for notice in database.notices()} & {"restarted", "superseded"}


def unsharded_means() -> dict[tuple[str, int], float]:
    """Return what torch computes in one process: means of the ReLU's output, by passes and epoch."""
    rows = torch.randn(40, 8, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    found = {("set", 0): net[:2](rows).mean().item()}
    for epoch in (1, 2):
        own = []
        for batch in rows.split(20):
            own.append(net[:2](batch).mean().item())
            optimizer.zero_grad()
            net(batch).square().mean().backward()
            optimizer.step()
        found["own", epoch] = sum(own) / 2
        found["set", epoch] = net[:2](rows).mean().item()
    return found


@pytest.mark.long
def test_model_that_is_split_after_probe_is_right_or_refused(ranks, tmp_path):
    """Before, half of the features were scored as all, or the process ended by a signal in torch."""
    expected = unsharded_means()
    with ranks(ORDERS) as database:
        means = {
            run: database.points(run, "net").where(score="mean", kind="output", address="1")
            for run in {one["run"] for one in database.runs()}
        }
    first, second = (json.loads((tmp_path / f"out.{rank}").read_text()) for rank in range(2))
    (alone,) = first.pop("alone")
    assert "Several processes share Sequential since probe()" in alone
    assert (second.pop("alone"), means.get("alone")) == ([], None)
    assert first == second
    recorded = set()
    for run, said in first.items():
        assert len(said) <= 1, run
        if (
            said and run != "fsdp1 views, parameter, probed before"
        ):  # where nothing shows the shards in a call
            assert run not in means, run
            continue
        recorded.add(run)
        of = "set" if "set" in run or "ranks" in run else "own"
        epochs = [0, 1, 2] if of == "set" else [1, 2]
        assert means[run]["epoch"].tolist() == epochs, run
        for epoch, count, note, value in zip(
            epochs, *(means[run][field].tolist() for field in ("n", "note", "value")), strict=True
        ):
            if count != 40:  # an epoch of milliseconds may be over before the other process sent its share
                assert ("ranks" in run, count, note) == (True, 20, "1 of 2 ranks"), run
                continue
            assert value == pytest.approx(expected[of, epoch], rel=1e-5), run
    sharded = ("fsdp2", "fsdp1", "fsdp1 views")
    after = {f"{how}, {what}, probed after" for how in sharded for what in ("own", "set", "ranks")}
    assert recorded == {
        *after,
        *(f"{how}, own, probed before" for how in sharded),
        "fsdp1 views, parameter, probed before",
    }
    for how, what, why in (
        (
            "tensor",
            "own",
            "Sequential is split by tensor parallelism: layers compute a part of their features",
        ),
        ("tensor", "parameter", "its parameter '0.weight' shows it"),
        ("tensor", "set", "It cannot be probed"),
        ("tensor", "ranks", "It cannot be probed"),
        ("fsdp2", "parameter", "inds may not be 'parameter' for Sequential, whose parameters are sharded"),
        ("fsdp1", "parameter", "inds may not be 'parameter' for Sequential, whose parameters are sharded"),
        (
            "fsdp1 views",
            "parameter",
            "inds may not be 'parameter' for Sequential, whose parameters are sharded",
        ),
    ):
        for order in ("before", "after"):
            assert why in first[f"{how}, {what}, probed {order}"][0]
    for what in ("set", "ranks"):
        assert "Call probe() after fully_shard" in first[f"fsdp2, {what}, probed before"][0]
        for how in ("fsdp1", "fsdp1 views"):
            assert "Pass the FullyShardedDataParallel" in first[f"{how}, {what}, probed before"][0]


@pytest.mark.long
def test_probe_set_under_ddp_has_no_faults(ranks, tmp_path):
    """Before, the second process said that nothing was recorded, of what it had sent."""
    with ranks(UNDER_DDP):
        for rank in range(2):
            found = json.loads((tmp_path / f"out.{rank}").read_text())
            assert found == {"ddp 0": [[], True], "ddp 1": [[], True]}
