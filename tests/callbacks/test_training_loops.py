"""Training loops of Lightning and transformers, in an environment that has them (``make loops``)."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import subprocess
import sys
from collections import Counter, defaultdict

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import intus
from intus.monitoring import flush, register_targets
from intus.serving.run import Server
from intus.storage.database import Database

pytestmark = pytest.mark.loops

torch.manual_seed(0)
ROWS = torch.randn(96, 4)
LABELS = (ROWS[:, 0] > 0).long()
SET = (ROWS[:48], {"sign": LABELS[:48]})
#: The same for transformers.
ITEMS = [{"x": x, "labels": y} for x, y in zip(ROWS, LABELS, strict=True)]


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


class Net(nn.Module):
    """The network as transformers' Trainer calls it."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x, labels=None):
        output = {"logits": self.net(x)}
        return output if labels is None else {"loss": F.cross_entropy(output["logits"], labels)} | output


def trainer_arguments(folder, **more):
    """Return what transformers' Trainer is told in these tests, and more."""
    from transformers import TrainingArguments

    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "use_cpu": True}
    loop = {"num_train_epochs": 3, "per_device_train_batch_size": 16, "learning_rate": 0.05}
    columns = {"eval_strategy": "epoch", "remove_unused_columns": False}
    return TrainingArguments(output_dir=str(folder / "out"), **quiet, **loop, **columns, **more)


@pytest.mark.filterwarnings("default")
def test_lightning(tmp_path):
    import lightning

    from intus.callbacks import LightningProbe

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def training_step(self, batch, index):
            return F.cross_entropy(self.net(batch[0]), batch[1])

        validation_step = training_step

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.05)

    loader = DataLoader(TensorDataset(ROWS, LABELS), batch_size=16, shuffle=True)
    with Server(database=tmp_path / "x.db", port=0) as server:
        options = {"max_epochs": 3, "logger": False, "enable_checkpointing": False, "accelerator": "cpu"}
        quiet = {"enable_progress_bar": False, "enable_model_summary": False}
        callback = LightningProbe(server.host, server.port, of="net", run="r", probe_set=SET)
        module = Module()
        lightning.Trainer(callbacks=[callback], **options, **quiet).fit(module, loader, loader)
        assert not any(one._forward_hooks for one in module.modules())
        half = LightningProbe(server.host, server.port, of="net", run="half", probe_set=SET)
        lightning.Trainer(callbacks=[half], precision="bf16-true", **options, **quiet).fit(Module(), loader)
        passes = LightningProbe(server.host, server.port, of="net", run="passes", block=True)
        register_targets(server.host, server.port, name="sign", targets=LABELS, run_pattern="passes")
        lightning.Trainer(callbacks=[passes], **options, **quiet).fit(module, loader, loader)
    with Database(tmp_path / "x.db") as database:
        probed = database.points("r", "Sequential").where(score="linear_f1", target="sign")
        assert set(probed["epoch"].tolist()) == {0, 1, 2, 3}
        assert callback.watch.status()["faults"] == []  # readable after the training
        halved = database.points("half", "Sequential").where(score="linear_f1", target="sign")
        assert set(halved["epoch"].tolist()) == {0, 1, 2, 3}  # before, nothing was recorded
        means = database.points("passes", "Sequential").where(score="mean", address="2")
        assert set(means["kind"].tolist()) == {"output", "output@eval"}
        assert set(means["n"].tolist()) == {96}  # the sanity check is not recorded
        matched = database.points("passes", "Sequential").where(score="lda_f1", kind="output", address="0")
        assert matched["epoch"].tolist() == [1, 2, 3]  # before, the sampler's indices of epoch 1 were missed


