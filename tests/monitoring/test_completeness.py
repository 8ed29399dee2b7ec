"""Every layer has a value at every epoch, or the page, the log and the status say which has none."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from intus.monitoring import flush, probe
from intus.serving.run import Server
from intus.storage.database import Database

ROWS = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
SIGN = (ROWS[:, 0] > 0).long()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("completeness") / "x.db"
    with Server(database=path, port=0, scores="mean,lda_f1") as server:
        yield server, path


def epochs_of(page, run, model):
    """Return the epochs that each layer has a mean of, and the notes of these."""
    with Database(page[1]) as database:
        means = database.points(run, model).where(score="mean")
    out, notes = {}, {}
    for address, epoch, note in zip(means["address"], means["epoch"], means["note"], strict=True):
        out.setdefault(str(address), []).append(int(epoch))
        notes.setdefault(int(epoch), set()).add(str(note))
    return {address: sorted(epochs) for address, epochs in out.items()}, notes


def notices_of(page, run):
    """Return the notices of a run by code, but for the one of a loaded machine, which scores slowly."""
    with Database(page[1]) as database:
        notices = {one["code"]: one["text"] for one in database.notices(run) if one["run"] == run}
    notices.pop("behind", None)
    return notices


class Tagger(nn.Module):
    """The encoder of torch, as it is called for padded sentences."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x):
        return self.encoder(self.words(x), src_key_padding_mask=x == 0)


@pytest.mark.long
def test_padded_transformer_has_every_layer_at_every_epoch(page):
    server, _ = page
    torch.manual_seed(0)
    model = Tagger()
    words = torch.randint(1, 50, (80, 6))
    words[::2, 4:] = 0
    ran: set[str] = set()
    handles = [
        module.register_forward_hook(lambda *_, name=name: ran.add(name))
        for name, module in model.named_modules()
    ]
    model(words)  # in training mode, which has no fast path: torch's own hooks are the judge
    for handle in handles:
        handle.remove()
    plain, optimizer = copy.deepcopy(model), None
    results = []
    for probed in (False, True):
        net = model if probed else plain
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        options = {"run": "padded", "probe_set": (words, {"third": [row % 3 for row in range(80)]})}
        watch = probe(net, server.host, server.port, **options) if probed else None
        for epoch in range(4):
            if watch is not None:
                watch.epoch = epoch
            net(words).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        if watch is not None:
            watch.remove()
            assert watch.status()["troubles"] == 0
            assert watch.status()["silent"] == watch.status()["faults"] == []
        results.append([p.detach().clone() for p in net.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
    assert torch.backends.mha.get_fastpath_enabled()
    assert flush(server.host, server.port)
    layers, notes = epochs_of(page, "padded", "Tagger")
    assert set(layers) == ran
    assert set(map(tuple, layers.values())) == {(0, 1, 2, 3)}
    assert not any(note.startswith("incomplete") for of_epoch in notes.values() for note in of_epoch)
    assert notices_of(page, "padded") == {}


@pytest.mark.parametrize("how", ["compile", "in place", "a part in place"])
def test_compiled_model_runs_its_probe_set_uncompiled(page, how):
    server, _ = page
    torch._dynamo.reset()

    def train(probed):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 2)))
        called = torch.compile(net, backend="eager") if how == "compile" else net
        if how != "compile":
            (net if how == "in place" else net[1]).compile(backend="eager")
        options = {"run": how, "probe_set": (ROWS, {"sign": SIGN})}
        watch = probe(called, server.host, server.port, **options) if probed else None
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for epoch in range(3):
            if watch is not None:
                watch.epoch = epoch
            called(ROWS).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        if watch is not None:
            watch.remove()
        return [p.detach() for p in net.parameters()]

    assert all(torch.equal(one, other) for one, other in zip(train(False), train(True), strict=True))
    assert flush(server.host, server.port)
    layers, _ = epochs_of(page, how, "Sequential")
    assert layers == {address: [0, 1, 2] for address in ("", "0", "1", "1.0", "1.1")}
    torch._dynamo.reset()


def test_training_compiled_in_place_is_said_on_page_in_log_and_status(page, caplog):
    server, _ = page
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
    model.compile(backend="eager")
    with probe(model, server.host, server.port, run="unseen") as watch:
        model(ROWS)
    assert flush(server.host, server.port)
    assert watch.status()["recorded"] == 0
    for text in ("The model was compiled", "Sequential was never called"):
        assert text in caplog.text
        assert any(text in fault for fault in watch.status()["faults"])
    with Database(page[1]) as database:  # the page has no such run, so these are beside every run
        texts = [notice["text"] for notice in database.notices("another")]
    assert any("'unseen'" in text and "The model was compiled" in text for text in texts)
    assert any("'unseen'" in text and "never called" in text for text in texts)
    torch._dynamo.reset()


