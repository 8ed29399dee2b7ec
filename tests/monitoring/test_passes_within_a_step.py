"""Passes over a batch within one step of an optimizer, each with other parameters, are of one epoch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from intus.monitoring import flush, probe

HOST = "127.0.0.1"
GENERATOR = torch.Generator().manual_seed(0)
ROWS = torch.randn(48, 4, generator=GENERATOR)
DATA = TensorDataset(ROWS, (ROWS[:, 0] > 0).long())
EPOCHS = 3


def whole(size):
    return [DATA.tensors]


def slices(size):
    return list(zip(*(one.split(size) for one in DATA.tensors), strict=True))


def loaded(size):
    return DataLoader(DATA, size, shuffle=True)


def listed(size):
    return list(loaded(size))


def read_ahead(size):
    """Yield the batches of a loader, each after the next one was read."""
    before = None
    for batch in loaded(size):
        if before is not None:
            yield before
        before = batch
    yield before


def by_lbfgs(model):
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)

    def step(rows, labels):
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(rows), labels)
            loss.backward()
            return loss

        optimizer.step(closure)

    return step


def by_sam(model):
    """Return a step of sharpness-aware minimization: the second pass is of parameters that were moved."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(rows, labels):
        F.cross_entropy(model(rows), labels).backward()
        with torch.no_grad():
            moved = [0.05 * one.grad for one in model.parameters()]
            for one, by in zip(model.parameters(), moved, strict=True):
                one += by
        optimizer.zero_grad()
        F.cross_entropy(model(rows), labels).backward()
        with torch.no_grad():
            for one, by in zip(model.parameters(), moved, strict=True):
                one -= by
        optimizer.step()
        optimizer.zero_grad()

    return step


class Counted(nn.Linear):
    """A layer that counts its calls in training."""

    rows = 0

    def forward(self, x):
        self.rows += len(x) * torch.is_grad_enabled()
        return super().forward(x)


def train(server, batches, steps, size, **options):
    """Train, and return the probe, the rows of each epoch, and the outputs on all rows at the end of each."""
    torch.manual_seed(0)
    model = nn.Sequential(Counted(4, 2))
    step, rows, outputs = steps(model), [], [model(ROWS).detach().numpy()]
    with probe(model, HOST, server.port, structure=False, block=True, budget=1e9, **options) as watch:
        for _ in range(EPOCHS):
            before = model[0].rows
            for batch in batches(size):
                step(*batch)
            rows.append(model[0].rows - before)
            outputs.append(F.linear(ROWS, model[0].weight, model[0].bias).detach().numpy())
    assert flush(HOST, server.port)
    return watch, rows, outputs


STEPS = pytest.mark.parametrize("steps", [by_lbfgs, by_sam])
BATCHES = pytest.mark.parametrize(
    ("batches", "size"),
    [
        *((whole, 48), (slices, 16), (loaded, 48), (loaded, 16), (listed, 48), (listed, 16)),
        *((read_ahead, 48), (read_ahead, 16)),
    ],
)


@STEPS
@BATCHES
def test_all_passes_of_an_epoch_have_its_number(server, batches, size, steps):
    """Before, each pass over the only batch was an epoch, and labels were lost as of kept batches."""
    watch, rows, _ = train(server, batches, steps, size)
    found = [one for one in server.records() if one.address == "0" and one.mode == "train"]
    assert {
        epoch: sum(len(one.array) for one in found if one.epoch == epoch)
        for epoch in {one.epoch for one in found}
    } == dict(enumerate(rows, 1))
    if batches in (loaded, listed, read_ahead):
        for one in found:
            assert (one.items >= 0).all()
    assert not any("epoch" in one for one in watch.status()["faults"])


@STEPS
@BATCHES
def test_probe_set_shows_the_model_at_the_end_of_each_epoch(server, batches, size, steps):
    watch, _, outputs = train(server, batches, steps, size, probe_set=(ROWS, {"label": np.arange(48) % 2}))
    found = [one for one in server.records() if one.address == "0" and one.kind == "output"]
    assert [one.epoch for one in found] == list(range(EPOCHS + 1))
    for one, expected in zip(found, outputs, strict=True):
        np.testing.assert_allclose(one.array, expected, atol=1e-5)
    assert not any("epoch" in one for one in watch.status()["faults"])


@BATCHES
def test_optimizers_that_step_in_turns_on_one_batch_leave_a_doubt(server, batches, size):
    """Before, each of them had an epoch of its own, and nothing said that these may be one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model]
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        for _ in range(EPOCHS):
            for rows, labels in batches(size):
                for one in optimizers:
                    model.zero_grad()
                    F.cross_entropy(model(rows), labels).backward()
                    one.step()
    said = watch.status()
    assert (watch.epoch == EPOCHS) == (batches is loaded or (batches in (listed, read_ahead) and size < 48))
    if watch.epoch != EPOCHS:
        assert any("in turns" in one or "are no epochs" in one for one in said["faults"]), said


@pytest.mark.parametrize("each", [True, False], ids=["made anew", "kept"])
def test_epochs_of_one_batch_whose_optimizer_is_replaced_are_not_in_doubt(server, each):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        for _ in range(6):
            if each:
                optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            model.zero_grad()
            F.cross_entropy(model(ROWS), DATA.tensors[1]).backward()
            optimizer.step()
    assert watch.epoch == 6
    assert watch.status()["faults"] == []
