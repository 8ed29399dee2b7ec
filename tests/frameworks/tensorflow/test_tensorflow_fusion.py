"""Models compute the same bits while they are probed, although TensorFlow fuses operations."""

from __future__ import annotations

import math
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import intus
from backends.contract import Collect
from intus.backends.base import for_model

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


def rescaled(x):
    x = dense(x, 8, "one", tf.identity)
    for factor in (0.3, 0.7, 1.3):
        x = x * factor
    return dense(x, 3, "three", tf.identity)


def gelu(x, name):
    return tf.nn.gelu(x, name=name)


def approximate_gelu(x, name):
    return tf.nn.gelu(x, approximate=True, name=name)


def written_gelu(x, name):
    return tf.multiply(x, 0.5 * (1 + tf.math.erf(x / np.sqrt(2).astype(np.float32))), name=name)


MODELS = {
    "gelu": (perceptron(gelu), ROWS, {"one/add", "one/out/mul_2", "two/out/mul_2", "three/out"}),
    "approximate gelu": (perceptron(approximate_gelu), ROWS, {"one/add", "one/out/mul_3", "three/out"}),
    "written gelu": (perceptron(written_gelu), ROWS, {"one/out", "two/out", "three/out"}),
    "cube": (
        perceptron(lambda x, name: tf.add(x**3, x, name=name)),
        ROWS,
        {"one/out", "two/out", "three/out"},
    ),
    "root": (
        perceptron(lambda x, name: tf.add(tf.abs(x) ** 1.5, x, name=name)),
        ROWS,
        {"one/out", "three/out"},
    ),
    "swish": (perceptron(lambda x, name: tf.nn.swish(x)), ROWS, {"three/out"}),
    "rescaled": (rescaled, ROWS, {"mul_2", "three/out"}),
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


L = keras.layers
#: Layers across which TensorFlow computes: constants of neighbors, an activation with the product before it.
LAYERS = {
    "activations": lambda: [L.Dense(32), L.ReLU(), L.Dense(32), L.Activation("tanh"), L.Dense(32), L.ReLU()],
    "constants": lambda: [L.Dense(16), *(L.Rescaling(factor) for factor in (0.3, 0.7, 1.3))],
    "constants first": lambda: [*(L.Rescaling(factor) for factor in (0.3, 0.7, 1.3)), L.Dense(16)],
    "norm": lambda: [L.Dense(16), L.LayerNormalization(), L.Activation("gelu"), L.Dropout(0.1, seed=1)],
    "swish": lambda: [L.Dense(16), L.Activation("swish")],
}
MANY = np.random.default_rng(0).random((256, 64)).astype(np.float32)


def fitted(layers, **probed):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((64,)), *layers(), L.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=False)
    backend, tap = for_model(model), Collect()
    handle = backend.attach(model, backend.operations(model), ("output", "input"), tap) if probed else None
    history = model.fit(MANY, np.arange(256) % 3, 64, 3, shuffle=False, verbose=0)
    if handle is not None:
        handle.remove()
    assert tap.errors == []
    return [np.asarray(one).tobytes() for one in (*history.history["loss"], *model.get_weights())], tap, model


@pytest.mark.parametrize("name", LAYERS)
def test_same_bits_across_layers(name):
    """All layers are recorded, and the training has the bits of a training without a probe."""
    found, tap, model = fitted(LAYERS[name], probed=True)
    assert {address for kind, address in tap.seen[0] if kind == "output"} >= {
        one.name for one in model.layers
    }
    assert found == fitted(LAYERS[name])[0]


@pytest.mark.parametrize("recurrent", [L.GRU, L.LSTM])
@pytest.mark.parametrize("norm", [L.LayerNormalization, L.BatchNormalization])
def test_same_bits_of_a_recurrent_layer_after_a_normalization(norm, recurrent):
    """The update of its scale does not keep TensorFlow from adding as it does without a probe."""

    def layers():
        return [L.Reshape((8, 8)), norm(), recurrent(4)]

    found, tap, _ = fitted(layers, probed=True)
    assert len(tap.seen) == 12
    assert found == fitted(layers)[0]


