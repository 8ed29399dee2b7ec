"""Epochs of generated training loops are those of the loop, or the probe says that they are not found."""

from __future__ import annotations

import copy
import random
from collections import Counter
from functools import partial
from itertools import islice, product

import pytest
import torch
from seeds import seeds
from seen_net import Net
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset

from intus.monitoring import probe

EPOCHS, BATCH = 3, 10
ROWS = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
LABELS = (ROWS[:, 0] > 0).long()
OTHER = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
DATA, VALIDATION = TensorDataset(ROWS, LABELS), TensorDataset(OTHER, LABELS[:40])
PROBE_SET = OTHER[:8] + 1


# -- the batches of an epoch ---------------------------------------------------------------------------------


def slices(big):
    return ((x, y) for x, y in zip(ROWS.split(BATCH), LABELS.split(BATCH), strict=True))


def indexed(big):
    return ((ROWS[i], LABELS[i]) for i in torch.arange(len(ROWS)).split(BATCH))


def permuted(big):
    return ((ROWS[i], LABELS[i]) for i in torch.randperm(len(ROWS)).split(BATCH))


def loaded(big):
    return DataLoader(DATA, BATCH, shuffle=True)


def augmented(big):
    return ((x + 0.01 * torch.randn_like(x), y) for x, y in DataLoader(DATA, BATCH, shuffle=True))


def listed(big):
    return list(DataLoader(DATA, BATCH, shuffle=True))


def fetched_ahead(big):
    """Yield each batch when the next one has come, as a wrapper that copies to a device does."""
    before = None
    for batch in DataLoader(DATA, BATCH, shuffle=True):
        if before is not None:
            yield before
        before = batch
    yield before


def in_chunks(big):
    for x, y in DataLoader(DATA, 2 * BATCH, shuffle=True):
        yield from zip(x.chunk(2), y.chunk(2), strict=True)


def parts_of_big(big):
    return ((x, y) for x, y in zip(big[0].split(BATCH), big[1].split(BATCH), strict=True))


def permuted_of_big(big):
    return ((big[0][i], big[1][i]) for i in torch.randperm(len(ROWS)).split(BATCH))


SOURCES = [
    slices,
    indexed,
    permuted,
    loaded,
    augmented,
    listed,
    fetched_ahead,
    in_chunks,
    parts_of_big,
    permuted_of_big,
]

# -- what is done beside the training ------------------------------------------------------------------------


class Validation:
    """Reads batches between those of the training."""

    def __init__(self, how, model):
        self.how, self.model = how, model
        self.loader = DataLoader(DATA if how == "training data" else VALIDATION, BATCH)
        self.kept = iter(DataLoader(VALIDATION, 4)) if how == "one batch of a kept iterator" else None
        self.other = Net()

    def _evaluate(self, model, batches):
        model.eval()
        with torch.no_grad():
            for x, _ in batches:
                model(x)
        model.train()

    def within(self, number):
        if self.how == "within epochs" and number % 3 == 2:
            self._evaluate(self.model, self.loader)

    def after(self):
        match self.how:
            case "loader" | "training data":
                self._evaluate(self.model, self.loader)
            case "anew":
                self._evaluate(self.model, DataLoader(VALIDATION, BATCH))
            case "one batch of the loader":
                self._evaluate(self.model, [next(iter(self.loader))])
            case "broken off":
                for x, y in self.loader:
                    self._evaluate(self.model, [(x, y)])
                    break
            case "one batch of a kept iterator":
                self._evaluate(self.model, [next(self.kept)])
            case "computed":
                self._evaluate(self.model, ((x * 2, y) for x, y in self.loader))
            case "another model":
                self._evaluate(self.other, self.loader)
            case "of tensors":
                self._evaluate(self.model, [(OTHER, None)])


VALIDATIONS = [
    "none",
    "loader",
    "anew",
    "training data",
    "one batch of the loader",
    "broken off",
    "one batch of a kept iterator",
    "computed",
    "another model",
    "of tensors",
    "within epochs",
]
BEFORE = ["nothing", "a look", "a sanity check", "a call", "a peek"]


def before(how, model):
    match how:
        case "a look":  # at the shapes of a batch
            return next(iter(DataLoader(VALIDATION, BATCH)))
        case "a sanity check":
            Validation("loader", model).after()
        case "a call":
            model(torch.zeros(2, 6))
        case "a peek":
            return next(iter(DataLoader(DATA, BATCH)))
    return None


