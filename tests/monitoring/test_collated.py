"""Rows that a collate function, or the sampler before it, gives another order have no labels by order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, TensorDataset

from intus.monitoring import flush, probe

HOST = "127.0.0.1"
ROWS = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(48) % 2
LENGTHS = np.random.default_rng(0).integers(1, 5, 48)


def plain(samples):
    return torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])


def by_value(samples):
    return plain(sorted(samples, key=lambda sample: float(sample[0][0])))


def by_length(samples):
    samples = sorted(samples, key=lambda sample: -len(sample[0]))
    xs = pad_sequence([x for x, _ in samples], batch_first=True)
    return nn.functional.pad(xs, (0, 4 - xs.shape[1])), torch.stack([y for _, y in samples])


def in_place(samples):
    samples.sort(key=lambda sample: float(sample[0][0]))
    return plain(samples)


def of_arrays(samples):
    return plain([(torch.as_tensor(x), y) for x, y in sorted(samples, key=lambda sample: sample[0][0])])


def padded(samples):
    xs = pad_sequence([x for x, _ in samples], batch_first=True)
    return nn.functional.pad(xs, (0, 4 - xs.shape[1])), torch.stack([y for _, y in samples])


def computed(samples):
    xs, ys = plain(samples)
    return xs * 2, ys


def sorted_after_a_change(samples):
    xs, ys = by_value(samples)
    return xs * 2, ys


RAGGED = [(row[:length], label) for row, length, label in zip(ROWS, LENGTHS, LABELS, strict=True)]
PLAIN = TensorDataset(ROWS, LABELS)
REVERSED = list(range(47, -1, -1))
CASES = {
    "plain": (PLAIN, plain, {}, True),
    "padded": (RAGGED, padded, {}, True),
    "computed": (PLAIN, computed, {}, True),
    "sorted by value": (PLAIN, by_value, {}, False),
    "sorted in place": (PLAIN, in_place, {}, False),
    "sorted arrays": ([(x.numpy(), y) for x, y in PLAIN], of_arrays, {}, False),
    "sorted by length": (RAGGED, by_length, {}, False),
    "fixed sampler": (PLAIN, plain, {"sampler": REVERSED}, False),
    "fixed sampler in workers": (PLAIN, plain, {"sampler": REVERSED, "num_workers": 1}, False),
    "sorted and computed": (PLAIN, sorted_after_a_change, {}, True),  # which is assumed, as documented
}


@pytest.mark.parametrize("case", list(CASES))
def test_rows_in_another_order_than_the_dataset_are_found(server, case):
    data, collate, options, in_order = CASES[case]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(data, batch_size=16, collate_fn=collate, **options)
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        for _ in range(2):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
    assert flush(HOST, server.port)
    items = [one.items for one in server.records() if one.address == "0"]
    assert len(items) == 6
    if in_order:
        assert all(ids is None for ids in items)
    else:
        assert all((ids < 0).all() for ids in items)
        said = "draws in another order" if "sampler" in case else "changes the order of the rows"
        assert said in watch.status()["items"]


def test_collate_function_and_loader_are_those_of_the_script_afterwards(server):
    given = []

    def collate(samples):
        given.append(samples)
        return plain(samples)

    loader = DataLoader(PLAIN, batch_size=16, collate_fn=collate)
    model = nn.Linear(4, 2)
    with probe(model, HOST, server.port, structure=False):
        batches = [(x, model(x).sum().backward()) for x, _ in loader]
    assert loader.collate_fn is collate
    assert all(type(samples) is list for samples in given)
    assert torch.equal(torch.cat([x for x, _ in batches]), ROWS)
