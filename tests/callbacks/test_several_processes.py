"""Two processes under Lightning and transformers' Trainer (``make loops``): right scores, equal weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from intus.monitoring import register_targets
from intus.serving.run import Server
from intus.storage.database import Database

pytestmark = pytest.mark.loops

BEGIN = """
import json, logging, os, sys
import torch
from torch import nn
from torch.nn import functional as F

port, kind, out, rank = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(os.environ["RANK"])
random = torch.Generator().manual_seed(0)
rows = torch.randn(96, 4, generator=random)
labels = (rows[:, 0] > 0).long()

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

def weights(model):
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([each.detach().flatten().double() for each in whole]).tolist()

def train_all():
    given = {"plain": None, "set": {"probe_set": SET}, "own": {"block": True}}
    found = {name: train(name, options) for name, options in given.items()}
    open(f"{out}.{rank}", "w").write(json.dumps(found))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # without it gloo may abort at exit (pytorch issue 190489)
"""

LIGHTNING = """
import lightning
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from intus.callbacks import LightningProbe

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
SET = rows[:48], {"sign": labels[:48]}

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net()

    def configure_model(self):
        if kind == "fsdp2" and not hasattr(self.net, "reshard"):
            fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, index):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)

def train(name, options):
    if kind == "ddp":
        strategy = DDPStrategy(process_group_backend="gloo")
    else:
        strategy = ModelParallelStrategy(2, 1, process_group_backend="gloo")  # all are data-parallel
    probes = [] if options is None else [LightningProbe(port=port, run=name, of="net", **options)]
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    where = {"accelerator": "cpu", "devices": 2, "enable_checkpointing": False, "max_epochs": 3}
    module = Module()
    loader = DataLoader(TensorDataset(rows, labels), batch_size=8, shuffle=True)
    lightning.Trainer(callbacks=probes, strategy=strategy, **quiet, **where).fit(module, loader)
    assert not any(one._forward_hooks for one in module.net)
    return weights(module.net)

train_all()
"""

TRAINER = """
from transformers import Trainer, TrainingArguments
from intus.callbacks import TrainerProbe

SET = {"x": rows[:48]}, {"sign": labels[:48]}
data = [{"x": x, "labels": y} for x, y in zip(rows, labels)]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x, labels=None):
        output = {"logits": self.net(x)}
        return output if labels is None else {"loss": F.cross_entropy(output["logits"], labels)} | output

def train(name, options):
    probes = [] if options is None else [TrainerProbe(port=port, run=name, **options)]
    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "remove_unused_columns": False}
    where = {"use_cpu": True, "ddp_backend": "gloo", "num_train_epochs": 3, "learning_rate": 0.05}
    arguments = TrainingArguments(output_dir=f"{out} {name}", per_device_train_batch_size=8, **quiet, **where)
    model = Net()
    Trainer(model, arguments, train_dataset=data, callbacks=probes).train()
    return weights(model)

train_all()
"""


@pytest.mark.parametrize(
    ("script", "kind", "name", "layer"),
    [
        (LIGHTNING, "ddp", "Sequential", "0"),
        (LIGHTNING, "fsdp2", "Sequential", "0"),
        (TRAINER, "ddp", "Net", "net.0"),
    ],
    ids=["lightning ddp", "lightning fsdp2", "transformers ddp"],
)
def test_two_processes(tmp_path, script, kind, name, layer):
    path, out = tmp_path / "train.py", tmp_path / "weights"
    path.write_text(BEGIN + script)
    with Server(database=tmp_path / "x.db", port=0) as server:
        labels = _labels()
        assert register_targets(server.host, server.port, name="sign", targets=labels, run_pattern="^own$")
        command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone"]
        done = subprocess.run(
            [*command, "--nproc-per-node=2", path, str(server.port), kind, out],
            capture_output=True,
            text=True,
            timeout=300,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
    assert "intus: " not in done.stderr + done.stdout
    for rank in range(2):
        weights = json.loads((tmp_path / f"weights.{rank}").read_text())
        assert weights["plain"] == weights["set"] == weights["own"]
    with Database(tmp_path / "x.db") as database:
        scores = {run: database.points(run, name).where(address=layer) for run in ("set", "own")}
        warned = [notice for notice in database.notices() if notice["level"] != "info"]
    # of the training's own passes those of the first process, which has half of the rows
    for run, epochs, note in (("set", [0, 1, 2, 3], ""), ("own", [1, 2, 3], "matched 48 of 96 labels")):
        f1 = scores[run].where(score="linear_f1", target="sign", kind="output")
        assert f1["epoch"].tolist() == epochs
        assert set(scores[run].where(score="mean", kind="output")["n"].tolist()) == {48}
        assert set(f1["note"].tolist()) == {note}
    assert not warned


def _labels():
    import torch

    return torch.randn(96, 4, generator=torch.Generator().manual_seed(0))[:, 0] > 0
