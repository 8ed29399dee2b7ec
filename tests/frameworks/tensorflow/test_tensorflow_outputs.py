"""The outputs of traces: all that a model returns, in its places. The judge is what TensorFlow returns."""

from __future__ import annotations

import random
from dataclasses import dataclass

import keras
import numpy as np
import pytest
import tensorflow as tf

import intus

tf1 = tf.compat.v1
X = tf.reshape(tf.range(6.0), (2, 3))
LARGE = tf.reshape(tf.range(300.0), (300,))


@dataclass
class Found:
    y: object
    rest: object


class Returns(tf.Module):
    """Returns what a function makes of it and of its input."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.w = tf.Variable([2.0, 3.0, 4.0])
        self.count = tf.Variable(7, trainable=False)
        self.small, self.large = tf.constant([1.0, 5.0]), LARGE

    def __call__(self, x):
        return self.function(self, x)


def plain(value):
    """Return what a call returned as arrays, in the order in which it returned them."""
    if isinstance(value, Found):
        value = [value.y, value.rest]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [array for part in value for array in plain(part)]
    if value is None or isinstance(value, int | float):
        return []
    parts = tf.nest.flatten(value, expand_composites=True)
    return [np.asarray(one if isinstance(one, np.generic) else tf.convert_to_tensor(one)) for one in parts]


def run(session, fetches, feeds):
    """Return the arrays that a run returns, in its order."""

    def arrays(value):
        value = list(value.values()) if isinstance(value, dict) else value
        if isinstance(value, list | tuple):
            return [array for part in value for array in arrays(part)]
        return [] if value is None else [np.asarray(value)]

    return arrays(session.run(fetches, feeds))


def assert_returns(trace, expected):
    """Assert that the outputs of a trace are these arrays."""
    found = [op.value for op in trace.outputs]
    assert [op.label for op in trace.outputs] == [f"output_{n + 1}" for n in range(len(expected))]
    assert [(one.dtype, one.shape) for one in found] == [(one.dtype, one.shape) for one in expected]
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def written(model, x):
    before = model.count + 0
    model.count.assign_add(1)
    return before, model.count, model.count.read_value(), x


def written_in_a_branch(model, x):
    if tf.reduce_sum(x) > 0:
        model.count.assign_add(5)
    return model.count, x + 1


RETURNS = {
    "zeros first": lambda model, x: (tf.zeros_like(x), x * 2),
    "constants in a dict": lambda model, x: {"mask": tf.ones_like(x), "y": x * 2, "a": tf.constant(3)},
    "constants alone": lambda model, x: [tf.constant([1.0, 2.0]), tf.zeros((5, 5))],
    "tensors of the module": lambda model, x: (model.small, x @ tf.ones((3, 2)), model.large),
    "variables": lambda model, x: (model.w, x * model.w, model.count, tf.identity(model.w)),
    "casts of variables": lambda model, x: (
        tf.cast(model.w, tf.float64),
        x,
        tf.cast(model.count, tf.float32),
    ),
    "a variable that it writes": written,
    "a variable that a branch writes": written_in_a_branch,
    "inputs and repeated tensors": lambda model, x: (x, (y := x * 2), [y, x, y], y),
    "none and numbers": lambda model, x: (None, x * 2, 3.0, {"n": 1, "zero": tf.zeros(2), "none": None}),
    "arrays": lambda model, x: (np.arange(3), x * 2, np.float32(2.5)),
    "an object": lambda model, x: Found(tf.ones(2), [x + 1, model.small]),
    "ragged and sparse": lambda model, x: (
        *(tf.RaggedTensor.from_row_lengths(x[0], [1, 2]), tf.zeros(1)),
        *(tf.sparse.from_dense(x), x * 3),
    ),
}


@pytest.mark.parametrize("name", RETURNS)
def test_outputs_of_modules(name):
    expected = plain(Returns(RETURNS[name])(X))
    model = Returns(RETURNS[name])
    assert_returns(intus.trace(model, X), expected)
    assert int(model.count) == 7


@pytest.mark.parametrize("seed", range(20))
def test_outputs_of_generated_modules(seed):
    """Nested tuples, lists and dicts of constants, inputs, variables, results and repeated tensors."""

    def returned(model, x):
        draw = random.Random(seed)
        made = [x, x * 2, tf.zeros_like(x), tf.constant(1.5), model.w, model.large, x @ tf.ones((3, 3)), None]

        def nested(depth):
            kind = draw.choice(["tensor", "tuple", "list", "dict"]) if depth else "tensor"
            if kind == "tensor":
                return draw.choice(made)
            parts = [nested(depth - 1) for _ in range(draw.randint(0, 4))]
            names = draw.sample("zyxwabcd", len(parts))
            return (
                dict(zip(names, parts, strict=True))
                if kind == "dict"
                else {"tuple": tuple, "list": list}[kind](parts)
            )

        return [nested(3), x + 1]

    assert_returns(intus.trace(Returns(returned), X), plain(Returns(returned)(X)))


def test_what_a_layer_returns():
    """A constant that a layer returns is among what it returns, in its place."""

    class Outer(tf.Module):
        def __init__(self):
            super().__init__()
            self.inner = Returns(lambda model, x: (tf.zeros(2), x * 2))

        def __call__(self, x):
            zeros, y = self.inner(x)
            return y + 1, zeros

    trace = intus.trace(Outer(), X)
    inner = [op.value for op in trace.modules["inner"].calls[0].outputs]
    assert [one.tolist() for one in inner] == [[0.0, 0.0], (X * 2).numpy().tolist()]
    assert_returns(trace, plain(Outer()(X)))


class Twice(keras.Model):
    def __init__(self, value):
        super().__init__()
        self.value, self.dense = value, keras.layers.Dense(3, kernel_initializer="ones")

    def call(self, x):
        mask = keras.ops.full((2, 3), self.value)
        return {"mask": mask, "y": self.dense(x), "kernel": self.dense.kernel, "x": x}


def test_outputs_of_keras_models():
    assert_returns(intus.trace(Twice(1.0), X), plain(Twice(1.0)(X)))


def test_models_that_return_other_constants_do_not_agree():
    one, same, other = (intus.trace(Twice(value), X) for value in (1.0, 1.0, 0.0))
    assert intus.compare(one, same).agree
    assert not intus.compare(one, other).agree
    assert not intus.compare(other, one).agree


@pytest.mark.parametrize("is_resource", [True, False])
def test_outputs_of_sessions(is_resource):
    """Constants, variables, inputs and what is fetched twice are outputs, in the order of the fetches."""
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")
        y, c, ones = tf.add(x, x, name="y"), tf.constant([1.0, 2.0], name="c"), tf.ones_like(x)
        v = tf1.get_variable("v", initializer=[4.0, 5.0], use_resource=is_resource)
        n = tf1.get_variable("n", initializer=3, trainable=False, use_resource=is_resource)
        local = tf1.get_variable(
            "l", initializer=9.0, use_resource=is_resource, collections=[tf1.GraphKeys.LOCAL_VARIABLES]
        )
        session = tf1.Session()
        session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
        half = tf.cast(v, tf.float16)
        for fetches in (
            ["c:0", "y:0"],
            ["y:0", ones.name, "y:0"],
            {"z": c, "b": y, "a": (v, [n])},
            [y, v, v, n, half, local],
            [x, [y, y.op], x],
            c,
            v,
        ):
            feeds = {"x:0": np.arange(6, dtype="f4").reshape(2, 3)}
            assert_returns(intus.trace(session, fetches, feeds), run(session, fetches, feeds))
        one, other = (intus.trace(session, some, feeds) for some in (["c:0", "y:0"], ["y:0", "c:0"]))
        assert intus.compare(one, one).agree
        assert not intus.compare(one, other).agree
