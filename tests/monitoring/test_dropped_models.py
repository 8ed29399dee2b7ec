"""A model that the script drops is freed at once, and nothing of its probe stays attached."""

from __future__ import annotations

import gc
import threading
import weakref
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset

from intus.backends.torch.loaders import LOADERS, LoaderObserver
from intus.monitoring import probe

ROWS = torch.randn(24, 6, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(ROWS, (ROWS[:, 0] > 0).long())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.LSTM(6, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x[:, None])[0][:, 0])


class Closing(Recurrent):
    """A model of which no twin can be made."""

    def __del__(self):
        """Do nothing."""


MODELS = {
    "plain": lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)),
    "recurrent": Recurrent,
    "closing": Closing,
    "transformer": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)),
        nn.TransformerEncoderLayer(6, 2, 8, batch_first=True),
        nn.Flatten(),
        nn.Linear(6, 2),
    ),
}
OPTIONS = {
    "output": {},
    "input": {"kinds": ["input"]},
    "gradients": {"kinds": ["grad_output", "grad_input"]},
    "parameters": {"kinds": ["parameter", "parameter_grad", "update"]},
    "updates": {"kinds": ["update"]},
    "no graph": {"structure": False},
    "functions": {"which": lambda model, operation: True, "when": lambda model, operation: True},
    "statistics": {"statistics": True},
    "probe set": {"probe_set": (ROWS[:6], {"y": [0, 1] * 3})},
    "calls": {"probe_set": (ROWS[:6], {"y": [0, 1] * 3}), "every": 2},
}


def attached():
    """Return the numbers of observers of DataLoaders, and of hooks on the steps of all optimizers."""
    hooks = optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks
    return len(LOADERS._listeners), *map(len, hooks)


def trained(model, epochs, watch=None):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(epochs):
        if watch is not None:
            watch.epoch = epoch
        for x, y in DataLoader(DATA, 8, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


@pytest.fixture
def uncollected():
    """Switch the garbage collector off, once what other tests and the first optimizer left is gone."""
    torch.optim.SGD(nn.Linear(1, 1).parameters())  # which imports parts of torch, in a cycle of frames
    gc.collect()
    gc.disable()
    yield
    gc.enable()


#: Each option with one of the models in turn; the others are long.
PAIRS = [
    pytest.param(kind, how, marks=() if at % len(MODELS) == number else pytest.mark.long)
    for at, how in enumerate(OPTIONS)
    for number, kind in enumerate(MODELS)
]


@pytest.mark.parametrize(("kind", "how"), PAIRS)
def test_dropped_model_is_freed_and_nothing_stays_attached(uncollected, unused_port, kind, how):
    """Before, DataLoaders and optimizers were observed until the collector ran, or for ever."""
    for ends, epochs in product(["model and probe", "model", "probe before"], [0, 1]):
        before = attached()
        model = MODELS[kind]()
        watch = probe(model, port=unused_port, **OPTIONS[how])
        assert attached() > before
        if ends == "probe before":
            del watch
        trained(model, epochs, watch if ends == "model and probe" else None)
        reference = weakref.ref(model)
        del model
        if ends == "model and probe":
            del watch
        assert reference() is None, (ends, epochs)
        assert attached() == before, (ends, epochs)


def test_garbage_collector_may_detach_a_model_while_another_is_attached(uncollected):
    """Before, the thread waited for a lock that it had itself, for ever."""

    class Listener:
        def __init__(self, observer):
            self.me = self
            weakref.finalize(self, observer.attach(self.ended))

        def ended(self, number):
            """Do nothing."""

    class Collecting:
        def __next__(self):
            gc.collect()
            return 2

    observer = LoaderObserver()
    Listener(observer)
    observer._numbers = Collecting()
    other = Listener.__new__(Listener)
    thread = threading.Thread(target=observer.attach, args=(other.ended,), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert len(observer._listeners) == 1
    observer._detach(2)


@pytest.mark.long
@pytest.mark.parametrize("kinds", [["output"], ["update"]])
def test_garbage_collector_may_run_during_a_step_of_another_model(uncollected, unused_port, kinds):
    """Before, the step raised "OrderedDict mutated during iteration"."""

    def collect(*_):
        gc.collect()

    before = attached()
    hooks = [optimizers.register_optimizer_step_pre_hook(collect)]
    model = nn.Linear(6, 2)
    model.me = [model]
    watch = probe(model, port=unused_port, kinds=kinds)
    hooks += [optimizers.register_optimizer_step_post_hook(collect)]
    reference = weakref.ref(model)
    del model, watch
    assert reference() is not None
    trained(nn.Linear(6, 2), 1)
    assert reference() is None
    probe(nn.Linear(6, 2), port=unused_port)  # which ends at once
    for hook in hooks:
        hook.remove()
    assert attached() == before
