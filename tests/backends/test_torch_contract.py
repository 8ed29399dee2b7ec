"""The contract of backends, for PyTorch: the judge is autograd on the same layers called one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import optimizer as optimizers

from backends.contract import (
    CLASSES,
    FEATURES,
    BackendContract,
    Returning,
    Subject,
    TraceContract,
    Training,
    batch,
    unchanged,
)
from intus.backends import base
from intus.backends.torch import TorchBackend
from intus.core.record import KINDS


class Net(nn.Module):
    """Batch norm, dropout, a layer that is called twice, and a nested one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.act = nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU()
        self.drop, self.cell = nn.Dropout(0.3), nn.Linear(8, 8)
        self.head = nn.Sequential(nn.Linear(8, CLASSES))

    def parts(self, x: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the input and output of every call, called one by one."""
        found = {}
        for name, layer in [
            *(("first", self.first), ("norm", self.norm), ("act", self.act), ("drop", self.drop)),
            *(("cell", self.cell), ("cell:2", self.cell), ("head.0", self.head[0])),
        ]:
            found[name] = x, (x := layer(x))
        start = found["first"][0]
        return found | {"head": found["head.0"], "": (start, x)}

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.act(self.norm(self.first(x))))
        return self.head(self.cell(self.cell(x)))


class TorchSubject(Subject):
    name = "module"
    kinds = KINDS
    calls = dict.fromkeys(("", "first", "norm", "act", "drop", "head", "head.0"), 1) | {"cell": 2}

    def new(self):
        torch.manual_seed(1)
        return Net()

    def train(self, model, steps, *, through=unchanged, after=lambda step: None):
        torch.manual_seed(0)
        optimizer, losses = torch.optim.Adam(model.parameters(), 0.01), []

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.item()

        step = through(step)
        for number in range(steps):
            x, y = map(torch.from_numpy, batch(number))
            losses.append(step(x.requires_grad_(), y))
            after(number)
        rest = [torch.get_rng_state().numpy()]
        return Training(model, losses, [value.numpy() for value in model.state_dict().values()] + rest)

    def expected(self):
        model = self.new()
        parameters, before = dict(model.named_parameters()), self.parameters(model)
        torch.manual_seed(0)
        x, y = map(torch.from_numpy, batch(0))
        parts = model.parts(x.requires_grad_())
        loss = F.cross_entropy(parts[""][1], y)
        found = {("parameter", name): value for name, value in before.items()}
        for name, ends in parts.items():
            for kind, end in zip(("input", "output"), ends, strict=True):
                found[kind, name] = end.detach().numpy()
                (gradient,) = torch.autograd.grad(loss, end, retain_graph=True)
                found[f"grad_{kind}", name] = gradient.numpy()
        for name, gradient in zip(
            parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True
        ):
            found["parameter_grad", name] = gradient.numpy()
        after = self.new()
        self.train(after, 1)
        for name, p in after.named_parameters():
            found["update", name] = p.detach().numpy() - before[name]
        return found

    def parameters(self, model):
        return {name: p.detach().clone().numpy() for name, p in model.named_parameters()}

    def evaluated(self):
        with torch.no_grad():
            return self.new().eval()(torch.from_numpy(batch(0)[0])).numpy()

    def footprint(self, model):
        modules = {
            name: (type(one), list(vars(one)), {k: len(v) for k, v in vars(one).items() if "hooks" in k})
            for name, one in model.named_modules()
        }
        parameters = {
            name: (p._backward_hooks, p._post_accumulate_grad_hooks, list(vars(p)))
            for name, p in model.named_parameters()
        }
        steps = optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks
        return modules, parameters, [len(hooks) for hooks in steps]


class TestTorchContract(BackendContract):
    @pytest.fixture
    def subject(self):
        return TorchSubject()


class Removed(TorchBackend):
    """Leaves its hooks on the model."""

    def attach(self, model, operations, kinds, tap):
        handle = super().attach(model, operations, kinds, tap)
        handle.remove = lambda: None
        return handle


class Scaled(TorchBackend):
    """Changes the last bits of what the model computes."""

    def attach(self, model, operations, kinds, tap):
        model.head.register_forward_hook(lambda module, args, output: output * (1 + 1e-7))
        return super().attach(model, operations, kinds, tap)


class Inexact(TorchBackend):
    """Gives other values than the model computes."""

    def attach(self, model, operations, kinds, tap):
        receive = tap.on_tensor

        def on_tensor(ticket, tensor):
            copy = tensor.copy
            receive(ticket, replace(tensor, copy=lambda rows, axis: copy(rows, axis) * np.float32(1.00001)))

        tap.on_tensor = on_tensor
        return super().attach(model, operations, kinds, tap)


@pytest.mark.parametrize(
    ("fault", "test", "more"),
    [
        (Removed, "test_removal_restores_model", ()),
        (Removed, "test_removal_during_training", ()),
        (Scaled, "test_training_has_the_same_bits", ("all passes",)),
        (Inexact, "test_values_equal_those_of_framework", ()),
    ],
)
def test_contract_finds_faults(monkeypatch, fault, test, more):
    monkeypatch.setitem(base._BACKENDS, "torch", fault)
    with pytest.raises(AssertionError):
        getattr(BackendContract(), test)(TorchSubject(), *more)


class Enc(nn.Module):
    forward = Returning.enc


class Pair(nn.Module):
    forward = Returning.pair


class TorchReturning(nn.Module):
    forward = Returning.net

    def __init__(self):
        super().__init__()
        self.enc, self.same, self.pair = Enc(), nn.Identity(), Pair()

    @staticmethod
    def as_input(x):
        return torch.from_numpy(x)


class TestTraceContract(TraceContract):
    @pytest.fixture
    def net(self):
        return TorchReturning()
