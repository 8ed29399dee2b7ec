"""Labels of one dataset are never given to rows of another, whatever tells the datasets apart."""

from __future__ import annotations

import gc
import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from intus.backends.torch.datasets import Datasets
from intus.monitoring import flush, probe

HOST = "127.0.0.1"
GENERATOR = torch.Generator().manual_seed(0)
# The first feature of a row is its number, and above 1000 in the validation set.
ROWS, OTHERS = torch.randn(2, 48, 4, generator=GENERATOR)
ROWS[:, 0], OTHERS[:, 0] = torch.arange(48), torch.arange(48) + 1000
LABELS = torch.arange(48) % 2


class Copies(Dataset):
    """A dataset that makes its rows itself, so that another object of it may hold other rows."""

    def __init__(self, rows):
        self.rows = rows.clone()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, item):
        return self.rows[item], LABELS[item]


def train(server, training, validation, *, epochs=3, changed=lambda x: x):
    """Train without ids; return the records of the first layer, and the probe."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        for _ in range(epochs):
            model.train()
            for x, y in training():
                optimizer.zero_grad()
                F.cross_entropy(model(changed(x)), y).backward()
                optimizer.step()
            model.eval()
            for x, _ in validation():
                model(x)
    assert flush(HOST, server.port)
    return [one for one in server.records() if one.address == "0"], watch


def loader(data, shuffle=False):
    return DataLoader(data, batch_size=16, shuffle=shuffle)


def check(records, *, known):
    """Check that rows in given (epoch, mode) have their own numbers as ids, and others ids of no label."""
    assert records
    for one in records:
        if (one.epoch, one.mode) in known:
            np.testing.assert_array_equal(one.items, one.array[:, 0].astype(np.int64))
        else:
            assert one.items is not None
            assert (one.items < 0).all()


TRAINED = {(1, "train"), (2, "train"), (3, "train")}


def train_twice(model, optimizer, batches):
    """Train a model for two epochs."""
    for _ in range(2):
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


@pytest.mark.parametrize("size", [48, 16])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("data", [ROWS, OTHERS], ids=["the rows of the training", "others"])
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_look_at_a_batch_before_the_training_has_no_labels(server, mode, data, shuffle, size):
    """Before, labels were matched to its rows in the order of the dataset, whatever the sampler's was."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    own, looked = (DataLoader(TensorDataset(one, LABELS), size, shuffle) for one in (ROWS, data))
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        model.train(mode == "train")
        with torch.no_grad():
            model(next(iter(looked))[0])
        model.train()
        train_twice(model, optimizer, own)
    assert flush(HOST, server.port)
    check([one for one in server.records() if one.address == "0"], known={(1, "train"), (2, "train")})
    assert "found from the sampler" in watch.status()["items"]


def joined(batches):
    first, second = next(batches)[0], next(batches)[0]
    return torch.cat([first, second])


def permuted(batches):
    return next(batches)[0].flip(0)


def part(batches):
    return next(batches)[0][:8]


