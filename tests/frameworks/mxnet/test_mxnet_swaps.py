"""``compare`` of Gluon blocks with twins in PyTorch of which two layers are swapped."""

import mxnet as mx
import planted_swaps
import pytest
from mxnet import nd
from mxnet.gluon import nn
from swap_reasons import SwappedLayers

import intus


class Functions:
    """The functions of MXNet.

    Args:
        F: The module that has them: of arrays, or of symbols.
    """

    def __init__(self, F):  # noqa: N803
        self.exp, self.tanh, self.softmax, self.matmul = F.exp, F.tanh, F.softmax, F.batch_dot
        self.turned = lambda x: F.transpose(x, axes=(0, 2, 1))
        self.rows = lambda x: F.transpose(F.reshape(x, (0, 0, -1)), axes=(0, 2, 1))


class Net(mx.gluon.HybridBlock):
    def __init__(self, name):
        super().__init__()
        self.net = name
        makers = {
            "conv": lambda: nn.Conv2D(4, 3, padding=1, in_channels=4),
            "norm": lambda: nn.LayerNorm(in_channels=4),
        }
        with self.name_scope():
            for layer in planted_swaps.NETS[name].layers:
                made = makers.get(layer[:4], lambda: nn.Dense(4, flatten=False, in_units=4))()
                setattr(self, layer, made)

    def hybrid_forward(self, F, x):  # noqa: N803
        return planted_swaps.NETS[self.net].run(self, Functions(F), x)


def gluon(name):
    net = Net(name)
    net.initialize()
    for layer, values in planted_swaps.weights(name).items():
        kinds = ("gamma", "beta") if layer.startswith("norm") else ("weight", "bias")
        for kind, value in zip(kinds, values, strict=True):
            getattr(getattr(net, layer), kind).set_data(nd.array(value))
    return intus.trace(net, nd.array(planted_swaps.inputs(name, last=False)))


@pytest.fixture(scope="module")
def traced():
    return gluon


class TestSwaps(SwappedLayers):
    """Test the networks of ``traced``."""
