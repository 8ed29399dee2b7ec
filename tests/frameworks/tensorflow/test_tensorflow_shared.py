"""Variables that several modules hold count once; the judges are TensorFlow and Keras."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import intus

L = keras.layers
ROWS = np.random.default_rng(0).random((2, 4)).astype(np.float32)


class Inner(tf.Module):
    def __init__(self, w=None):
        super().__init__()
        self.w = tf.Variable(tf.random.normal((4, 4), seed=1)) if w is None else w
        self.mean = tf.Variable(tf.zeros(4), trainable=False)

    def __call__(self, x):
        return x @ self.w + self.mean


class Tied(tf.Module):
    def __init__(self):
        super().__init__()
        self.first = Inner()
        self.alias = self.first.w
        self.second = Inner(self.alias)
        self.second.mean = self.first.mean
        self.together = [self.first, self.second]

    def __call__(self, x):
        return self.second(self.first(x)) + tf.reduce_sum(self.alias)


def size(variables):
    return sum(int(np.prod(one.shape)) for one in variables)


def test_tied_variables_of_modules():
    model = Tied()
    trace = intus.trace(model, tf.constant(ROWS))
    assert trace.num_params == size(model.trainable_variables) == 16
    assert {name: module.num_params for name, module in trace.modules.items()} == dict.fromkeys(
        trace.modules, 16
    )
    for address in ("alias", "first.w", "second.w"):
        np.testing.assert_array_equal(trace.value(address), model.alias)
    assert len(trace.modules[""].buffers) == len(model.variables) - len(model.trainable_variables) == 1
    np.testing.assert_array_equal(trace.outputs[0].value, model(ROWS))
    with pytest.raises(KeyError, match=r"has no 'first\.alias'"):
        trace.value("first.alias")


class Alias(L.Layer):
    def __init__(self):
        super().__init__()
        self.dense = L.Dense(3)

    def build(self, shape):
        self.dense.build(shape)
        self.kernel = self.dense.kernel

    def call(self, x):
        return self.dense(x) + tf.reduce_sum(self.kernel)


LAYERS = {
    "alias": Alias,
    "spectral": lambda: L.SpectralNormalization(L.Dense(3)),
    "distributed": lambda: L.TimeDistributed(L.Dense(3)),
    "bidirectional": lambda: L.Bidirectional(L.LSTM(3)),
    "cells": lambda: L.RNN([L.LSTMCell(3), L.GRUCell(2)]),
}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_number_of_parameters_is_that_of_keras(name, frozen, tmp_path):
    x = keras.Input((5, 4))
    model = keras.Model(x, LAYERS[name]()(x))
    before = size(model.trainable_variables)
    model.trainable = not frozen
    rows = np.stack([ROWS[:, :4]] * 5, 1)
    trace = intus.trace(model, rows)
    assert (trace.num_params, trace.num_trainable) == (before, size(model.trainable_variables))
    model.trainable = True
    assert trace.num_params == model.count_params() - size(model.non_trainable_weights)
    np.testing.assert_allclose(trace.outputs[0].value, model(rows), rtol=1e-5, atol=1e-6)
    trace.save(tmp_path / "net.trace")
    assert intus.load(tmp_path / "net.trace").num_params == before
