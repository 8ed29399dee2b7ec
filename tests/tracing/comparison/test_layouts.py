"""``compare`` of networks of PyTorch of which one has its channels last, in memory or as its last axis."""

import copy

import channels_first
import channels_last
import pytest
import torch
from torch import nn

import intus
from intus import compare


class Conv(nn.Conv2d):
    def forward(self, x):
        return super().forward(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class Norm(nn.BatchNorm2d):
    def forward(self, x):
        return super().forward(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.conv, self.norm = Conv(6, 6, size, padding=size // 2), Norm(6)

    def forward(self, x):
        return torch.relu(x + self.norm(self.conv(x)))


class Net(nn.Module):
    """The network of ``channels_first.py`` on images whose last axis are the channels."""

    def __init__(self):
        super().__init__()
        self.stem, self.blocks = Conv(3, 6, 3, padding=1), nn.ModuleList(map(Block, (1, 3)))
        self.head = nn.Linear(6 * 5 * 7, 4)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.flatten(1))


def pass_of(kind):
    """Return the pass of the network with its channels last in memory, or as the last axis."""
    net, x = (Net(), channels_last.IMAGES) if kind == "axis" else (channels_first.Net("right"), None)
    channels_first.load(net)
    if x is None:
        net = net.to(memory_format=torch.channels_last)
        given = torch.tensor(channels_last.IMAGES.transpose(0, 3, 1, 2))
        return intus.trace(net, given.contiguous(memory_format=torch.channels_last))
    return intus.trace(net, torch.tensor(x))


@pytest.fixture(scope="module", params=["memory", "axis"])
def said(request):
    """Return what is said of the pass and each twin with a change, in both orders."""
    return channels_first.said_of(pass_of(request.param))


def test_right_twin_agrees_in_both_orders(said):
    channels_last.check_right(said)


@pytest.mark.parametrize("change", channels_last.CHANGES)
def test_module_that_has_a_planted_change_is_named(said, change):
    channels_last.check_named(said, change)


@pytest.mark.parametrize("seed", range(4))
def test_kernel_for_another_order_in_memory_may_round_otherwise(seed):
    torch.manual_seed(seed)
    net, x = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 1)), torch.randn(2, 3, 7, 9)
    other = copy.deepcopy(net).to(memory_format=torch.channels_last)
    passes = intus.trace(net, x), intus.trace(other, x.contiguous(memory_format=torch.channels_last))
    for table in (compare(*passes), compare(*passes[::-1])):
        assert table.agree, str(table)
        assert set(table.verdict) <= {"equal", "close"}