STOPS = ["max_steps", "should_stop", "an exception", "none"]
VALIDATIONS = {
    "none": None,
    "with a sanity check": {},
    "without": {"num_sanity_val_steps": 0},
    "every 2 epochs": {"check_val_every_n_epoch": 2},
}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("stop", STOPS)
def test_epoch_inside_of_which_lightning_stops_is_a_part(tmp_path, stop):
    """Before, the note was missing if Lightning ran its sanity check, which leaves an iterator open."""
    import lightning

    from intus.callbacks import LightningProbe

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def training_step(self, batch, index):
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch, index):
            self.net(batch[0])

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.05)

    class Stop(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            if trainer.global_step == 9 and stop == "an exception":
                raise RuntimeError("stopped")
            if trainer.global_step == 9 and stop == "should_stop":
                trainer.should_stop = True

    data = TensorDataset(ROWS, LABELS)
    options = {"logger": False, "enable_checkpointing": False, "accelerator": "cpu", "max_epochs": 3}
    options |= {"enable_progress_bar": False, "enable_model_summary": False}
    options |= {"max_steps": 9, "max_epochs": -1} if stop == "max_steps" else {}
    with Server(database=tmp_path / "x.db", port=0) as server:
        for name, validation in VALIDATIONS.items():
            probe = LightningProbe(server.host, server.port, of="net", run=name, block=True)
            trainer = lightning.Trainer(callbacks=[Stop(), probe], **options, **(validation or {}))
            loaders = DataLoader(data, 16, shuffle=True), DataLoader(TensorDataset(ROWS[:64] + 1), 16)
            with contextlib.suppress(RuntimeError):
                trainer.fit(Module(), loaders[0], None if validation is None else loaders[1])
            assert flush(server.host, server.port)
    for name in VALIDATIONS:
        table = intus.runs(str(tmp_path / "x.db"))[name].scores(score="mean")
        table = table[(table.address == "2") & (table["mode"] == "train")]
        found = {row.epoch: (row.n, "stopped inside" in row.note) for row in table.itertuples()}
        truth = {1: (96, False), 2: (48, True)} if stop != "none" else dict.fromkeys([1, 2, 3], (96, False))
        assert found == truth, name


@pytest.mark.filterwarnings("default")
def test_transformers_trainer(tmp_path):
    from transformers import Trainer

    from intus.callbacks import TrainerProbe

    with Server(database=tmp_path / "x.db", port=0) as server:
        arguments = trainer_arguments(tmp_path)
        model = Net()
        with torch.no_grad():
            untrained = float(model.net(SET[0]).mean())
        probes = [
            TrainerProbe(server.host, server.port, run="r", probe_set=({"x": SET[0]}, SET[1])),
            TrainerProbe(server.host, server.port, run="passes", block=True, wait=False),
        ]
        register_targets(server.host, server.port, name="sign", targets=LABELS, run_pattern="passes")
        Trainer(model, arguments, train_dataset=ITEMS, eval_dataset=ITEMS, callbacks=probes).train()
        assert not any(one._forward_hooks for one in model.modules())
    with Database(tmp_path / "x.db") as database:
        probed = database.points("r", "Net").where(score="linear_f1", target="sign", address="net.2")
        means_of_set = database.points("r", "Net").where(score="mean", address="net.2")
        assert probed["epoch"].tolist() == [0, 1, 2, 3]
        assert abs(untrained - means_of_set["value"][0]) < 1e-5
        assert probed["value"][-1] > 0.8
        means = database.points("passes", "Net").where(score="mean", address="net.2")
        assert sorted(
            zip(means["epoch"].tolist(), means["kind"].tolist(), means["n"].tolist(), strict=True)
        ) == [(epoch, kind, 96) for epoch in (1, 2, 3) for kind in ("output", "output@eval")]
        matched = database.points("passes", "Net").where(score="lda_f1", target="sign", address="net.2")
        trained = matched.where(kind="output")
        assert trained["epoch"].tolist() == [1, 2, 3]  # matched by the sampler's indices
        assert set(trained["note"].tolist()) == {""}
        assert trained["value"][-1] > 0.65


TAGGER = """
import sys, tempfile, torch
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainingArguments
import intus.callbacks
random = torch.Generator().manual_seed(0)
ids = torch.randint(5, 60, (120, 9), generator=random)
ids[::2, 7:] = 0
mask = (ids > 0).long()
tags = torch.where(mask > 0, ids % 3, -100)
word = [[int(one > 30) if one else None for one in row] for row in ids.tolist()]
data = [{"input_ids": a, "attention_mask": b, "labels": c} for a, b, c in zip(ids, mask, tags)]
torch.manual_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
model = BertForTokenClassification(BertConfig(vocab_size=60, num_labels=3, **sizes))
held_out = {"input_ids": ids[80:], "attention_mask": mask[80:]}, {"tag": tags[80:], "high": word[80:]}
probes = [intus.callbacks.TrainerProbe(port=int(sys.argv[1]), run="r", probe_set=held_out, wait=False)]
quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "use_cpu": True}
loop = {"num_train_epochs": 2, "per_device_train_batch_size": 16, "learning_rate": 2e-3}
arguments = TrainingArguments(output_dir=tempfile.mkdtemp(), **quiet, **loop)
Trainer(model, arguments, train_dataset=data[:80], callbacks=probes).train()
print(sum(float(p.detach().double().sum()) for p in model.parameters()))
"""


def test_tagger_of_transformers_needs_three_lines_and_trains_the_same(tmp_path):
    """Beside it, tests/monitoring/test_three_lines.py has the other scripts."""
    ours = [line for line in TAGGER.splitlines() if "intus" in line or line.startswith("held_out")]
    assert len(ours) <= 3
    plain = "\n".join(line for line in TAGGER.splitlines() if line not in ours).replace(
        "callbacks=probes", ""
    )
    with Server(database=tmp_path / "x.db", port=0) as server:

        def run(text):
            command = [sys.executable, "-W", "ignore", "-c", text, str(server.port)]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
            assert done.returncode == 0, done.stderr
            return done.stdout.splitlines()[-1]

        assert run(TAGGER) == run(plain)
        assert flush(server.host, server.port)
    with Database(tmp_path / "x.db") as database:
        scores = database.points("r", "BertForTokenClassification").where(score="linear_f1")
        layers = set(database.addresses("r", "BertForTokenClassification"))
    assert set(scores["target"].tolist()) == {"tag", "high"}
    assert len(layers) > 30
    for layer in layers - {"bert.embeddings.position_embeddings"}:  # which has one row for all sentences
        assert set(scores.where(address=layer, target="tag")["epoch"].tolist()) == {0, 1, 2}, layer


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("accumulated", [1, 4])
def test_two_lines_find_the_epochs_of_the_trainer(tmp_path, kept, accumulated):
    """Its optimizer is fused by default, which raises no ``Tensor._version``: before, all was one epoch."""
    from transformers import Trainer

    import intus

    arguments = trainer_arguments(tmp_path, gradient_accumulation_steps=accumulated)
    model = Net()
    with Server(database=tmp_path / "x.db", port=0) as server:
        watch = intus.probe(model, server.host, server.port, block=True)
        trainer = Trainer(model, arguments, train_dataset=ITEMS, eval_dataset=ITEMS)
        trainer.train()
        assert trainer.optimizer.optimizer.defaults["fused"]
        watch.remove()
    rows = Counter()
    for record in kept:
        if record.address == "net.2":
            rows[record.epoch, record.mode] += record.rows
    assert rows == {(epoch, mode): 96 for epoch in (1, 2, 3) for mode in ("train", "eval")}


class Truth:
    """Means and rows of the network's output by epoch and mode, from a hook and the loop's own counts."""

    def __init__(self, module):
        self.epoch, self.is_on, self.values, self.ends = 0, False, defaultdict(list), {}
        module.register_forward_hook(self.saw)

    def saw(self, module, inputs, output):
        if self.is_on and len(output) != len(SET[0]):  # not of the probe set
            mode = "train" if torch.is_grad_enabled() else "eval"
            self.values[self.epoch, mode].append(output.detach().double())

    def show(self, model):
        with torch.no_grad():
            self.is_on, was_on = False, self.is_on
            self.ends[self.epoch] = float(model(SET[0]).mean())
            self.is_on = was_on

    def passes(self):
        joined = {key: torch.cat(values) for key, values in self.values.items()}
        return {
            key: (len(values), pytest.approx(float(values.mean()), abs=2e-3))
            for key, values in joined.items()
        }


def of_trainer(truth):
    """Return a callback that tells what the Trainer of transformers counts."""
    from transformers import TrainerCallback

    class Counts(TrainerCallback):
        def on_train_begin(self, args, state, control, **others):
            self.begun, truth.epoch, truth.is_on = int(state.epoch or 0), state.epoch or 0, True

        def on_epoch_begin(self, args, state, control, **others):
            self.begun += 1
            truth.epoch = self.begun

        def on_epoch_end(self, args, state, control, model=None, **others):
            truth.show(model.net)

        def on_train_end(self, args, state, control, **others):
            truth.is_on = False

    return Counts()


class Stream(torch.utils.data.IterableDataset):
    """Has no length, so that the Trainer's ``state.epoch`` is no number of epochs."""

    def __iter__(self):
        return iter(ITEMS)


#: A step of the 6 per epoch at which a training ends that is resumed; None of one that is not.
BEST = {"load_best_model_at_end": True, "save_strategy": "epoch", "greater_is_better": True}
TRAINERS = {
    "eval in steps": (None, {"eval_strategy": "steps", "eval_steps": 4}),
    "eval on start": (None, {"eval_on_start": True}),
    "drop last": (None, {"dataloader_drop_last": True, "per_device_train_batch_size": 20}),
    "bf16": (None, {"bf16": True}),
    "best at end": (None, BEST | {"metric_for_best_model": "eval_loss"}),  # the first, which is the worst
    "accumulated": (None, {"gradient_accumulation_steps": 8, "per_device_train_batch_size": 4}),
    "stream": (None, {"max_steps": 18}),
    "resumed in epoch 1": (2, {}),
    "resumed in epoch 2, early": (7, {}),
    "resumed in epoch 2, late": (10, {}),
    "resumed after epoch 1": (6, {}),
    "resumed without skips": (8, {"ignore_data_skip": True}),
}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("how", list(TRAINERS))
def test_trainer_has_the_epochs_and_means_of_hooks(tmp_path, how):
    """A training that was resumed at 1.54 had no epoch 2, and what was left of it was in epoch 3."""
    from transformers import Trainer

    from intus.callbacks import TrainerProbe

    step, options = TRAINERS[how]
    model = Net()
    truth = Truth(model.net)
    data = {"train_dataset": Stream() if how == "stream" else ITEMS, "eval_dataset": ITEMS[:80]}
    arguments = dataclasses.replace(trainer_arguments(tmp_path), **options)
    with Server(database=tmp_path / "x.db", port=0) as server:
        probes = [
            TrainerProbe(server.host, server.port, run="passes", block=True, wait=False),
            TrainerProbe(server.host, server.port, run="set", probe_set=({"x": SET[0]}, SET[1]), wait=False),
        ]
        begun = {}
        if step is not None:
            saves = {"max_steps": step, "save_strategy": "steps", "save_steps": step}
            Trainer(model, dataclasses.replace(arguments, **saves), **data).train()
            begun = {"resume_from_checkpoint": f"{arguments.output_dir}/checkpoint-{step}"}
        trainer = Trainer(model, arguments, callbacks=[of_trainer(truth), *probes], **data)
        trainer.train(**begun)
        trainer.evaluate()  # not recorded
        assert flush(server.host, server.port)
        statuses = [one.watch.status() for one in probes]
    with Database(tmp_path / "x.db") as database:
        means = database.points("passes", "Net").where(score="mean", address="net")
        said = {(row["epoch"], row["mode"]): (row["n"], row["value"]) for row in means}
        shown = database.points("set", "Net").where(score="mean", address="net")
    assert said == truth.passes()
    ends = dict(zip(shown["epoch"].tolist(), shown["value"].tolist(), strict=True))
    if step is None:
        assert ends.pop(0)
    assert ends == pytest.approx(truth.ends, abs=2e-3)
    assert [one["faults"] for one in statuses] == [[], []]
    part = step is not None and step % 6 > 0 and how != "resumed without skips"  # which has all data again
    assert part == ("is a part" in statuses[0]["epochs"])
    assert not part or f"Epoch {step // 6 + 1} is a part" in statuses[0]["epochs"]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("batches", "before", "then", "step"), [(6, 1, 2, 9), (6, 2, 1, 3), (5, 1, 2, 6)])
