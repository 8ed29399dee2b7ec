"""Epochs that a probe finds by itself are those that the script trains, or it says that they are not."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from intus.backends.base import for_model
from intus.monitoring import probe
from intus.monitoring.sender import Sender
from intus.serving.run import Server

ROWS = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
LABELS = (ROWS[:, 0] > 0).long()
DATA = TensorDataset(ROWS, LABELS)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.head = nn.Identity(), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.seen(x))


@pytest.fixture
def kept(monkeypatch):
    """Return the records that a probe makes."""
    out = []
    gather = Sender.gather

    def keep(self, record, nbytes, contents=None):
        out.append(record)
        gather(self, record, nbytes)

    monkeypatch.setattr(Sender, "gather", keep)
    return out


def rows_of_epochs(kept):
    """Return how many rows of the training's layer each epoch has."""
    rows = Counter()
    for record in kept:
        if record.address == "seen":
            rows[record.epoch] += record.rows
    return dict(rows)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Return a function that probes a model."""
    with Server(database=tmp_path_factory.mktemp("epochs") / "x.db", port=0) as server:
        yield partial(probe, host=server.host, port=server.port, block=True)


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


class ByData:
    """An optimizer that writes through ``.data``."""

    def __init__(self, parameters):
        self.parameters = list(parameters)

    def zero_grad(self):
        for one in self.parameters:
            one.grad = None

    def step(self):
        for one in self.parameters:
            one.data.add_(one.grad.data, alpha=-0.05)


class Derived(torch.optim.Optimizer):
    """An optimizer of torch's class that writes through ``.data``, and to one value alone."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self, closure=None):
        self.param_groups[0]["params"][0].data.view(-1)[5] += 1e-3


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.05),
    "fused SGD": lambda p: torch.optim.SGD(p, 0.05, fused=True),
    "fused AdamW": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "writes through .data": ByData,
    "derived": Derived,
}


@pytest.mark.parametrize("how", list(OPTIMIZERS))
def test_epochs_are_found_whatever_writes_the_parameters(watched, kept, how):
    """Fused optimizers raise no ``Tensor._version``, by which changes were recognized before."""

    def train(*, watch):
        torch.manual_seed(0)
        model = Net()
        probed = watched(model) if watch else None
        optimizer = OPTIMIZERS[how](model.parameters())
        for _ in range(3):
            for x, y in DataLoader(DATA, batch_size=20, shuffle=True):
                step(model, optimizer, x, y)
        if probed is not None:
            probed.remove()
        return [p.detach().clone() for p in model.parameters()]

    plain, probed = train(watch=False), train(watch=True)
    assert all(torch.equal(one, other) for one, other in zip(plain, probed, strict=True))
    assert rows_of_epochs(kept) == {1: 60, 2: 60, 3: 60}


@pytest.mark.parametrize("how", list(OPTIMIZERS))
def test_epochs_by_the_first_batch_are_found_whatever_writes_the_parameters(watched, kept, how):
    torch.manual_seed(0)
    model = Net()
    optimizer = OPTIMIZERS[how](model.parameters())
    if how == "writes through .data":  # no optimizer of torch, so the training begins as epoch 0
        first = 0
    else:
        first = 1
    with watched(model):
        for _ in range(3):
            for x, y in zip(ROWS.split(20), LABELS.split(20), strict=True):
                step(model, optimizer, x, y)
    assert rows_of_epochs(kept) == {first: 60, first + 1: 60, first + 2: 60}


def test_probe_set_shows_each_epoch_of_a_fused_optimizer(watched, kept):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, fused=True)

    means, means_of = [], {}
    watch = watched(model, probe_set=(ROWS, {"y": LABELS}))
    with torch.no_grad():
        means.append(float(F.linear(ROWS, model.head.weight, model.head.bias).double().mean()))
    for _ in range(3):
        for x, y in DataLoader(DATA, batch_size=20, shuffle=True):
            step(model, optimizer, x, y)
        with torch.no_grad():
            means.append(float(F.linear(ROWS, model.head.weight, model.head.bias).double().mean()))
    watch.remove()
    for record in kept:
        if record.address == "head":
            means_of[record.epoch] = float(record.array.mean(dtype="float64"))
    assert means_of == pytest.approx(dict(enumerate(means)), abs=1e-6)


def test_loader_read_without_training_begins_no_epoch(watched, kept):
    """The passes that another model's optimizer follows train this model as little as none."""
    model, other = Net(), Net()
    optimizer = torch.optim.AdamW(other.parameters(), 0.01, fused=True)
    mine = torch.optim.AdamW(model.parameters(), 0.01, fused=True)
    loader = DataLoader(DATA, batch_size=20, shuffle=True)
    with watched(model):
        for _ in range(2):
            for x, y in loader:
                model(x)
                step(other, optimizer, x, y)
        for _ in range(2):
            for x, y in loader:
                step(model, mine, x, y)
    assert rows_of_epochs(kept) == {1: 180, 2: 60}


@pytest.mark.parametrize("how", list(OPTIMIZERS))
def test_version_of_weights_tells_every_step(how):
    """By it, rows of a table of units are refused once the model has changed."""
    torch.manual_seed(0)
    model = Net()
    version, optimizer = for_model(model).version, OPTIMIZERS[how](model.parameters())
    before = version(model)
    model(ROWS)
    assert version(model) == before
    step(model, optimizer, ROWS, LABELS)
    assert version(model) != before


def test_version_of_weights_that_are_not_numbers_stays():
    model = Net()
    with torch.no_grad():
        model.head.weight.fill_(float("nan"))
    version = for_model(model).version
    assert version(model) == version(model)
