"""Statistics of a probe set's passes, made in the training process: scored as the rows would be."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from intus.backends.torch.row_sums import LateRowSums
from intus.core.errors import InputError
from intus.monitoring import flush, probe, register_targets
from intus.scores import Scorer
from intus.serving.run import Server
from intus.storage.database import Database

DIGITS = load_digits()
IMAGES, LABELS = torch.tensor(DIGITS.data, dtype=torch.float32) / 16, DIGITS.target
SETTLED = ("linear_f1", "linear_accuracy", "lda_f1", "r2", "cka_layer", "cka_epoch", "linear_selectivity")
HOST = "127.0.0.1"
EXACT = ("mean", "mean_abs", "std", "norm", "min", "max", "sparsity", "dead", "nonfinite")


def net(width=48):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


class Tagger(nn.Module):
    """A small model of token ids with labels per token and per item."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.mix = nn.Embedding(30, 16), nn.GRU(16, 20, batch_first=True)
        self.out = nn.Linear(20, 5)

    def forward(self, ids):
        return self.out(self.mix(self.embed(ids))[0])


def table_of(database, run):
    results = database.points(run, "m")
    names = ("address", "epoch", "score", "target", "value", "n", "note")
    columns = zip(*(results[name].tolist() for name in names), strict=True)
    return {(address, epoch, score, target): facts for address, epoch, score, target, *facts in columns}


def compare(rows, sums, scores, flips=1e-3):
    """Check that the results of these scores are equal; returns the number that were compared.

    Rows are rounded to float16, which may flip single predictions: ``flips`` is how much these may change.
    """
    assert rows.keys() == sums.keys()
    chosen = [key for key in rows if key[2] in scores and np.isfinite(rows[key][0])]
    for key in chosen:
        tolerance = 1e-5 if key[2] in EXACT else flips
        assert sums[key][0] == pytest.approx(rows[key][0], rel=tolerance, abs=tolerance), key
        assert sums[key][1] == rows[key][1], key
    return len(chosen)


def train_and_probe(server, statistics, run):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.manual_seed(1)
    sets = {"digit": LABELS, "odd": [int(one) % 2 == 1 for one in LABELS]}
    with probe(
        model, HOST, server.port, run=run, name="m", probe_set=(IMAGES, sets), statistics=statistics
    ) as watch:
        watch.run_probe_set()
        watch.epoch = 1
        for rows in torch.randperm(1797).split(300):
            optimizer.zero_grad()
            F.cross_entropy(model(IMAGES[rows]), torch.tensor(LABELS[rows])).backward()
            optimizer.step()
    assert watch.status()["troubles"] == 0
    return model


@pytest.mark.long
def test_statistics_are_scored_as_rows_and_training_is_the_same(tmp_path):
    with Server(database=tmp_path / "x.db", port=0) as server:
        models = [train_and_probe(server, choice, str(choice)) for choice in (False, True)]
        assert flush(HOST, server.port)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(one, other)
    with Database(tmp_path / "x.db") as database:
        rows, sums = (table_of(database, run) for run in ("False", "True"))
        assert not [one for one in database.notices() if one["level"] != "info"]  # findings are no faults
    assert compare(rows, sums, EXACT + SETTLED) > 100


@pytest.mark.long
def test_labels_of_positions_and_items(tmp_path):
    """Padding (-100) has no label, token ids are types, and both kinds of labels are scored as of rows."""
    rng = np.random.default_rng(0)
    ids = torch.tensor(rng.integers(0, 30, (120, 12)))
    tags = torch.where(torch.tensor(rng.random((120, 12)) < 0.2), -100, ids % 3)
    first = (ids[:, 0] > 14).tolist()
    scores = "default,linear_selectivity"
    with Server(database=tmp_path / "x.db", port=0, scores=scores) as server:
        for choice in (False, True):
            given = (ids, {"tag": tags, "first": first})
            model = Tagger()
            with probe(
                model,
                HOST,
                server.port,
                run=str(choice),
                name="m",
                probe_set=given,
                statistics=choice,
            ) as watch:
                watch.run_probe_set()
        assert flush(HOST, server.port)
    with Database(tmp_path / "x.db") as database:
        rows, sums = (table_of(database, run) for run in ("False", "True"))
    assert compare(rows, sums, EXACT + SETTLED, flips=0.01) > 40
    assert {key[3] for key in sums if key[2] == "linear_f1"} == {"tag", "first"}
    assert any(key[2] == "linear_selectivity" and key[3] == "tag" for key in sums)