def test_trainer_resumed_with_other_accumulation_has_the_epochs_of_the_trainer(
    tmp_path, batches, before, then, step
):
    """The epoch of the checkpoint is that of its own accumulation: a whole epoch was said to be a part."""
    from transformers import Trainer, TrainerCallback

    from intus.callbacks import TrainerProbe

    epochs = []

    class Epochs(TrainerCallback):
        def on_step_end(self, args, state, control, **others):
            epochs.append(math.ceil(state.epoch))

    rows = batches * 16
    model, data = Net(), {"train_dataset": ITEMS[:rows]}
    arguments = dataclasses.replace(
        trainer_arguments(tmp_path),
        eval_strategy="no",
        per_device_train_batch_size=16,
        save_strategy="steps",
        save_steps=step,
    )
    first = {"max_steps": step, "gradient_accumulation_steps": before}
    Trainer(model, dataclasses.replace(arguments, **first), **data).train()
    per_epoch = math.ceil(batches / then)
    rest = {"max_steps": (step // per_epoch + 2) * per_epoch, "gradient_accumulation_steps": then}
    with Server(database=tmp_path / "x.db", port=0) as server:
        watch = TrainerProbe(server.host, server.port, run="r", block=True)
        arguments = dataclasses.replace(arguments, **rest)
        trainer = Trainer(model, arguments, callbacks=[Epochs(), watch], **data)
        trainer.train(resume_from_checkpoint=f"{arguments.output_dir}/checkpoint-{step}")
        assert flush(server.host, server.port)
    with Database(tmp_path / "x.db") as database:
        means = database.points("r", "Net").where(score="mean", address="net")
        found = {row["epoch"]: (row["n"], row["note"]) for row in means}
    assert set(found) == set(epochs)
    wholes = {epoch for epoch in found if epochs.count(epoch) == per_epoch}
    assert wholes
    for epoch, (n, note) in found.items():
        assert (n == rows) == (not note) == (epoch in wholes)
