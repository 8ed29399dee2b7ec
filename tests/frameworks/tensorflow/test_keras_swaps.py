"""``compare`` of models of Keras with twins in PyTorch of which two layers are swapped."""

import keras
import planted_swaps
import pytest
import tensorflow as tf
from swap_reasons import SwappedLayers

import intus


class Functions:
    exp, tanh, softmax = tf.exp, tf.tanh, tf.nn.softmax

    @staticmethod
    def matmul(x, y):
        return tf.matmul(x, y[0], transpose_b=True) if isinstance(y, tuple) else tf.matmul(x, y)

    @staticmethod
    def turned(x):
        return (x,)

    @staticmethod
    def rows(x):
        return tf.reshape(x, (-1, x.shape[1] * x.shape[2], 4))


class Net(keras.Model):
    def __init__(self, name):
        super().__init__()
        self.net = name
        makers = {
            "conv": lambda: keras.layers.Conv2D(4, 3, padding="same"),
            "norm": lambda: keras.layers.LayerNormalization(epsilon=1e-5),
        }
        for layer in planted_swaps.NETS[name].layers:
            setattr(self, layer, makers.get(layer[:4], lambda: keras.layers.Dense(4))())

    def call(self, x):
        return planted_swaps.NETS[self.net].run(self, Functions, x)


def of_keras(name):
    net, x = Net(name), tf.constant(planted_swaps.inputs(name))
    net(x)
    for layer, (weight, bias) in planted_swaps.weights(name).items():
        getattr(net, layer).set_weights([planted_swaps.stored(layer, weight), bias])
    return intus.trace(net, x)


@pytest.fixture(scope="module")
def traced():
    return of_keras


class TestSwaps(SwappedLayers):
    """Test the networks of ``traced``."""