def test_only_labels_of_positions_make_positions_the_rows(server):
    tags = torch.randint(0, 3, (20, 12))
    model = Tagger()
    with probe(
        model, HOST, server.port, probe_set=(tags, {"tag": tags}), statistics=True, which="embed"
    ) as watch:
        watch.run_probe_set()
    assert flush(HOST, server.port)
    (record,) = server.records()
    assert record.array.shape == (240, 16)
    assert record.items.tolist() == np.repeat(np.arange(20), 12).tolist()
    assert record.statistics.facts["positions"] is True


def test_automatic_choice(server):
    """On a CPU rows are sent, unless a tensor takes more than its share of the queue."""
    for run, queue_mb in (("small", 16), ("large", 256)):
        model = net(1000)
        with probe(
            model,
            HOST,
            server.port,
            run=run,
            probe_set=(IMAGES, {}),
            queue_mb=queue_mb,
            block=True,
        ) as watch:
            watch.run_probe_set()
        assert flush(HOST, server.port)
    sent = {(one.run, one.address): one.statistics is not None for one in server.records()}
    assert not any(sent["large", address] for address in ("0", "1", "2", ""))
    assert sent["small", "0"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"statistics": "yes", "probe_set": (IMAGES, {})}, "True, False or 'auto'"),
        ({"ranks": (0, 2), "probe_set": (IMAGES, {})}, "Pass probe_set= and run="),
        ({"ranks": (0, 2), "run": "r"}, "Pass probe_set= and run="),
        ({"ranks": (2, 2), "run": "r", "probe_set": (IMAGES, {})}, "ranks must be the rank"),
        ({"ranks": 3, "run": "r", "probe_set": (IMAGES, {})}, "ranks must be the rank"),
        ({"ranks": (0, 9), "run": "r", "probe_set": (IMAGES[:5], {})}, "Give it more rows"),
    ],
)
def test_bad_options_are_refused(unused_port, more, message):
    with pytest.raises(InputError, match=message):
        probe(net(), "127.0.0.1", unused_port, **more)


def test_time_of_a_device_is_paid_once_and_by_the_wall_clock_alone(server, monkeypatch):
    result = LateRowSums.result
    monkeypatch.setattr(LateRowSums, "result", lambda self: replace(result(self), seconds=100.0))
    given = {"probe_set": (IMAGES[:100], {"digit": LABELS[:100]}), "statistics": True, "structure": False}
    model = net()
    with probe(model, HOST, server.port, run="device", **given) as watch:
        tap = watch._tap
        began = tap.sender.busy
        watch.run_probe_set()
        assert tap.sender.drain(20)
        assert 300 <= tap.sender.busy.wall - began.wall < 400  # of three layers; the fourth shares an array
        assert tap.sender.busy.processor - began.processor < 100
        tap.costs.pay_sender()
        tap.sender.count_device(300)  # of kernels that end after the pass
        spent = tap.budget.spent
        tap.costs.pay_sender()
        tap.costs.pay_sender()
        assert 300 - 1e-6 <= tap.budget.spent.wall - spent.wall < 400  # a difference of rounded sums
        assert tap.budget.spent.processor - spent.processor < 100


def test_many_rows_are_sent_as_sums_and_some_rows(server):
    torch.manual_seed(0)
    x = torch.randn(9000, 64)
    labels = (x[:, 0] > 1).tolist()
    model = net()
    with probe(
        model, HOST, server.port, probe_set=(x, {"high": labels}), statistics=True, which="0"
    ) as watch:
        watch.run_probe_set()
    assert flush(HOST, server.port)
    (record,) = server.records()
    assert 4000 < record.rows <= 6144
    assert record.array.dtype == np.float16
    assert record.statistics.facts["rows"] == 9000


