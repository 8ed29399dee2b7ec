"""``check_export`` of ``.pt2`` files: the model's state is compared to the bit, with or without an effect."""

import copy

import pytest
import torch
from torch import nn

import intus
from intus.core.errors import InputError


class Net(nn.Module):
    """A network of which parts have no effect on the input of these tests."""

    def __init__(self):
        super().__init__()
        self.table, self.fc, self.act, self.out = (
            nn.Embedding(10, 4),
            nn.Linear(4, 8),
            nn.GELU(),
            nn.Linear(8, 2),
        )
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("mask", torch.arange(8.0))
        self.constant = torch.tensor([1.0, 2.0])
        with torch.no_grad():
            self.mask[0] = 0.0  # unit 0 is dead

    def forward(self, ids):
        x = self.norm(self.act(self.fc(self.table(ids)))) * self.mask
        return self.out(x) + self.constant.clamp(max=1.5)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    torch.manual_seed(0)
    net, ids = Net().eval(), torch.tensor([1, 2, 3])
    file = tmp_path_factory.mktemp("pt2") / "net.pt2"
    torch.export.save(torch.export.export(net, (ids,)), file)
    return net, ids, file


def test_arguments_in_another_order_are_named(case):
    net, ids, file = case
    with pytest.raises(InputError, match=r"takes the model first .*net\.pt2' is given as the model"):
        intus.check_export(str(file), net, ids)
    with pytest.raises(InputError, match="the path is of type Net"):
        intus.check_export(net, net, ids)


def test_same_model_is_equal(case):
    net, ids, file = case
    check = intus.check_export(net, file, ids)
    assert check, str(check)
    assert check.parameters == []


@torch.no_grad()
def unread_row(net):
    net.table.weight[7, 0] += 1e-7
    return "table", "table.weight of a and of b differ by"


@torch.no_grad()
def dead_weight(net):
    net.out.weight[1, 0] += 5
    return "out", "out.weight of a and of b differ by"


@torch.no_grad()
def dead_statistic(net):
    net.norm.running_mean[0] += 1
    return "norm", "norm.running_mean of a and of b differ by"


@torch.no_grad()
def clamped_constant(net):
    net.constant[1] = 3
    return "", "constant_1 of a and constant_1 of b differ by"


@pytest.mark.parametrize("change", [unread_row, dead_weight, dead_statistic, clamped_constant])
def test_changed_state_without_effect_is_named(case, change):
    net, ids, file = case
    other = copy.deepcopy(net)
    module, why = change(other)
    check = intus.check_export(other, file, ids)
    assert torch.equal(other(ids), net(ids))
    assert not check
    assert check.verdict == "differs"
    assert len(check.parameters) == 1
    assert check.parameters[0].startswith(why)
    assert check.first["module"] == module


@torch.no_grad()
def weight(net):
    net.fc.weight[0] *= 1.1
    return "fc", "fc.weight of a and of b differ by"


def tanh(net):
    net.act = nn.GELU(approximate="tanh")
    return "act", "approximate is 'tanh' in a, 'none' in b"


@pytest.mark.parametrize("change", [weight, tanh])
def test_reason_is_given(case, change):
    net, ids, file = case
    other = copy.deepcopy(net)
    module, why = change(other)
    check = intus.check_export(other, file, ids)
    assert check.first["module"] == module
    assert any(reason.startswith(why) for reason in check.first["why"]), check.first
