"""Probes of trainings on a GPU: the same training, the right values, bounded memory, a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from cuda_models import DEVICE, ON_GPU, Decoder, Residual, images, tokens, wait
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from intus.core.record import KINDS
from intus.monitoring import flush, probe
from intus.serving.run import Server
from intus.storage.database import Database

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method"),  # torch's own, when it compiles
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream"),  # and when it makes a graph
]
HOST = "127.0.0.1"
DIGITS = load_digits()
IMAGES, LABELS = torch.tensor(DIGITS.data, dtype=torch.float32) / 16, DIGITS.target
SCORES = ("mean", "std", "norm", "max", "sparsity", "linear_f1", "lda_f1", "linear_accuracy")


@pytest.fixture(autouse=True)
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def trained(kind, options):
    """Return losses, parameters and random state of a training, with a probe if it has options."""
    torch.manual_seed(0)
    transformer = "transformer" in kind
    model = (Decoder() if transformer else Residual()).to(DEVICE)
    x = (tokens(32) if transformer else images(32)).to(DEVICE)
    y = torch.randint(0, 10, (32,), device=DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=ON_GPU)
    half = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(kind.split()[-1])
    scaler = torch.amp.GradScaler(DEVICE, enabled=half is torch.float16)
    watch = probe(model, HOST, **options) if options else None
    called = torch.compile(model) if "compiled" in kind else model
    losses = []
    for step in range(12):
        if watch is not None:
            watch.epoch = step // 4
        rows = slice(step % 4 * 8, step % 4 * 8 + 8)
        with torch.autocast(DEVICE, dtype=half) if half is not None else nullcontext():
            out = called(x[rows])
            loss = F.cross_entropy(out[:, -1] if transformer else out, y[rows])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    status = None
    if watch is not None:
        watch.remove()
        status = watch.status()
    state = torch.cuda.get_rng_state() if ON_GPU else torch.get_rng_state()
    return [one.item() for one in losses], [p.detach().cpu() for p in model.parameters()], state, status


@pytest.mark.parametrize(
    "kind",
    ["cnn", "cnn autocast float16", "transformer", "transformer autocast bfloat16", "transformer compiled"],
)
@pytest.mark.parametrize("how", ["every kind", "probe set", "default"])
def test_training_is_bitwise_identical(server, kind, how):
    options = {"port": server.port}
    if how == "every kind":
        options |= {"kinds": KINDS, "budget": 1000}
    if how == "probe set":
        torch.manual_seed(9)
        given = tokens(40) if "transformer" in kind else images(40)
        options |= {"probe_set": (given, {"odd": torch.arange(40) % 2})}
    losses, weights, state, _ = trained(kind, None)
    others = trained(kind, options)
    assert losses == others[0]
    assert all(map(torch.equal, weights, others[1]))
    assert torch.equal(state, others[2])
    assert others[3]["troubles"] == 0, others[3]
    assert flush(HOST, server.port)
    if "compiled" not in kind or how == "probe set":
        assert others[3]["recorded"] > 0


class Overwriting(nn.Module):
    """Layers whose outputs are overwritten in the pass and after it."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(512, 2048), nn.Linear(2048, 512)

    def forward(self, x):
        a = self.one(x)
        b = self.two(a)
        a.zero_()
        return b


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_values_are_those_of_the_pass(server, dtype):
    """Values that are overwritten at once, on any stream, are sent as they were."""
    torch.manual_seed(0)
    model = Overwriting().to(DEVICE, dtype)
    wanted = []
    model.one.register_forward_hook(lambda _m, _a, out: wanted.append(out.detach().clone()))
    model.two.register_forward_hook(lambda _m, _a, out: wanted.append(out.detach().clone()))
    side = torch.cuda.Stream() if ON_GPU else None
    with probe(model, HOST, server.port, budget=1000, which=["one", "two"], queue_mb=256), torch.no_grad():
        for step in range(6):
            x = torch.randn(256, 512, device=DEVICE).to(dtype)
            if side is not None and step % 2:
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    model(x).zero_()
                torch.cuda.current_stream().wait_stream(side)
            else:
                model(x).zero_()
    assert flush(HOST, server.port)
    records = server.records()
    assert len(records) == len(wanted) == 12
    for record, value in zip(records, wanted, strict=True):
        value = value.float().cpu().numpy()
        if record.projected_from is None:
            assert np.array_equal(record.array.astype(np.float32), value)
        else:
            norms = np.linalg.norm(value, axis=1)
            assert record.summary[:, 3] == pytest.approx(norms, rel=1e-3)


