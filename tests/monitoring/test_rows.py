"""Which rows carry which label: right, or refused with the reason, however the data are loaded."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from intus.core.errors import InputError
from intus.monitoring import flush, probe, register_targets
from intus.serving.run import Server
from intus.storage.database import Database

HOST = "127.0.0.1"
DIGITS = load_digits()
ROWS = torch.tensor(DIGITS.data[:100], dtype=torch.float32) / 16
LABELS = torch.tensor(DIGITS.target[:100])


class Numbered(Dataset):
    """Images with their numbers, which is what ``Probe.items`` wants."""

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, item):
        return item, ROWS[item]


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 8), nn.ReLU())


def run_epochs(watch, model, loader, *, ids, epochs=2, times=1):
    for watch.epoch in range(epochs):
        for items, rows in loader:
            for _ in range(times):
                watch.items = items if ids else None
                model(rows)


def sent(server):
    """(rows' ids or None, rows) of the first layer, by epoch."""
    records = [one for one in server.records() if one.address == "0"]
    return {
        epoch: (
            [None if one.items is None else one.items.tolist() for one in records if one.epoch == epoch],
            [one.array for one in records if one.epoch == epoch],
        )
        for epoch in sorted({one.epoch for one in records})
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shuffled_loader_with_ids_is_right_row_by_row(server, workers):
    model = net()
    loader = DataLoader(Numbered(), batch_size=32, shuffle=True, num_workers=workers, drop_last=True)
    with probe(model, HOST, server.port) as watch:
        run_epochs(watch, model, loader, ids=True)
    assert flush(HOST, server.port)
    for ids, arrays in sent(server).values():
        assert [len(one) for one in ids] == [32, 32, 32]
        for rows, array in zip(ids, arrays, strict=True):
            np.testing.assert_allclose(array, model[0](ROWS[rows]).detach().numpy(), rtol=1e-4, atol=1e-6)


def scores(tmp_path, loader, *, targets=LABELS, times=1):
    """Epochs that were scored against the labels, and what was told of them, of rows without ids."""
    with Server(database=tmp_path / "x.db", port=0) as server:
        model = net()
        assert register_targets(server.host, server.port, name="digit", targets=targets)
        with probe(model, server.host, server.port, run="r") as watch:
            run_epochs(watch, model, loader, ids=False, times=times)
            assert flush(server.host, server.port)
    with Database(tmp_path / "x.db") as database:
        points = database.points("r", "Sequential").where(score="linear_f1", address="0")
        told = " ".join(str(notice) for notice in database.notices())
        return points["epoch"].tolist(), told


def test_rows_in_order_are_known_by_their_order(tmp_path):
    epochs, told = scores(tmp_path, DataLoader(Numbered(), batch_size=32))
    assert epochs == [0, 1]
    assert "cannot be matched" not in told


def test_a_shuffled_loader_without_ids_is_refused_once_it_shows(tmp_path, caplog):
    torch.manual_seed(5)
    epochs, told = scores(tmp_path, DataLoader(Numbered(), batch_size=32, shuffle=True))
    assert 1 not in epochs
    said = caplog.text
    assert "nobody knows which rows" in told
    assert "epoch 1 of Sequential (train) does not begin with the batch that epoch 0 began with" in said


@pytest.mark.parametrize(
    ("options", "times", "count"), [({"drop_last": True}, 1, 96), ({}, 2, 200)], ids=["dropped", "twice"]
)
def test_other_counts_are_refused_with_both(tmp_path, options, times, count):
    epochs, told = scores(tmp_path, DataLoader(Numbered(), batch_size=32, **options), times=times)
    assert epochs == []
    assert f"has 100 labels, but '0' of 'Sequential' sent {count} rows" in told


def test_passes_left_out_for_the_budget_are_said_where_rows_have_no_ids(server, caplog, monkeypatch):
    monkeypatch.setattr("intus.monitoring.budget.FREE_S", 0.0)
    model = net()
    with probe(model, HOST, server.port, budget=1e-9, structure=False) as watch:
        for _ in range(5):
            model(ROWS)
    assert watch.status()["skipped"] > 0
    assert caplog.text.count("leaves passes out") == 1


def test_gradient_accumulation_and_checkpointing_see_each_row_once(server):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(64, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.head(checkpoint(self.body, x, use_reentrant=False).relu())

    model = Twice()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with probe(model, HOST, server.port, kinds=("output", "grad_output")) as watch:
        for step, items in enumerate(torch.arange(100).split(25)):
            watch.items = items
            model(ROWS[items]).square().mean().backward()
            if step % 2:
                optimizer.step()
                optimizer.zero_grad()
    assert flush(HOST, server.port)
    for address, kind in (("body", "output"), ("head", "output"), ("head", "grad_output")):
        ids = [one.items for one in server.records() if (one.address, one.kind) == (address, kind)]
        assert np.array_equal(np.concatenate(ids), np.arange(100))


def test_a_shared_module_has_a_line_for_each_of_its_calls(server):
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(64, 64)

        def forward(self, x):
            return self.one(self.one(x).relu())

    model = Shared()
    with probe(model, HOST, server.port) as watch:
        watch.items = range(10)
        out = model(ROWS[:10])
    assert flush(HOST, server.port)
    by = {one.address: one for one in server.records()}
    assert set(by) == {"", "one", "one:2"}
    assert all(one.items.tolist() == list(range(10)) for one in by.values())
    assert np.array_equal(by["one:2"].array, out.detach().numpy())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("batch_first", [False, True])
def test_recurrent_layers_say_where_their_rows_lie(server, kind, batch_first):
    model = nn.Sequential(kind(3, 5, batch_first=batch_first))
    shape = (2, 7, 3) if batch_first else (7, 2, 3)
    with probe(model, HOST, server.port, kinds=("output", "input", "grad_output"), rows=1) as watch:
        watch.items = [4, 9]
        model(torch.randn(shape))[0].sum().backward()
    assert flush(HOST, server.port)
    records = [one for one in server.records() if one.address == "0"]
    assert {one.kind for one in records} == {"output", "input", "grad_output"}
    for one in records:
        assert one.batch_axis == (0 if batch_first else 1)
        assert one.array.shape[:2] == ((1, 7) if batch_first else (7, 1))
        assert one.items.tolist() == [4]


def test_an_item_of_time_alone_has_no_batch_axis_of_its_own(server):
    model = nn.Sequential(nn.LSTM(3, 5))
    with probe(model, HOST, server.port):
        model(torch.randn(7, 3))
    assert flush(HOST, server.port)
    assert {one.batch_axis for one in server.records()} == {0}


@pytest.mark.parametrize(
    ("name", "near"),
    [("epch", "'epoch'"), ("item", "'items'"), ("run", r"probe\(...\)"), ("model", r"probe\(...\)")],
)
def test_a_misspelt_setting_is_said(nobody, name, near):
    with probe(net(), HOST, nobody) as watch, pytest.raises(InputError, match=rf"no '{name}'.*{near}"):
        setattr(watch, name, 1)
