"""Compare passes in a folder with twins in PyTorch, of which one has an operation more; see ``one_side.py``.

What was said in both orders is printed as JSON, with the rows of the operation.
"""

import json
import sys
from pathlib import Path

import one_side
import torch
from torch import nn

import intus


class Block(nn.Module):
    def __init__(self, planted):
        super().__init__()
        self.norm, self.up, self.planted = nn.LayerNorm(8, eps=1e-6), nn.Linear(8, 8, bias=False), planted

    def forward(self, x):
        h = self.norm(one_side.before(self.planted, "norm", x))
        return x + self.up(one_side.before(self.planted, "up", h))


class Net(nn.Module):
    def __init__(self, *planted):
        super().__init__()
        self.embed, self.block = nn.Linear(6, 8, bias=False), Block(planted)
        self.last, self.planted = nn.LayerNorm(8, eps=1e-6), planted
        for name, value in one_side.weights().items():
            layer = self.embed if name == "embed" else self.block.up
            layer.weight.data = torch.tensor(value)

    def forward(self, x):
        h = self.block(one_side.before(self.planted, "block", self.embed(x)))
        return self.last(one_side.before(self.planted, "last", h))


def said(a, b, of, case):
    """Return what is said of two passes, with the labels of the rows of the operation of pass ``of``.

    The addition after the ``block`` has a partner in the same module, with which it does not agree.
    """
    table = intus.compare(a, b)
    _, step, _, point = case.split() if case else ("", "", "", "block")
    is_step = table[of].str.lower().str.startswith(one_side.NAMES.get(step, " "))
    own = table[is_step & (table[f"module_{of}"] == one_side.POINTS[point])]
    own = own[own["verdict"].str.startswith("only") | (own["module_a"] != own["module_b"])]
    return {
        "agree": table.agree,
        "text": table.attrs["summary"],
        "first": table.attrs["first"],
        "rows": own[["a", "b"]].values.tolist(),
    }


def main():
    """Compare the passes in the folder that is the argument."""
    folder, x = Path(sys.argv[1]), torch.tensor(one_side.X)
    right, own = intus.trace(Net("", "").eval(), x), intus.load(folder / "right.trace")
    found = {"right": [said(right, own, "a", ""), said(own, right, "a", "")]}
    for case in one_side.CASES:
        side, step, _, point = case.split()
        if side == "own":
            one, other = intus.load(folder / f"{step} before {point}.trace"), right
        else:
            one, other = intus.trace(Net(step, point).eval(), x), own
        found[case] = [said(one, other, "a", case), said(other, one, "b", case)]
    print(json.dumps(found))
