"""Compare a pass of a network of images with twins in PyTorch, with changes; see ``channels_last.py``."""

import json
import sys

import torch
from channels_last import CHANGES, IMAGES, WEIGHTS
from planted_twins import said
from torch import nn

import intus


class Block(nn.Module):
    def __init__(self, size, change):
        super().__init__()
        self.conv, self.change = nn.Conv2d(6, 6, size, padding=size // 2), change
        self.norm = nn.BatchNorm2d(6, eps=1e-2 if change == "epsilon" else 1e-5)

    def forward(self, x):
        h = self.norm(self.conv(x))
        h = h if self.change == "no residual" else x + h
        if self.change == "no activation":
            return h
        return torch.tanh(h) if self.change == "other activation" else torch.relu(h)


class Net(nn.Module):
    """The network, with one of the changes."""

    def __init__(self, change):
        super().__init__()
        name, _, number = change.rpartition(" ")
        changes = [name if number == one else "" for one in "01"]
        self.stem, self.change = nn.Conv2d(3, 6, 3, padding=1), change
        self.blocks = nn.ModuleList(map(Block, (1, 3), changes))
        self.head = nn.Linear(6 * 5 * 7, 4)

    def forward(self, x):
        x = self.stem(x)
        if self.change == "flip":
            x = x.flip(3)
        if self.change == "transposed pixels":
            x = x.transpose(2, 3)
        for block in self.blocks:
            x = block(x)
        if self.change == "scale":
            x = x * 1.1
        x = x if self.change == "no layout" else x.permute(0, 2, 3, 1)
        return self.head(x.flatten(1))


def load(net):
    """Give a network the parameters, and bring it into evaluation mode."""
    net.load_state_dict({name: torch.tensor(value) for name, value in WEIGHTS.items()}, strict=False)
    net.eval()


def traced(change):
    """Return the pass of the network with a change."""
    net = Net(change)
    load(net)
    scaled = {"weight 1": "blocks.1.conv", "weight behind the layout": "head"}.get(change)
    if scaled is not None:
        net.get_submodule(scaled).weight.data[1] *= 1.3
    return intus.trace(net, torch.tensor(IMAGES.transpose(0, 3, 1, 2)))


def compared(a, b):
    """Return what is said of two passes, with the modules that make a difference."""
    modules = intus.compare(a, b).modules
    return said(a, b) | {"sources": modules.a[modules.is_source].tolist()}


def said_of(other):
    """Return what is said of a pass and each twin, in both orders."""
    found = {}
    for change in ("right", *CHANGES):
        own = traced(change)
        found[change] = [compared(own, other), compared(other, own)]
    return found


def main():
    """Print what is said of the pass whose path is the only argument, as JSON."""
    print(json.dumps(said_of(intus.load(sys.argv[1]))))