class Truth:
    """The rows that each epoch had, and the model after it."""

    def __init__(self):
        self.rows, self.ends = Counter(), {}

    def ended(self, epoch, model):
        with torch.no_grad():
            self.ends[epoch] = F.linear(PROBE_SET, model.head.weight, model.head.bias).numpy()


def train(watched, kept, source, validation, first, *, probe_set, is_called=True):
    """Return the truth and what the probe says at the end."""
    torch.manual_seed(0)
    kept.clear()
    model, truth = Net(), Truth()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    truth.ended(0, model)
    options = {"probe_set": (PROBE_SET, {"y": LABELS[:8]})} if probe_set else {}
    with watched(model, **options) as watch:
        held = before(first, model)
        big = (
            next(iter(DataLoader(DATA, len(DATA), shuffle=True))) if source.__name__.endswith("big") else None
        )
        beside = Validation(validation, model)
        for epoch in range(1, EPOCHS + 1):
            for number, (x, y) in enumerate(source(big)):
                optimizer.zero_grad()
                F.cross_entropy((model if is_called else model.forward)(x), y).backward()
                optimizer.step()
                truth.rows[epoch] += len(x)
                beside.within(number)
            beside.after()
            truth.ended(epoch, model)
    assert held is None or len(held) == 2
    return truth, watch.status()


def fault_of(truth, kept, *, probe_set, peeked=0):
    """Return in words how records differ from the truth; "" if they do not."""
    if probe_set:
        found = {one.epoch: one.array for one in kept if one.address == "head" and one.kind == "output"}
        if set(found) != set(truth.ends):
            return f"shown {sorted(found)}, trained {sorted(truth.ends)}"
        wrong = [one for one in found if abs(found[one] - truth.ends[one]).max() > 1e-5]
        return f"epochs {wrong} are other models" if wrong else ""
    rows = Counter()
    for one in kept:
        if one.address == "seen" and one.mode == "train":
            rows[one.epoch] += one.rows
    if rows:
        rows[1] -= peeked
    return "" if rows == truth.rows else f"rows {dict(rows)}, trained {dict(truth.rows)}"


@pytest.fixture
def watched(unused_port):
    """Return a function that probes a model."""
    return partial(probe, host="127.0.0.1", port=unused_port, budget=float("inf"))


EVERY = list(product(SOURCES, VALIDATIONS, BEFORE, [False, True]))
#: Sources whose epochs are found, whatever is done beside; slices not after a call with other data.
FOUND = loaded, augmented, listed, fetched_ahead, in_chunks
FOUND_BY_BATCH = slices, indexed, parts_of_big


def sentences(status):
    return [text for text in status["faults"] if "Set watch.epoch = number before each" in text]


@pytest.mark.parametrize("seed", seeds(4))
def test_epochs_of_generated_loops_are_true_or_said_not_to_be_found(watched, unsent, seed):
    """Before, a loader for validation was taken for that of a training without one."""
    for source, validation, first, probe_set in random.Random(seed).sample(EVERY, 15):
        truth, status = train(watched, unsent, source, validation, first, probe_set=probe_set)
        fault = fault_of(truth, unsent, probe_set=probe_set, peeked=2 * (first == "a call"))
        what = f"{source.__name__}, {validation}, after {first}, probe set {probe_set}: {fault}; {status}"
        if source in FOUND or (source in FOUND_BY_BATCH and first != "a call"):
            assert not fault, what
        assert bool(fault) == bool(sentences(status)), what


class NetInEvaluation(Net):
    """A net that is in evaluation mode whatever the script sets, as the one of ``from_pretrained`` is."""

    def __init__(self):
        super().__init__()
        self.eval()

    def train(self, mode=True):
        return super().train(False)


@pytest.mark.parametrize("seed", seeds(2))
def test_epochs_of_generated_loops_in_evaluation_mode_are_true(watched, unsent, seed, monkeypatch):
    """Before, the first pass was epoch 0, and after an evaluation all later epochs were one."""
    monkeypatch.setitem(globals(), "Net", NetInEvaluation)
    for source, validation, first, probe_set in random.Random(seed).sample(EVERY, 15):
        truth, status = train(watched, unsent, source, validation, first, probe_set=probe_set)
        fault = fault_of(truth, unsent, probe_set=probe_set)
        what = f"{source.__name__}, {validation}, after {first}, probe set {probe_set}: {fault}; {status}"
        if source in (*FOUND, *FOUND_BY_BATCH):
            assert not fault, what
        assert bool(fault) == bool(sentences(status)), what


