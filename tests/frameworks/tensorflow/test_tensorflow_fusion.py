"""A Session computes the same bits while it is probed, although TensorFlow fuses operations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

import intus

tf1 = tf.compat.v1
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.random((16, 8)).astype(np.float32)
IMAGES = RANDOM.random((16, 12, 12, 3)).astype(np.float32)
LABELS = RANDOM.integers(0, 3, 16)


def variable(name, shape, start=None):
    return tf1.get_variable(name, shape, initializer=start or tf1.zeros_initializer())


def dense(x, units, name, activation):
    with tf1.variable_scope(name):
        kernel = variable("w", [int(x.shape[-1]), units], tf1.glorot_uniform_initializer(seed=1))
        return activation(tf.matmul(x, kernel) + variable("b", [units]), name="out")


def perceptron(activation):
    def model(x):
        hidden = dense(dense(x, 8, "one", activation), 8, "two", activation)
        return dense(hidden, 3, "three", tf.identity)

    return model


def residual(x):
    x = dense(x, 8, "one", tf.nn.relu)
    x = tf.nn.relu(x + dense(x, 8, "two", tf.identity))
    return dense(x, 3, "three", tf.identity)


def convolutions(x):
    for name in "ab":
        kernel = variable(name, [3, 3, int(x.shape[-1]), 6], tf1.glorot_uniform_initializer(seed=2))
        x = tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), variable(f"{name}_bias", [6]))
        ones = tf1.ones_initializer()
        x = tf1.nn.fused_batch_norm(x, variable(f"{name}_scale", [6], ones), variable(f"{name}_shift", [6]))[
            0
        ]
        x = tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "SAME")
    return dense(tf.reshape(x, [-1, 54]), 3, "last", tf.identity)


def training(model, given, **probed):
    """Return the bits of 20 losses and all variables, and the addresses recorded."""
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [None, *given.shape[1:]], "x")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, model(x)))
        train = tf1.train.AdamOptimizer(0.01).minimize(loss)
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            watch = intus.probe(session, "127.0.0.1", 1, budget=math.inf, **probed) if probed else None
            losses = [session.run([train, loss], {x: given})[1] for _ in range(20)]
            addresses = () if watch is None else watch.operations
            if watch is not None:
                assert watch.status()["troubles"] == 0
                watch.remove()
            values = [losses, *session.run(tf1.global_variables())]
            return [np.asarray(one).tobytes() for one in values], addresses


MODELS = {
    "relu": (perceptron(tf.nn.relu), ROWS, {"one/out", "two/out", "three/out"}),
    "tanh": (perceptron(tf.nn.tanh), ROWS, {"one/out", "two/out", "three/out"}),
    "residual": (residual, ROWS, {"one/out", "Relu", "three/out"}),
    "convolutions": (convolutions, IMAGES, {"Relu", "Relu_1", "last/out"}),
}


@pytest.mark.parametrize("kinds", [("output",), ("output", "grad_output")])
@pytest.mark.parametrize("name", MODELS)
def test_same_bits(name, kinds):
    model, given, expected = MODELS[name]
    watched, addresses = training(model, given, kinds=kinds)
    assert expected <= set(addresses)
    assert watched == training(model, given)[0]


def test_selected_inner_member(caplog):
    """A fused operation is recorded if it is selected, and the log says what that may change."""
    model = perceptron(tf.nn.relu)
    assert training(model, ROWS, which="two/add")[1] == ("two/add",)
    assert "two/add is recorded as which= selects it" in caplog.text