@pytest.mark.parametrize("look", [joined, permuted, part])
@pytest.mark.parametrize("is_early", [True, False], ids=["optimizer first", "look first"])
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_look_at_rows_of_batches_before_the_training_keeps_no_labels(server, shuffle, mode, is_early, look):
    """Before, its rows had the labels in their order of arrival, also after the ids were found."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    own = DataLoader(TensorDataset(ROWS, LABELS), 16, shuffle)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4) if is_early else None
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        model.train(mode == "train")
        with torch.no_grad():
            model(look(iter(own)))
        model.train()
        optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-4)
        train_twice(model, optimizer, own)
    assert flush(HOST, server.port)
    records = [one for one in server.records() if one.address == "0"]
    trained = [one for one in records if one.epoch > 0]
    check(trained, known={(1, "train"), (2, "train")})
    (looked,) = (one for one in records if one.epoch == 0)
    if looked.items is not None:
        assert (looked.items < 0).all()
        return
    (doubt,) = (json.loads(body) for path, body in server.got if path == "/doubts")
    assert (doubt["withdraw"], doubt["until"], doubt["modes"]) == (True, 0, [mode])
    assert any("by order of arrival" in one for one in watch.status()["faults"])


@pytest.mark.parametrize("count", [48, 32], ids=["as-long", "shorter"])
def test_loaders_made_in_each_epoch_keep_datasets_apart(server, count):
    """Memory of a dataset that is gone is used for the next: its address says nothing."""
    rows, labels = OTHERS[:count], LABELS[:count]
    records, watch = train(
        server,
        lambda: loader(TensorDataset(ROWS, LABELS), shuffle=True),
        lambda: loader(TensorDataset(rows, labels)),
        epochs=8,
    )
    check(records, known={(epoch, "train") for epoch in range(1, 9)})
    assert watch.epoch == 8
    assert watch.status()["faults"] == []


def test_validation_set_as_long_as_training_set_has_no_labels(server, caplog):
    caplog.set_level("INFO", "intus.monitoring")
    training, validation = loader(TensorDataset(ROWS, LABELS), True), loader(TensorDataset(OTHERS, LABELS))
    records, _ = train(server, lambda: training, lambda: validation)
    check(records, known=TRAINED)
    assert "another dataset than the rows of the DataLoader over TensorDataset of 48" in caplog.text


def test_validation_on_training_set_has_its_ids(server):
    data = TensorDataset(ROWS, LABELS)
    records, _ = train(server, lambda: loader(data, True), lambda: loader(TensorDataset(ROWS, LABELS)))
    check(records, known=TRAINED | {(1, "eval"), (2, "eval"), (3, "eval")})


def test_training_set_made_anew_of_other_rows_has_labels_in_first_epoch_only(server):
    records, watch = train(server, lambda: loader(Copies(ROWS), True), lambda: ())
    check(records, known={(1, "train")})
    assert watch.epoch == 3
    assert any("made anew" in fault for fault in watch.status()["faults"])


def test_validation_before_the_first_training_pass_gives_no_ids(server):
    """The batches of the training come from no loader, so the loader's dataset is not that of the labels."""
    records, _ = train(
        server,
        lambda: zip(ROWS.split(16), LABELS.split(16), strict=True),
        lambda: loader(TensorDataset(OTHERS, LABELS)),
    )
    assert all((one.items < 0).all() for one in records if one.mode == "eval")


@pytest.mark.parametrize("same", [True, False])
def test_order_of_arrival_is_of_the_rows_of_one_mode(server, caplog, same):
    caplog.set_level("INFO", "intus.monitoring")

    def batches(rows):
        return zip(rows.split(16), LABELS.split(16), strict=True)

    records, _ = train(server, lambda: batches(ROWS), lambda: batches(ROWS if same else OTHERS))
    assert all(one.items is None for one in records if one.mode == "train")
    evaluated = [one.items for one in records if one.mode == "eval"]
    assert len(evaluated) == 9
    assert all(items is None if same else (items < 0).all() for items in evaluated)
    assert ("labels are for the rows of mode train" in caplog.text) != same


def test_evaluation_alone_is_matched_by_order(server):
    records, _ = train(
        server, lambda: (), lambda: zip(OTHERS.split(16), LABELS.split(16), strict=True), epochs=1
    )
    assert [one.items for one in records] == [None] * 3


@pytest.mark.parametrize("is_training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("changes", [True, False], ids=["evolved", "frozen"])
def test_model_that_runs_without_gradients_alone_has_the_ids_of_its_loader(server, is_training, changes):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2)).train(is_training)
    batches = loader(TensorDataset(ROWS, LABELS), True)
    with probe(model, HOST, server.port, structure=False, block=True) as watch, torch.no_grad():
        for _ in range(3):
            for x, _ in batches:
                model(x)
            for parameter in model.parameters() if changes else ():
                parameter += 0.01
    assert flush(HOST, server.port)
    mode = "train" if is_training else "eval"
    records = [one for one in server.records() if one.address == "0"]
    check(records, known={(epoch, mode) for epoch in range(3)})
    assert {one.epoch for one in records} == ({0, 1, 2} if changes else {0})
    assert "label i belongs to row i" in watch.status()["items"]
    assert watch.status()["faults"] == []
    assert ("without gradients alone" in watch.status()["epochs"]) == changes


def test_training_that_follows_an_evaluation_on_other_rows_has_the_labels(server):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        with torch.no_grad():
            for x, _ in loader(TensorDataset(OTHERS, LABELS)):
                model(x)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        for x, _ in loader(TensorDataset(ROWS, LABELS), True):
            model(x).sum().backward()
            optimizer.step()
    assert flush(HOST, server.port)
    records = [one for one in server.records() if one.address == "0" and one.epoch == 1]
    check(records, known={(1, "train")})
    (fault,) = watch.status()["faults"]
    assert "Scores with labels of that time are withdrawn" in fault


