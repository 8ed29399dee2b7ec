"""Epochs of loops beside which an iterator over a loader is kept open are those of the loop."""

from __future__ import annotations

import random
from functools import partial
from itertools import cycle, islice, product

import pytest
import torch
from epochs_of_loops import Truth, fault_of, sentences
from seeds import seeds
from seen_net import Net
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset

from intus.monitoring import probe
from intus.monitoring.tap.model_tap import ModelTap

EPOCHS, BATCH = 4, 10
ROWS = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
OTHER = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
DATA, VALIDATION = (TensorDataset(one, (one[:, 0] > 0).long()) for one in (ROWS, OTHER))
PROBE_SET = OTHER[:8] + 1


def loader_of(data=DATA, size=BATCH, **options):
    return DataLoader(data, size, shuffle=True, **options)


# -- the batches of each epoch, by the loader of the loop ----------------------------------------------------


def looped(loader):
    while True:
        yield iter(loader)


def augmented(loader):
    while True:
        yield ((x + 0.01 * torch.randn_like(x), y) for x, y in loader)


def numbered(loader):
    while True:
        yield (batch for _, batch in enumerate(loader))


def cut(loader):
    while True:
        yield islice(loader, 5)


def cycled(loader):
    batches = cycle(loader)
    while True:
        yield islice(batches, len(loader))


def restarted(loader):
    """Yield the batches of an iterator that is made anew when it has no more."""

    def batches():
        iterator = iter(loader)
        while True:
            try:
                yield next(iterator)
            except StopIteration:
                iterator = iter(loader)

    endless = batches()
    while True:
        yield islice(endless, len(loader))


def made_anew(loader):
    while True:
        yield iter(loader_of(loader.dataset))


LOOPS = [looped, augmented, numbered, cut, cycled, restarted, made_anew]

# -- the open iterator ---------------------------------------------------------------------------------------

OVER = {
    "the loop's loader": lambda loader: loader,
    "another over its dataset": lambda loader: loader_of(loader.dataset, 7),
    "validation": lambda loader: DataLoader(VALIDATION, BATCH),
    "validation in one batch": lambda loader: DataLoader(VALIDATION, len(VALIDATION)),
    "a part": lambda loader: loader_of(Subset(loader.dataset, range(30))),
}
TAKEN = [1, 3]
SHOWN = ["not", "in evaluation", "in training"]
AGAIN = ["never", "in the middle", "after each epoch", "kept batch after each epoch", "anew in each epoch"]
VARIANTS = product(LOOPS, list(OVER), [False, True], TAKEN, SHOWN, AGAIN, ["none", "loader"], [False, True])
#: Of kept batches it is not known that they are none of an iterator that gives another one meanwhile.
EVERY = [one for one in VARIANTS if one[0] is not cycled or one[5] in (AGAIN[0], AGAIN[3])]


class Beside:
    """An iterator that is kept open beside a loop, and what the model is shown of it."""

    def __init__(self, model, loader, taken, shown, again):
        self.model, self.loader, self.taken, self.shown, self.again = model, loader, taken, shown, again
        self.rows = 0  # that the model had in training
        self.open()

    def open(self):
        self.iterator, self.batch = iter(self.loader), None
        for _ in range(min(self.taken, len(self.loader))):
            self.take()

    def take(self):
        self.batch = next(self.iterator, self.batch)

    def show(self):
        if self.shown == "in training":
            self.model(self.batch[0])
            self.rows += len(self.batch[0])
        elif self.shown == "in evaluation":
            evaluate(self.model, [self.batch])

    def begin(self, epoch):
        if epoch > 1 and self.again == "anew in each epoch":
            self.open()

    def within(self, epoch, number):
        if (epoch, number, self.again) == (2, 3, "in the middle"):
            self.take()
            if self.shown == "in evaluation":
                self.show()

    def after(self):
        if self.again == "after each epoch":
            self.take()
        if self.again.endswith("after each epoch") and self.shown == "in evaluation":
            self.show()


def evaluate(model, batches):
    model.eval()
    with torch.no_grad():
        for x, _ in batches:
            model(x)
    model.train()


def train(
    watched, loop, over, is_before, taken, shown, again, validation, probe_set, *, stop=None, named=False,
    loader=None,
):  # fmt: skip
    """Return the truth, and what the probe says at the end; with ``stop`` it stops at a step of the last."""
    torch.manual_seed(0)
    model, loader = Net(), loader or loader_of()
    optimizer, truth = torch.optim.SGD(model.parameters(), 0.1), Truth(model, PROBE_SET)
    options = {"probe_set": (PROBE_SET, {"y": torch.arange(8) % 2})} if probe_set else {}
    epochs = loop(loader)
    beside = Beside(model, OVER[over](loader), taken, shown, again) if is_before else None
    with watched(model, **options) as watch:
        beside = beside or Beside(model, OVER[over](loader), taken, shown, again)
        beside.show()
        truth.rows[1] += beside.rows
        for epoch in range(1, EPOCHS + 1):
            if named:
                watch.epoch = epoch
            beside.begin(epoch)
            for number, (x, y) in enumerate(next(epochs)):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                truth.rows[epoch] += len(x)
                beside.within(epoch, number)
                if (epoch, number) == (EPOCHS, stop):
                    break
            else:
                beside.after()
            if validation == "loader":
                evaluate(model, DataLoader(VALIDATION, 4 * BATCH))
            truth.ended(epoch)
    return truth, watch.status()