def test_memory_of_the_device_is_bounded(server):
    """A look at all layers takes the memory of a few of them beside the model's."""
    layers = [nn.Sequential(nn.Linear(1536, 1536), nn.ReLU()) for _ in range(12)]
    model, x = nn.Sequential(*layers).to(DEVICE), torch.randn(20_000, 1536)
    if not ON_GPU:
        return
    layer = x.nbytes
    labels = {"sign": (x[:, 0] > 0).tolist()}

    def peak(run):
        wait()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        wait()
        return torch.cuda.max_memory_allocated() - before

    with torch.no_grad():
        plain = peak(lambda: model(x.to(DEVICE)))
    with probe(model, HOST, server.port, probe_set=(x, labels)) as watch:
        watch.run_probe_set()
        watch.epoch = 1
        assert peak(watch.run_probe_set) <= plain + 6 * layer
        watch.epoch = 2
        before = torch.cuda.memory_allocated()
        watch.run_probe_set()
        assert torch.cuda.memory_allocated() - before < 1 << 20
        assert watch.status()["troubles"] == 0


def table_of(database, run):
    results = database.points(run, "m")
    columns = zip(
        *(results[name].tolist() for name in ("address", "epoch", "score", "target", "value")), strict=True
    )
    return {(address, epoch, score, target): value for address, epoch, score, target, value in columns}


def net(width=48):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_of_statistics_are_those_of_rows(tmp_path, dtype):
    """The default on a GPU is statistics; a server scores them as it scores rows of the same model."""
    rows = IMAGES.repeat(4, 1) + 0.01 * torch.randn(4 * 1797, 64, generator=torch.Generator().manual_seed(0))
    labels = {"digit": np.tile(LABELS, 4)}
    with Server(database=tmp_path / "x.db", port=0) as server:
        for run, choice in (("rows", False), ("sums", "auto")):
            model = net().to(DEVICE, dtype)
            options = {"run": run, "name": "m", "probe_set": (rows.to(dtype), labels), "statistics": choice}
            with probe(model, HOST, server.port, **options) as watch:
                watch.run_probe_set()
            assert watch.status()["troubles"] == 0
        assert flush(HOST, server.port)
    with Database(tmp_path / "x.db") as database:
        of_rows, of_sums = (table_of(database, run) for run in ("rows", "sums"))
    assert of_rows.keys() == of_sums.keys()
    compared = [key for key in of_rows if key[2] in SCORES]
    assert len(compared) > 10
    for key in compared:
        exact = key[2] not in ("linear_f1", "linear_accuracy")  # of more than 6,000 rows these read some
        assert of_sums[key] == pytest.approx(of_rows[key], rel=1e-3 if exact else 0.03, abs=1e-3), key


def serve(database):
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "intus", "serve", "--port", "0", "--database", database],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for line in server.stdout:
        if "http://" in line:
            return server, int(line.split("http://127.0.0.1:")[1].split("/")[0].split("?")[0])
    raise AssertionError("the server did not start")


def test_server_in_another_process(tmp_path):
    process, port = serve(tmp_path / "x.db")
    try:
        model = net().to(DEVICE)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        x, y = IMAGES.to(DEVICE), torch.tensor(LABELS, device=DEVICE)
        with probe(model, HOST, port, run="r", name="m", probe_set=(IMAGES, {"digit": LABELS})) as watch:
            watch.run_probe_set()
            for watch.epoch in range(1, 4):
                for rows in torch.randperm(1797).split(200):
                    optimizer.zero_grad()
                    F.cross_entropy(model(x[rows.to(DEVICE)]), y[rows.to(DEVICE)]).backward()
                    optimizer.step()
        assert flush(HOST, port)
        assert watch.status()["troubles"] == 0
    finally:
        process.terminate()
        process.communicate(timeout=60)
    with Database(tmp_path / "x.db") as database:
        found = table_of(database, "r")
    assert {key[1] for key in found} == {0, 1, 2, 3}
    assert found["2", 3, "linear_f1", "digit"] > 0.9 > found["0", 0, "linear_f1", "digit"] - 0.1


