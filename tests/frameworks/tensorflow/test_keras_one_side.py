"""``compare`` of Keras with PyTorch, with an operation of one side between layers; see ``one_side``."""

import keras
import one_side
import pytest

import intus

L = keras.layers


class Block(L.Layer):
    def __init__(self, planted, **settings):
        super().__init__(**settings)
        self.norm, self.up = L.LayerNormalization(epsilon=1e-6), L.Dense(8, use_bias=False)
        self.planted = planted

    def call(self, x):
        h = self.norm(one_side.before(self.planted, "norm", x))
        return x + self.up(one_side.before(self.planted, "up", h))


class Net(keras.Model):
    def __init__(self, *planted):
        super().__init__()
        self.embed, self.block = L.Dense(8, use_bias=False), Block(planted, name="block")
        self.last, self.planted = L.LayerNormalization(epsilon=1e-6), planted

    def call(self, x):
        h = self.block(one_side.before(self.planted, "block", self.embed(x)))
        return self.last(one_side.before(self.planted, "last", h))


def traced(*planted):
    net = Net(*planted)
    net(one_side.X)
    for name, value in one_side.weights().items():
        (net.embed if name == "embed" else net.block.up).set_weights([value.T])
    return intus.trace(net, one_side.X)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    return one_side.compared(tmp_path_factory.mktemp("one"), traced)


def test_right_twins_agree(compared):
    one_side.check_right(compared)


@pytest.mark.parametrize("case", one_side.CASES)
def test_operation_of_one_side_has_no_partner_and_is_named(compared, case):
    one_side.check_named(compared, case)
