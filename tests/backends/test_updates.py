"""Parameter updates, captured around optimizer steps."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import optimizer as hooks

from intus.backends.torch import TorchBackend

KINDS = ("update",)


class Keep:
    """A tap that keeps the tensors of the passes it wants."""

    def __init__(self):
        self.seen, self.errors, self.wanted = [], [], True

    def on_forward_start(self, inputs):
        return self.wanted

    def wants(self, operation):
        return operation.address

    def on_tensor(self, ticket, seen):
        assert not seen.has_batch
        self.seen.append((seen.address, seen.kind, seen.copy(None, 0)))

    def on_forward_end(self, output):
        pass

    def on_error(self, error):
        self.errors.append(error)


def watched(model, kinds=KINDS):
    tap, backend = Keep(), TorchBackend()
    return tap, backend.attach(model, backend.operations(model), kinds, tap)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad])
def test_update_is_after_minus_before(make):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    tap, handle = watched(model)
    optimizer = make(model.parameters(), lr=0.1)
    model(torch.randn(5, 3)).square().sum().backward()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer.step()
    handle.remove()
    shown = {(address, kind): array for address, kind, array in tap.seen}
    assert not tap.errors
    assert len(shown) == 4
    for name, p in model.named_parameters():
        delta = (p.detach() - before[name]).numpy()
        assert np.array_equal(shown[name, KINDS[0]], delta)


def test_accumulated_gradients_and_unwanted_passes():
    model = nn.Linear(3, 2)
    tap, handle = watched(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert len(tap.seen) == 2  # one step, regardless of accumulation
    tap.wanted = False
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert len(tap.seen) == 2
    handle.remove()


def test_other_optimizers_and_parameters_are_ignored():
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    tap, handle = watched(model)
    model(torch.ones(1, 3)).sum().backward()
    other(torch.ones(1, 3)).sum().backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    assert not tap.seen
    torch.optim.SGD([model.bias], lr=0.1).step()
    assert {address for address, *_ in tap.seen} == {"bias"}
    handle.remove()


def test_remove_restores_torch_and_keeps_no_reference():
    before = [dict(h) for h in (hooks._global_optimizer_pre_hooks, hooks._global_optimizer_post_hooks)]
    model = nn.Linear(3, 2)
    _tap, handle = watched(model)
    assert len(hooks._global_optimizer_pre_hooks) == len(before[0]) + 1
    ref = weakref.ref(model)
    del model
    gc.collect()
    assert ref() is None
    handle.remove()
    handle.remove()
    assert [hooks._global_optimizer_pre_hooks, hooks._global_optimizer_post_hooks] == before
    _tap, handle = watched(nn.Linear(3, 2), ("output",))
    assert hooks._global_optimizer_pre_hooks == before[0]
    handle.remove()


def test_training_is_bitwise_identical():
    def train(kinds):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(), nn.Linear(8, 2))
        handle = watched(model, kinds)[1] if kinds else None
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().sum().backward()
            optimizer.step()
        if handle:
            handle.remove()
        return torch.cat([p.flatten() for p in model.parameters()])

    assert torch.equal(train(()), train(KINDS))