@pytest.mark.long
def test_units_of_the_last_pass_are_kept_beside_the_sketch(server):
    model = net(3000)
    labels = (IMAGES[:, 20] > 0.5).tolist()
    for run, more in (("one", {}), ("shared", {"ranks": (0, 2)})):
        given = (IMAGES, {"dark": labels})
        with probe(
            model, HOST, server.port, run=run, probe_set=given, statistics=True, which="0", **more
        ) as watch:
            for watch.epoch in range(2):
                watch.run_probe_set()
        assert flush(HOST, server.port)
    widths = {(one.run, one.epoch): one.array.shape[1] for one in server.records()}
    assert widths == {("one", 0): 1024, ("one", 1): 1088, ("shared", 0): 1024, ("shared", 1): 1024}
    (last,) = [one for one in server.records() if (one.run, one.epoch) == ("one", 1)]
    assert len(set(last.statistics.facts["units"])) == 64


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(64, 3)

    def forward(self, x, scale, *, mask=None):
        return self.one(x) * scale + mask


@pytest.mark.parametrize("choice", [False, "auto"])
def test_ranks_divide_every_input_and_its_rows(server, choice):
    model, found = Pair(), {}
    for rank in range(3):
        given = ({"x": IMAGES, "scale": torch.tensor(2.0), "mask": torch.zeros(1797, 3)}, {"digit": LABELS})
        options = {"probe_set": given, "statistics": choice, "ranks": (rank, 3), "run": "r", "which": "one"}
        with probe(model, HOST, server.port, **options) as watch:
            watch.run_probe_set()
    assert flush(HOST, server.port)
    for record in server.records():
        assert (record.statistics is None) == (choice is False)
        found |= dict(zip(record.items.tolist(), record.array, strict=True))
    assert sorted(found) == list(range(1797))
    if choice is False:
        rows = np.stack([found[item] for item in range(1797)])
        np.testing.assert_allclose(rows, model.one(IMAGES).detach(), rtol=1e-5, atol=1e-6)
    targets = server.messages("/targets")
    assert all(len(message["targets"]) == 1797 for message in targets)


RANK = """
import sys, torch, intus
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from sklearn.datasets import load_digits

rank, world, port = map(int, sys.argv[1:4])
store, kind = sys.argv[4:]
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
digits = load_digits()
images, labels = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
if kind == "ddp":
    model = DistributedDataParallel(model)
if kind == "fsdp":
    from torch.distributed.fsdp import fully_shard
    for layer in (model[0], model[2], model):
        fully_shard(layer)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
watch = None
if not (kind == "ddp" and rank == 3):  # a rank that does not probe keeps no other waiting
    watch = intus.probe(
        model, port=port, run=kind, name="m", probe_set=(images, {"digit": labels}), ranks=(rank, world)
    )
    watch.run_probe_set()
for epoch in range(1, 3):
    if watch:
        watch.epoch = epoch
    for rows in torch.arange(rank, 1797 - 1797 % world, world).split(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()
if watch:
    watch.remove()
    assert watch.status()["troubles"] == 0, watch.status()
    assert watch.status()["dropped"] == 0
torch.distributed.barrier()
assert intus.flush(port=port)
torch.distributed.destroy_process_group()
"""


