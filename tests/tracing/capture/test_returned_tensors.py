"""Modules and hooks that return tensors which they did not compute."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import intus


class Table(nn.Module):
    """Returns a plain tensor that it keeps, such as a table of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.randn(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.table


class Net(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.linear, self.inner = nn.Linear(8, 8), inner

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.inner(x)


def test_cached_table_is_a_constant() -> None:
    net = Net(Table())
    t = intus.trace(net, torch.randn(2, 8))
    assert [op.type for op in t] == ["linear", "add"]
    assert t["inner"] == t["constant_1"]
    assert torch.equal(t["inner"].value, net.inner.table)
    assert not t["inner"].has_input_ancestor
    assert t.validate()


def test_replacement_by_a_hook_is_a_constant() -> None:
    net, replacement = Net(nn.Linear(8, 8)), torch.randn(2, 8)
    net.inner.register_forward_hook(lambda module, args, out: replacement)
    t = intus.trace(net, torch.randn(2, 8))
    assert t["inner"].kind == "constant"
    assert torch.equal(t["inner"].value, replacement)
    assert t.validate()


def test_replacement_that_a_hook_computed_is_its_operation() -> None:
    net = Net(nn.Linear(8, 8))
    net.inner.register_forward_hook(lambda module, args, out: out * 2)
    t = intus.trace(net, torch.randn(2, 8))
    assert t["inner"].type == "mul"
    assert [parent.type for parent in t["inner"].parents] == ["linear"]


def test_table_with_history_of_an_earlier_pass_is_a_constant() -> None:
    net = Net(Table())
    net.inner.table = nn.Linear(8, 8)(torch.randn(8))
    t = intus.trace(net, torch.randn(2, 8, requires_grad=True))
    assert t["inner"].kind == "constant"


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated")
def test_script_module_is_one_operation() -> None:
    net = Net(torch.jit.trace(nn.Linear(8, 8), torch.randn(2, 8)))
    t = intus.trace(net, torch.randn(2, 8))
    assert [parent.label for parent in t["inner"].parents] == ["input_1"]
    assert t.validate()


class Prompt(nn.Module):
    """Returns its parameter, or a view of it, as prompt tuning does."""

    def __init__(self, part: slice = slice(None)) -> None:
        super().__init__()
        self.weight, self.part = nn.Parameter(torch.randn(4, 8)), part

    def forward(self) -> Tensor:
        return self.weight if self.part == slice(None) else self.weight[self.part]


class Prompted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.prompt, self.head = Prompt(), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        prompt = self.prompt()
        return self.head(torch.cat([prompt, x])).sum() + self.prompt.weight.sum(), prompt


@pytest.mark.parametrize("save", ["all", "prompt", "parameter"])
def test_returned_parameter_is_the_output_of_its_module(save: str) -> None:
    model, x = Prompted(), torch.randn(3, 8)
    t = intus.trace(model, x, save=save)
    row = t["prompt"]
    assert row == t["parameter_1"] == t.modules["prompt"].outputs[0]
    assert (row.kind, row.type, row.output_of) == ("parameter", "parameter", ["prompt", ""])
    assert torch.equal(t.modules["prompt"].value, model.prompt.weight)
    assert [param.address for param in row.params] == ["prompt.weight"]
    assert t["cat"].parents[0] == row
    assert [param.address for param in t["cat"].params] == ["prompt.weight"]
    assert t["output_2"].parents == [row]
    assert t.find("parameter") == [row]
    assert "prompt      " in str(t)


def test_trace_with_a_returned_parameter_is_proven(tmp_path: Path) -> None:
    model, x = Prompted(), torch.randn(3, 8)
    t = intus.trace(model, x)
    report = intus.validate(model, x, against="autograd")
    assert len(t.validate().proven) == len(report.proven) == len(t) + 2
    assert report.autograd.missing == ()
    t.save(tmp_path / "a.trace")
    loaded = intus.load(tmp_path / "a.trace")
    assert torch.equal(loaded["prompt"].value, model.prompt.weight)


def test_rerun_with_another_returned_parameter() -> None:
    model, x = Prompted(), torch.randn(3, 8)
    t = intus.trace(model, x)
    other = torch.randn(4, 8)
    by_parameter = t.rerun({"prompt.weight": other})
    by_output = t.rerun({"prompt": other})
    with torch.no_grad():
        model.prompt.weight.copy_(other)
    plain = model(x)
    for t in (by_parameter, by_output):
        assert torch.equal(t["output_1"].value, plain[0])
        assert torch.equal(t["output_2"].value, plain[1])


def test_returned_view_of_a_parameter_is_its_operation() -> None:
    model = Prompted()
    model.prompt = Prompt(slice(0, 4))
    t = intus.trace(model, torch.randn(3, 8))
    assert t["prompt"].type == "getitem"
    assert t.validate()


class Unchanged(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight


def test_parametrization_that_returns_its_parameter() -> None:
    linear = nn.Linear(3, 2)
    nn.utils.parametrize.register_parametrization(linear, "weight", Unchanged())
    x = torch.randn(4, 3)
    t = intus.trace(linear, x)
    assert t["parametrizations.weight"].kind == "parameter"
    assert t["linear"].parents == [t["input_1"], t["parameter_1"]]
    assert torch.equal(t["output_1"].value, linear(x))
    assert intus.validate(linear, x)


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.prompt = Prompt()

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = (x @ self.prompt().t()) @ self.prompt()
        return x


def test_loop_over_a_returned_parameter_is_recurrent() -> None:
    t = intus.trace(Loop(), torch.randn(2, 8))
    assert t.is_recurrent
    assert [op.label for op in t.find("parameter")] == ["parameter_1"]
    assert t.modules["prompt"].num_calls == 6
    assert len(t.modules["prompt"].outputs) == 6
    assert t.validate()