@pytest.fixture
def watched(unused_port):
    """Return a function that probes a model."""
    return partial(probe, host="127.0.0.1", port=unused_port, budget=float("inf"))


@pytest.fixture
def notes(monkeypatch):
    """Return the notes on what was recorded."""
    out = []
    monkeypatch.setattr(ModelTap, "doubt", lambda self, note: out.append(str(note)))
    return out


def named_of(chosen):
    return [getattr(one, "__name__", one) for one in chosen]


@pytest.mark.parametrize("seed", seeds(8))
def test_epochs_beside_an_open_iterator_are_those_of_the_loop(watched, unsent, notes, seed):
    """Before, two iterators under way were taken for a loop and what its body keeps: epochs were joined."""
    for chosen in random.Random(seed).sample(EVERY, 25):
        unsent.clear()
        notes.clear()
        truth, status = train(watched, *chosen)
        fault = fault_of(truth, unsent, probe_set=chosen[-1])
        what = f"{named_of(chosen)}: {fault}; {status}, {notes}"
        assert not fault, what
        assert not sentences(status), what
        assert not any("stopped inside" in one for one in notes), what


STOPPED = [one for one in EVERY if one[0] not in (cut, cycled) and not one[-1]]
#: A call with a batch of an iterator that was opened before leaves it unknown which are of a loader.
NAMED = [one for one in STOPPED if one[0] is not augmented or not one[2] or one[4] != "in training"]


@pytest.mark.parametrize("named", [False, True], ids=["found", "epochs named"])
@pytest.mark.parametrize("seed", seeds(4))
def test_epoch_that_is_broken_off_beside_an_open_iterator_is_a_part(watched, unsent, notes, seed, named):
    """Before, the note was missing as soon as another iterator was open."""
    for chosen in random.Random(seed).sample(NAMED if named else STOPPED, 15):
        unsent.clear()
        notes.clear()
        truth, status = train(watched, *chosen, stop=2, named=named)
        what = f"{named_of(chosen)}: {status}, {notes}"
        assert named or not fault_of(truth, unsent, probe_set=False), what
        assert sum("stopped inside" in one for one in notes) == 1, what


@pytest.mark.parametrize("over", list(OVER)[:3])
@pytest.mark.parametrize("is_persistent", [False, True])
def test_epochs_of_workers_beside_an_open_iterator_are_those_of_the_loop(
    watched, unsent, notes, over, is_persistent
):
    loader = loader_of(num_workers=1, persistent_workers=is_persistent)
    chosen = looped, over, False, 1, "not", "never", "none", False
    truth, status = train(watched, *chosen, loader=loader)
    assert not fault_of(truth, unsent, probe_set=False)
    assert not sentences(status)
    assert not notes


@pytest.mark.parametrize("over", list(OVER))
def test_loader_of_the_loop_is_named_and_not_that_of_the_open_iterator(watched, unsent, over):
    """Before, the only loader was said to count no epochs, or that for validation was named."""
    status = train(watched, looped, over, False, 1, "not", "never", "none", False)[1]
    found = "Epochs are found from the DataLoader over TensorDataset of 60 items: one begins"
    assert status["epochs"].startswith(found)
    assert "counts none" not in status["epochs"]


@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize("over", ["the loop's loader", "validation"])
def test_look_at_another_batch_in_the_first_epoch_is_no_loop(watched, unsent, monkeypatch, at, over):
    monkeypatch.setattr(
        Beside, "within", lambda self, epoch, number: (epoch, number) == (1, at) and self.take()
    )
    truth, status = train(watched, looped, over, False, 1, "not", "never", "none", False)
    assert not fault_of(truth, unsent, probe_set=False)
    assert not sentences(status)


def run(watched, batches):
    """Train on batches, and return what the probe says."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watched(model) as watch:
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return watch.status()


def test_open_iterator_with_several_steps_before_the_loop_is_said(watched, unsent):
    """It is not known before the loop's second epoch that the first is one of its own."""

    def batches():
        iterator, loader = iter(loader_of()), loader_of()
        yield from islice(iterator, 3)
        for _ in range(3):
            yield from loader
        assert iterator

    (text,) = sentences(run(watched, batches()))
    assert text.startswith("Epoch 1 has the passes of several iterations")


def test_open_iterator_that_trains_the_model_again_is_said(watched, unsent):
    def batches():
        iterator, loader = iter(DataLoader(VALIDATION, BATCH)), loader_of()
        next(iterator)
        for _ in range(3):
            for number, batch in enumerate(loader):
                yield batch
                if number == 3:
                    yield next(iterator)

    (text,) = sentences(run(watched, batches()))
    assert "was trained with a further batch of the DataLoader over TensorDataset of 40 items" in text