def test_two_datasets_that_both_train_are_said_to_have_no_labels_together(server):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    both = [loader(TensorDataset(rows, LABELS), True) for rows in (ROWS, OTHERS)]
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        for _ in range(2):
            for batches in zip(*both, strict=True):
                for x, _ in batches:
                    model(x).sum().backward()
                optimizer.step()
        said = watch.status()["items"]
    assert flush(HOST, server.port)
    for one in (one for one in server.records() if one.address == "0"):
        is_first = one.array[0, 0] < 1000
        assert np.array_equal(one.items, one.array[:, 0]) if is_first else (one.items < 0).all()
    (fault,) = watch.status()["faults"]
    assert "An epoch with rows of both has no scores with labels" in fault
    assert fault in said


class Parts(Dataset):
    """A dataset whose items have a row of their own, and one of another item."""

    def __init__(self, other=7):
        self.other = other

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, item):
        return ROWS[item], ROWS[(item + self.other) % len(ROWS)], torch.ones(4), LABELS[item]


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.head = nn.Identity(), nn.Linear(4, 2)

    def forward(self, x, mask=None):
        x = self.seen(x)
        return self.head(x if mask is None else x * mask)


CALLS = {
    "pair": (lambda model, a, b, mask: (model(a), model(b)), False),
    "triplet": (lambda model, a, b, mask: (model(a), model(b), model(b.clone())), False),
    "shared mask": (lambda model, a, b, mask: (model(a, mask), model(b, mask)), False),
    "mask first": (lambda model, a, b, mask: (model(mask=mask, x=a), model(mask=mask, x=b)), False),
    "other alone after both": (lambda model, a, b, mask: (model(a, b), model(b)), False),
    "same twice": (lambda model, a, b, mask: (model(a), model(a.clone())), True),
    "with and without mask": (lambda model, a, b, mask: (model(a), model(a, mask=mask)), True),
    "named arguments": (lambda model, a, b, mask: (model(x=a, mask=mask), model(x=a, mask=mask)), True),
}


def train_on_parts(server, calls, data):
    model = Two()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        for _ in range(2):
            for a, b, mask, _ in loader(data, shuffle=True):
                optimizer.zero_grad()
                sum(out.square().mean() for out in calls(model, a, b, mask)).backward()
                optimizer.step()
    assert flush(HOST, server.port)
    return [one for one in server.records() if one.address == "seen"], watch


@pytest.mark.parametrize("calls", list(CALLS))
def test_calls_with_another_tensor_of_a_batch_have_no_ids(server, calls):
    function, same = CALLS[calls]
    records, watch = train_on_parts(server, function, Parts())
    own = [one for one in records if (one.items >= 0).all()]
    for one in own:
        np.testing.assert_array_equal(one.items, one.array[:, 0].astype(np.int64))
    assert len(own) == (len(records) if same else 6)
    if same:
        assert watch.status()["faults"] == []
    else:
        assert any("another tensor of the batch" in fault for fault in watch.status()["faults"])
        assert "for some calls only" in watch.status()["items"]


def test_equal_tensor_of_a_batch_has_its_ids(server):
    records, watch = train_on_parts(server, CALLS["pair"][0], Parts(other=0))
    assert len(records) == 12
    assert all((one.items == one.array[:, 0]).all() for one in records)
    assert watch.status()["faults"] == []


def test_numbers_of_datasets():
    datasets, array = Datasets(), np.ones(4)

    def of(*parts):
        return datasets.number(TensorDataset(*parts))

    first = of(ROWS, LABELS)
    assert of(ROWS, LABELS) == first
    assert of(ROWS[:48], LABELS) == of(ROWS[:48], LABELS)
    assert len({first, of(OTHERS, LABELS), of(ROWS[1:], LABELS[1:]), of(LABELS, ROWS), of(ROWS)}) == 5
    assert datasets.number(ConcatDataset([TensorDataset(ROWS)])) == datasets.number(
        ConcatDataset([TensorDataset(ROWS)])
    )
    assert of(ROWS.clone()) != of(ROWS.clone())
    seen = set()
    for _ in range(50):
        listed = [(array, 0)]
        seen.add(datasets.number(listed))
        assert datasets.number(listed) in seen
        del listed
    assert len(seen) == 50
    own = Copies(ROWS)
    number = datasets.number(own)
    assert not datasets.is_gone(number)
    del own
    gc.collect()
    assert datasets.is_gone(number)


