"""The order of rows of TensorFlow models is that of all inputs, in whatever container these come."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from intus.backends.base import for_model
from intus.backends.host_arrays import ALIKE

X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
MASK = np.ones((8, 6), np.int32)


class Module(tf.Module):
    def __call__(self, inputs):
        return inputs


@pytest.mark.parametrize(
    "model", [keras.Sequential([keras.layers.Dense(2)]), Module()], ids=["keras", "module"]
)
@pytest.mark.parametrize(
    "call",
    [
        lambda mask, x: (({"attention_mask": mask, "input_ids": x},), {"training": True}),
        lambda mask, x: ([mask, x], {}),
        lambda mask, x: ((mask,), {"x": x}),
    ],
    ids=["mapping", "list", "keywords"],
)
def test_order_is_of_all_inputs(model, call):
    order = for_model(model).order
    first, second = (order(call(tf.constant(MASK), tf.constant(x)), 0) for x in (X, X[::-1]))
    assert isinstance(first, bytes)
    assert first == order(call(tf.constant(MASK), tf.constant(X)), 0) != second
    assert order(call(tf.constant(MASK), tf.constant(MASK)), 0) == ALIKE
