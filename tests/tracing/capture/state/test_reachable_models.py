"""Models that a traced function reaches are left as a plain run of the function leaves them."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import intus

X = torch.randn(5, 4)
VERBS = [intus.trace, intus.validate, intus.why_nan, intus.view]


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)).train()


def evaluate(model: nn.Module, x: Tensor) -> Tensor:
    model.eval()
    with torch.no_grad():
        y = model(x)
    model.train()
    return y


class Trainer:
    def __init__(self, model: nn.Module) -> None:
        self.models = {"net": model}

    def evaluate(self, x: Tensor) -> Tensor:
        return evaluate(self.models["net"], x)


class Student(nn.Module):
    def __init__(self, teacher: nn.Module) -> None:
        super().__init__()
        self.teachers = [teacher]

    def forward(self, x: Tensor) -> Tensor:
        return x + evaluate(self.teachers[0], x)


CALLS: dict[str, Callable[[nn.Module], tuple[Any, ...]]] = {
    "closure": lambda model: (lambda x: evaluate(model, x), X),
    "argument": lambda model: (evaluate, model, X),
    "partial": lambda model: (functools.partial(evaluate, model), X),
    "method of an object": lambda model: (Trainer(model).evaluate, X),
    "list of a module": lambda model: (Student(model), X),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("call", CALLS)
def test_mode_that_a_function_changes_for_a_while(verb: Callable[..., Any], call: str) -> None:
    model = net()
    before = copy.deepcopy(model.state_dict())
    verb(*CALLS[call](model))
    assert all(module.training for module in model.modules())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def with_hook(model: nn.Module, x: Tensor) -> Tensor:
    handle = model.register_forward_hook(lambda module, args, out: out * 100)
    y = model(x)
    handle.remove()
    return y


def with_other_layer(model: nn.Module, x: Tensor) -> Tensor:
    old, model[0] = model[0], nn.Identity()  # type: ignore[index, operator]
    y = model(x)
    model[0] = old  # type: ignore[index, operator]
    return y


def with_other_weights(model: nn.Module, x: Tensor) -> Tensor:
    return functional_call(model, {name: p * 0 for name, p in model.named_parameters()}, (x,))


def with_assigned_weights(model: nn.Module, x: Tensor) -> Tensor:
    own = dict(model.named_parameters())
    model.load_state_dict({name: p.clone() for name, p in own.items()}, assign=True)
    y = model(x)
    model.load_state_dict(own, assign=True)
    return y


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("change", [with_hook, with_other_layer, with_other_weights, with_assigned_weights])
def test_temporary_change_of_a_model(verb: Callable[..., Any], change: Callable[..., Tensor]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    first, weight, plain = model[0], model[0].weight, model(X)
    verb(lambda x: change(model, x), X)
    assert model[0] is first
    assert model[0].weight is weight
    assert isinstance(weight, nn.Parameter)
    assert not model._forward_hooks
    assert torch.equal(model(X), plain)


def test_per_sample_gradients_of_a_function() -> None:
    """torch's tutorial: vmap over grad over functional_call."""
    model = nn.Linear(4, 2)
    own, plain = {name: p.detach() for name, p in model.named_parameters()}, model(X)

    def loss(params: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(model, params, (x[None],)).pow(2).sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    want = each(own, X)
    t = intus.trace(lambda x: each(own, x), X)
    assert torch.equal(t.outputs[0].value, want["weight"])
    assert isinstance(model.weight, nn.Parameter)
    assert torch.equal(model(X), plain)


REGISTRY: dict[str, nn.Module] = {}


def test_module_that_is_found_late_is_named_if_it_changes() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0

        def forward(self, x: Tensor) -> Tensor:
            self.steps += 1
            return x + 1

    hidden = iter([Counter()])  # nothing can be known of what an iterator gives
    t = intus.trace(lambda x: next(hidden)(x), X)
    assert t.not_restored == [
        "Counter: its attributes changed. It was found when it was called, so what they were before the pass "
        "is not known."
    ]
    assert intus.trace(lambda x: nn.ReLU()(x), X).not_restored == []


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "fused": lambda params: torch.optim.Adam(params, fused=True),
    "foreach": lambda params: torch.optim.AdamW(params, foreach=True),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
}


def flat(state: Any) -> list[Tensor]:
    leaves = torch.utils._pytree.tree_leaves(state)
    return [torch.as_tensor(one) for one in leaves if isinstance(one, Tensor | float | int)]


@pytest.mark.parametrize("verb", [intus.trace, intus.validate])
@pytest.mark.parametrize("earlier_steps", [0, 2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_step_is_undone(verb: Callable[..., Any], earlier_steps: int, optimizer: str) -> None:
    model = nn.Linear(4, 2)
    stepper = OPTIMIZERS[optimizer](model.parameters())

    def step(x: Tensor) -> Tensor:
        stepper.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        stepper.step()
        return loss

    for _ in range(earlier_steps):
        step(X)
    gradient = model.weight.grad = torch.ones(2, 4)
    before = copy.deepcopy((model.state_dict(), stepper.state_dict()))
    verb(step, X)
    now = (model.state_dict(), stepper.state_dict())
    assert len(flat(now)) == len(flat(before))
    assert all(map(torch.equal, flat(now), flat(before)))
    assert model.weight.grad is gradient
    assert torch.equal(gradient, torch.ones(2, 4))


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own, self.numpy = torch.Generator().manual_seed(1), np.random.default_rng(1)

    def forward(self, x: Tensor, generator: torch.Generator) -> Tensor:
        drawn = torch.rand(4, generator=self.own) + torch.rand(4, generator=generator)
        return x + drawn + float(self.numpy.normal())


def test_generators_of_a_call_are_restored() -> None:
    model, given = Noisy(), torch.Generator().manual_seed(2)
    other, old = random.Random(0), np.random.RandomState(0)

    def draw(x: Tensor) -> Tensor:
        return model(x, generator=given) + other.random() + old.normal()

    def states() -> str:
        torchs = [one.get_state().tolist() for one in (given, model.own)]
        return str((torchs, model.numpy.bit_generator.state, other.getstate(), old.get_state()))

    for verb in VERBS:
        before = states()
        verb(draw, X)
        assert states() == before
        verb(model, X, generator=given)
        assert states() == before
    assert intus.validate(draw, X).fidelity.status == "same"