def run_ranks(tmp_path, port, world, kind):
    path = tmp_path / f"{kind}.py"
    path.write_text(RANK)
    arguments = [str(world), str(port), str(tmp_path / f"store {kind}"), kind]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", path, str(rank), *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for rank in range(world)
    ]
    errors = [rank.communicate(timeout=150)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * world, errors


@pytest.mark.long
@pytest.mark.parametrize(("kind", "world"), [pytest.param("ddp", 4, marks=pytest.mark.slow), ("fsdp", 2)])
def test_ranks_share_a_probe_set(tmp_path, kind, world):
    """The untrained model is scored as by one process; what a missing rank lacks is said."""
    with Server(database=tmp_path / "x.db", port=0) as server:
        run_ranks(tmp_path, server.port, world, kind)
        model = net()
        with probe(
            model, HOST, server.port, run="one", name="m", probe_set=(IMAGES, {"digit": LABELS})
        ) as watch:
            watch.run_probe_set()
        assert flush(HOST, server.port)
    with Database(tmp_path / "x.db") as database:
        found, one = (table_of(database, run) for run in (kind, "one"))
    assert {key[1] for key in found} == {0, 1, 2}
    # The layer before depends on when the parts of the ranks arrive, so its alignment is not compared.
    first = {key: facts for key, facts in found.items() if key[1] == 0 and key[2] != "cka_layer"}
    if kind == "ddp":
        assert {facts[2] for key, facts in found.items() if key[2] in ("mean", "linear_f1")} == {
            "3 of 4 ranks"
        }
        assert {facts[1] for key, facts in found.items() if key[2] == "mean"} == {1797 - 449}
    else:
        assert compare({key: one[key] for key in first}, first, EXACT + SETTLED) > 25
        assert not any("ranks" in (facts[2] or "") for facts in found.values())
    assert found["0", 2, "linear_f1", "digit"][0] > 0.9


def own_passes(server, run, statistics, **more):
    """Train with a shuffled DataLoader and registered labels; returns the model and the probe's status."""
    model, modes = net(more.pop("width", 48)), more.pop("modes", [True])
    torch.manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    shared = {"run_pattern": f"^{run}$"}
    register_targets(HOST, server.port, name="digit", targets=LABELS, **shared)
    register_targets(HOST, server.port, name="odd", targets=LABELS % 2 == 1, layer_pattern="^2$", **shared)
    loader = DataLoader(TensorDataset(IMAGES, torch.tensor(LABELS)), batch_size=300, shuffle=True)
    options = {"run": run, "name": "m", "statistics": statistics, "budget": math.inf, "block": True}
    with probe(model, HOST, server.port, **options, **more) as watch:
        for _ in range(2):
            for number, (rows, digit) in enumerate(loader):
                model.train(modes[number % len(modes)])
                optimizer.zero_grad()
                F.cross_entropy(model(rows), digit).backward()
                optimizer.step()
    return model, watch.status()


@pytest.mark.long
def test_statistics_of_a_training_in_evaluation_mode_are_its_rows(tmp_path):
    """That it trains is known too late for statistics. Rows that follow statistics in an epoch are told."""
    with Server(database=tmp_path / "x.db", port=0) as server:
        own_passes(server, "rows", False)
        own_passes(server, "evaluation mode", True, modes=[False])
        own_passes(server, "rows first", True, modes=[False, True])
        _, status = own_passes(server, "statistics first", True, modes=[True, False])
        assert flush(HOST, server.port)
    assert any("sent rows after statistics in one epoch" in one for one in status["faults"])
    with Database(tmp_path / "x.db") as database:
        rows, *others = (table_of(database, run) for run in ("rows", "evaluation mode", "rows first"))
        assert len(rows) > 100
        assert others == [rows, rows]
        assert not table_of(database, "statistics first")
        told = {one["run"] for one in database.notices() if "are sent, not statistics" in one["text"]}
    assert told == {"evaluation mode", "rows first", "statistics first"}


@pytest.mark.long
def test_statistics_of_the_trainings_own_passes_are_scored_as_rows(tmp_path):
    with Server(database=tmp_path / "x.db", port=0) as server:
        found = {run: own_passes(server, run, run == "sums") for run in ("rows", "sums")}
        cut = {run: own_passes(server, f"cut {run}", run == "sums", rows=100) for run in ("rows", "sums")}
        assert flush(HOST, server.port)
    for one, other in zip(*(model.parameters() for model, _ in found.values()), strict=True):
        assert torch.equal(one, other)
    assert {status["troubles"] for _, status in (*found.values(), *cut.values())} == {0}
    with Database(tmp_path / "x.db") as database:
        for prefix, n in (("", 1797), ("cut ", 600)):
            rows, sums = (table_of(database, f"{prefix}{run}") for run in ("rows", "sums"))
            assert rows.keys() == sums.keys(), [(n["run"], n["code"], n["text"]) for n in database.notices()]
            assert compare(rows, sums, EXACT + SETTLED, flips=0.01) > 100
            notes = {table["2", 1.0, "lda_f1", "digit"][2] for table in (rows, sums)}
            assert notes == {f"matched {n} of 1797 labels" if n < 1797 else ""}
            assert sums["2", 2.0, "mean", ""][1] == n
        assert {key[0] for key in sums if key[3] == "odd"} == {"2"}  # its layer_pattern
        assert not [one for one in database.notices() if one["level"] == "error"]


def test_own_passes_of_many_tokens_are_merged_and_bounded(server, monkeypatch):
    """Each pass sends what it keeps, and merging many of them keeps what one pass of all rows would keep."""
    rng = np.random.default_rng(0)
    tokens = torch.tensor(rng.integers(0, 30, (1600, 12)))
    register_targets(HOST, server.port, name="tag", targets=(tokens % 3).tolist())
    model = Tagger()
    with probe(model, HOST, server.port, run="r", which="mix", statistics=True, budget=math.inf) as watch:
        for items in torch.randperm(1600).split(400):
            watch.items = items
            model(tokens[items])
    with probe(
        model,
        HOST,
        server.port,
        run="s",
        which="mix",
        statistics=True,
        probe_set=(tokens, {"tag": tokens % 3}),
    ) as watch:
        watch.run_probe_set()
    assert flush(HOST, server.port)
    parts = [one for one in server.records() if one.run == "r"]
    (whole,) = [one for one in server.records() if one.run == "s"]
    assert [one.statistics.facts["rows"] for one in parts] == [4800] * 4
    monkeypatch.setattr("intus.scores.statistics.kept.MOST", 8000)
    pruned, at_once = (Scorer(["lda_f1", "linear_f1", "mean"]) for _ in range(2))
    pruned.receive(parts)
    assert (
        len(pruned.statistics.kept.rows_to_fit(0, pruned.statistics.moments.classes["tag"].counts)[1]) > 4000
    )
    assert sum(len(part[1]) for part in pruned.statistics.kept._parts) <= 8000 + 4800
    at_once.receive([whole])
    for one, other in zip(pruned.result(), at_once.result(), strict=True):
        assert (one.score, one.n) == (other.score, other.n)
        assert one.value == pytest.approx(other.value, abs=2e-3), one.score


def test_layer_without_rows_beside_statistics_is_no_wrong_number_of_ids(server):
    """A parametrization's output is a weight, which has no rows, while the other layers send statistics."""
    model = net()
    torch.nn.utils.parametrizations.weight_norm(model[0])
    register_targets(HOST, server.port, name="digit", targets=LABELS)
    with probe(model, HOST, server.port, run="r", statistics=True, budget=math.inf) as watch:
        watch.items = np.arange(300)
        model(IMAGES[:300])
    assert flush(HOST, server.port)
    assert any(one.statistics is not None for one in server.records())
    assert not [fault for fault in watch.status()["faults"] if "Probe.items had" in fault]


def test_own_passes_without_ids_send_rows_and_say_so(server, caplog):
    model = net()
    register_targets(HOST, server.port, name="digit", targets=LABELS)
    with probe(model, HOST, server.port, run="r", statistics=True, budget=math.inf) as watch:
        model(IMAGES)
    assert flush(HOST, server.port)
    assert {one.statistics for one in server.records()} == {None}
    assert any("cannot make statistics of passes" in fault for fault in watch.status()["faults"])


@pytest.mark.parametrize("later", [None, [0, 1], range(9_000, 9_300)], ids=["none", "few", "others"])
def test_rows_after_statistics_in_an_epoch_are_told(tmp_path, later):
    """An epoch of statistics alone has all scores; one with rows before them has those without labels."""
    passes = {1: [range(300), range(300, 600)], 2: [range(300), later], 3: [later, range(300)]}
    model = net()
    with Server(database=tmp_path / "x.db", port=0) as server:
        register_targets(HOST, server.port, name="digit", targets=LABELS[:600])
        options = {"run": "r", "name": "m", "statistics": True, "budget": math.inf, "structure": False}
        with probe(model, HOST, server.port, **options) as watch:
            for watch.epoch, parts in passes.items():
                for watch.items in parts:
                    model(IMAGES[:300])
        told = [one for one in watch.status()["faults"] if "sent rows after statistics" in one]
        assert flush(HOST, server.port)
        failed = [one for one in watch.status()["faults"] if "cannot be put together" in one]
    assert len(told) == 1
    assert "in one epoch, first in epoch 2" in told[0]
    assert len(failed) > len(told)  # also what the server says
    with Database(tmp_path / "x.db") as database:
        points = database.points("r", "m").where(address="0")
    assert set(points.where(score="mean")["epoch"]) == {1, 3}
    assert set(points.where(target="digit")["epoch"]) == {1}


def test_own_passes_with_labels_by_layer_send_rows_and_say_so(server):
    model = net()
    register_targets(HOST, server.port, name="digit", targets=LABELS, layer_pattern="^0$")
    register_targets(HOST, server.port, name="digit", targets=LABELS % 2, layer_pattern="^2$")
    with probe(model, HOST, server.port, run="r", statistics=True, budget=math.inf) as watch:
        watch.items = range(len(IMAGES))
        model(IMAGES)
    assert flush(HOST, server.port)
    assert {one.statistics for one in server.records()} == {None}
    assert any("different labels of the name 'digit'" in fault for fault in watch.status()["faults"])


def test_own_passes_before_labels_are_registered_send_rows_and_say_so(server):
    """The labels that the process registers in epoch 2 are those of epoch 3."""
    model = net()
    with probe(model, HOST, server.port, run="r", statistics=True, budget=math.inf) as watch:
        for watch.epoch in (1, 2, 3):
            for part in torch.arange(len(IMAGES)).split(900):
                watch.items = part
                model(IMAGES[part])
                if watch.epoch == 2:
                    register_targets(HOST, server.port, name="digit", targets=LABELS)
    assert flush(HOST, server.port)
    by_epoch = {one.epoch: set() for one in server.records()}
    for one in server.records():
        by_epoch[one.epoch].add(one.statistics is not None)
    assert by_epoch == {1: {False}, 2: {False}, 3: {True}}
    assert any(
        "had registered no labels for them when the epoch began" in one for one in watch.status()["faults"]
    )


class TimeFirst(nn.Module):
    """A model whose layers behind the GRU have their batch along an axis that passes show, and no module."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.mix = nn.Embedding(20, 8), nn.GRU(8, 12)
        self.head, self.out = nn.Linear(12, 12), nn.Linear(12, 2)

    def forward(self, ids):
        hidden = torch.tanh(self.mix(self.embed(ids).transpose(0, 1))[0])
        return self.out(self.head(hidden).mean(0))


@pytest.mark.long
def test_layer_whose_axis_is_known_later_is_scored_as_of_rows(tmp_path):
    """Rows and statistics of one epoch cannot be put together, so its rows are sent until the epoch ends."""
    labels = torch.arange(100) % 2
    words = torch.where(torch.rand(100, 12) < 0.5, labels[:, None], torch.randint(2, 20, (100, 12)))
    with Server(database=tmp_path / "x.db", port=0) as server:
        register_targets(HOST, server.port, name="half", targets=labels.tolist())
        for choice in (False, True):
            model = TimeFirst()
            options = {
                "run": str(choice),
                "name": "m",
                "structure": False,
                "block": True,
                "statistics": choice,
            }
            with probe(model, HOST, server.port, **options) as watch, torch.no_grad():
                for watch.epoch in range(2):
                    for ids in torch.arange(100).split(12):  # the last has 4, which shows the axis
                        watch.items = ids
                        model(words[ids])
        assert flush(HOST, server.port)
    with Database(tmp_path / "x.db") as database:
        rows, sums = (table_of(database, run) for run in ("False", "True"))
        assert not any("cannot be put together" in one["text"] for one in database.notices())
        heads = {key for key in rows if key[0] == "head"}
        assert {key[1] for key in heads if key[2] == "linear_f1"} == {1}
        assert {key[1] for key in heads if key[2] == "mean"} == {0, 1}
        compared = (*EXACT, "linear_f1")
        assert compare(
            {key: rows[key] for key in rows if key[2] in compared},
            {key: sums[key] for key in sums if key[2] in compared},
            compared,
        )
