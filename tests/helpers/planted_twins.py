"""Compare passes in a folder with each other, and with twins in PyTorch; see ``planted.py``.

What each comparison said is printed as JSON, in both orders.
"""

import json
import sys
from pathlib import Path

import planted
import torch
from torch import nn

import intus


class Images(nn.Module):
    def __init__(self, *, bias=True, stride=1, padding=1, dilation=1, groups=1, eps=1e-5):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, stride, padding, dilation, groups)
        self.fc, self.norm = nn.Linear(4, 4, bias=bias), nn.LayerNorm(4, eps=eps)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.norm(self.fc(self.conv(x).mean((-2, -1)))))


class Rows(nn.Module):
    def __init__(self, dim=-1):
        super().__init__()
        self.fc, self.out, self.dim = nn.Linear(4, 4), nn.Linear(4, 3), dim

    def forward(self, x):
        return self.out(torch.softmax(self.fc(x), self.dim))


def traced(net, x, change=""):
    own = {name: torch.tensor(value) for name, value in planted.weights(change).items()}
    net.load_state_dict({name: own[name] for name in net.state_dict()})
    return intus.trace(net.eval(), torch.tensor(x))


def said(a, b):
    table = intus.compare(a, b)
    first = table.attrs["first"] or {"why": [], "module": ""}
    return {"agree": table.agree, "text": table.attrs["summary"], **first}


def both_orders(a, b):
    return [said(a, b), said(b, a)]


def main():
    """Compare the passes in the folder that is the argument."""
    folder, given, bases = Path(sys.argv[1]), {}, {}
    for name, net, x in (("images", Images(), planted.images()), ("rows", Rows(), planted.rows())):
        own = planted.read(folder, name)
        # The models of some libraries take one input.
        given[name] = x if own["input_1"].value.ndim == x.ndim else x[0]
        bases[name] = {"own": own, "torch": traced(net, given[name])}
    found = {f"twin: {name}": both_orders(pair["own"], pair["torch"]) for name, pair in bases.items()}
    for change in planted.CHANGES:
        kind = "rows" if change == "axis" else "images"
        net = Rows(-2) if change == "axis" else Images(**planted.SETTINGS[change])
        changed = {"own": planted.read(folder, change), "torch": traced(net, given[kind], change)}
        for one, other in (("own", "own"), ("own", "torch"), ("torch", "own")):
            found[f"{change}: {one}, {other}"] = both_orders(bases[kind][one], changed[other])
    print(json.dumps(found))
