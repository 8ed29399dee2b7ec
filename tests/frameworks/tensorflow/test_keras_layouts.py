"""``compare`` of Keras with PyTorch names what was planted where each has its axes in another order.

The main environment runs the twins in PyTorch and compares, in both orders; see ``channels_last.py``.
"""

import channels_last
import keras
import pytest
import tensorflow as tf

import intus

L = keras.layers


class Block(L.Layer):
    def __init__(self, size, **settings):
        super().__init__(**settings)
        self.conv, self.norm = L.Conv2D(6, size, padding="same"), L.BatchNormalization(epsilon=1e-5)

    def call(self, x):
        return tf.nn.relu(x + self.norm(self.conv(x)))


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.stem, self.head = L.Conv2D(6, 3, padding="same"), L.Dense(4)
        self.blocks = [Block(size, name=f"blocks_{number}") for number, size in enumerate((1, 3))]

    def call(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(tf.reshape(x, (-1, 6 * 5 * 7)))


def traced():
    net, weights = Net(), channels_last.WEIGHTS
    net(channels_last.IMAGES)
    for name, layer in (("stem", net.stem), ("head", net.head)):
        layer.set_weights([channels_last.kernel(name), weights[f"{name}.bias"]])
    for number, block in enumerate(net.blocks):
        conv, norm = f"blocks.{number}.conv", f"blocks.{number}.norm"
        block.conv.set_weights([channels_last.kernel(conv), weights[f"{conv}.bias"]])
        names = ("weight", "bias", "running_mean", "running_var")
        block.norm.set_weights([weights[f"{norm}.{name}"] for name in names])
    return intus.trace(net, channels_last.IMAGES)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    return channels_last.compared(traced(), tmp_path_factory.mktemp("layouts"))


def test_right_twin_agrees_in_both_orders(said):
    channels_last.check_right(said)


@pytest.mark.parametrize("change", channels_last.CHANGES)
def test_module_that_has_a_planted_change_is_named(said, change):
    channels_last.check_named(said, change)
