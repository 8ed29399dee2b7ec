"""Compare passes in a folder with those of twins in PyTorch: of functions, and of layers with hidden biases.

A comparison has the largest difference of both outputs, and what was said in both orders.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from planted_twins import both_orders

import intus


def normalized(x, eps):
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + eps).sqrt()


FUNCTIONS = {
    "leaky_relu": lambda x: F.leaky_relu(x, 0.01),
    "leaky_relu of 0.2": lambda x: F.leaky_relu(x, 0.2),
    "elu": F.elu,
    "elu of another alpha": lambda x: F.elu(x, 1.3),
    "celu": F.celu,
    "celu of another alpha": lambda x: F.celu(x, 1.3),
    "selu": F.selu,
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softplus of beta": lambda x: F.softplus(x, 2.0),
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "line": lambda x: x / 6 + 0.5,
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "hardshrink": lambda x: F.hardshrink(x, 0.3),
    "hardshrink of 0.5": lambda x: F.hardshrink(x, 0.5),
    "softshrink": lambda x: F.softshrink(x, 0.3),
    "softshrink of 0.5": lambda x: F.softshrink(x, 0.5),
    "threshold": lambda x: F.threshold(x, 0.1, 7.0),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.25])),
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "normalized": lambda x: normalized(x, 1e-5),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-5),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clamp of min": lambda x: x.clamp(min=0.2),
    "masked_fill": lambda x: x.masked_fill(x > 30, 7.0),
    "abs": torch.abs,
    "sign": torch.sign,
    "remainder": lambda x: torch.remainder(x, 3.0),
    "nan_to_num": torch.nan_to_num,
    "logit": lambda x: torch.logit(x.sigmoid(), 1e-6),
}


class Net(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Attention(torch.nn.Module):
    """Layers whose biases a softmax and the subtraction of a mean hide, with all of them or without one."""

    def __init__(self, bias):
        super().__init__()
        for number, name in enumerate(("queries", "keys", "centered")):
            layer = torch.nn.Linear(6, 6, bias=bias != f"no {name}")
            rng = np.random.default_rng(number)
            layer.weight.data = torch.tensor(rng.normal(size=(6, 6)).astype(np.float32).T.copy())
            if layer.bias is not None:
                layer.bias.data = torch.tensor(rng.normal(size=6).astype(np.float32))
            setattr(self, name, layer)

    def forward(self, x):
        x = x + torch.softmax(self.queries(x) @ self.keys(x).T, -1) @ x
        y = self.centered(x)
        return x + torch.tanh(y - y.mean(0))


def compared(net, x, other, saved=None):
    """Return the comparison of a network with a pass.

    Args:
        net: The network.
        x: The inputs of both, which are not taken from the pass: it might have them wrong.
        other: The pass.
        saved: A file to save the pass of the network to, which is then compared as read from it too.
    """
    own, y = intus.trace(net, x), torch.tensor(np.asarray(other["output_1"].value))
    said = both_orders(own, other)
    if saved is not None:
        own.save(saved)
        said += both_orders(intus.load(saved), other)
    return float((net(x) - y).abs().max()), said


def loaded(folder, name):
    """Return the inputs of this name."""
    return torch.tensor(np.load(folder / f"{name}.npy"))


def of_functions(folder):
    """Return the comparison of each pass with its function; ``cases.json`` names this and the inputs."""
    cases = json.loads((folder / "cases.json").read_text())
    return {
        name: compared(Net(FUNCTIONS[of]), loaded(folder, inputs), intus.load(folder / f"{name}.trace"))
        for name, (of, inputs) in cases.items()
    }


def of_attention(folder, biases):
    """Return the comparison of the pass with each of some biases with the twin with each of them."""
    found = {}
    for name in biases:
        other = intus.load(folder / f"{name}.trace")
        for bias in biases:
            saved = folder / "torch.trace"
            found[f"{name}, {bias}"] = compared(Attention(bias), loaded(folder, "x"), other, saved)
    return found


def main():
    """Print the comparisons of the passes in the folder that is the first argument, as JSON.

    The other arguments are the biases of ``Attention``, if the folder has passes of it.
    """
    folder, *biases = sys.argv[1:]
    print(json.dumps(of_functions(Path(folder)) | of_attention(Path(folder), biases)))
