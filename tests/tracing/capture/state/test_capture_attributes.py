"""Tests that attributes which a forward assigns are restored after a trace."""

from collections import OrderedDict, deque
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import intus


class Assigns(nn.Module):
    """Assigns attributes, buffers, containers, the training flag and submodules in forward."""

    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.register_buffer("state", torch.zeros(3))
        self.count, self.seen, self.cache = 0, [], {"old": torch.ones(3)}
        self.names, self.last, self.order = {"a"}, deque([1, 2], maxlen=2), OrderedDict(b=1)

    def forward(self, x):
        self.count += 1
        self.state = torch.tanh(self.state + self.fc(x).sum(0).detach())
        self.seen.append(x)
        self.cache["new"], self.cache["old"] = x * 2, self.state
        self.names.add("b")
        self.last.append(3)
        self.order["a"] = 2
        self.norm.eval()
        self.fresh = x + 1
        self.extra = nn.Linear(3, 3)
        return self.norm(x) + self.state + self.count


def state(model):
    return {
        name: [
            (key, id(value), list(value) if isinstance(value, list | dict | set | deque) else None)
            for key, value in sorted(vars(module).items())
        ]
        for name, module in model.named_modules()
    }


def test_attributes_are_restored():
    model, x = Assigns().train(), torch.randn(4, 3)
    before = state(model)
    first, second = intus.trace(model, x), intus.trace(model, x)
    assert state(model) == before
    assert model.norm.training
    assert torch.equal(first["output_1"].value, second["output_1"].value)
    assert torch.equal(first["output_1"].value, model(x))  # the first plain pass: count is 0 before it
    assert model.count == 1
    assert first.validate()


def test_attributes_are_restored_after_an_exception():
    model = Assigns()
    before = state(model)
    trace = intus.trace(model, torch.randn(4, 5), on_error="keep")
    assert trace.graph.error
    assert state(model) == before


def test_attributes_of_modules_outside_the_model_are_restored():
    inner = Assigns()
    before = state(inner)
    intus.trace(lambda x: inner(x) * 2, torch.randn(4, 3))
    assert state(inner) == before


def test_pruned_weight_is_restored():
    model = prune.l1_unstructured(nn.Linear(4, 4), "weight", 0.5)
    weight = model.weight
    intus.trace(model, torch.ones(1, 4))
    assert model.weight is weight


def test_lazy_module_stays_initialized():
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    trace = intus.trace(model, torch.ones(2, 5))
    assert type(model[0]) is nn.Linear
    assert model[0].in_features == 5
    assert torch.equal(model(torch.ones(2, 5)), trace["output_1"].value)


LAZY_NORMS = {
    "batch norm 1d": (nn.LazyBatchNorm1d, (5, 4)),
    "batch norm 2d": (nn.LazyBatchNorm2d, (2, 3, 4, 4)),
    "instance norm": (partial(nn.LazyInstanceNorm2d, affine=True, track_running_stats=True), (2, 3, 4, 4)),
}


@pytest.mark.parametrize("verb", [intus.trace, intus.validate, intus.view, intus.why_nan])
@pytest.mark.parametrize("name", LAZY_NORMS)
def test_lazy_norm_is_initialized(name: str, verb: Any) -> None:
    make, shape = LAZY_NORMS[name]
    x, model, plain = torch.randn(shape), make(), make()
    verb(model, x)
    plain(x)
    assert type(model) is type(plain)
    assert torch.equal(model(x), plain(x))
    assert intus.trace(model, x).validate()


def test_capture_without_restore_keeps_attributes():
    """A probe records a real training step, whose changes must remain."""
    from intus.tracing.capture.interpose import Capture

    model = Assigns()
    with Capture(model):
        model(torch.randn(4, 3))
    assert model.count == 1
    assert len(model.seen) == 1