class Branch(nn.Module):
    """Stops to run one of its layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.unused = nn.Linear(6, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.deep, self.complex = True, False

    def forward(self, x):
        x = self.first(x)
        if self.complex:
            x = x.to(torch.complex64)
        return self.second(x) if self.deep else x


def test_layer_that_stops_to_run_makes_epochs_incomplete(page):
    server, _ = page
    model = Branch()
    with probe(model, server.host, server.port, run="stops") as watch:
        for watch.epoch in range(4):
            model.deep = watch.epoch < 2
            model(ROWS)
    assert flush(server.host, server.port)
    layers, notes = epochs_of(page, "stops", "Branch")
    assert layers == {"": [0, 1, 2, 3], "first": [0, 1, 2, 3], "second": [0, 1]}
    incomplete = "incomplete: 1 layer of earlier epochs sent nothing (second)"
    assert [{note for note in notes[epoch] if note} for epoch in range(4)] == [
        *[set()] * 2,
        *[{incomplete}] * 2,
    ]
    assert "'second'" in notices_of(page, "stops")["absent"]
    assert (
        "1 of 4 layers of Branch have recorded nothing so far, for example 'unused'"
        in notices_of(page, "stops")["probe"]
    )
    assert watch.status()["silent"] == ["unused"]
    missing = "Epoch {} is incomplete: 1 layers of earlier epochs sent nothing: 'second'. They"
    starts = ["1 of 4 layers of Branch have recorded nothing", missing.format(2), missing.format(3)]
    faults = sorted(watch.status()["faults"])
    assert [text[: len(start)] for text, start in zip(faults, starts, strict=True)] == starts


def train_in_two_modes(server, run, epochs, is_deep, **options):
    """Call a model in training and evaluation mode in each epoch, with ``second`` where ``is_deep`` says."""
    model = Branch()
    with probe(model, server.host, server.port, run=run, **options) as watch:
        for watch.epoch in range(epochs):
            for training in (True, False):
                model.train(training).deep = is_deep(training, watch.epoch)
                model(ROWS)
    assert flush(server.host, server.port)


def test_layer_that_stops_to_run_in_one_mode_is_told_with_the_mode(page):
    """Before, it was said to have sent nothing in an epoch of which it has scores.

    Then scores of the other mode, of which nothing is missing, were said to be incomplete.
    """
    server, _ = page
    train_in_two_modes(server, "stops in eval", 3, lambda training, epoch: training or epoch < 2)
    with Database(page[1]) as database:
        means = database.points("stops in eval", "Branch").where(score="mean", epoch=2.0)
    layers = set(zip(means["address"].tolist(), means["mode"].tolist(), strict=True))
    assert ("second", "train") in layers
    assert ("second", "eval") not in layers
    assert set(zip(means["mode"].tolist(), means["note"].tolist(), strict=True)) == {
        ("train", ""),
        ("eval", "incomplete: 1 layer of earlier epochs sent nothing (second: of the output in mode eval)"),
    }
    told = notices_of(page, "stops in eval")["absent"]
    assert "1 layers of earlier epochs sent nothing: 'second' (of the output in mode eval). They" in told


def test_head_that_runs_in_training_alone_leaves_other_modes_complete(page):
    """It stops to run in the end, and evaluations, which never had it, are whole in each epoch."""
    server, _ = page
    kinds = ["output", "input"]
    train_in_two_modes(server, "head", 4, lambda training, epoch: training and epoch < 2, kinds=kinds)
    with Database(page[1]) as database:
        means = database.points("head", "Branch").where(score="mean")
    found = zip(means["epoch"].tolist(), means["mode"].tolist(), means["note"].tolist(), strict=True)
    marked = {(epoch, mode) for epoch, mode, note in found if note.startswith("incomplete")}
    assert marked == {(2, "train"), (3, "train")}


def test_errors_of_hooks_make_epoch_incomplete(page):
    server, _ = page
    model = Branch()
    with probe(model, server.host, server.port, run="raises", which=["first", "second", "Branch"]) as watch:
        for watch.epoch in range(3):
            model.complex, model.deep = watch.epoch == 1, watch.epoch != 1
            model(ROWS)
    assert flush(server.host, server.port)
    _, notes = epochs_of(page, "raises", "Branch")
    assert [any("incomplete" in note for note in notes[epoch]) for epoch in range(3)] == [False, True, False]
    assert any("1 of 2 arrays came (1 that the probe could not record)" in note for note in notes[1])
    texts = notices_of(page, "raises")
    assert "epoch 1" in texts["failed"]
    assert "complex" in texts["hook"]
    assert any("complex" in fault for fault in watch.status()["faults"])


def test_layers_that_when_declines_are_no_fault(page):
    server, _ = page
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    state = {"epoch": 0}

    def when(model, operation):
        return state["epoch"] == 0 or operation.address == "1"

    with probe(model, server.host, server.port, run="chosen", when=when) as watch:
        for watch.epoch in range(3):
            state["epoch"] = watch.epoch
            model(ROWS)
    assert flush(server.host, server.port)
    layers, notes = epochs_of(page, "chosen", "Sequential")
    assert layers == {"": [0], "0": [0], "1": [0, 1, 2]}
    assert set().union(*notes.values()) == {""}
    assert notices_of(page, "chosen") == {}
    assert watch.status()["faults"] == []


@pytest.mark.long
def test_epochs_without_any_pass_are_said(page):
    server, _ = page
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    with probe(model, server.host, server.port, run="broke", budget=1e-9) as watch:
        watch._tap.budget._accounts[0].saved = -100.0
        for watch.epoch in range(2):
            model(ROWS)
    assert flush(server.host, server.port)
    text = "Epoch 0 of Sequential has no data: all its 1 passes"
    assert any(text in fault for fault in watch.status()["faults"])
    with Database(page[1]) as database:
        assert any(text in notice["text"] for notice in database.notices("another"))