def test_tensor_written_between_two_datasets_is_another():
    datasets, rows = Datasets(), ROWS.clone()
    one = datasets.number(TensorDataset(rows))
    rows.copy_(rows.flip(0))
    assert datasets.number(TensorDataset(rows)) != one


@pytest.mark.parametrize("shuffle", [True, False])
def test_batch_written_after_the_loader_gave_it_has_no_ids(server, shuffle):
    def changed(x):
        return x.copy_(x.flip(0))

    records, watch = train(
        server, lambda: loader(TensorDataset(ROWS, LABELS), shuffle), lambda: (), changed=changed, epochs=2
    )
    assert records
    assert all((one.items < 0).all() for one in records)
    assert "written to in place after the DataLoader gave them" in watch.status()["items"]


def test_labels_written_after_the_loader_gave_them_leave_ids(server):
    data = TensorDataset(ROWS, LABELS)

    def training():
        for x, y in loader(data, True):
            y[0] = 1
            yield x, y

    records, _ = train(server, training, lambda: ())
    check(records, known=TRAINED)


BOTH = TensorDataset(torch.cat([ROWS, OTHERS]), torch.cat([LABELS, LABELS]))
SPLITS = {
    "datasets": (TensorDataset(OTHERS, LABELS), TensorDataset(OTHERS + 1000, LABELS)),
    "parts of one": (Subset(BOTH, range(48, 72)), Subset(BOTH, range(72, 96))),
}


def evaluated(server, parts, *, changed=lambda x: x, mode=None, epochs=2, inside=lambda model, x: None):
    """Train, evaluate on the first part in each epoch, on all others after the last; return rows by epoch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def evaluate(part):
        model.eval()
        with torch.no_grad():
            for x, _ in loader(part):
                model(changed(x))
        model.train()

    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        for _ in range(epochs):
            for x, y in loader(Subset(BOTH, range(48)), shuffle=True):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                inside(model, x)
            evaluate(parts[0])
        watch.mode = mode
        for part in parts[1:]:
            evaluate(part)
    assert flush(HOST, server.port)
    found = {}
    for one in server.records():
        if one.address == "0" and one.mode != "train":
            found.setdefault((one.epoch, one.mode), []).append(one.array)
    return {period: np.concatenate(arrays) for period, arrays in found.items()}, watch.status()["faults"]


def rows_of(part):
    return torch.stack([x for x, _ in part]).numpy()


@pytest.mark.parametrize("changed", [lambda x: x, lambda x: x * 2], ids=["as they are", "computed"])
@pytest.mark.parametrize("split", list(SPLITS))
def test_test_set_after_the_training_is_not_in_one_score_with_the_validation_set(server, split, changed):
    parts = SPLITS[split]
    found, faults = evaluated(server, parts, changed=changed)
    assert list(found) == [(1, "eval"), (2, "eval")]
    for rows in found.values():
        np.testing.assert_array_equal(rows, changed(rows_of(parts[0])))
    (fault,) = faults
    assert "one score cannot be of both" in fault
    assert "watch.mode = 'test'" in fault


def test_test_set_in_a_mode_of_its_own_is_recorded(server):
    parts = SPLITS["datasets"]
    found, faults = evaluated(server, parts, mode="test")
    assert list(found) == [(1, "eval"), (2, "eval"), (2, "test")]
    np.testing.assert_array_equal(found[2, "test"], rows_of(parts[1]))
    assert faults == []


def test_second_look_at_the_same_rows_is_recorded(server):
    validation = SPLITS["datasets"][0]
    again = TensorDataset(*validation.tensors)
    found, faults = evaluated(server, (validation, again))
    assert len(found[2, "eval"]) == 2 * len(validation)
    assert faults == []


def test_rows_of_no_loader_do_not_keep_the_validation_set_out(server):
    """Nothing tells where they come from, although the newest batch is the training's."""
    fixed = torch.randn(5, 4)

    def look(model, x):
        model.eval()
        with torch.no_grad():
            model(fixed)
        model.train()

    validation = SPLITS["datasets"][0]
    found, faults = evaluated(server, (validation,), inside=look)
    assert len(found[1, "eval"]) == len(validation) + 3 * len(fixed)
    assert not any("cannot be of both" in fault for fault in faults)
