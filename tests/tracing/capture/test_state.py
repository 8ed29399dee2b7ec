"""State outside of a module's own attributes is as it was after a trace: caches, objects, script modules."""

from __future__ import annotations

import io
from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel, StaticCache
from transformers_names import CACHE

import intus

VERBS: dict[str, Any] = {
    "trace": intus.trace,
    "save none": lambda *args, **kwargs: intus.trace(*args, save="none", **kwargs),
    "validate": intus.validate,
    "decompose": lambda *args, **kwargs: intus.trace(*args, decompose=True, **kwargs),
}


@pytest.fixture(params=VERBS)
def verb(request: pytest.FixtureRequest) -> Any:
    return VERBS[request.param]


@pytest.fixture(scope="module")
def gpt() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_head": 2, "n_layer": 2, "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**sizes)).eval()


def test_dynamic_cache_keeps_its_length(verb: Any, gpt: GPT2LMHeadModel) -> None:
    ids, cache = torch.arange(4)[None], DynamicCache(config=gpt.config)
    with torch.no_grad():
        gpt(ids, **{CACHE: cache})
        keys = cache.layers[0].keys
        verb(gpt, input_ids=ids, **{CACHE: cache})
        assert cache.get_seq_length() == 4
        assert cache.layers[0].keys is keys
        expected = gpt(ids, **{CACHE: cache}).logits
        fresh = DynamicCache(config=gpt.config)
        gpt(ids, **{CACHE: fresh})
        assert torch.equal(gpt(ids, **{CACHE: fresh}).logits, expected)


def test_cache_is_named_as_inputs(gpt: GPT2LMHeadModel) -> None:
    ids, cache = torch.arange(4)[None], DynamicCache(config=gpt.config)
    with torch.no_grad():
        gpt(ids, **{CACHE: cache})
        t = intus.trace(gpt, input_ids=ids, **{CACHE: cache})
    names = ["input_ids", *(f"{CACHE}.{n}.{kind}" for n in (0, 1) for kind in ("keys", "values"))]
    assert {t[name].label for name in names} == {op.label for op in t.inputs}
    assert t.validate()
    zeroed = t.rerun({f"{CACHE}.0.keys": 0})
    assert not torch.equal(zeroed["logits"].value, t["logits"].value)


def test_static_cache_keeps_its_values(verb: Any, gpt: GPT2LMHeadModel) -> None:
    ids, cache = torch.arange(4)[None], StaticCache(config=gpt.config, max_cache_len=16)
    with torch.no_grad():
        gpt(ids, **{CACHE: cache})
        keys, before = cache.layers[0].keys, cache.layers[0].keys.clone()
        verb(gpt, input_ids=ids, **{CACHE: cache})
    assert cache.layers[0].keys is keys
    assert torch.equal(keys, before)
    assert int(cache.get_seq_length()) == 4


class Holder:
    """An object of the user's own class."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.seen, self.log = tensor, 0, ["a"]


@dataclass
class Counter:
    count: int = 0
    names: list[str] = field(default_factory=list)


class Stateful(nn.Module):
    """Changes every kind of object that it can reach."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.space, self.counter, self.own = SimpleNamespace(n=0), Counter(), Holder(torch.zeros(4))
        self.nested = {"lists": [[1]]}

    def forward(self, x: Holder) -> Holder:
        x.seen += 1
        x.log.append("b")
        self.space.n += 1
        self.counter.count += 1
        self.counter.names.append("c")
        self.own.tensor = self.own.tensor + 1
        self.own.log.clear()
        self.nested["lists"][0].append(2)
        return Holder(self.linear(x.tensor) + self.own.tensor)


def test_objects_are_restored(verb: Any) -> None:
    model, given = Stateful(), Holder(torch.ones(2, 4))
    tensor, own = given.tensor, model.own.tensor
    verb(model, given)
    assert (given.seen, given.log, given.tensor is tensor) == (0, ["a"], True)
    assert (model.space.n, model.counter, model.nested) == (0, Counter(), {"lists": [[1]]})
    assert model.own.tensor is own
    assert model.own.log == ["a"]