@pytest.mark.parametrize("source", [slices, permuted, loaded, augmented])
@pytest.mark.parametrize("validation", ["loader", "another model"])
@pytest.mark.parametrize("probe_set", [False, True])
def test_loader_for_validation_counts_no_epochs(watched, unsent, source, validation, probe_set):
    truth, status = train(watched, unsent, source, validation, "nothing", probe_set=probe_set)
    fault = fault_of(truth, unsent, probe_set=probe_set)
    assert bool(fault) == (source is permuted)
    assert bool(sentences(status)) == (source is permuted)


def test_epochs_over_parts_of_a_batch_within_its_loop_are_said(watched, unsent):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watched(model) as watch:
        for x, y in DataLoader(DATA, len(DATA)):
            for _ in range(EPOCHS):
                for i in torch.randperm(len(x)).split(BATCH):
                    optimizer.zero_grad()
                    F.cross_entropy(model(x[i]), y[i]).backward()
                    optimizer.step()
    (text,) = sentences(watch.status())
    assert "18 steps of its optimizer followed a single batch" in text
    assert text in watch.status()["epochs"]


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield from DATA


def endless_loaders():
    sampler = RandomSampler(DATA, replacement=True, num_samples=10**6)
    return {"sampler": DataLoader(DATA, BATCH, sampler=sampler), "dataset": DataLoader(Endless(), BATCH)}


