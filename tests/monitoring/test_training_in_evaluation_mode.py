"""A model that is trained in evaluation mode has the records that it has in training mode.

``from_pretrained`` returns a model in evaluation mode, and a script may forget ``train()`` after validation.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from intus.monitoring import flush, probe

HOST = "127.0.0.1"
KINDS = "output", "input", "grad_output", "parameter", "parameter_grad", "update"
EPOCHS, ROWS = 3, torch.randn(90, 6, generator=torch.Generator().manual_seed(0))
LABELS = (ROWS[:, 0] > 0).long()
DATA, OTHERS = TensorDataset(ROWS[:60], LABELS[:60]), TensorDataset(ROWS[60:], LABELS[60:])
LOADED = DataLoader(DATA, 10, shuffle=True)


def one_by_one(model, optimizer):
    for x, y in LOADED:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def accumulated(model, optimizer, *, over=4):
    """Leave the gradients of the last batches to the next epoch."""
    for number, (x, y) in enumerate(LOADED, 1):
        F.cross_entropy(model(x), y).backward()
        if number % over == 0:
            optimizer.step()
            optimizer.zero_grad()


def in_pairs(model, optimizer):
    for x, y in LOADED:
        optimizer.zero_grad()
        first, second = model(x), model(x + 1)
        (F.cross_entropy(first, y) + F.mse_loss(first, second)).backward()
        optimizer.step()


def of_slices(model, optimizer):
    for x, y in zip(ROWS[:60].split(10), LABELS[:60].split(10), strict=True):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


LOOPS = [one_by_one, accumulated, partial(accumulated, over=6), in_pairs, of_slices]


def train(server, loop=one_by_one, *, begins=True, stays=False, apart=None, names=False, probe_set=False):
    """Train a model without layers that depend on its mode; return what the server has, and the status.

    Args:
        server: Receives the records.
        loop: Trains an epoch.
        begins: Whether it begins in training mode.
        stays: Whether it is left in the mode that it has after a validation.
        apart: The context of the validation; None for none.
        names: Whether the script names the epochs.
        probe_set: Whether a probe set is recorded instead.
    """
    before = len(server.records())
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).train(begins)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    options = {"probe_set": (ROWS[60:], {"y": LABELS[60:]})} if probe_set else {"kinds": KINDS}
    with probe(model, HOST, server.port, structure=False, block=True, budget=math.inf, **options) as watch:
        for number in range(1, EPOCHS + 1):
            if not stays:
                model.train(begins)
            if names:
                watch.epoch = number
            loop(model, optimizer)
            if apart is not None:
                model.eval()
                with apart():
                    for x, _ in DataLoader(OTHERS, 10):
                        model(x)
    assert flush(HOST, server.port)
    # after evaluations with gradients, parameters are shown once more at the end of the epoch
    records = {
        order_of(one): facts_of(one)
        for one in server.records()[before:]
        if (one.mode, one.kind) != ("eval", "parameter")
    }
    return [records[key] for key in sorted(records)], watch.status()


def order_of(record):
    return record.epoch, record.mode, record.step, record.kind, record.address


def facts_of(record):
    items = None if record.items is None else record.items.tolist()
    return *order_of(record), record.array.tolist(), items, record.of_pass


@pytest.fixture(scope="module")
def in_training_mode(fake_server):
    """Return a function that trains as ``train`` does, in training mode, once for each of its arguments."""
    server = fake_server()
    yield cache(partial(train, server))
    server.die()


def equal(one, other):
    assert one[0] == other[0]
    for key in ("epochs", "items", "faults", "passes"):
        assert one[1][key] == other[1][key]


@pytest.mark.parametrize("apart", [None, torch.no_grad, torch.enable_grad], ids=["none", "no_grad", "grad"])
@pytest.mark.parametrize("loop", LOOPS, ids=["one", "four", "six", "pairs", "slices"])
def test_training_in_evaluation_mode_has_the_records_of_one_in_training_mode(
    server, in_training_mode, loop, apart
):
    """Before, epochs were counted from 0 or were one, and rows had no ids, or were left out."""
    expected = in_training_mode(loop, apart=None if apart is None else torch.no_grad)
    equal(train(server, loop, begins=False, apart=apart), expected)


@pytest.mark.parametrize("apart", [torch.no_grad, torch.enable_grad], ids=["no_grad", "grad"])
@pytest.mark.parametrize("begins", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("names", [True, False], ids=["named", "found"])
def test_training_without_train_after_a_validation_has_its_epochs(
    server, in_training_mode, begins, apart, names
):
    """Before, all epochs but the first were merged, and with named epochs validation rows were left out."""
    expected = in_training_mode(apart=torch.no_grad, names=names)
    equal(train(server, begins=begins, stays=True, apart=apart, names=names), expected)


@pytest.mark.parametrize("apart", [None, torch.no_grad, torch.enable_grad], ids=["none", "no_grad", "grad"])
@pytest.mark.parametrize("loop", [one_by_one, of_slices])
def test_probe_set_of_a_training_in_evaluation_mode(server, loop, apart):
    """Before, ``status`` said that the model itself was not called; of slices there was one epoch."""
    expected = train(server, loop, apart=apart, probe_set=True)
    equal(train(server, loop, begins=False, apart=apart, probe_set=True), expected)


@pytest.mark.parametrize("loop", [one_by_one, accumulated])
def test_evaluation_with_gradients_is_none_of_the_training(server, in_training_mode, loop):
    equal(train(server, loop, apart=torch.enable_grad), in_training_mode(loop, apart=torch.no_grad))


@pytest.mark.parametrize("accumulates", [False, True])
def test_attack_in_evaluation_mode_is_none_of_the_training(server, accumulates):
    """A backward pass without a step before the pass in training mode is that of an adversarial example."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with probe(model, HOST, server.port, structure=False, block=True, budget=math.inf):
        for _ in range(EPOCHS):
            for x, y in LOADED:
                model.eval()
                attacked = x.clone().requires_grad_()
                loss = F.cross_entropy(model(attacked), y)
                if accumulates:
                    loss.backward()
                else:
                    attacked.grad = torch.autograd.grad(loss, attacked)[0]
                model.train()
                optimizer.zero_grad()
                F.cross_entropy(model(x + 0.1 * attacked.grad.sign()), y).backward()
                optimizer.step()
    assert flush(HOST, server.port)
    records = sorted((one for one in server.records() if one.address == ""), key=lambda one: one.step)
    assert [one.mode for one in records] == ["eval", "train"] * EPOCHS * len(LOADED)
    assert [one.epoch for one in records[1::2]] == [1] * 6 + [2] * 6 + [3] * 6


def test_weights_that_are_loaded_after_an_evaluation_with_gradients_are_no_evaluation(server):
    """The last pass waits until it is known whether it trains, and is of the model as it was."""
    model = nn.Sequential(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    with probe(model, HOST, server.port, structure=False, block=True, budget=math.inf):
        one_by_one(model, optimizer)
        model.eval()
        for x, _ in DataLoader(OTHERS, 10):
            model(x)
        model.load_state_dict(weights)
    assert flush(HOST, server.port)
    assert len({one.of_pass.turn for one in server.records() if one.mode == "eval"}) == 1


def test_results_of_a_training_in_evaluation_mode_are_bitwise_the_same(server):
    found = []
    for watches in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).eval()
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        watch = probe(model, HOST, server.port, kinds=KINDS, budget=math.inf) if watches else nullcontext()
        with watch:
            one_by_one(model, optimizer)
        found.append(np.concatenate([one.detach().flatten().numpy() for one in model.parameters()]))
    np.testing.assert_array_equal(*found)
