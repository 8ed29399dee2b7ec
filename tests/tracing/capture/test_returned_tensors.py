"""Modules and hooks that return tensors which they did not compute."""

from __future__ import annotations

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
