"""A trace has the values of the call that its caller would write; the judge is that call."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import intus

L = keras.layers
ROWS = np.random.default_rng(0).random((2, 4)).astype(np.float32)
PICTURES = np.random.default_rng(1).random((2, 8, 8, 3)).astype(np.float32)


class Gate(L.Layer):
    def call(self, x, training=True):
        return x * 10 if training else x


class Unsure(L.Layer):
    def call(self, x, training=None):
        return x * 10 if training else x


class Told(keras.Model):
    """A model that has to be told whether it trains."""

    def __init__(self, gate):
        super().__init__()
        self.gate = gate

    def call(self, x, training):
        return self.gate(x, training=training)


class Untold(keras.Model):
    def __init__(self, gate):
        super().__init__()
        self.gate, self.out = gate, L.Dense(2, kernel_initializer="ones")

    def call(self, x):
        return self.out(self.gate(x))


def functional(*layers, shape=(4,)):
    x = y = keras.Input(shape)
    for layer in layers:
        y = layer(y)
    return keras.Model(x, y)


MODELS = {
    "layer": lambda gate: gate,
    "functional": lambda gate: functional(gate, L.Dense(2)),
    "sequential": lambda gate: keras.Sequential([keras.Input((4,)), gate, L.Dense(2)]),
    "subclass": Untold,
    "not built": lambda gate: keras.Sequential([gate, L.BatchNormalization(), L.Dense(2)]),
}


@pytest.mark.parametrize("mode", [{}, {"training": False}, {"training": True}], ids=str)
@pytest.mark.parametrize("gate", [Gate, Unsure])
@pytest.mark.parametrize("made", MODELS)
def test_layers_that_decide_whether_they_train(made, gate, mode):
    model = MODELS[made](gate())
    traced = intus.trace(model, ROWS, **mode)
    np.testing.assert_allclose(traced.outputs[0].value, model(ROWS, **mode), rtol=1e-6)


def test_mode_without_a_default_is_evaluation():
    np.testing.assert_array_equal(intus.trace(Told(Gate()), ROWS).outputs[0].value, ROWS)


AUGMENTATIONS = {
    "crop": lambda: L.RandomCrop(3, 3),
    "zoom": lambda: L.RandomZoom(0.5),
    "flip": L.RandomFlip,
    "rotation": lambda: L.RandomRotation(0.3),
    "brightness": lambda: L.RandomBrightness(0.5, value_range=(0, 1)),
    "solarization": lambda: L.Solarization(addition_factor=0.5, value_range=(0, 1)),
    "noise": lambda: L.GaussianNoise(0.3),
    "dropout": lambda: L.Dropout(0.5),
}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_random_layers_draw_what_the_next_call_draws(name):
    """The call after the trace is what it would be without, and the trace has its random numbers."""
    keras.utils.set_random_seed(3)
    model = functional(AUGMENTATIONS[name](), shape=(8, 8, 3))
    keras.utils.set_random_seed(3)
    twin = functional(AUGMENTATIONS[name](), shape=(8, 8, 3))
    expected = np.asarray(twin(PICTURES))
    for mode in ({}, {"training": False}):
        traced = intus.trace(model, PICTURES, **mode)
        assert traced.not_restored == []
        if not mode:
            np.testing.assert_allclose(traced.outputs[0].value, expected, atol=1e-6)
    np.testing.assert_array_equal(model(PICTURES), expected)


class Scale(tf.Module):
    def __call__(self, x, training=True):
        return x * 10 if training else x


class Asked(tf.Module):
    def __call__(self, x, is_training):
        return x * 10 if is_training else x


def test_modules_that_take_a_mode():
    x = tf.constant(ROWS)
    for args, mode in [((x,), {}), ((x, False), {}), ((x, True), {}), ((x,), {"training": False})]:
        found = intus.trace(Scale(), *args, **mode).outputs[0].value
        np.testing.assert_array_equal(found, Scale()(*args, **mode))
    np.testing.assert_array_equal(intus.trace(Asked(), x).outputs[0].value, x)
    np.testing.assert_array_equal(intus.trace(Asked(), x, True).outputs[0].value, x * 10)


class Branching(tf.Module):
    """A module that asks for a shape behind a function of Python."""

    def __init__(self, known):
        super().__init__()
        self.known = known

    def __call__(self, x):
        y = tf.py_function(lambda one: one + 1, [x], tf.float32)
        if self.known:
            y.set_shape(x.shape)
        return y * 2 if y.shape.rank is not None and y.shape[-1] == 4 else y


def test_unknown_shapes_are_said():
    """The trace says so where it may differ from the eager call, and does not where it cannot."""
    x = tf.constant(ROWS)
    for known in (False, True):
        trace = intus.trace(Branching(known), x)
        same = np.array_equal(trace.outputs[0].value, Branching(known)(x))
        assert (same, "Note: The shapes behind a tf.py_function" in trace.summary()) == (known, not known)
