"""Labels are matched to the right rows, or refused with the reason, however the data is loaded."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    get_worker_info,
)

from intus.backends.torch.loaders import random_loader
from intus.core.errors import InputError
from intus.monitoring import flush, probe, register_targets
from intus.serving.evaluation.arrival_order import BY_ORDER
from intus.serving.run import Server
from intus.storage.database import Database

HOST = "127.0.0.1"
DIGITS = load_digits()
ROWS = torch.tensor(DIGITS.data[:100], dtype=torch.float32) / 16
LABELS = torch.tensor(DIGITS.target[:100])


class Numbered(Dataset):
    """Images with their numbers, for ``Probe.items``."""

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, item):
        return item, ROWS[item]


class ByHand:
    """Random batches without a loader."""

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
    """Return (ids of rows or None, rows) of the first layer, by epoch."""
    records = [one for one in server.records() if one.address == "0"]
    return {
        epoch: (
            [None if one.items is None else one.items.tolist() for one in records if one.epoch == epoch],
            [one.array for one in records if one.epoch == epoch],
        )
        for epoch in sorted({one.epoch for one in records})
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_shuffled_loader_with_ids_matches_every_row(server, workers):
    model = net()
    loader = DataLoader(Numbered(), batch_size=32, shuffle=True, num_workers=workers, drop_last=True)
    with probe(model, HOST, server.port) as watch:
        run_epochs(watch, model, loader, ids=True)
    assert flush(HOST, server.port)
    for ids, arrays in sent(server).values():
        assert [len(one) for one in ids] == [32, 32, 32]
        for rows, array in zip(ids, arrays, strict=True):
            np.testing.assert_allclose(array, model[0](ROWS[rows]).detach().numpy(), rtol=1e-4, atol=1e-6)


def test_labels_of_an_earlier_run_that_later_ones_replace_are_no_fault(server):
    """Before, it was said of the target that it "has no scores there", beside its scores."""
    model = net()
    assert register_targets(HOST, server.port, name="digit", targets=LABELS[:40])
    for is_replaced in (True, False):
        with probe(model, HOST, server.port, run=f"replaced: {is_replaced}") as watch:
            if is_replaced:
                assert watch.register_targets(name="digit", targets=LABELS)
            run_epochs(watch, model, DataLoader(Numbered(), batch_size=32, shuffle=True), ids=True)
        said = [one for one in watch.status()["faults"] if "has 40 labels" in one]
        assert len(said) == (not is_replaced)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("rows") / "x.db"


@pytest.fixture(scope="module")
def real_server(path):
    with Server(database=path, port=0, scores="linear_f1") as running:
        yield running


@pytest.fixture
def scores(request, real_server, path):
    """Return a function that trains without ids, and returns values and notes by epoch, and notices."""
    run, place = request.node.name, (real_server.host, real_server.port)

    def scores(loader, *, times=1, epochs=2):
        model = net()
        assert register_targets(*place, name="digit", targets=LABELS)
        with probe(model, *place, run=run, budget=math.inf) as watch:  # on a busy machine too
            run_epochs(watch, model, loader, ids=False, times=times, epochs=epochs)
            assert flush(*place)
        with Database(path) as database:
            points = database.points(run, "Sequential").where(score="linear_f1", address="0")
            notices = " ".join(str(notice) for notice in database.notices(run))
        values = dict(zip(points["epoch"].tolist(), points["value"].tolist(), strict=True))
        notes = dict(zip(points["epoch"].tolist(), points["note"].tolist(), strict=True))
        return values, notes, notices

    return scores


def about_labels(note):
    """Return what a note says of how labels were matched."""
    return "; ".join(part for part in note.split("; ") if part.startswith("labels"))


@pytest.mark.long
def test_unshuffled_rows_are_matched_by_order(scores):
    values, notes, notices = scores(DataLoader(Numbered(), batch_size=32))
    assert list(values) == [0, 1]
    assert not np.isnan(list(values.values())).any()
    assert {about_labels(note) for note in notes.values()} == {BY_ORDER}
    assert "cannot be matched" not in notices


def test_order_of_single_epoch_is_not_verified(scores):
    values, notes, _ = scores(DataLoader(Numbered(), batch_size=32), epochs=1)
    assert list(values) == [0]
    assert about_labels(notes[0]) == "labels matched by order of arrival, not verified"


def test_scores_are_withdrawn_if_second_epoch_differs(scores, caplog):
    """The data is shuffled by hand, which no loader reveals."""
    values, notes, notices = scores(ByHand())
    assert list(values) == [0]
    assert np.isnan(values[0])
    assert notes[0].startswith("withdrawn: the next epoch began with other rows")
    assert "Scores of the first epoch in mode train are withdrawn" in notices
    assert "it is unknown which rows" in notices
    assert "epoch 1 of Sequential (train) does not begin with the same batch as epoch 0" in caplog.text


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
def test_shuffled_rows_that_are_not_the_loaders_are_refused(server, caplog, options):
    model = net()
    with probe(model, HOST, server.port, structure=False):
        for items, _ in DataLoader(Numbered(), **({"batch_size": 32} | options)):
            model(ROWS[items] + 1e-3)
    assert flush(HOST, server.port)
    ids = np.concatenate([one.items for one in server.records() if one.address == "0"])
    assert (ids < 0).all()
    assert (
        "rows of Sequential (train) do not come in the order of their dataset: a DataLoader over"
        in caplog.text
    )
    assert "Numbered of 100 items draws them" in caplog.text
    assert "Probe.items = ids" in caplog.text
    assert "probe_set" in caplog.text


class Shared(IterableDataset):
    """Rows that workers share as in PyTorch's documentation."""

    def __iter__(self):
        info = get_worker_info()
        first, count = (info.id, info.num_workers) if info else (0, 1)
        return iter([(item, ROWS[item]) for item in range(first, len(ROWS), count)])


