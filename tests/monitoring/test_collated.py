"""Rows that a collate function makes are the sampler's items if that is shown, and have no labels if not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

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


def with_noise(samples):
    xs, _ = plain(samples)
    return xs, torch.randn_like(xs)


def sorted_after_a_change(samples):
    xs, ys = by_value(samples)
    return xs * 2, ys


RAGGED = [(row[:length], label) for row, length, label in zip(ROWS, LENGTHS, LABELS, strict=True)]
PLAIN = TensorDataset(ROWS, LABELS)
REVERSED = list(range(47, -1, -1))
CASES = {
    "computed": (PLAIN, computed, {}, True),
    "sorted by value": (PLAIN, by_value, {}, False),
    "sorted in place": (PLAIN, in_place, {}, False),
    "sorted arrays": ([(x.numpy(), y) for x, y in PLAIN], of_arrays, {}, False),
    "sorted by length": (RAGGED, by_length, {}, False),
    "fixed sampler": (PLAIN, computed, {"sampler": REVERSED}, False),
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


# -- rows that are shown to be the samples ----------------------------------------------------------------


class Numbered(Dataset):
    """Items of several tensors, among them a constant and one of two classes."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, item):
        return {
            "x": self.rows[item],
            "constant": torch.ones(4),
            "class": torch.eye(4)[item % 2],
            "item": item,
        }


class Collate:
    """Make a batch as a generated script does: in some order, of some tensors of the items, and of noise.

    Attributes:
        truth: The items of each batch.
    """

    def __init__(self, first, order, factor):
        self.first, self.order, self.factor, self.truth = first, order, factor, []

    def __call__(self, samples):
        keys = {
            "kept": lambda one: 0,
            "by value": lambda one: float(one["x"][0]),
            "by class": lambda one: (int(one["class"].argmax()), float(one["x"][1])),
            "within classes": lambda one: float(one["x"][1]) if self.first != "x" else 0,
        }
        samples = sorted(samples, key=keys[self.order])
        self.truth.append([one["item"] for one in samples])
        x = torch.stack([one["x"] for one in samples]) * self.factor
        noise = torch.randn(len(samples), 4)
        beside = noise if self.first in ("x", "noise") else torch.stack([one[self.first] for one in samples])
        return (x, noise) if self.first == "x" else (beside, x)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.head = nn.Identity(), nn.Linear(4, 2)

    def forward(self, first, second):
        return self.head(self.seen(first + second))


@pytest.mark.long
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    first=st.sampled_from(["x", "noise", "constant", "class"]),
    order=st.sampled_from(["kept", "by value", "by class", "within classes"]),
    factor=st.sampled_from([1, 2]),
    shuffle=st.booleans(),
    copies=st.integers(1, 3),
    size=st.sampled_from([8, 16]),
    seed=st.integers(0, 9),
)
def test_ids_of_generated_collate_functions_are_those_of_the_items(
    unsent, first, order, factor, shuffle, copies, size, seed
):
    """The judge is the collate function, which notes the items of its rows in their order."""
    torch.manual_seed(seed)
    rows = ROWS.repeat_interleave(copies, 0)[torch.randperm(48 * copies)][:48]
    collate, model = Collate(first, order, factor), Two()
    unsent.clear()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(Numbered(rows), size, shuffle=shuffle, collate_fn=collate)
    with probe(model, HOST, 1, budget=math.inf, structure=False):
        for _ in range(2):
            for inputs in loader:
                optimizer.zero_grad()
                model(*inputs).square().mean().backward()
                optimizer.step()
    records = [one for one in unsent if one.address == "seen"]
    assert len(records) == len(collate.truth)
    for record, items in zip(records, collate.truth, strict=True):
        known = [] if record.items is None or record.items[0] < 0 else record.items.tolist()
        # of exact copies it is not known which is which, and it makes no difference
        assert not known or torch.equal(rows[known], rows[items])
    if factor == 1 and order == "kept" and copies == 1:
        assert [one.items.tolist() for one in records] == collate.truth


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("data", "collate"), [(PLAIN, plain), (RAGGED, padded), (PLAIN, with_noise)])
def test_rows_that_collate_function_keeps_have_the_ids_of_the_sampler(server, data, collate, shuffle):
    """Before, noise beside the rows, as timesteps of a diffusion model, made them look shuffled."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(data, batch_size=16, collate_fn=collate, shuffle=shuffle)
    seen = []
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        for _ in range(2):
            for x, _ in loader:
                seen.append(x)
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
    assert flush(HOST, server.port)
    items = [one.items for one in server.records() if one.address == "0"]
    assert len(items) == len(seen) == 6
    for ids, rows in zip(items, seen, strict=True):
        for number, row in zip(ids.tolist(), rows, strict=True):
            assert torch.equal(row[: len(data[number][0])], data[number][0])
    assert "label i belongs to row i" in watch.status()["items"]
    assert not any("other values" in text for text in watch.status()["faults"])