def test_tensors_in_own_classes_are_inputs_and_outputs() -> None:
    t = intus.trace(Stateful(), Holder(torch.ones(2, 4)))
    assert [t["x.tensor"]] == t.inputs
    assert [t["tensor"]] == t.outputs
    assert t["linear"].has_input_ancestor
    assert t.validate()
    bias = t.rerun({"x.tensor": 0})["linear"].value
    assert torch.equal(bias[0], bias[1])


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated")
def test_script_module_is_restored(verb: Any) -> None:
    class Script(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n, self.names = torch.jit.Attribute(0, int), torch.jit.Attribute([1], list[int])
            self.state = torch.zeros(2)
            self.norm, self.linear = nn.BatchNorm1d(2), nn.Linear(2, 2)
            self.register_buffer("steps", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            self.n += 1
            self.names.append(2)
            self.state = self.state + 1
            self.steps.add_(1)
            return self.norm(self.linear(x)) + self.state + self.steps

    model = torch.jit.script(Script())
    x = torch.randn(3, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    verb(model, x)
    assert (model.n, model.names) == (0, [1])
    assert model.state.tolist() == [0, 0]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Scripted(nn.Module):
    """Calls a ScriptModule twice, which counts its calls, draws random numbers and has running statistics."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm, self.dropout = nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5)
            self.h = torch.zeros(2)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            self.h = self.h + self.calls
            return self.dropout(self.norm(self.linear(x))) + self.h

    def __init__(self, form: str) -> None:
        super().__init__()
        layer = self.Layer()
        if form == "traced":
            self.layer = torch.jit.trace(layer, torch.randn(3, 2), check_trace=False)
        else:
            self.layer = torch.jit.script(layer)
        if form == "loaded":
            buffer = io.BytesIO()
            torch.jit.save(self.layer, buffer)
            buffer.seek(0)
            self.layer = torch.jit.load(buffer)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x) * 2)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("form", ["scripted", "traced", "loaded"])
def test_replay_of_a_script_module_uses_and_restores_its_state(form: str) -> None:
    torch.manual_seed(0)
    model, x = Scripted(form), torch.randn(3, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    t = intus.trace(model, x)
    assert t.validate()
    assert torch.equal(t.rerun({}).outputs[0].value, t.outputs[0].value)
    assert intus.validate(model, x)
    other = t.rerun({"x": -x}).outputs[0].value
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model(x), t.outputs[0].value)  # the random state is as it was
    assert not torch.equal(other, t.outputs[0].value)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated")
def test_script_module_that_writes_into_its_argument(verb: Any) -> None:
    class Adds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x.add_(1)
            return x * 2

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.adds = torch.jit.script(Adds())

        def forward(self, x: Tensor) -> Tensor:
            h = x * 1
            return self.adds(h) + h + self.adds(x) + x

    x = torch.randn(2, 3)
    before, plain = x.clone(), Model()(x.clone())
    verb(Model(), x)
    assert torch.equal(x, before)
    t = intus.trace(Model(), x)
    assert torch.equal(t.outputs[0].value, plain)
    assert torch.equal(t.inputs[0].value, before)
    total = next(op for op in t.ops if op.type == "add")
    assert {p.type for p in total.parents} == {"recursivescriptmodule"}  # ``h`` is what the module wrote


def test_gradients_of_a_backward_pass_inside_are_removed() -> None:
    model, x = nn.Linear(3, 1), torch.randn(2, 3)

    def step(x: Tensor) -> Tensor:
        loss = model(x).square().sum()
        loss.backward()
        return model.weight.grad.clone()

    t = intus.trace(step, x)
    assert model.weight.grad is None
    plain = step(x)
    assert torch.equal(t.outputs[0].value, plain)
    grad, before = model.weight.grad, model.weight.grad.clone()
    again = intus.trace(step, x)
    assert torch.equal(again.outputs[0].value, 2 * plain)
    assert model.weight.grad is grad
    assert torch.equal(grad, before)


class TrainsItself(nn.Module):
    """Takes a step of its own optimizer in every pass, as in test-time training."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.optimizer = torch.optim.Adam(self.linear.parameters(), 0.1)

    def forward(self, x: Tensor) -> Tensor:
        loss = self.linear(x).square().sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@pytest.mark.parametrize("steps", [0, 2])
def test_optimizer_of_a_module_is_restored(verb: Any, steps: int) -> None:
    def losses(look: Any) -> list[Tensor]:
        torch.manual_seed(0)
        model, x = TrainsItself(), torch.randn(3, 2)
        for _ in range(steps):
            model(x)
        if look:
            look(model, x)
        return [model(x) for _ in range(3)]

    assert losses(verb) == losses(None)


class Slotted:
    """An object without a dict: its attributes are slots, one of them private, one not set."""

    __slots__ = ("__private", "label", "tensor", "unset")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.__private, self.label = tensor, tensor * 2, "a"

    def total(self) -> Tensor:
        return self.tensor + self.__private


@dataclass(slots=True)
class Batch:
    tensor: Tensor
    label: str = "a"

    def total(self) -> Tensor:
        return self.tensor * 3


@pytest.mark.parametrize("cls", [Slotted, Batch])
def test_objects_with_slots(verb: Any, cls: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            total = x.total()
            x.tensor, x.label, x.unset = x.tensor + 1, "b", 1
            return deque([cls(self.inner(total))])

    given, tensor = cls(torch.ones(2, 4)), torch.ones(2, 4)
    if cls is Batch:
        Model.forward = lambda self, x: (setattr(x, "label", "b"), deque([cls(self.inner(x.total()))]))[1]
    given.tensor = tensor
    model = Model()
    verb(model, (given,))
    assert given.tensor is tensor
    assert given.label == "a"
    assert not hasattr(given, "unset")
    t = intus.trace(model, (given,))
    assert t["x.tensor"] in t.inputs
    assert t.constants == []
    assert all(op.has_input_ancestor for op in t.outputs)
    assert torch.equal(t["inner"].value, model.inner(tensor * 3))
    assert t.validate()


CREATED: dict[str, Any] = {
    "linear": lambda: nn.Linear(4, 4),
    "batch norm": lambda: nn.BatchNorm1d(4),
    "like": lambda: nn.init.ones_(nn.Parameter(torch.empty_like(torch.zeros(4)))),
    "new": lambda: nn.init.ones_(nn.Parameter(torch.zeros(4).new_empty(4))),
}


@pytest.mark.parametrize("verb", [intus.trace, intus.view, VERBS["decompose"]])
@pytest.mark.parametrize("kind", CREATED)
def test_module_created_in_pass_and_kept_is_initialized(kind: str, verb: Any) -> None:
    def model(registry: dict[str, Any], x: Tensor) -> Tensor:
        if kind not in registry:
            registry[kind] = CREATED[kind]()
        one = registry[kind]
        return one(x) if isinstance(one, nn.Module) else x * one

    def state(one: Any) -> list[Tensor]:
        return list(one.state_dict().values()) if isinstance(one, nn.Module) else [one]

    x, expected, registry = torch.randn(5, 4), dict[str, Any](), dict[str, Any]()
    torch.manual_seed(1)
    model(expected, x)
    torch.manual_seed(1)
    verb(lambda x: model(registry, x), x)
    assert torch.equal(model(registry, x), model(expected, x))
    for one, other in zip(state(registry[kind]), state(expected[kind]), strict=True):
        assert torch.equal(one, other)