@pytest.mark.parametrize("what", ["forward", "step"])
def test_captured_trainings_are_the_same_and_looked_at(server, what):
    """A CUDA graph is not recorded and not broken, and a probe set shows what it trained."""
    if not ON_GPU:
        return

    def train(options):
        torch.manual_seed(0)
        model = net().to(DEVICE)
        x, y = IMAGES[:128].to(DEVICE), torch.tensor(LABELS[:128], device=DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if what == "forward":  # torch refuses modules with hooks here, so it comes before the probe
            run = torch.cuda.make_graphed_callables(model, (x,))
        watch = probe(model, HOST, server.port, **options) if options else None
        if what == "forward":

            def step():
                optimizer.zero_grad()
                F.cross_entropy(run(x), y).backward()
                optimizer.step()
        else:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())

            def eager():
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(model(x), y).backward()
                optimizer.step()

            with torch.cuda.stream(side):
                for _ in range(3):
                    eager()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                eager()
            step = graph.replay
        for epoch in range(3):
            if watch is not None:
                watch.epoch = epoch
            for _ in range(4):
                step()
        if watch is not None:
            watch.remove()
            assert watch.status()["troubles"] == 0, watch.status()
        return [p.detach().cpu() for p in model.parameters()]

    plain = train(None)
    looked = train({"probe_set": (IMAGES, {"digit": LABELS}), "run": "set"})
    every = train({"kinds": KINDS, "budget": 1000, "run": "every"})
    assert all(map(torch.equal, plain, looked))
    assert all(map(torch.equal, plain, every))
    assert flush(HOST, server.port)
    epochs = {one.epoch for one in server.records() if one.run == "set"}
    assert epochs == {0, 1, 2}


RANK = """
import sys, torch, intus
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from sklearn.datasets import load_digits

rank, world, port, kind, device, store = *map(int, sys.argv[1:4]), *sys.argv[4:]
torch.distributed.init_process_group(kind, init_method=f"file://{store}", rank=rank, world_size=world)
digits = load_digits()
images, labels = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10)).to(device)
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ranks = {"ranks": (rank, world)} if world > 1 else {}
watch = intus.probe(model, port=port, run=kind, name="m", probe_set=(images, {"digit": labels}), **ranks)
watch.run_probe_set()
for epoch in range(1, 3):
    watch.epoch = epoch
    for rows in torch.arange(rank, 1797 - 1797 % world, world).split(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[rows].to(device)), labels[rows].to(device)).backward()
        optimizer.step()
watch.remove()
assert watch.status()["troubles"] == 0, watch.status()
torch.distributed.barrier()
assert intus.flush(port=port)
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize(("kind", "world"), [("gloo", 2), ("nccl", 1)])
def test_processes_share_a_gpu(tmp_path, kind, world):
    """Two processes on one GPU give the scores of one; NCCL takes one process for each GPU."""
    kind = kind if ON_GPU else "gloo"
    with Server(database=tmp_path / "x.db", port=0) as server:
        arguments = [str(world), str(server.port), kind, DEVICE, str(tmp_path / "store")]
        ranks = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", RANK, str(rank), *arguments],
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            for rank in range(world)
        ]
        errors = [rank.communicate(timeout=150)[1] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * world, errors
        model = net().to(DEVICE)
        with probe(
            model, HOST, server.port, run="one", name="m", probe_set=(IMAGES, {"digit": LABELS})
        ) as watch:
            watch.run_probe_set()
        assert flush(HOST, server.port)
    with Database(tmp_path / "x.db") as database:
        found, one = (table_of(database, run) for run in (kind, "one"))
    assert {key[1] for key in found} == {0, 1, 2}
    compared = [key for key in one if key[2] in SCORES and key[1] == 0]
    assert len(compared) > 10
    for key in compared:
        assert found[key] == pytest.approx(one[key], rel=2e-3, abs=2e-3), key
