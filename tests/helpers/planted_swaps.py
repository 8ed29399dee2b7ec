"""Networks of which two layers were loaded with each other's weights, which every framework builds.

A framework gives the layers and a few functions; ``swapped_twins.py`` has the twins in PyTorch and compares.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import planted
from torch_help import run_with_torch


class Net(NamedTuple):
    """A network.

    Attributes:
        layers: The names of its layers. Those that begin with "conv" are convolutions of 3 x 3 that keep the
            size, those that begin with "norm" normalize the last axis, the others are linear.
        run: Computes the outputs from the network, the functions of its framework and the input.
        shape: The shape of the input, with the channels last.
    """

    layers: tuple[str, ...]
    run: object
    shape: tuple[int, ...] = (2, 5, 4)


NETS = {
    "attention": Net(
        ("q", "k", "v", "o"),
        lambda m, f, x: m.o(f.matmul(f.softmax(f.matmul(m.q(x), f.turned(m.k(x)))), m.v(x))),
    ),
    "gaussian": Net(
        ("h", "mu", "lv", "d"),
        lambda m, f, x: (lambda h: m.d(m.mu(h) * f.exp(m.lv(h) * 0.5)))(f.tanh(m.h(x))),
    ),
    "gated": Net(
        ("gate", "up", "down"),
        lambda m, f, x: m.down(f.tanh(m.gate(x)) * m.up(x)),
    ),
    "heads": Net(
        ("h", "left", "right"),
        lambda m, f, x: (lambda h: (m.left(h), m.right(h)))(f.tanh(m.h(x))),
    ),
    "heads with activations": Net(
        ("h", "left", "right"),
        lambda m, f, x: (lambda h: (f.tanh(m.left(h)), f.tanh(m.right(h))))(f.tanh(m.h(x))),
    ),
    "line": Net(("fc1", "fc2", "out"), lambda m, f, x: m.out(f.tanh(m.fc2(f.tanh(m.fc1(x)))))),
    "images": Net(("conv1", "conv2"), lambda m, f, x: m.conv2(f.tanh(m.conv1(x))), shape=(2, 6, 6, 4)),
    "branches": Net(("conv1", "conv2"), lambda m, f, x: f.tanh(m.conv1(x)) * m.conv2(x), shape=(2, 6, 6, 4)),
    "patches": Net(
        ("conv", "q", "k", "v"),
        lambda m, f, x: (lambda h: f.matmul(f.softmax(f.matmul(m.q(h), f.turned(m.k(h)))), m.v(h)))(
            f.rows(f.tanh(m.conv(x)))
        ),
        shape=(2, 6, 6, 4),
    ),
    "normed": Net(("fc", "norm"), lambda m, f, x: m.norm(m.fc(x))),
}
#: What is swapped: two layers, or the scale and the bias of one. The first differs first.
SWAPS = [
    ("attention", "q", "k"),
    ("attention", "k", "v"),
    ("attention", "q", "v"),
    ("attention", "q", "o"),
    ("gaussian", "mu", "lv"),
    ("gated", "gate", "up"),
    ("gated", "up", "down"),
    ("heads", "left", "right"),
    ("heads with activations", "left", "right"),
    ("line", "fc1", "fc2"),
    ("images", "conv1", "conv2"),
    ("branches", "conv1", "conv2"),
    ("patches", "q", "k"),
    ("patches", "k", "v"),
    ("normed", "norm", "norm"),
]


def weights(name, one="", other=""):
    """Return the weight and the bias of each layer of a network in the order of PyTorch, by the layer.

    Args:
        name: The name of the network.
        one: A layer that has the weights of the other.
        other: A layer that has the weights of this one; the same if its scale and bias are swapped.
    """
    random = np.random.RandomState(0)
    found = {}
    for layer in NETS[name].layers:
        kernel = {"conv": (4, 4, 3, 3), "norm": (4,)}.get(layer[:4], (4, 4))
        found[layer] = random.randn(*kernel).astype(np.float32), random.randn(4).astype(np.float32)
    if one:
        found[one], found[other] = (found[one][::-1],) * 2 if one == other else (found[other], found[one])
    return found


def stored(layer, weight):
    """Return a weight in the order of the axes in which Keras and Flax store it."""
    return np.ascontiguousarray(weight.transpose(2, 3, 1, 0) if layer[:4] == "conv" else weight.T)


def inputs(name, *, last=True):
    """Return the input of a network, with the channels of images last or first."""
    x = np.random.RandomState(1).randn(*NETS[name].shape).astype(np.float32)
    return np.ascontiguousarray(np.moveaxis(x, -1, 1)) if x.ndim == 4 and not last else x


def compared(folder, traced, names=tuple(NETS)):
    """Return what ``compare`` says of each pass of a framework and twins in PyTorch.

    Args:
        folder: A folder to write to.
        traced: Returns the trace of a network with the weights of ``weights``, given its name.
        names: The networks.
    """
    for name in names:
        planted.write(Path(folder), name, traced(name))
    return run_with_torch("import swapped_twins; swapped_twins.main()", folder, *names)
