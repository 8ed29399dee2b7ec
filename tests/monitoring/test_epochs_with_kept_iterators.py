"""Epochs of a loop whose body takes batches of others through a kept iterator are those of the loop."""

from __future__ import annotations

import contextlib
import random
from functools import partial
from itertools import product

import pytest
import torch
from epochs_of_loops import Truth, fault_of, sentences
from seeds import seeds
from seen_net import Net
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset, random_split

from intus.monitoring import probe

EPOCHS = 5
ROWS = torch.randn(400, 6, generator=torch.Generator().manual_seed(0))
WHOLE = TensorDataset(ROWS, (ROWS[:, 0] > 0).long())
PROBE_SET = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))


def of_subsets(main, aux):
    return Subset(WHOLE, range(main)), Subset(WHOLE, range(main, main + aux))


def of_split(main, aux):
    parts = random_split(WHOLE, [main, aux, len(WHOLE) - main - aux])
    return parts[0], parts[1]


def of_two_datasets(main, aux):
    return TensorDataset(*WHOLE[:main]), TensorDataset(*WHOLE[main : main + aux])


def of_samplers(main, aux):
    return range(main), range(main, main + aux)


DATA = [of_subsets, of_split, of_two_datasets, of_samplers]


def loader(part, size):
    if isinstance(part, range):
        return DataLoader(WHOLE, size, sampler=SubsetRandomSampler(part))
    return DataLoader(part, size, shuffle=True)


class Kept:
    """The batches of a loader through an iterator that is kept, and made anew when it has no more."""

    def __init__(self, loader):
        self.loader, self.iterator = loader, iter(loader)

    def __next__(self):
        try:
            return next(self.iterator)
        except StopIteration:
            self.iterator = iter(self.loader)
            return next(self.iterator)


def endless(loader):
    while True:
        yield from loader


def ahead(batches):
    """Yield each batch when the next one has come, as a wrapper that copies to a device does."""
    before = None
    for batch in batches:
        if before is not None:
            yield before
        before = batch
    yield before


# -- the pairs of batches of each epoch ----------------------------------------------------------------------


def kept(main, aux):
    it = Kept(aux)
    while True:
        yield ((x, next(it)) for x in main)


def generated(main, aux):
    it = endless(aux)
    while True:
        yield ((x, next(it)) for x in main)


def zipped(main, aux):
    it = endless(aux)
    while True:
        yield zip(main, it)  # noqa: B905


def both_generated(main, aux):
    of_main, it = endless(main), endless(aux)
    while True:
        yield ((next(of_main), next(it)) for _ in range(len(main)))


def fetched_ahead(main, aux):
    it = Kept(aux)
    while True:
        yield ((x, next(it)) for x in ahead(main))


def sometimes(main, aux):
    it = Kept(aux)
    while True:
        yield ((x, next(it) if at % 3 == 1 else None) for at, x in enumerate(main))


LOOPS = [kept, generated, zipped, both_generated, fetched_ahead, sometimes]

# -- what the model is called with ---------------------------------------------------------------------------


def noisy(x):
    return x + 0.1 * torch.randn_like(x)


def joined(x, a):
    return [torch.cat([a, x])]


def with_two_views(x, a):
    return [torch.cat([a, noisy(x), noisy(x)])]


def noise_of_both(x, a):
    return [noisy(a), noisy(x)]


def noise_of_both_main_first(x, a):
    return [noisy(x), noisy(a)]


def both(x, a):
    return [a, x]


INPUTS = [joined, with_two_views, noise_of_both, noise_of_both_main_first, both]
#: Rows and batch sizes of the loop's own data, and of the others.
SIZES = [(200, 20, 60, 10), (200, 20, 40, 10), (100, 20, 200, 10), (200, 20, 35, 7), (120, 24, 30, 30)]
EVERY = list(product(DATA, LOOPS, INPUTS, SIZES, [False, True]))


def train(watched, data, loop, inputs, sizes, *, probe_set):
    """Return the truth, and what the probe says at the end."""
    torch.manual_seed(0)
    main_rows, main_size, aux_rows, aux_size = sizes
    main, aux = data(main_rows, aux_rows)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    truth = Truth(model, PROBE_SET)
    options = {"probe_set": (PROBE_SET, {"y": torch.arange(8) % 2})} if probe_set else {}
    epochs = loop(loader(main, main_size), loader(aux, aux_size))
    with watched(model, **options) as watch:
        for epoch in range(1, EPOCHS + 1):
            for (x, _), other in next(epochs):
                optimizer.zero_grad()
                for rows in inputs(x, other[0]) if other else [noisy(x)]:
                    truth.rows[epoch] += len(rows)
                    F.cross_entropy(model(rows), (rows[:, 0] > 0).long()).backward()
                optimizer.step()
            truth.ended(epoch)
    return truth, watch


@pytest.fixture
def watched(unused_port):
    """Return a function that probes a model."""
    return partial(probe, host="127.0.0.1", port=unused_port, budget=float("inf"))


@pytest.mark.parametrize("seed", seeds(6))
def test_epochs_of_loops_with_a_kept_iterator_are_those_of_the_loop(watched, unsent, seed):
    """Before, of two parts of one dataset epochs were counted by the iterations of either."""
    for chosen in random.Random(seed).sample(EVERY, 20):
        *loop, probe_set = chosen
        unsent.clear()
        truth, watch = train(watched, *loop, probe_set=probe_set)
        fault = fault_of(truth, unsent, probe_set=probe_set)
        what = f"{[getattr(one, '__name__', one) for one in chosen]}: {fault}; {watch.status()}"
        assert not fault, what
        assert not sentences(watch.status()), what


@contextlib.contextmanager
def opened(watched, data, *args, **options):
    """Probe a model, and open an iterator that gives one batch."""
    with watched(*args, **options) as watch:
        iterator = iter(DataLoader(data, 4))
        next(iterator)
        yield watch
        assert iterator


@pytest.mark.parametrize("data", [WHOLE, TensorDataset(PROBE_SET)], ids=["the dataset", "another"])
@pytest.mark.parametrize("seed", seeds(2))
def test_open_iterator_is_not_taken_for_the_loop_of_a_kept_one(watched, unsent, data, seed):
    """Three iterations are under way, of which the first to begin is that of no loop."""
    for chosen in random.Random(seed).sample(EVERY, 20):
        *loop, probe_set = chosen
        unsent.clear()
        truth, watch = train(partial(opened, watched, data), *loop, probe_set=probe_set)
        fault = fault_of(truth, unsent, probe_set=probe_set)
        what = f"{[getattr(one, '__name__', one) for one in chosen]}: {fault}; {watch.status()}"
        assert not fault, what
        assert not sentences(watch.status()), what


def zipped_after(main, aux):
    it = endless(aux)
    while True:
        yield ((x, other) for other, x in zip(it, main))  # noqa: B905


@pytest.mark.parametrize("inputs", [joined, both])
@pytest.mark.parametrize("data", [of_subsets, of_two_datasets])
@pytest.mark.parametrize("sizes", SIZES[:3])
def test_loop_whose_own_loader_is_not_the_first_is_said(watched, unsent, data, sizes, inputs):
    """Before, epochs were those of the iterator that zip() has first, without a warning."""
    truth, watch = train(watched, data, zipped_after, inputs, sizes, probe_set=False)
    assert fault_of(truth, unsent, probe_set=False)
    (text,) = sentences(watch.status())
    assert "a batch of it was left out when the DataLoader over" in text
