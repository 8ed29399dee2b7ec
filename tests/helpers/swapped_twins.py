"""Compare passes in a folder with twins in PyTorch whose layers are swapped; see ``planted_swaps.py``.

What each comparison said is printed as JSON, in both orders, of passes with and without parameters.
"""

import json
import sys
from pathlib import Path

import numpy as np
import planted
import planted_swaps
import torch
from planted_twins import said
from torch import nn

import intus


class Functions:
    matmul, exp, tanh = torch.matmul, torch.exp, torch.tanh

    @staticmethod
    def softmax(x):
        return torch.softmax(x, -1)

    @staticmethod
    def turned(x):
        return x.transpose(-1, -2)

    @staticmethod
    def rows(x):
        return x.flatten(2).transpose(1, 2)


class Twin(nn.Module):
    """The twin of a network.

    Args:
        name: The name of the network.
        weights: The weights of its layers.
        address: Returns the name of a layer in the twin, given that in the network.
    """

    def __init__(self, name, weights, address=lambda layer: layer):
        super().__init__()
        self.run, self.address = planted_swaps.NETS[name].run, address
        for layer, (weight, bias) in weights.items():
            one = {"conv": nn.Conv2d(4, 4, 3, padding=1), "norm": nn.LayerNorm(4)}.get(
                layer[:4], nn.Linear(4, 4)
            )
            one.weight.data, one.bias.data = torch.tensor(weight), torch.tensor(bias)
            self.add_module(address(layer), one)

    def forward(self, x):
        return self.run(_Layers(self), Functions, x)


class _Layers:
    def __init__(self, twin):
        self._twin = twin

    def __getattr__(self, layer):
        return getattr(self._twin, self._twin.address(layer))


def traced(name, x, *args, **kwargs):
    return intus.trace(Twin(name, *args, **kwargs), torch.tensor(x))


def of(*traces):
    """Return what is said of two traces in both orders, with the pairs of modules and the verdicts."""
    found = []
    for a, b in (traces, traces[::-1]):
        modules = intus.compare(a, b).modules
        found.append(said(a, b) | {"modules": modules[["a", "b", "verdict"]].to_numpy().tolist()})
    return found


def reversed_name(layer):
    """Return a name that no layer of a network has, nor the end of one."""
    return f"other_{layer[::-1]}_x"


def crosswise(one, other):
    """Return a function that gives two layers each other's names."""
    return lambda layer: {one: other, other: one}.get(layer, layer)


def changed(weights, layer):
    """Return the weights with one row of a layer changed."""
    weight, bias = weights[layer]
    return weights | {layer: (weight + np.eye(len(weight), dtype=weight.dtype)[0][:, None], bias)}


def main():
    """Compare the passes of some networks in a folder; both are the arguments."""
    folder, *names = sys.argv[1:]
    found = {}
    for name in names:
        own, saved = planted.read(folder, name), intus.load(Path(folder) / f"{name}.trace")
        x = np.asarray(own["input_1"].value)
        if x.ndim == 4 and not np.array_equal(x, planted_swaps.inputs(name, last=False)):
            x = planted_swaps.inputs(name, last=False)
        weights = planted_swaps.weights(name)
        found[f"twin: {name}"] = of(own, traced(name, x, weights))
        renamed = traced(name, x, weights, address=reversed_name)
        found[f"renamed: {name}"] = of(own, renamed)
        for net, one, other in planted_swaps.SWAPS:
            if net == name:
                twin = traced(name, x, planted_swaps.weights(name, one, other))
                found[f"{name}: {one}, {other}"] = [*of(own, twin), *of(saved, twin)]
                if one != other:
                    names_swapped = {"address": crosswise(one, other)}
                    found[f"names: {name}: {one}, {other}"] = of(
                        own, traced(name, x, weights, **names_swapped)
                    )
        if name == "attention":
            other = changed(weights, "o")
            swapped = planted_swaps.weights(name, "q", "k")
            found["renamed and swapped"] = of(own, traced(name, x, swapped, address=reversed_name))
            found["names and o"] = of(own, traced(name, x, other, address=crosswise("q", "k")))
    print(json.dumps(found))
