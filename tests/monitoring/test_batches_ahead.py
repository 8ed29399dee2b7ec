"""Rows have the ids of their batch also if the loop took others before it called the model with them."""

from __future__ import annotations

from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch
from seen_net import Net
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from intus.monitoring import probe
from intus.serving.run import Server

ROWS = torch.randn(192, 6, generator=torch.Generator().manual_seed(0))
LABELS = (ROWS[:, 0] > 0).long()
DATA = TensorDataset(ROWS, LABELS)
OTHERS = TensorDataset(ROWS.flip(0)[:90] + 1, LABELS[:90])


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Return a function that probes a model."""
    with Server(database=tmp_path_factory.mktemp("ahead") / "x.db", port=0, scores="mean") as server:
        yield partial(probe, host=server.host, port=server.port, block=True)


def ahead(batches):
    """Give each batch when the next was fetched, as the loaders of accelerate do."""
    batches = iter(batches)
    now = next(batches)
    for following in batches:
        yield now
        now = following
    yield now


def known(kept, mode):
    """Return how many rows of a mode have ids, all of which are theirs, and how many have none."""
    counts = [0, 0]
    for record in kept:
        if (record.address, record.mode) == ("seen", mode):
            has_ids = record.items is not None and (record.items >= 0).all()
            counts[not has_ids] += record.rows
            assert not has_ids or np.array_equal(record.array, ROWS.numpy()[record.items])
    return tuple(counts)


@pytest.mark.parametrize("copied", [False, True], ids=["as they are", "copied"])
@pytest.mark.parametrize("taken", [5, 8, 24])
def test_batches_that_a_loop_takes_together_have_their_ids(watched, kept, taken, copied):
    """Accumulated gradients, as of Hugging Face's Trainer; a copy is what a move to a device makes."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with watched(model) as watch:
        for _ in range(2):
            batches = iter(DataLoader(DATA, batch_size=8, shuffle=True))
            if copied:
                batches = ([x.clone(), y.clone()] for x, y in batches)
            while together := list(islice(batches, taken)):
                for x, y in together:
                    F.cross_entropy(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
    assert known(kept, "train") == (384, 0)
    assert {record.epoch for record in kept} == {1, 2}
    assert watch.status()["faults"] == []


@pytest.mark.parametrize("fetch", [iter, ahead], ids=["plain", "one ahead"])
def test_training_has_its_ids_after_an_evaluation_inside_of_an_epoch(watched, kept, fetch):
    """The batch of the next step came before those of the evaluation, which seemed to train the model."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with watched(model) as watch:
        for _ in range(2):
            for number, (x, y) in enumerate(fetch(DataLoader(DATA, batch_size=16, shuffle=True))):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                if number % 5 == 4:
                    model.eval()
                    with torch.no_grad():
                        for x, _ in fetch(DataLoader(OTHERS, batch_size=10)):
                            model(x)
                    model.train()
    assert known(kept, "train") == (384, 0)
    assert known(kept, "eval") == (0, 360)
    assert {record.epoch for record in kept} == {1, 2}
    assert watch.status()["faults"] == []


def test_more_batches_than_are_kept_are_refused_with_the_true_reason(watched, kept):
    """Before, it said that the input is no tensor of the batch, which it is, of an earlier one."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with watched(model) as watch:
        for x, y in list(DataLoader(DATA, batch_size=2, shuffle=True)):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    with_ids, without = known(kept, "train")
    assert with_ids + without == 192
    assert without >= 2
    assert "of the newest 64 batches: it is of an earlier one, or computed" in watch.status()["items"]
