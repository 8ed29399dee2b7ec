"""``compare`` of Gluon with PyTorch, with an operation of one side between blocks; see ``one_side``."""

import mxnet as mx
import one_side
import pytest
from mxnet import nd
from mxnet.gluon import nn

import intus


class Block(mx.gluon.HybridBlock):
    def __init__(self, planted):
        super().__init__()
        with self.name_scope():
            self.norm = nn.LayerNorm(epsilon=1e-6, in_channels=8)
            self.up = nn.Dense(8, use_bias=False, in_units=8)
        self.planted = planted

    def hybrid_forward(self, F, x):  # noqa: N803
        h = self.norm(one_side.before(self.planted, "norm", x))
        return x + self.up(one_side.before(self.planted, "up", h))


class Net(mx.gluon.HybridBlock):
    def __init__(self, *planted):
        super().__init__()
        with self.name_scope():
            self.embed, self.block = nn.Dense(8, use_bias=False, in_units=6), Block(planted)
            self.last = nn.LayerNorm(epsilon=1e-6, in_channels=8)
        self.planted = planted

    def hybrid_forward(self, F, x):  # noqa: N803
        h = self.block(one_side.before(self.planted, "block", self.embed(x)))
        return self.last(one_side.before(self.planted, "last", h))


def traced(*planted):
    net = Net(*planted)
    net.initialize()
    for name, value in one_side.weights().items():
        (net.embed if name == "embed" else net.block.up).weight.set_data(nd.array(value))
    return intus.trace(net, nd.array(one_side.X))


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    return one_side.compared(tmp_path_factory.mktemp("one"), traced)


def test_right_twins_agree(compared):
    one_side.check_right(compared)


@pytest.mark.parametrize("case", one_side.CASES)
def test_operation_of_one_side_has_no_partner_and_is_named(compared, case):
    one_side.check_named(compared, case)