@pytest.mark.parametrize("how", ["sampler", "dataset"])
@pytest.mark.parametrize("batches", [4, 15])
def test_one_iteration_without_an_end_is_said(watched, unsent, how, batches):
    """A dataset without a length may or may not have begun again, so that it is no fault."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watched(model) as watch:
        for x, y in islice(endless_loaders()[how], batches):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        status = watch.status()["epochs"]
    assert ("has given as many rows as 2.5 times its dataset" in status) == (
        how == "sampler" and batches == 15
    )
    assert ("if its data begins again inside of it" in status) == (how == "dataset")
    assert bool(sentences(watch.status())) == (how == "sampler" and batches == 15)


@pytest.mark.parametrize("batches", [4, 6])
@pytest.mark.parametrize("source", [loaded, augmented, slices])
def test_training_that_was_undone_is_no_epoch_or_said(watched, unsent, batches, source):
    """A search for a learning rate is an epoch only if its data ended, and then a warning says so."""
    torch.manual_seed(0)
    model, truth = Net(), Truth()
    truth.ended(0, model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    untrained = copy.deepcopy(model.state_dict())
    with watched(model, probe_set=(PROBE_SET, {"y": LABELS[:8]})) as watch:
        for epoch in range(EPOCHS + 1):
            for x, y in islice(source(None), None if epoch else batches):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            if epoch == 0:
                model.load_state_dict(untrained)
            else:
                truth.ended(epoch, model)
    fault, said = fault_of(truth, unsent, probe_set=True), sentences(watch.status())
    assert bool(fault) == bool(said)
    assert all("a training that was undone" in text for text in said)


class Restart:
    """A training of which each epoch trains, changes nothing or is undone, and whether that was so."""

    def __init__(self, choose):
        torch.manual_seed(choose.randrange(100))
        self.model, self.source = Net(), choose.choice([loaded, slices])
        self.start = copy.deepcopy(self.model.state_dict())
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, fused=True)
        self.was_changed = self.was_undone = False

    def is_as_at_start(self):
        return all(torch.equal(one, self.start[name]) for name, one in self.model.state_dict().items())

    def epoch(self, kind):
        """Train an epoch; steps are skipped as a ``GradScaler`` skips fused ones."""
        self.was_undone |= self.was_changed and self.is_as_at_start()
        self.optimizer.param_groups[0]["lr"] = 0.0 if kind == "rate 0" else 0.1
        self.optimizer.grad_scale = torch.ones(())
        self.optimizer.found_inf = torch.tensor(float(kind == "skipped"))
        for x, y in self.source(None):
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
        self.was_changed |= not self.is_as_at_start()

    def restore(self):
        self.model.load_state_dict(self.start)


@pytest.mark.parametrize("probe_set", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_training_is_said_to_be_undone_only_if_it_was(watched, unsent, caplog, seed, probe_set):
    """Before, epochs with a learning rate of 0 were said to be of a training that was undone."""
    choose = random.Random(seed)
    caplog.set_level("INFO", logger="intus")
    training = Restart(choose)
    options = {"probe_set": (PROBE_SET, {"y": LABELS[:8]})} if probe_set else {}
    with watched(training.model, **options):
        for _ in range(choose.randrange(2, 6)):
            training.epoch(choose.choice(["trained", "rate 0", "rate 0", "skipped"]))
            if choose.random() < 0.4:
                training.restore()
        training.epoch("trained")
    assert ("training that was undone" in caplog.text) == training.was_undone


@pytest.mark.parametrize("kind", ["rate 0", "skipped"])
@pytest.mark.parametrize("source", [loaded, slices])
@pytest.mark.parametrize("probe_set", [False, True])
def test_epochs_without_a_change_are_counted(watched, unsent, caplog, kind, source, probe_set):
    """Before, such an epoch of slices was joined with the next one."""
    unsent.clear()
    caplog.set_level("INFO", logger="intus")
    training = Restart(random.Random(0))
    training.source = source
    options = {"probe_set": (PROBE_SET, {"y": LABELS[:8]})} if probe_set else {}
    truth = Truth()
    truth.ended(0, training.model)
    with watched(training.model, **options) as watch:
        for epoch, how in enumerate([kind, kind, "trained", "trained"], 1):
            training.epoch(how)
            truth.rows[epoch] = len(ROWS)
            truth.ended(epoch, training.model)
    assert not fault_of(truth, unsent, probe_set=probe_set)
    assert not sentences(watch.status())
    assert caplog.text.count("Epoch 1 did not change the parameters, as far as was seen") == 1


@pytest.mark.parametrize("probe_set", [False, True])
@pytest.mark.parametrize("batches", range(1, 15))
def test_accumulation_over_more_than_an_epoch_is_said(watched, unsent, batches, probe_set):
    """Before, with a probe set, there were fewer epochs than iterations without a word."""
    torch.manual_seed(0)
    unsent.clear()
    model, truth, done = Net(), Truth(), 0
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    truth.ended(0, model)
    options = {"probe_set": (PROBE_SET, {"y": LABELS[:8]})} if probe_set else {}
    with watched(model, **options) as watch:
        for epoch in range(1, 6):
            for x, y in loaded(None):
                F.cross_entropy(model(x), y).backward()
                done += 1
                truth.rows[epoch] += len(x)
                if done % batches == 0:
                    optimizer.step()
                    optimizer.zero_grad()
            truth.ended(epoch, model)
    fault = fault_of(truth, unsent, probe_set=probe_set)
    said = [text for text in watch.status()["faults"] if "iterations of the DataLoader" in text]
    assert bool(fault) == (batches > 6) == bool(said), fault
    assert all(text in watch.status()["epochs"] for text in said)


@pytest.mark.parametrize("zeroed", ["before", "after"])
def test_iteration_whose_steps_are_skipped_is_said(watched, unsent, zeroed):
    """A ``GradScaler`` whose first gradients overflow does not call the step of an optimizer."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watched(model, probe_set=(PROBE_SET, {"y": LABELS[:8]})) as watch:
        for epoch in range(4):
            for x, y in loaded(None):
                if zeroed == "before":
                    optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                if epoch > 1:
                    optimizer.step()
                if zeroed == "after":
                    optimizer.zero_grad()
    assert "Epoch 1 is the model after 3 iterations of the DataLoader" in watch.status()["epochs"]
    assert bool(sentences(watch.status())) == (zeroed == "before")  # else no gradients are seen


def test_evaluation_in_training_mode_is_no_accumulation(watched, unsent):
    """With a probe set, each model is shown all the same, so that it is a notice alone."""
    torch.manual_seed(0)
    unsent.clear()
    training = Restart(random.Random(0))
    loader, truth = DataLoader(DATA, BATCH, shuffle=True), Truth()
    training.source = lambda big: loader
    truth.ended(0, training.model)
    with watched(training.model, probe_set=(PROBE_SET, {"y": LABELS[:8]})) as watch:
        for epoch in range(1, EPOCHS + 1):
            training.epoch("trained")
            for x, _ in loader:
                training.model(x)
            truth.ended(epoch, training.model)
    assert not fault_of(truth, unsent, probe_set=True)
    assert not sentences(watch.status())
    assert "Epoch 2 is the model after 2 iterations" in watch.status()["epochs"]