def trained_with(optimizer, *, loop, probed):
    """Return the bits of the losses and variables of a training by ``fit``, or in a function of one's own."""
    keras.utils.set_random_seed(1)
    layers = [L.Dense(16, "tanh"), L.BatchNormalization(), L.Dense(8, "relu"), L.Dense(3)]
    model = keras.Sequential([keras.Input((64,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False)
    backend, tap, labels = for_model(model), Collect(), np.arange(256) % 3
    handle = backend.attach(model, backend.operations(model), ("output",), tap) if probed else None

    @tf.function
    def step(rows, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(rows, training=True))
        optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)
        return value

    if loop:
        losses = [step(MANY[at : at + 64], labels[at : at + 64]) for at in range(0, 256, 64)]
    else:
        losses = model.fit(MANY, labels, 64, 2, shuffle=False, verbose=0).history["loss"]
    if handle is not None:
        handle.remove()
        assert len(tap.seen) == (4 if loop else 8)
    assert tap.errors == []
    return [np.asarray(one).tobytes() for one in (*losses, *model.get_weights(), *optimizer.variables)]


OPTIMIZERS = [
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lamb",
    "Lion",
    "Nadam",
    "RMSprop",
    "SGD",
]


@pytest.mark.parametrize(
    ("name", "loop"),
    [
        ("AdamW", False),
        ("SGD", True),
        *(
            pytest.param(name, loop, marks=pytest.mark.long)
            for name in OPTIMIZERS
            for loop in (False, True)
            if (name, loop) not in (("AdamW", False), ("SGD", True))
        ),
    ],
)
def test_same_bits_with_weight_decay(name, loop):
    """The decay of a weight comes before its gradient, and does not wait for the products that it is in."""
    make = getattr(keras.optimizers, name)
    plain, probed = (trained_with(make(weight_decay=0.02), loop=loop, probed=one) for one in (False, True))
    assert probed == plain


def test_copies_are_charged_from_the_time_that_they_begin():
    """In a graph, the first tensor of a pass tells when the work for all of them began."""
    began = []

    class Clocked(Collect):
        def on_tensor(self, ticket, tensor):
            began.append((self.passes, tensor.began, time.perf_counter(), tensor.pass_apart))
            super().on_tensor(ticket, tensor)

    model = keras.Sequential([keras.Input((64,)), L.Dense(32), L.ReLU(), L.Dense(3)])
    model.compile("sgd", "mse", jit_compile=False)
    backend, tap, before = for_model(model), Clocked(), time.perf_counter()
    handle = backend.attach(model, backend.operations(model), ("output",), tap)
    model.fit(MANY, np.zeros((256, 3)), 64, 2, verbose=0)
    handle.remove()
    assert tap.errors == []
    assert tap.passes == 8
    for number in range(1, 9):
        first, *others = [one for one in began if one[0] == number]
        assert before < first[1][0] < first[2]
        assert all(one[1] is None for one in others)
        assert len(others) >= 2
        before = first[2]
    assert not any(one[3] for one in began)


def test_same_bits_across_modules():
    """The same holds for a tf.Module."""

    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            weights = np.random.default_rng(1).normal(size=(64, 32)).astype(np.float32)
            self.first, self.act = Affine(weights), Act()
            self.last = Affine(weights.T[:, :3])

        def __call__(self, x):
            return self.last(self.act(self.first(x)))

    class Affine(tf.Module):
        def __init__(self, weights):
            super().__init__()
            self.weight, self.bias = tf.Variable(weights), tf.Variable(tf.zeros(weights.shape[1]))

        def __call__(self, x):
            return tf.nn.bias_add(tf.matmul(x, self.weight), self.bias)

    class Act(tf.Module):
        def __call__(self, x):
            return tf.nn.relu(x)

    def trained(*, probed):
        model = Net()
        tap = Collect()
        backend = for_model(model)
        if probed:
            backend.attach(model, backend.operations(model), ("output",), tap)

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x) ** 2)
            for one, gradient in zip(
                model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True
            ):
                one.assign_sub(0.01 * gradient)
            return loss

        losses = [step(tf.constant(MANY)).numpy() for _ in range(5)]
        return [np.asarray(one).tobytes() for one in (*losses, *model.trainable_variables)], tap

    found, tap = trained(probed=True)
    assert {address for _, address in tap.seen[0]} == {"", "first", "act", "last"}
    assert tap.errors == []
    assert found == trained(probed=False)[0]