MIXED = {
    "iterable": (Shared(), {"num_workers": 2}),
    "persistent": (Shared(), {"num_workers": 2, "persistent_workers": True}),
    "as ready": (Numbered(), {"num_workers": 2, "in_order": False}),
}
IN_ORDER = {
    "alone": (Shared(), {}),
    "one worker": (Shared(), {"num_workers": 1}),
    "indexed": (Numbered(), {"num_workers": 2}),
}


def ids_of(server, loader, changed, epochs=2):
    """Train; return the ids of rows that were recorded of the first layer, and the numbers of these rows."""
    model, numbers = net(), []
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        for watch.epoch in range(epochs):
            for items, rows in loader:
                numbers.append(items.numpy())
                model(changed(rows)).sum().backward()
    assert flush(HOST, server.port)
    ids = [one.items for one in server.records() if one.address == "0"]
    return ids, np.concatenate(numbers), watch.status()


@pytest.mark.parametrize("changed", [lambda x: x, lambda x: x + 1e-3], ids=["as they are", "computed"])
@pytest.mark.parametrize("name", list(MIXED))
def test_rows_of_workers_that_are_mixed_are_refused(server, name, changed):
    """Each epoch begins with the same batch, but rows are not in the order of the dataset."""
    data, options = MIXED[name]
    ids, numbers, status = ids_of(server, DataLoader(data, batch_size=16, **options), changed)
    if name != "as ready":
        assert not np.array_equal(numbers, np.tile(np.arange(100), 2))
    assert all((one < 0).all() for one in ids)
    assert "2 workers come" in status["items"]


@pytest.mark.parametrize("name", list(IN_ORDER))
def test_rows_of_workers_that_keep_their_order_are_matched_by_it(server, name):
    data, options = IN_ORDER[name]
    ids, numbers, _ = ids_of(server, DataLoader(data, batch_size=16, **options), lambda x: x + 1e-3)
    assert np.array_equal(numbers, np.tile(np.arange(100), 2))
    assert all(one is None for one in ids)


def test_reseeded_random_loader_is_refused(scores, caplog):
    generator = torch.Generator()

    class Same(DataLoader):
        def __iter__(self):
            generator.manual_seed(0)
            return super().__iter__()

    values, _, notices = scores(Same(Numbered(), batch_size=32, shuffle=True, generator=generator))
    assert values == {}
    assert "it is unknown which rows" in notices
    assert "draws them with RandomSampler" in caplog.text


def test_evaluation_within_epoch_of_rows_with_ids_has_none(server, caplog):
    """Labels are for the rows that the script names; what the others are is not known."""
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
    assert len(records) == 12
    assert all((one.items < 0).all() == (one.mode == "eval") for one in records)
    assert "order of their dataset" not in caplog.text


def test_evaluation_within_an_epoch_begins_no_epoch(server, caplog):
    """The training goes on with the next batch, which is not the one that the epoch began with."""
    model = net()
    with probe(model, HOST, server.port, structure=False, budget=1000) as watch:
        for batch in ROWS.split(20):
            model.train()
            model(batch)
            model.eval()
            model(ROWS[:10])
        assert not watch.status()["faults"]
    assert flush(HOST, server.port)
    records = [one for one in server.records() if one.address == "0" and one.mode == "train"]
    assert len(records) > 1
    assert all(one.items is None for one in records)  # in their order of arrival
    assert "same batch" not in caplog.text


def test_epoch_that_begins_again_with_another_batch_is_said(server, caplog):
    model = net()
    with probe(model, HOST, server.port, structure=False, budget=1000) as watch:
        for watch.epoch, start in ((0, 0), (1, 0), (0, 10)):
            model(ROWS[start : start + 10])
    assert flush(HOST, server.port)
    assert "epoch 0 of Sequential (train) does not begin with the same batch as it did before" in caplog.text


def test_random_loader_ignores_waiting_and_finished_iterators():
    waiting = iter(DataLoader(Numbered(), batch_size=50, shuffle=True))
    assert random_loader() is None
    next(waiting)
    assert "RandomSampler" in random_loader()
    next(waiting)
    assert random_loader() is None