def test_last_look_between_calls_has_the_number_of_calls(watched, unsent):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watched(model, probe_set=(PROBE_SET, {"y": LABELS[:8]}), every=5):
        for x, y in [batch for _ in range(2) for batch in loaded(None)]:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert sorted({record.epoch for record in unsent}) == [0, 5, 10, 12]


def test_labels_are_not_refused_by_rows_of_a_loader_for_validation(watched, unsent):
    """Before, rows of the training were said to be of the loader for validation, "although they train"."""
    status = train(watched, unsent, indexed, "loader", "a peek", probe_set=False)[1]
    assert not any("although they train the model" in text for text in status["faults"])


@pytest.mark.parametrize("validation", ["none", "loader", "another model"])
@pytest.mark.parametrize("first", ["nothing", "a look", "a call"])
@pytest.mark.parametrize("probe_set", [False, True])
def test_epochs_of_long_lists_of_batches_begin_with_the_first(
    watched, unsent, monkeypatch, validation, first, probe_set
):
    """The first batches of such a list are no longer kept, and so are not recognized."""
    monkeypatch.setattr("intus.backends.torch.loaders._AHEAD", 1)
    truth, status = train(watched, unsent, listed, validation, first, probe_set=probe_set)
    assert not fault_of(truth, unsent, probe_set=probe_set, peeked=2 * (first == "a call"))
    assert not sentences(status)


def rows_like(kind, count):
    """Return different rows, of some kinds such that few values of each do not tell them apart."""
    if kind == "narrow":
        return torch.randn(count, 6)
    if kind == "wide":
        return torch.randn(count, 40)
    rows = torch.zeros(count, 400)
    rows[:, 1] = torch.arange(count) + (kind == "alike at first") / 2
    if kind == "alike at first":  # few values tell groups of them apart
        rows[:, 0] = torch.arange(count) // 3
    return rows


@pytest.mark.parametrize("seed", seeds(10, quick=2))
@pytest.mark.parametrize("kind", ["narrow", "wide", "pictures", "alike at first"])
def test_permutations_of_tensors_are_said_during_the_training(watched, unsent, kind, seed):
    """Before, this was said at the end alone. The judge is the number of the epoch in the loop."""
    torch.manual_seed(seed)
    choose = random.Random(seed)
    rows = rows_like(kind, choose.choice([20, 60, 210]))
    size = choose.choice([1, 7, 10, 16])
    order, is_validated = choose.choice(["permutation", "a part of it", "any rows"]), choose.random() < 0.5
    model = nn.Linear(rows.shape[1], 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def train(watch):
        came = []
        for epoch in range(8):
            every = (
                torch.randint(len(rows), rows.shape[:1]) if order == "any rows" else torch.randperm(len(rows))
            )
            for some in every[: len(rows) - 5 * (order == "a part of it")].split(size):
                optimizer.zero_grad()
                model(rows[some]).square().mean().backward()
                optimizer.step()
                came += some.tolist()
                if "rows that were compared came twice on average" in watch.status()["epochs"]:
                    return epoch, came
            if is_validated:
                with torch.no_grad():
                    for (x,) in DataLoader(TensorDataset(rows), 8):
                        model(x)
        return 8, came

    with watched(model) as watch:
        epoch, came = train(watch)
        said = sentences(watch.status())
    assert any(len(came[at:]) >= 2 * len(set(came[at:])) for at in range(len(came)))
    latest = {"permutation": 4, "a part of it": 6, "any rows": 8}[order]  # few values are compared first
    assert order == "any rows" or epoch >= 1
    assert epoch <= latest
    assert len(said) == 1 == len(sentences(watch.status()))
    assert "rows that were compared came twice on average" in said[0]


def test_rows_that_come_once_are_not_said_to_come_again(watched, unsent):
    """A stream, with some copies; the end says all the same that no end of an epoch was found."""
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched(model) as watch:
        for _ in range(60):
            x = torch.randn(10, 6)
            for _ in range(2):  # as for a gradient penalty, of the same batch
                optimizer.zero_grad()
                model(x[: 10 - 4 * _]).square().mean().backward()
                optimizer.step()
        assert not sentences(watch.status())
    assert "no end of an epoch was found" in sentences(watch.status())[0]
