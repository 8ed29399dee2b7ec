"""Epochs that a probe finds by itself are those that the script trains, or it says that they are not."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from itertools import cycle, islice

import pytest
import torch
from seen_net import Net
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Subset, TensorDataset, random_split

from intus.backends.base import for_model
from intus.backends.torch import TorchBackend
from intus.monitoring import probe
from intus.serving.run import Server

ROWS = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
LABELS = (ROWS[:, 0] > 0).long()
DATA = TensorDataset(ROWS, LABELS)


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
    with Server(database=tmp_path_factory.mktemp("epochs") / "x.db", port=0, scores="mean") as server:
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


def test_training_on_one_batch_hashes_it_once_a_step(watched, kept, monkeypatch):
    """Find an epoch in each step, and hash the batch for it and for the order of rows at once."""
    hashed = []
    order = TorchBackend.order

    def counted(*args, **options):
        hashed.append(1)
        return order(*args, **options)

    monkeypatch.setattr(TorchBackend, "order", counted)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = watched(model, which="seen", budget=float("inf"))
    for _ in range(5):
        step(model, optimizer, ROWS, LABELS)
    watch.remove()
    assert rows_of_epochs(kept) == dict.fromkeys(range(1, 6), len(ROWS))
    assert len(hashed) == 5


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


def loader_of(data=DATA, size=20):
    return DataLoader(data, batch_size=size, shuffle=True)


def zipped(train):
    for _ in range(2):
        for one, other in zip(loader_of(), loader_of(), strict=True):
            train(*one)
            train(*other)


def zipped_in_one_step(train):
    for _ in range(2):
        for (x, y), (other, _) in zip(loader_of(), loader_of(), strict=True):
            train(x, y, other)


def zipped_halves(train):
    first, second = random_split(DATA, [30, 30])
    for _ in range(2):
        for one, other in zip(loader_of(first, 10), loader_of(second, 10), strict=True):
            train(*one)
            train(*other)


def replayed(train, *, before=False):
    """Each step takes a batch of an earlier task too, by a loader that is broken off."""
    old = loader_of(Subset(DATA, range(10)), 5)
    for task in (0, 30):
        new = loader_of(Subset(DATA, range(task, task + 30)), 10)
        for _ in range(2):
            iterator = iter(new)
            for _ in range(3):
                batches = [next(iter(old)), next(iterator)]
                for batch in batches if before else batches[::-1]:
                    train(*batch)


def replayed_in_loops(train):
    old = loader_of(Subset(DATA, range(10)), 5)
    for task in (0, 30):
        for _ in range(2):
            for batch in loader_of(Subset(DATA, range(task, task + 30)), 10):
                for again in old:
                    train(*again)
                    break
                train(*batch)


def cycled(train, *, before=False):
    """A short loader begins anew within the epochs of a long one."""
    short = loader_of(Subset(DATA, range(10)), 5)
    others = iter(short)
    for _ in range(2):
        for batch in loader_of():
            try:
                other = next(others)
            except StopIteration:
                others = iter(short)
                other = next(others)
            for one in (other, batch) if before else (batch, other):
                train(*one)


def broken_off(train):
    for _ in range(3):
        for number, batch in enumerate(loader_of()):
            train(*batch)
            if number == 1:
                break


def endless(train):
    loader = loader_of()
    batches = iter(loader)
    for _ in range(8):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)
            batch = next(batches)
        train(*batch)


def forgotten(train):
    """An iterator that is kept, but gives no more batches."""
    kept = iter(loader_of())
    train(*next(kept))
    for _ in range(4):
        for batch in loader_of():
            train(*batch)
    assert kept


def another_dataset(train):
    """Datasets that are made anew in each epoch."""
    for _ in range(3):
        for number, batch in enumerate(loader_of(TensorDataset(ROWS.clone(), LABELS))):
            train(*batch)
            if number == 1:
                break


LOOPS = {
    "zipped": (zipped, {1: 120, 2: 120}),
    "zipped in one step": (zipped_in_one_step, {1: 120, 2: 120}),
    "zipped halves": (zipped_halves, {1: 60, 2: 60}),
    "replayed": (replayed, {1: 45, 2: 45, 3: 45, 4: 45}),
    "replayed before": (partial(replayed, before=True), {1: 45, 2: 45, 3: 45, 4: 45}),
    "replayed in loops": (replayed_in_loops, {1: 45, 2: 45, 3: 45, 4: 45}),
    "cycled": (cycled, {1: 75, 2: 75}),
    "cycled before": (partial(cycled, before=True), {1: 75, 2: 75}),
    "broken off": (broken_off, {1: 40, 2: 40, 3: 40}),
    "endless": (endless, {1: 60, 2: 60, 3: 40}),
    "forgotten": (forgotten, {1: 80, 2: 60, 3: 60, 4: 60}),
    "another dataset": (another_dataset, {1: 40, 2: 40, 3: 40}),
}


@pytest.mark.parametrize("name", list(LOOPS))
def test_epochs_of_loops_over_several_loaders(watched, kept, name):
    """Before, each iteration over a dataset was an epoch, also of one that gives a batch in each step."""
    loop, rows = LOOPS[name]
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def train(x, y, other=None):
        if other is not None:
            model(other).sum().backward()
        step(model, optimizer, x, y)

    with watched(model) as watch:
        loop(train)
        how = watch.status()["epochs"]
    assert rows_of_epochs(kept) == rows
    assert "Set watch.epoch" not in how
    assert ("meanwhile, which counts none" in how) == any(
        word in name for word in ("zipped", "replayed", "cycled", "forgotten")
    )


def test_evaluation_as_in_training_is_said_to_be_in_the_next_epoch(watched, kept):
    model, loader = Net(), loader_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with watched(model) as watch:
        for _ in range(3):
            for x, y in loader:
                step(model, optimizer, x, y)
            for x, _ in loader:
                model(x)
    assert rows_of_epochs(kept) == {1: 60, 2: 120, 3: 120, 4: 60}
    (fault,) = watch.status()["faults"]
    assert "Epoch 2 has the passes of 2 iterations" in fault
    assert fault in watch.status()["epochs"]


def kept_batches(watched, *, epochs=3):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with watched(model) as watch:
        batches = list(loader_of())
        for epoch in range(epochs):
            for x, y in batches[epoch:] + batches[:epoch]:
                step(model, optimizer, x, y)
    return watch


def frozen_body(watched):
    model, head = Net().requires_grad_(requires_grad=False), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(head.parameters(), 0.05)
    with watched(model) as watch:
        for _ in range(3):
            for x, y in loader_of():
                F.cross_entropy(head(model(x)), y).backward()
                optimizer.step()
    return watch


def untrained_part(watched):
    whole = nn.Sequential(Net(), nn.Linear(2, 2))
    optimizer = torch.optim.AdamW(whole[1].parameters(), 0.05, fused=True)
    with watched(whole[0]) as watch:
        for _ in range(3):
            for x, y in loader_of():
                step(whole, optimizer, x, y)
    return watch


@pytest.mark.parametrize(
    ("train", "reason"),
    [
        (kept_batches, "8 passes followed the end of an iteration that gave 3 batches"),
        (frozen_body, "although another iteration began 2 times"),
        (untrained_part, "although another iteration began 2 times"),
    ],
)
def test_epochs_that_are_not_found_are_said(watched, kept, train, reason):
    """Before, the status said "found" although all was one epoch."""
    watch = train(watched)
    assert rows_of_epochs(kept) == {1: 180}
    for text in (watch.status()["epochs"], *watch.status()["faults"]):
        assert "No new epoch was found since epoch 1" in text
        assert reason in text
        assert "Set watch.epoch = number before each epoch" in text
    assert len(watch.status()["faults"]) == 1


def teacher(watched, *, is_kept, changes=False, epochs=3):
    """Distill a model that is evaluated alone, and return its probe, and the model if it is kept."""
    model, student = Net().eval(), Net()
    optimizer = torch.optim.SGD(student.parameters(), 0.05)
    with watched(student), watched(model, name="teacher") as watch:
        for epoch in range(epochs):
            for x, _ in loader_of():
                with torch.no_grad():
                    goal = model(x)
                optimizer.zero_grad()
                F.mse_loss(student(x), goal).backward()
                optimizer.step()
            if changes:
                model.head.bias.data.fill_(epoch + 1.0)
        if not is_kept:
            del model
    return watch, model if is_kept else None


@pytest.mark.parametrize("is_kept", [True, False], ids=["a model", "a model that is gone"])
def test_passes_of_a_model_that_does_not_change_are_said_to_be_one_epoch(watched, is_kept):
    """Before, nothing was said, or of a model that is gone that no DataLoader gave the batches."""
    watch, _ = teacher(watched, is_kept=is_kept)
    how = watch.status()["epochs"]
    assert how.startswith("not found. All passes are in epoch 0, over 3 iterations of the DataLoader over ")
    assert "because the parameters did not change" in how
    assert watch.status()["faults"] == []
    assert watch.status()["items"].startswith("Items are found from the sampler of the DataLoader")


def test_evaluation_of_each_state_of_a_model_is_an_epoch_without_a_fault(watched):
    watch, _ = teacher(watched, is_kept=True, changes=True)
    assert (watch.epoch, watch.status()["faults"]) == (2, [])


def test_one_evaluation_of_a_model_is_no_fault(watched):
    watch, _ = teacher(watched, is_kept=True, epochs=1)
    assert watch.status()["faults"] == []


@pytest.mark.parametrize("is_drawn", [True, False])
def test_epochs_of_unequal_lengths_are_said_to_be_doubtful(watched, kept, is_drawn):
    """Before, a batch that was drawn again from a replay buffer began an epoch without a word."""
    model, draw = Net(), random.Random(0)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    batches = [(x.clone(), y.clone()) for x, y in loader_of()]
    with watched(model) as watch:
        for number in range(40):
            step(model, optimizer, *(draw.choice(batches) if is_drawn else batches[number % len(batches)]))
    found = [fault for fault in watch.status()["faults"] if "as from a replay buffer" in fault]
    assert len(found) == is_drawn
    assert ("as from a replay buffer" in watch.status()["epochs"]) == is_drawn


def test_one_epoch_of_kept_batches_is_no_fault(watched, kept):
    watch = kept_batches(watched, epochs=1)
    assert not watch.status()["faults"]
    assert "Set watch.epoch" not in watch.status()["epochs"]


def cycled_batches(model, optimizer, loader, steps):
    batches = cycle(loader)
    for _ in range(steps):
        step(model, optimizer, *next(batches))


@pytest.mark.parametrize("shuffle", [False, True])
def test_epochs_of_cycled_batches_begin_with_the_first_again(watched, kept, shuffle):
    """Before, all was one epoch, in which labels were refused without a word of the client."""
    torch.manual_seed(0)
    model = Net()
    with watched(model) as watch:
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        cycled_batches(model, optimizer, DataLoader(DATA, batch_size=10, shuffle=shuffle), 15)
        epochs, items = watch.status()["epochs"], watch.status()["items"]
    assert rows_of_epochs(kept) == {1: 60, 2: 60, 3: 30}
    assert "an epoch begins when the first of them comes again" in epochs
    assert "for its first iteration alone" in items
    assert watch.status()["faults"] == [items]
    for record in kept:
        if record.address == "seen":
            known = [int((row == ROWS).all(1).nonzero()) for row in torch.from_numpy(record.array)]
            assert (record.items.tolist() == known) if record.epoch == 1 else (record.items < 0).all()


def test_cycled_batches_without_a_step_begin_no_epoch(watched, kept):
    model = Net()
    with watched(model):
        batches = cycle(DataLoader(DATA, batch_size=20))
        for _ in range(6):
            model(next(batches)[0])
    assert rows_of_epochs(kept) == {1: 120}


def test_pass_before_the_training_is_said_to_be_in_its_first_epoch(watched, kept, caplog):
    caplog.set_level("INFO", "intus.monitoring")
    model, loader = Net(), loader_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with watched(model) as watch:
        model(next(iter(loader))[0])
        for _ in range(2):
            for x, y in loader:
                step(model, optimizer, x, y)
    assert rows_of_epochs(kept) == {1: 80, 2: 60}
    assert caplog.text.count("Epoch 1 also has the rows of one pass with a batch of the DataLoader") == 1
    assert watch.status()["faults"] == []


@pytest.mark.parametrize("workers", [0, 1])
def test_probe_attached_within_an_epoch_finds_the_next(watched, kept, workers):
    """Before, the rest of the first epoch and the second were one."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    watch = None
    loader = DataLoader(
        DATA, batch_size=20, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    for _ in range(3):
        for number, (x, y) in enumerate(loader):
            if watch is None and number == 1:
                watch = watched(model)
            step(model, optimizer, x, y)
    watch.remove()
    assert rows_of_epochs(kept) == {1: 40, 2: 60, 3: 60}
    for record in kept:  # the first batch came before the probe, and workers had drawn the next
        if record.address == "seen" and record.epoch > 1:
            assert torch.equal(ROWS[record.items], torch.as_tensor(record.array))


class Skips(BatchSampler):
    """Leaves out the first batches of another, as the one of accelerate, which has no ``sampler``."""

    def __init__(self, batch_sampler, skipped):
        self.batch_sampler, self.skipped = batch_sampler, skipped

    def __iter__(self):
        return islice(self.batch_sampler, self.skipped, None)

    def __len__(self):
        return len(self.batch_sampler) - self.skipped


class Bare(BatchSampler):
    """Has none of the attributes of torch's class, so that its length is an AttributeError."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def batch_samplers():
    """Return batch samplers for the first epoch, and the rows that they give."""
    random = BatchSampler(RandomSampler(DATA), 10, drop_last=False)
    return {
        "skips": (Skips(random, 2), 40),
        "skips of skips": (Skips(Skips(random, 1), 1), 40),
        "bare": (Bare([[5, 3, 8], [59, 1], [2]]), 6),
        "no class of torch": ([[5, 3], [7, 1]], 4),
    }


@pytest.mark.parametrize("how", list(batch_samplers()))
@pytest.mark.parametrize("ids_set", [False, True])
def test_first_epoch_of_another_batch_sampler_is_an_epoch_of_its_own(watched, kept, how, ids_set):
    """Tell the rest of an epoch that accelerate's ``skip_first_batches`` resumes from the next one."""
    torch.manual_seed(0)
    model, (first, rows) = Net(), batch_samplers()[how]
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    whole = DataLoader(DATA, batch_size=10, shuffle=True)
    with watched(model) as watch:
        for loader in (DataLoader(DATA, batch_sampler=first), whole, whole):
            for x, y in loader:
                if ids_set:  # epochs do not depend on who names the rows
                    watch.items = torch.arange(len(x))
                step(model, optimizer, x, y)
    assert rows_of_epochs(kept) == {1: rows, 2: 60, 3: 60}
    assert {record.mode for record in kept} == {"train"}
    assert watch.status()["faults"] == []
    if not ids_set:
        seen = [record for record in kept if record.address == "seen"]
        assert all((record.array == ROWS.numpy()[record.items]).all() for record in seen)


def test_subset_that_cannot_be_read_has_epochs_and_a_reason_for_rows_without_ids(watched, kept):
    class Own(Subset):
        def __init__(self, dataset):
            self.dataset = dataset

        def __len__(self):
            return len(self.dataset)

        def __getitem__(self, index):
            return self.dataset[index]

        def __getitems__(self, indices):
            return [self.dataset[index] for index in indices]

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    loader = DataLoader(Own(DATA), batch_size=20, shuffle=True)
    with watched(model) as watch:
        for _ in range(2):
            for x, y in loader:
                step(model, optimizer, x, y)
    assert rows_of_epochs(kept) == {1: 60, 2: 60}
    assert "cannot be read (AttributeError: 'Own' object has no" in watch.status()["items"]


def test_average_that_is_evaluated_after_each_epoch_is_not_called_untrained(watched, kept):
    """Its epoch 0 is the average after epoch 1 of the model that is trained."""
    torch.manual_seed(0)
    model = Net()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=None)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with watched(average.module, name="average") as watch:
        for _ in range(3):
            for x, y in DataLoader(DATA, batch_size=20, shuffle=True):
                step(model, optimizer, x, y)
                average.update_parameters(model)
            with torch.no_grad():
                for x, _ in DataLoader(DATA, batch_size=30):
                    average.module.eval()(x)
    assert rows_of_epochs(kept) == {0: 60, 1: 60, 2: 60}
    assert "average of another model after epoch 1 of that one is epoch 0 here" in watch.status()["epochs"]
