"""Which rows carry which label: right, or refused with the reason, however the data are loaded."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SubsetRandomSampler

from intus.backends.torch.loaders import random_loader
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


class ByHand:
    """Batches that are drawn at random without any loader."""

    def __iter__(self):
        for items in torch.randperm(100).split(32):
            yield items, ROWS[items]


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


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("rows") / "x.db"


@pytest.fixture(scope="module")
def real_server(path):
    with Server(database=path, port=0) as running:
        yield running


@pytest.fixture
def scores(request, real_server, path):
    """Epochs that were scored against the labels, and what was told of them, of rows without ids."""
    run, place = request.node.name, (real_server.host, real_server.port)

    def scores(loader, *, times=1, epochs=2):
        model = net()
        assert register_targets(*place, name="digit", targets=LABELS)
        with probe(model, *place, run=run) as watch:
            run_epochs(watch, model, loader, ids=False, times=times, epochs=epochs)
            assert flush(*place)
        with Database(path) as database:
            points = database.points(run, "Sequential").where(score="linear_f1", address="0")
            told = " ".join(str(notice) for notice in database.notices(run))
        values = dict(zip(points["epoch"].tolist(), points["value"].tolist(), strict=True))
        notes = dict(zip(points["epoch"].tolist(), points["note"].tolist(), strict=True))
        return values, notes, told

    return scores


def test_rows_in_order_are_known_by_their_order(scores):
    values, notes, told = scores(DataLoader(Numbered(), batch_size=32))
    assert list(values) == [0, 1]
    assert not np.isnan(list(values.values())).any()
    assert set(notes.values()) == {"labels matched by order of arrival"}  # the second verified the first
    assert "cannot be matched" not in told


def test_the_order_of_a_single_epoch_is_not_verified(scores):
    values, notes, _ = scores(DataLoader(Numbered(), batch_size=32), epochs=1)
    assert list(values) == [0]
    assert notes[0] == "labels matched by order of arrival, not verified"


def test_what_a_second_epoch_disproves_is_withdrawn(scores, caplog):
    """Shuffled by hand: no loader tells it."""
    values, notes, told = scores(ByHand())
    assert list(values) == [0]
    assert np.isnan(values[0])
    assert notes[0].startswith("withdrawn: the next epoch began with other rows")
    assert "Scores of the first epoch are withdrawn" in told
    assert "it is unknown which rows" in told
    assert (
        "epoch 1 of Sequential (train) does not begin with the batch that epoch 0 began with" in caplog.text
    )


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True},
        {"shuffle": True, "drop_last": True},
        {"shuffle": True, "num_workers": 2, "persistent_workers": True},
        {"sampler": SubsetRandomSampler(range(100))},
        {"batch_size": None, "sampler": BatchSampler(RandomSampler(range(100)), 32, False)},
    ],
    ids=["plain", "drop_last", "workers", "subset", "batches"],
)
def test_a_shuffled_loader_without_ids_is_refused_at_once(server, caplog, options):
    model = net()
    with probe(model, HOST, server.port, structure=False):
        for items, _ in DataLoader(Numbered(), **({"batch_size": 32} | options)):
            model(ROWS[items])
    assert flush(HOST, server.port)
    ids = np.concatenate([one.items for one in server.records() if one.address == "0"])
    assert (ids < 0).all()
    assert (
        "the rows of Sequential come in random order: a DataLoader over Numbered of 100 items" in caplog.text
    )
    assert "Probe.items = ids" in caplog.text
    assert "probe_set" in caplog.text


def test_a_loader_that_draws_the_same_every_time_is_refused_too(scores, caplog):
    same = torch.Generator()

    class Same(DataLoader):
        def __iter__(self):
            same.manual_seed(0)
            return super().__iter__()

    values, _, told = scores(Same(Numbered(), batch_size=32, shuffle=True, generator=same))
    assert values == {}
    assert "it is unknown which rows" in told
    assert "draws them with RandomSampler" in caplog.text


def test_an_evaluation_in_the_midst_of_a_shuffled_epoch_has_its_own_order(server, caplog):
    model = net()
    with probe(model, HOST, server.port, structure=False) as watch:
        for number, (items, rows) in enumerate(DataLoader(Numbered(), batch_size=10, shuffle=True)):
            watch.items = items
            model(rows)
            if number == 5:
                model.eval()
                for _, rows in DataLoader(Numbered(), batch_size=50):
                    model(rows)
                model.train()
    assert flush(HOST, server.port)
    records = [one for one in server.records() if one.address == "0"]
    assert all((one.items is None) == (one.mode == "eval") for one in records)
    assert "random order" not in caplog.text


def test_iterators_that_wait_or_are_done_tell_nothing():
    waiting = iter(DataLoader(Numbered(), batch_size=50, shuffle=True))
    assert random_loader() is None
    next(waiting)
    assert "RandomSampler" in random_loader()
    next(waiting)
    assert random_loader() is None


@pytest.mark.parametrize(
    ("options", "times", "count"), [({"drop_last": True}, 1, 96), ({}, 2, 200)], ids=["dropped", "twice"]
)
def test_other_counts_are_refused_with_both(scores, options, times, count):
    values, _, told = scores(DataLoader(Numbered(), batch_size=32, **options), times=times)
    assert values == {}
    assert f"has 100 labels, but '0' of 'Sequential' sent {count} rows" in told
    assert "probe.items = ids" in told
    assert "probe_set" in told
    assert ("probe(budget=...)" in told) == (count < 100)


def test_passes_left_out_for_the_budget_are_said_where_rows_have_no_ids(server, caplog, monkeypatch):
    monkeypatch.setattr("intus.monitoring.budget.FREE_S", 0.0)
    model = net()
    with probe(model, HOST, server.port, budget=1e-9, structure=False) as watch:
        for _ in range(5):
            model(ROWS)
    assert watch.status()["skipped"] > 0
    assert caplog.text.count("leaves passes out") == 1
    assert "Probe.items = ids), let the probe run a probe_set, or give it more (budget=)" in caplog.text


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