@pytest.mark.parametrize(
    ("options", "times", "count"), [({"drop_last": True}, 1, 96), ({}, 2, 200)], ids=["dropped", "twice"]
)
def test_unequal_counts_of_rows_and_labels_are_refused(scores, options, times, count):
    values, _, notices = scores(DataLoader(Numbered(), batch_size=32, **options), times=times)
    assert values == {}
    assert f"has 100 labels, but '0' of 'Sequential' (output in mode train) sent {count} rows" in notices
    assert "probe.items = ids" in notices
    assert "probe_set" in notices
    assert ("probe(budget=...)" in notices) == (count < 100)


@pytest.mark.parametrize(
    ("wrong", "refused"), [(range(4), "unknown which rows"), ([2], "32 of the 100 rows of")]
)
def test_ids_that_do_not_fit_rows_are_refused(real_server, path, request, caplog, wrong, refused):
    """Before, they were dropped, and labels of shuffled rows were matched by order of arrival."""
    run, place = request.node.name, (real_server.host, real_server.port)
    assert register_targets(*place, name="digit", targets=LABELS)
    model = net()
    with probe(model, *place, run=run) as watch:
        watch.epoch = 0
        for number, rows in enumerate(
            torch.randperm(100, generator=torch.Generator().manual_seed(1)).split(32)
        ):
            watch.items = rows[:-1] if number in wrong else rows
            model(ROWS[rows])
    assert flush(*place)
    with Database(path) as database:
        assert len(database.points(run, "Sequential").where(target="digit")) == 0
        texts = [notice["text"] for notice in database.notices(run) if notice["run"] == run]
    assert any(refused in text for text in texts)
    assert any(
        f"in {len(wrong)} of 4 passes, Probe.items had another number of ids" in text for text in texts
    )
    assert watch.status()["troubles"] == len(wrong)
    assert any("Probe.items had 31 ids" in fault for fault in watch.status()["faults"])
    assert caplog.text.count("Probe.items had 31 ids for a pass of Sequential whose arrays have 32 rows") == 1


def test_skipped_passes_warn_without_ids(server, caplog, monkeypatch):
    monkeypatch.setattr("intus.monitoring.budget.FREE_S", 0.0)
    model = net()
    with probe(model, HOST, server.port, budget=1e-9, structure=False) as watch:
        for _ in range(5):
            model(ROWS)
    assert watch.status()["skipped"] > 0
    assert caplog.text.count("the probe of Sequential skips passes") == 1
    assert (
        "Probe.items = ids before each call, pass a probe_set to probe(), or raise its budget=" in caplog.text
    )


def test_accumulation_and_checkpointing_record_each_row_once(server):
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


def test_shared_module_has_an_address_per_call(server):
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
def test_batch_axis_of_recurrent_layers(server, kind, batch_first):
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


def test_batch_axis_of_unbatched_sequence(server):
    model = nn.Sequential(nn.LSTM(3, 5))
    with probe(model, HOST, server.port):
        model(torch.randn(7, 3))
    assert flush(HOST, server.port)
    assert {one.batch_axis for one in server.records()} == {0}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "near"),
    [("epch", "'epoch'"), ("item", "'items'"), ("run", r"probe\(...\)"), ("model", r"probe\(...\)")],
)
def test_misspelled_setting_is_refused(unused_port, name, near):
    with probe(net(), HOST, unused_port) as watch, pytest.raises(InputError, match=rf"no '{name}'.*{near}"):
        setattr(watch, name, 1)


@pytest.mark.parametrize("own_mode", [False, True])
def test_rows_beside_others_with_ids_in_an_epoch_are_told(real_server, path, request, own_mode):
    """Rows of another dataset have no ids; in a mode of their own they take no scores from the others."""
    run, place = request.node.name, (real_server.host, real_server.port)
    assert register_targets(*place, name="digit", targets=LABELS)
    model = net()
    with probe(model, *place, run=run, block=True) as watch:
        for watch.epoch in (1, 2):
            for rows in torch.randperm(100).split(25):
                watch.items = rows
                model(ROWS[rows])
            if watch.epoch == 2:
                watch.mode = "other" if own_mode else None
                model(ROWS[:25] + 1)
                watch.mode = None
    assert flush(*place)
    told = [fault for fault in watch.status()["faults"] if "recorded passes" in fault]
    assert len(told) == (not own_mode)
    for fault in told:
        assert fault.startswith(
            "Epoch 2 of Sequential: 1 of 5 recorded passes in mode train have no item ids"
        )
    with Database(path) as database:
        points = database.points(run, "Sequential").where(target="digit")
        texts = [notice["text"] for notice in database.notices(run)]
    assert set(points["epoch"]) == ({1, 2} if own_mode else {1})
    assert set(points["mode"]) == {"train"}
    assert all(fault in texts for fault in told)


def test_passes_without_ids_are_no_fault_where_no_labels_are(server):
    model = net()
    with probe(model, HOST, server.port, block=True) as watch:
        watch.items = range(100)
        model(ROWS)
        model(ROWS)
    assert flush(HOST, server.port)
    assert watch.status()["faults"] == []
